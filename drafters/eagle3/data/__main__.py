"""`python -m drafters.eagle3.data`: prompts, and the target's own answers to them, as shards.

A run that is stopped goes on where it was: a shard is whole or not there, and the next one depends
only on the settings and on the shards before it.
"""

from __future__ import annotations

import os

# Idle OpenMP threads must not spin on cores that others need; read when torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from hydra import compose, initialize_config_module
from hydra.errors import HydraException, InstantiationException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from drafters.eagle3.data.corpus import Corpus, Sample
from drafters.eagle3.data.generate import Writing, without_loop, write
from drafters.eagle3.data.prompts import Decontaminator, Maker, PromptSource, Template
from drafters.eagle3.train.target import Checkpoint, Target
from pipeline.config.instantiate import build_part
from pipeline.config.messages import folded, guarded

PARTS = ("target", "source", "writing", "measured", "cache")
MOST_EMPTY = 3  # parts in a row without a new prompt, after which a source counts as exhausted


@dataclass(frozen=True)
class DataRun:
    """One making of data.

    Attributes:
        source: Where prompts come from.
        writing: How answers are written.
        samples: How many samples the corpus shall hold.
        shard: Prompts asked of the source for each shard.
        shortest: Answers with fewer tokens are left out: a draft needs something to follow.
        seed: Of drawn answers.
    """

    source: PromptSource
    writing: Writing
    samples: int
    shard: int
    shortest: int
    seed: int

    def make(self, corpus: Corpus, maker: Maker, measured: Iterable[Sequence[int]]) -> None:
        """Fill the corpus up to `samples`.

        Args:
            corpus: Begun, perhaps with shards of an earlier run.
            maker: The target and what belongs to it.
            measured: Prompts that are measured, and may not be trained on.

        Raises:
            ValueError: The source has no more prompts.
        """
        apart = Decontaminator(maker.template, measured)
        for sample in corpus.samples():
            apart.admit(sample.tokens[: sample.answer].tolist())
        apart.repeated = corpus.left_out.get("repeated", 0)
        apart.overlapping = corpus.left_out.get("measured", 0)
        part, empty = corpus.parts, 0
        began = time.perf_counter()
        while corpus.num_samples < self.samples:
            prompts = [
                prompt
                for prompt in self.source.prompts(maker, part, self.shard)
                if apart.admit(prompt)
            ]
            part, empty = part + 1, 0 if prompts else empty + 1
            if empty == MOST_EMPTY:
                raise ValueError(
                    f"samples={self.samples}: the source of prompts has no more after"
                    f" {corpus.num_samples}; give another data set or fewer samples"
                )
            samples = list(self._answered(maker, prompts, part))
            if samples:
                left_out = {"repeated": apart.repeated, "measured": apart.overlapping}
                corpus.add(samples, part, left_out)
                _say(corpus, self.samples, time.perf_counter() - began)

    def _answered(
        self, maker: Maker, prompts: Sequence[tuple[int, ...]], part: int
    ) -> Iterator[Sample]:
        """Yield each prompt with its answer."""
        stops = maker.tokenizer.stop_ids
        answers = write(maker.target, prompts, self.writing, stops, self.seed + part)
        for prompt, answer in zip(prompts, answers, strict=True):
            kept = without_loop(answer)
            if len(kept) >= self.shortest:
                tokens = torch.tensor([*prompt, *kept], dtype=torch.int32)
                yield Sample(tokens, len(prompt))


def make_data(config: DictConfig) -> Corpus:
    """Make the data that a config describes.

    Raises:
        ValueError: A setting is wrong, or the folder holds other data.
    """
    parts = {name: build_part(config, name) for name in PARTS}
    cache: Path = parts["cache"]
    checkpoint: Checkpoint = parts["target"].checkpoint(cache)
    tokenizer = checkpoint.tokenizer()
    template = Template.of(tokenizer)
    run = DataRun(
        parts["source"],
        parts["writing"],
        **{name: config[name] for name in ("samples", "shard", "shortest", "seed")},
    )
    made_of = [repr(run.source), repr(run.writing), run.shard, run.shortest, run.seed]
    facts = {
        "target": parts["target"].name,
        "target_digest": checkpoint.digest,
        "template": hashlib.sha256(repr(template).encode()).hexdigest()[:16],
        "made_of": " ".join(map(str, made_of)),
    }
    corpus = Corpus.begin(Path(config.folder), facts)
    device, dtype = placement(config.device)
    with torch.inference_mode():
        target = Target(checkpoint, device, dtype)
        maker = Maker(target, tokenizer, template, parts["target"], cache)
        measured = [prompt.tokens for prompt in parts["measured"].load(parts["target"], cache)]
        run.make(corpus, maker, measured)
    return corpus


def placement(setting: str) -> tuple[torch.device, torch.dtype]:
    """Return the device of a setting (`auto`, `cpu`, `cuda`) and the type to compute in there."""
    found = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(found if setting == "auto" else setting)
    return device, torch.bfloat16 if device.type == "cuda" else torch.float32


def run_config(name: str, work: Callable[[DictConfig], object], overrides: Sequence[str]) -> int:
    """Compose a config, do its work, and turn a refusal into one line and exit status 1."""
    try:
        with initialize_config_module("conf", version_base=None):
            work(compose(name, overrides=list(overrides)))
    except InstantiationException as error:
        sys.stderr.write(f"error: {folded(error.__cause__ or error)}\n")
    except (ValueError, HydraException, OmegaConfBaseException) as error:
        sys.stderr.write(f"error: {folded(error)}\n")
    else:
        return 0
    return 1


def _say(corpus: Corpus, wanted: int, seconds: float) -> None:
    tokens = sum(shard["tokens"] for shard in corpus.shards)
    sys.stderr.write(
        f"{corpus.num_samples} of {wanted} samples, {tokens} tokens, {seconds:.0f} s,"
        f" left out {corpus.left_out}\n"
    )


if __name__ == "__main__":
    sys.exit(
        guarded(
            "python -m drafters.eagle3.data",
            lambda: run_config("features", make_data, sys.argv[1:]),
        )
    )
