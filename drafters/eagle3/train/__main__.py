"""`python -m drafters.eagle3.train`: from data to a head in the published format, and its measure.

Started again with the same settings, a stopped run goes on from its last state. `torchrun
--nproc-per-node=N -m drafters.eagle3.train …` shares the batches out over N GPUs.
"""

from __future__ import annotations

import os

# Idle OpenMP threads must not spin on cores that others need; read when torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import hashlib
import json
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from omegaconf import DictConfig
from torch import Tensor, distributed

from drafters.eagle3.checkpoint import Head, load_head, save_head
from drafters.eagle3.compact import WEIGHTS
from drafters.eagle3.config import head_config
from drafters.eagle3.data.__main__ import placement, run_config
from drafters.eagle3.data.corpus import Corpus, Sample, answer_counts
from drafters.eagle3.shape import capture_layers
from drafters.eagle3.shipped import CARD
from drafters.eagle3.train.batches import Teacher, batches
from drafters.eagle3.train.initial_head import fresh, warm
from drafters.eagle3.train.loop import Course, examine, train
from drafters.eagle3.train.target import Checkpoint, Target
from drafters.eagle3.train.ttt import DraftHead, channel_scale
from pipeline.config.instantiate import build_part
from pipeline.config.messages import guarded

PARTS = ("target", "new", "course", "log", "evaluate", "cache")
METRICS = "metrics.jsonl"
_SCALE_SAMPLES = 64  # features of as many samples give the channels' usual sizes


class Log(Protocol):
    """Where a run's figures go, apart from its folder."""

    def begin(self, name: str, params: Mapping[str, str]) -> None:
        """Begin, or go on with the run of this name."""

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Take values at a step."""

    def end(self, folder: Path) -> None:
        """Take the finished head's folder."""


@dataclass(frozen=True)
class Run:
    """One training, its parts loaded.

    Attributes:
        facts: What a state on disk must agree in.
        learnt: Samples to learn from.
        kept_back: Samples to examine with.
    """

    folder: Path
    target: Target
    course: Course
    facts: dict[str, Any]
    learnt: list[Sample]
    kept_back: list[Sample]
    log: Log | None

    def report(self, step: int, values: dict[str, float]) -> None:
        """Write a step's figures to the folder, to the log and to the screen."""
        with (self.folder / METRICS).open("a") as file:
            file.write(json.dumps({"step": step} | values) + "\n")
        if self.log is not None:
            self.log.metrics(step, values)
        total = self.course.total(len(self.learnt))
        shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items() if _told(name))
        sys.stderr.write(f"step {step} of {total}: {shown}\n")

    def teach(self, head: Head, scale: Tensor) -> tuple[Head, dict[str, float]]:
        """Return the trained head, and what it makes of the samples that were kept back.

        Args:
            head: What to start from.
            scale: [3 * H] float32, the usual size of its features' channels.
        """
        layers = capture_layers(head.capture_ids, self.target.shape.num_layers)
        teacher = Teacher(self.target, head.vocab, layers, self.course.most_tokens)
        learner = DraftHead(head, scale, self.course.most_tokens, self.course.steps)
        learner = learner.to(self.target.device)
        train(self.course, learner, teacher, self.learnt, self.folder, self.facts, self.report)
        size = min(self.course.batch, len(self.kept_back))
        found = examine(learner, teacher, batches(self.kept_back, size, 0, 0)) if size else {}
        return learner.head(), {f"kept_back/{name}": value for name, value in found.items()}


def train_head(config: DictConfig) -> None:
    """Train the head that a config describes, and measure it.

    Raises:
        ValueError: A setting is wrong, or data, start and target do not belong together.
    """
    given = [name for name in PARTS if config[name] is not None]  # no log, no measure: null
    parts: dict[str, Any] = dict.fromkeys(PARTS)
    parts |= {name: build_part(config, name) for name in given}
    checkpoint: Checkpoint = parts["target"].checkpoint(parts["cache"])
    corpus = Corpus.open(Path(config.data), checkpoint.digest)
    folder = Path(config.folder)
    folder.mkdir(parents=True, exist_ok=True)
    leads = _join_processes(config.device)
    learnt, kept_back = _split(corpus, config.samples, config.kept_back)
    device, dtype = placement(config.device)
    run = Run(
        folder=folder,
        target=Target(checkpoint, _own(device), dtype),
        course=parts["course"],
        facts=_facts(config, parts, corpus),
        learnt=learnt,
        kept_back=kept_back,
        log=parts["log"] if leads else None,
    )
    if run.log is not None:
        run.log.begin(str(folder.absolute()), {k: str(v)[:500] for k, v in run.facts.items()})
    head, found = run.teach(*_start(config, parts, run))
    if distributed.is_initialized():
        distributed.destroy_process_group()
    if leads:
        _publish(run, head, found, parts, config)


