"""Whether speculation kept the target's output: greedy tokens against the baseline's, one by one.

A verify step of another width may sum in another order, so two tokens whose logits nearly tie may
swap. Such a divergence is *explained* when the plain decode's own margin there, best logit minus
second best, is within the tolerance of the engine's dtype. Anything else is a fault: a wrong mask,
a stale cache slot, a drafter that leaks tokens. After its first divergence a response is another
text, so only the first counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.cell.response import Response, num_equal
from pipeline.record.record import CellRecord

# Logit units. float32: sums in another order move our logits (up to 40) by about 1e-5, so 1e-3
# leaves two orders of magnitude, while a real fault moves them by tenths and more. The 16-bit types
# round each logit: between 16 and 32 neighbours lie 2^-6 (float16) or 2^-3 (bfloat16) apart, and
# both of a pair may round by one: they then tie, and the smaller token id is taken.
SLACK = 1.001  # a margin is a difference of logarithms of probabilities
TOLERANCE = {"float32": 1e-3, "float16": 2 * 2**-6, "bfloat16": 2 * 2**-3}


@dataclass(frozen=True)
class Divergence:
    """The first place where a response left the one that it must equal.

    Attributes:
        repetition: Index of the repetition that diverged.
        index: Output token index; 0 is the token that prefill sampled.
        expected: The reference's token id there; None if the reference had ended.
        got: The cell's token id there; None if the cell had ended.
        margin: The reference's logit margin there; None where no margin was recorded.
    """

    prompt_id: str
    repetition: int
    index: int
    expected: int | None
    got: int | None
    margin: float | None

    def __str__(self) -> str:
        """Describe it in one line."""
        margin = "not recorded" if self.margin is None else f"{self.margin:.2g}"
        return (
            f"prompt {self.prompt_id}, repetition {self.repetition}, output token {self.index}:"
            f" {self.got} instead of {self.expected} (margin {margin})"
        )


@dataclass(frozen=True)
class Losslessness:
    """How a cell's greedy output compares with its reference's.

    Attributes:
        reference: Whose output it must be: a plain-decode cell's label, or the cell's own first
            repetition where there is no other.
        tolerance: Margin up to which a divergence is explained, in logit units.
        num_compared: Pairs of responses compared.
        explained: Divergences at a margin within the tolerance.
        unproven: Divergences from a token whose margin is not known: neither fault nor proof. A
            server answers a second time for them, and under load not always with the same text.
        faults: Every other divergence.
        proven: Whether the reference is plain decode under the same verify backend. Nothing else
            can prove a speculative cell lossless, or void it: another cell's divergence, or another
            backend's rounding, may be what differs.
    """

    reference: str
    tolerance: float
    num_compared: int
    explained: tuple[Divergence, ...]
    unproven: tuple[Divergence, ...]
    faults: tuple[Divergence, ...]
    proven: bool = True

    @property
    def reason(self) -> str:
        """Why the cell is void, or ""."""
        if not self.faults:
            return ""
        return (
            f"output differs from {self.reference} in {len(self.faults)} of {self.num_compared}"
            f" responses, first in {self.faults[0]}; a margin of at most"
            f" {self.tolerance:g} would explain it"
        )


def tolerance(record: CellRecord) -> float:
    """Return the margin, in logit units, up to which rounding explains a swapped token.

    Read from the dtype that the engine resolved; an unknown one is held to float32.
    """
    return TOLERANCE.get(record.dtype, TOLERANCE["float32"])


def compare_outputs(
    record: CellRecord, reference: CellRecord | None, proven: bool = True
) -> Losslessness:
    """Compare every response of a greedy cell with the first repetition of plain decode.

    Args:
        record: A greedy cell with at least one repetition.
        reference: The plain-decode cell of the same comparison. With None the cell's own first
            repetition stands for it.
        proven: Whether the reference can prove the cell lossless; where it cannot, a divergence
            without an explanation is unproven and no fault.
    """
    expected = (reference or record).repetitions[0]
    tested = list(enumerate(record.repetitions))[0 if reference else 1 :]
    found = [d for i, got in tested for d in _divergences(expected, got, i)]
    limit = max(tolerance(r) for r in (record, reference) if r is not None)
    explained = [d for d in found if d.margin is not None and d.margin <= SLACK * limit]
    unknown = [d for d in found if d.margin is None and d.expected is not None]
    unproven = unknown if proven else [d for d in found if d not in explained]
    return Losslessness(
        reference=reference.label if reference else "its first repetition",
        tolerance=limit,
        num_compared=sum(len(got) for _, got in tested),
        explained=tuple(explained),
        unproven=tuple(unproven),
        faults=tuple(d for d in found if d not in explained and d not in unproven),
        proven=proven,
    )


def _divergences(
    expected: Sequence[Response], got: Sequence[Response], repetition: int
) -> Iterator[Divergence]:
    """Yield the first divergence of each prompt that has one."""
    references = {response.prompt_id: response for response in expected}
    for response in got:
        reference = references[response.prompt_id]
        if response.tokens != reference.tokens:
            index = num_equal(reference.tokens, response.tokens)
            yield Divergence(
                prompt_id=response.prompt_id,
                repetition=repetition,
                index=index,
                expected=next(iter(reference.tokens[index:]), None),
                got=next(iter(response.tokens[index:]), None),
                margin=next(iter(reference.margins[index:]), None),
            )
