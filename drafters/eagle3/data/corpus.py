"""Training data on disk: prompts and the target's own answers as token ids, in checked shards.

Hidden states are not stored. The target recomputes them while it trains a head, in one pass that
fills the device; stored they would be some thousand times larger than the tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

MANIFEST = "manifest.json"


class Sample(NamedTuple):
    """One prompt and its answer.

    Attributes:
        tokens: [T] int32, template applied, the answer's stop token last.
        answer: Where the answer starts.
    """

    tokens: Tensor
    answer: int


@dataclass
class Corpus:
    """Shards of one target's answers.

    Attributes:
        folder: Where they lie.
        facts: What they were made of: the target's digest, template, sampling. Shards are added
            only by a run of the same facts.
        shards: Name, samples, tokens and hash of each shard.
        parts: Parts of the prompts' source that have been used up.
        left_out: Prompts that were not admitted, by reason.
    """

    folder: Path
    facts: dict[str, Any]
    shards: list[dict[str, Any]] = field(default_factory=list)
    parts: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    @classmethod
    def begin(cls, folder: Path, facts: dict[str, Any]) -> Corpus:
        """Start a corpus, or go on with the one that is there.

        Raises:
            ValueError: The one that is there was made of something else, or is not sound.
        """
        if not (folder / MANIFEST).is_file():
            folder.mkdir(parents=True, exist_ok=True)
            return cls(folder, facts)
        found = cls.open(folder)
        for name, value in facts.items():
            if found.facts.get(name) != value:
                raise ValueError(
                    f"{folder / MANIFEST}: made with {name}={found.facts.get(name)}, not {value};"
                    " choose another folder"
                )
        return found

    @classmethod
    def open(cls, folder: Path, target_digest: str | None = None) -> Corpus:
        """Open a corpus to read.

        Args:
            folder: Where it lies.
            target_digest: Of the target that a head is trained for.

        Raises:
            ValueError: There is none, a shard is missing or damaged, or it is another target's.
        """
        path = folder / MANIFEST
        if not path.is_file():
            raise ValueError(
                f"{folder} has no {MANIFEST}; make data with `python -m drafters.eagle3.data`"
            )
        try:
            read = json.loads(path.read_text())
            found = cls(folder, *(read[name] for name in ("facts", "shards", "parts", "left_out")))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}); make the data again") from None
        made_with = found.facts.get("target_digest")
        if target_digest is not None and made_with != target_digest:
            raise ValueError(
                f"{path}: the answers of target {str(made_with)[:12]}, but the head is for"
                f" {target_digest[:12]}: a head learns from its own target only; make data for it"
            )
        for shard in found.shards:
            found._check(shard)
        return found

    @property
    def num_samples(self) -> int:
        """Samples of all shards."""
        return sum(shard["samples"] for shard in self.shards)

    def add(self, samples: Sequence[Sample], parts: int, left_out: dict[str, int]) -> None:
        """Write a shard, whole or not at all, and then the manifest that knows it."""
        name = f"shard-{len(self.shards):05d}.safetensors"
        lengths = torch.tensor([0, *(len(sample.tokens) for sample in samples)])
        tensors = {
            "tokens": torch.cat([sample.tokens.int() for sample in samples]),
            "offsets": lengths.cumsum(0),
            "answers": torch.tensor([sample.answer for sample in samples]),
        }
        partial = self.folder / f"{name}.partial"
        save_file(tensors, partial)
        digest = hashlib.sha256(partial.read_bytes()).hexdigest()
        partial.replace(self.folder / name)
        shard = {"name": name, "samples": len(samples), "tokens": int(lengths.sum())}
        self.shards.append(shard | {"sha256": digest})
        self.parts, self.left_out = parts, left_out
        self._write_manifest()

    def samples(self, most: int | None = None) -> list[Sample]:
        """Return the first `most` samples, or all.

        Raises:
            ValueError: There are not so many.
        """
        if most is not None and most > self.num_samples:
            raise ValueError(
                f"data.samples={most}: {self.folder} holds {self.num_samples}; make more with"
                f" `python -m drafters.eagle3.data samples={most}`"
            )
        found: list[Sample] = []
        for shard in self.shards:
            if most is None or len(found) < most:
                found += self._read(shard)
        return found[:most]

    def _read(self, shard: dict[str, Any]) -> list[Sample]:
        tensors = load_file(self.folder / shard["name"])
        offsets, answers = tensors["offsets"].tolist(), tensors["answers"].tolist()
        return [
            Sample(tensors["tokens"][first:end], answer)
            for (first, end), answer in zip(pairwise(offsets), answers, strict=True)
        ]

    def _check(self, shard: dict[str, Any]) -> None:
        path = self.folder / shard["name"]
        if not path.is_file():
            raise ValueError(f"{path} is missing; make the data again, or copy the whole folder")
        if hashlib.sha256(path.read_bytes()).hexdigest() != shard["sha256"]:
            raise ValueError(f"{path} is damaged: its hash is not the manifest's; copy it again")

    def _write_manifest(self) -> None:
        partial = self.folder / f"{MANIFEST}.partial"
        content = {name: getattr(self, name) for name in ("facts", "shards", "parts", "left_out")}
        partial.write_text(json.dumps(content, indent=1) + "\n")
        partial.replace(self.folder / MANIFEST)


def answer_counts(samples: Sequence[Sample], vocab_size: int) -> Tensor:
    """Return how often the target emits each token, [V] int64."""
    answers = torch.cat([sample.tokens[sample.answer :] for sample in samples])
    return torch.bincount(answers.long(), minlength=vocab_size)
