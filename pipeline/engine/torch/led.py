"""What rank 0 leads: each call here runs on the other ranks too, which read it from the mailbox."""

from __future__ import annotations

from torch import Tensor

from pipeline.engine.torch.kv_cache import KVCache
from pipeline.engine.torch.parallel.mailbox import Mailbox
from pipeline.engine.torch.parallel.rank import packed
from verify.base import Proof, StepInput, StepOutput, VerifyStep
from verify.native.plan import Plan, PlanOutput


class LedPlan:
    """Rank 0's compiled forward; a prompt is read on every rank."""

    def __init__(self, own: Plan, mailbox: Mailbox) -> None:
        """Bind rank 0's own part."""
        self._own, self._mailbox = own, mailbox

    def prefill(self, tokens: Tensor, positions: Tensor) -> PlanOutput:
        """Read a prompt from slot 0 on."""
        self._mailbox.post("prefill", tokens.numpy().tobytes())
        return self._own.prefill(tokens, positions)

    def lose(self, rank: int) -> None:
        """Let whoever waits for a rank know that it is gone."""
        if self._own.ranks is not None:
            self._own.ranks.lose(rank)

    def close(self) -> None:
        """Let go of the ranks' memory."""
        if self._own.ranks is not None:
            self._own.ranks.close()


class LedStep:
    """A step that runs on all ranks when rank 0 calls it."""

    def __init__(self, step: VerifyStep, mailbox: Mailbox, number: int) -> None:
        """Bind rank 0's own step; the others know theirs by its number."""
        self._step, self._mailbox, self._number = step, mailbox, number

    def __call__(self, step: StepInput) -> StepOutput:
        """Run the step on all ranks."""
        self._mailbox.post("step", self._number, packed(step))
        return self._step(step)

    @property
    def proof(self) -> Proof:
        """What rank 0 counted."""
        return self._step.proof

    def reset_counts(self) -> None:
        """Start counting at zero."""
        self._step.reset_counts()

    def close(self) -> None:
        """Free the step on all ranks."""
        self._mailbox.post("drop", self._number)
        self._step.close()


class LedCache(KVCache):
    """Rank 0's cache; what a tree keeps is moved on every rank."""

    def __init__(self, own: KVCache, mailbox: Mailbox) -> None:
        """Bind rank 0's own cache."""
        self.keys, self.values, self.length = own.keys, own.values, own.length
        self._mailbox = mailbox

    def keep(self, rows: tuple[int, ...]) -> None:
        """Commit rows of the last step on all ranks; a chain's already stand in their places."""
        if rows != tuple(range(len(rows))):
            self._mailbox.post("keep", self.length, rows)
        super().keep(rows)
