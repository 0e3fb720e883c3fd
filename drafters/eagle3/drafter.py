"""The EAGLE-3 drafters: which head drafts for which target, and how many tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drafters.base import TargetInfo
from drafters.eagle3 import shape as shapes
from drafters.eagle3.config import head_config
from drafters.eagle3.shipped import SHIPPED, shipped, unpacked

if TYPE_CHECKING:
    from drafters.eagle3.checkpoint import Head
    from drafters.eagle3.proposer import Eagle3Proposer
    from drafters.eagle3.runner import Runner
    from verify.base import TargetShape

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class Eagle3:
    """Settings of an EAGLE-3 drafter.

    Attributes:
        name: The drafter's name in tables and tags.
        target: Name of the target that it drafts for.
        heads: Head of each target, by the target's name: `shipped:NAME` (it comes with this
            package), a folder, or the hub id of a head that SGLang fetches.
        stand_ins: Targets for which the head is not the one that the drafter is named for, but one
            that was made to play its part.
        num_draft_tokens: Draft tokens of a step.
        breadth: Continuations kept after a token; 1 makes a chain.
        depth: Longest path of a tree; 0 for a chain, whose depth is `num_draft_tokens`.
    """

    name: str
    target: str
    heads: Mapping[str, str] | tuple[tuple[str, str], ...]
    stand_ins: tuple[str, ...] = ()
    num_draft_tokens: int = 3
    breadth: int = 1
    depth: int = 0

    def __post_init__(self) -> None:
        """Freeze what yaml gives, and check the ranges."""
        object.__setattr__(self, "heads", tuple(sorted(dict(self.heads).items())))
        object.__setattr__(self, "stand_ins", tuple(self.stand_ins))
        for name in ("num_draft_tokens", "breadth"):
            if getattr(self, name) < 1:
                raise ValueError(f"drafter.{name}={getattr(self, name)}: must be 1 or more")
        if self.breadth == 1 and self.depth not in (0, self.num_draft_tokens):
            raise ValueError(
                f"drafter.depth={self.depth}: a chain (drafter.breadth=1) is as deep as"
                f" drafter.num_draft_tokens={self.num_draft_tokens}; leave depth at 0"
            )
        if self.breadth > 1:
            self._check_tree()
        object.__setattr__(self, "depth", self.depth or self.num_draft_tokens)

    @property
    def note(self) -> str:
        """Which head drafts, and what a reader of a table must know of it; empty without one."""
        source = dict(self.heads).get(self.target)
        if source is None:
            return ""
        note = f"{self.name} on {self.target} drafts with the head {source}"
        if self.target in self.stand_ins:
            note += ", a stand-in for the published one, which is for another target"
        return "; ".join([note, *self._assumed()])

    def check(self, local: bool = False) -> None:
        """Refuse a head that is missing or not sound; a hub id is right where heads are fetched."""
        from drafters.eagle3.checkpoint import check_served

        if local or not (self.folder().is_dir() or _HUB_ID.fullmatch(self._source())):
            self.load()
        elif (folder := self._folder_here()) is not None:
            fetched = self.folder().is_dir() or any(folder.glob("*.safetensors"))
            (check_served if fetched else head_config)(folder)

    def check_fits(self, target: TargetShape) -> None:
        """Refuse a target of other sizes, or without the layers that the head reads."""
        from drafters.eagle3.checkpoint import check_fits

        config = head_config(self.folder())
        check_fits(config.shape, target, f"drafter.heads.{self.target}={self._source()}")
        shapes.capture_layers(config.layer_ids, target.num_layers)

    def load(self) -> Head:
        """Read the head of the target.

        Raises:
            ValueError: There is none, or it is not sound.
        """
        from drafters.eagle3.checkpoint import load_head

        path = self.folder()
        if not path.is_dir():
            raise ValueError(
                f"drafter.heads.{self.target}={self._source()}: no such folder; download the head"
                " or train one with `python -m drafters.eagle3.train`, and name its folder"
            )
        return load_head(path)

    def folder(self) -> Path:
        """Return the folder of the target's head, whether or not it is there."""
        source = self._source()
        return shipped(source) if source.startswith(SHIPPED) else Path(source).expanduser()

    def capture_layers(self, num_layers: int) -> tuple[int, ...]:
        """Return the target layers whose inputs the head reads."""
        return shapes.capture_layers(head_config(self.folder()).layer_ids, num_layers)

    def start(self, target: TargetInfo) -> Eagle3Proposer:
        """Load the head beside its target."""
        from drafters.eagle3.checkpoint import check_fits
        from drafters.eagle3.proposer import DraftTree, Eagle3Proposer

        head = self.load()
        check_fits(head.shape, target.shape, f"drafter.heads.{self.target}={self._source()}")
        shape = DraftTree(self.num_draft_tokens, self.breadth, self.depth)
        return Eagle3Proposer(shape, self._runner(head, target), head.vocab)

    def sglang_arguments(self) -> dict[str, str | int | float]:
        """Return the arguments of SGLang's EAGLE-3."""
        return {
            "speculative-algorithm": "EAGLE3",
            "speculative-draft-model-path": self._published(),
            "speculative-num-steps": self.depth,
            "speculative-eagle-topk": self.breadth,
        }

    def _runner(self, head: Head, target: TargetInfo) -> Runner:
        """Return the head's forward: captured where the verify step is, if there is a way to."""
        # A tree's rows stand behind the committed ones until the next step.
        capacity = target.capacity + self.breadth * self.depth
        if target.captured and target.compile is not None:
            from drafters.eagle3.native import NativeRunner

            return NativeRunner(head, target, capacity)
        if target.captured and target.device.type == "cuda":
            from drafters.eagle3.runner import GraphRunner

            return GraphRunner(head, target, capacity, self.num_draft_tokens)
        from drafters.eagle3.runner import EagerRunner

        return EagerRunner(head, target.embedding, capacity, target.dtype)

    def _source(self) -> str:
        source = dict(self.heads).get(self.target)
        if source is None:
            raise ValueError(
                f"drafter={self.name} has no head for target={self.target}: set"
                f" +drafter.heads.{self.target}=FOLDER, or train one with"
                " `python -m drafters.eagle3.train`"
            )
        return source

    def _folder_here(self) -> Path | None:
        """Return the head's folder, of a hub id the cached one; None where there is none."""
        if self.folder().is_dir():
            return self.folder()
        if not _HUB_ID.fullmatch(self._source()):
            return None
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self._source(), "config.json")
        return Path(found).parent if isinstance(found, str) else None

    def _assumed(self) -> tuple[str, ...]:
        """Return what the head's configuration leaves open, as far as it is here and sound."""
        try:
            folder = self._folder_here()
            return () if folder is None else head_config(folder).assumed
        except ValueError:
            return ()  # `check` says so

    def _published(self) -> str:
        """Return the folder of the head in the form that SGLang reads, or a hub id as it stands."""
        source = self._source()
        if source.startswith(SHIPPED):
            return str(unpacked(source))
        return str(self.folder()) if self.folder().is_dir() else source

    def _check_tree(self) -> None:
        """Refuse a tree that cannot hold its draft tokens, or is too wide to draft a level of."""
        if self.breadth > shapes.MAX_BREADTH:
            raise ValueError(
                f"drafter.breadth={self.breadth}: at most {shapes.MAX_BREADTH}, the rows of a"
                " level's draft forward"
            )
        if not 1 <= self.depth <= self.num_draft_tokens:
            raise ValueError(
                f"drafter.depth={self.depth}: a tree (drafter.breadth={self.breadth}) is 1 to"
                f" drafter.num_draft_tokens={self.num_draft_tokens} deep"
            )
        most = self.breadth + (self.depth - 1) * self.breadth**2
        if self.num_draft_tokens > most:
            raise ValueError(
                f"drafter.num_draft_tokens={self.num_draft_tokens}: a tree of"
                f" drafter.breadth={self.breadth} and drafter.depth={self.depth} has {most}"
                " candidates; widen or deepen it"
            )