def _publish(
    run: Run, head: Head, found: dict[str, float], parts: dict[str, Any], config: DictConfig
) -> None:
    """Write the head, measure it, and write how it came about into its folder."""
    place = run.folder / "head"
    evaluate: Callable[[Path, Path], dict[str, float]] | None = parts["evaluate"]
    save_head(head, place, getattr(torch, config.dtype))
    if evaluate is not None:
        measured = evaluate(place, parts["cache"])
        found |= {f"held_out/{name}": value for name, value in measured.items()}
    total = run.course.total(len(run.learnt))
    run.report(total, found)
    card = {
        "command": shlex.join(["python", "-m", "drafters.eagle3.train.__main__", *sys.argv[1:]]),
        "made_of": run.facts,
        "samples": len(run.learnt),
        "steps": total,
        "sha256": hashlib.sha256((place / WEIGHTS).read_bytes()).hexdigest(),
        "torch": torch.__version__,
        "device": str(run.target.device),
        "metrics": found,
    }
    (place / CARD).write_text(json.dumps(card, indent=1) + "\n")
    if run.log is not None:
        run.log.end(place)


def _start(config: DictConfig, parts: dict[str, Any], run: Run) -> tuple[Head, Tensor]:
    """Return the head to begin with, and the usual size of its features' channels."""
    target = run.target
    counts = answer_counts(run.learnt, target.shape.vocab_size)
    given = load_head(Path(config.start)) if config.start else None
    for clause in head_config(Path(config.start)).assumed if config.start else ():
        sys.stderr.write(f"start={config.start}: {clause}\n")
    ids = given.capture_ids if given else ()
    layers = capture_layers(ids, target.shape.num_layers)
    rows = []
    for sample in run.learnt[:_SCALE_SAMPLES]:
        tokens = sample.tokens[: run.course.most_tokens].long().to(target.device)
        rows.append(target.states(tokens[None], layers).features[0].float().cpu())
    scale = channel_scale(torch.cat(rows))
    if given is None:
        return fresh(parts["new"], target, counts, scale, run.course.seed), scale
    return warm(given, target, counts, config.map, parts["new"].draft_vocab_size), scale


def _split(corpus: Corpus, wanted: int | None, kept_back: int) -> tuple[list[Sample], list[Sample]]:
    """Return the first samples to learn from, and the last ones to examine with."""
    every = corpus.samples()
    room = len(every) - kept_back
    if room < 1 or (wanted is not None and wanted > room):
        raise ValueError(
            f"samples={wanted}, kept_back={kept_back}: {corpus.folder} holds {len(every)}; make"
            f" more with `python -m drafters.eagle3.data samples={(wanted or 1) + kept_back}`"
        )
    return every[: wanted or room], every[room:]


def _facts(config: DictConfig, parts: dict[str, Any], corpus: Corpus) -> dict[str, Any]:
    """Return what a run is made of."""
    hashes = [shard["sha256"] for shard in corpus.shards]
    return {
        "target": parts["target"].name,
        "data": corpus.facts | {"hash": hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]},
        "samples": config.samples,
        "kept_back": config.kept_back,
        "new": repr(parts["new"]),
        "course": repr(parts["course"]),
        "start": config.start or "",
        "map": config.map if config.start else "",
    }


def _told(name: str) -> bool:
    """Whether the screen shows a figure; the files hold them all."""
    measured = name.startswith("held_out/")
    return not measured or name.removeprefix("held_out/").startswith("accept_length")


def _join_processes(device: str) -> bool:
    """Join the processes that torchrun started, if it did; say whether this one leads."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return True
    on_gpu = placement(device)[0].type == "cuda"
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    return distributed.get_rank() == 0


def _own(device: torch.device) -> torch.device:
    """Return this process's own GPU."""
    if device.type != "cuda":
        return device
    own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(own)
    return own


if __name__ == "__main__":
    sys.exit(
        guarded(
            "python -m drafters.eagle3.train", lambda: run_config("train", train_head, sys.argv[1:])
        )
    )
