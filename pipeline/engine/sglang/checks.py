"""What is refused before a server is launched, each with the setting and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from drafters.base import NeedsFiles, ServesSglang
from drafters.eagle3.config import head_config
from drafters.eagle3.shape import capture_layers
from pipeline.engine.sglang.arguments import DRAFT_PATH, ServerArguments, server_arguments
from pipeline.engine.sglang.extras import check_arguments
from pipeline.engine.sglang.gpus import gpus
from pipeline.engine.sglang.model import ModelFacts, model_facts
from pipeline.engine.sglang.versions import MOST_FUSED_ROWS, names
from pipeline.machine.cache import cache_root
from pipeline.target.source import is_hub_id
from verify.base import ServesVerify

if TYPE_CHECKING:
    from pipeline.cell.cell import Cell
    from pipeline.engine.sglang.settings import SglangSettings

PORT = 30000  # of a command that is only checked


def check_cell(cell: Cell, engine: SglangSettings, version: str) -> None:
    """Refuse a cell that a server cannot run.

    Raises:
        ValueError: With the setting and the fix.
    """
    _check_parts(cell)
    _check_held(cell)
    arguments = server_arguments(cell, engine, cache_root())
    check_arguments(arguments.words(PORT), arguments.extra, version)
    target = model_facts(arguments.model, arguments.revision)
    _check_fusion(cell.verify.name, arguments, target, version)
    _check_fused_rows(cell, arguments)
    _check_tree(cell, engine, arguments)
    if target is not None:
        _check_split(arguments, target)
        _check_drafter_fits(arguments, target)
    _check_gpus(arguments, engine, target)


def _check_parts(cell: Cell) -> None:
    """Refuse parts that say nothing of a server."""
    for setting, part, ability in (
        ("drafter", cell.drafter, ServesSglang),
        ("verify", cell.verify, ServesVerify),
    ):
        if not isinstance(part, ability):
            raise ValueError(
                f"{setting}={part.name} cannot run on engine=sglang: {type(part).__name__} names no"
                " server arguments; use engine=torch"
            )
    given = cell.drafter.sglang_arguments() if isinstance(cell.drafter, ServesSglang) else {}
    path = str(given.get(DRAFT_PATH, ""))
    if not path or is_hub_id(path):
        return
    if not Path(path).is_dir():
        raise ValueError(
            f"drafter={cell.drafter.name}: {path} is no folder and no hub id; download it or train"
            " one, and name its folder"
        )
    if isinstance(cell.drafter, NeedsFiles):
        cell.drafter.check()


def _check_held(cell: Cell) -> None:
    """Refuse a held accept length that no step of this width can have."""
    held, width = cell.sampling.held_accept_length, cell.drafter.num_draft_tokens + 1
    if held and not cell.is_baseline and not 1 <= held <= width:
        raise ValueError(
            f"sampling.held_accept_length={held:g}: a step of drafter={cell.drafter.name} commits 1"
            f" to {width} tokens"
        )


def _check_fusion(
    name: str, arguments: ServerArguments, target: ModelFacts | None, version: str
) -> None:
    """Refuse fusion that would change nothing, and sums that no server has."""
    if arguments.mode.allreduce == "auto":
        return
    if arguments.mode.allreduce in ("gloo", "shared_memory"):
        raise ValueError(
            f"verify.allreduce={arguments.mode.allreduce}: a way to sum on CPUs;"
            " engine=sglang takes auto, nccl or custom"
        )
    if arguments.tp == 1:
        raise ValueError(
            f"verify: {arguments.mode.allreduce} all-reduces need several ranks; set"
            " parallelism.tp=2 or more, or use verify=graph_captured"
        )
    if arguments.mode.allreduce != "fused" or target is None:
        return
    if target.architecture in names(version).fuses_nothing:
        raise ValueError(
            f"verify={name}: the layers of {target.architecture} do not fuse in SGLang"
            f" {version}: the flag would change nothing; use verify=graph_captured"
        )


def _check_fused_rows(cell: Cell, arguments: ServerArguments) -> None:
    """Refuse steps that are too large to fuse: a short trace of few requests would not show it."""
    rows = arguments.batch * (cell.drafter.num_draft_tokens + 1)
    if arguments.mode.allreduce == "fused" and rows > MOST_FUSED_ROWS:
        raise ValueError(
            f"verify={cell.verify.name}: a step of {arguments.batch} requests has {rows} rows, and"
            f" SGLang fuses up to {MOST_FUSED_ROWS}; lower parallelism.batch"
        )


def _check_tree(cell: Cell, engine: SglangSettings, arguments: ServerArguments) -> None:
    """Refuse a tree on paged attention that reads chains alone."""
    given = dict(arguments.drafter)
    breadth = given.get("speculative-ngram-max-bfs-breadth", given.get("speculative-eagle-topk", 1))
    if int(breadth) > 1 and engine.page_size > 1 and engine.attention != "flashinfer":
        raise ValueError(
            f"drafter={cell.drafter.name} drafts a tree, which needs engine.page_size=1 or"
            f" engine.attention=flashinfer; it is {engine.page_size} on {engine.attention}"
        )


def _check_split(arguments: ServerArguments, target: ModelFacts) -> None:
    """Refuse ranks that the heads cannot be shared among."""
    if target.num_heads % arguments.tp:
        raise ValueError(
            f"parallelism.tp={arguments.tp}: the target's {target.num_heads} heads do not divide by"
            " it; SGLang splits heads evenly"
        )


def _check_drafter_fits(arguments: ServerArguments, target: ModelFacts) -> None:
    """Refuse a head or model of another target."""
    given = dict(arguments.drafter)
    if DRAFT_PATH not in given:
        return
    path = str(given[DRAFT_PATH])
    draft = model_facts(path)
    if draft is None:
        return
    wanted = {"vocab_size": draft.vocab_size, "hidden_size": draft.hidden_size}
    if given["speculative-algorithm"] == "STANDALONE":
        del wanted["hidden_size"]
    elif (Path(path) / "config.json").is_file():
        head = head_config(Path(path))
        wanted = {"vocab_size": head.shape.vocab_size, "hidden_size": head.target_hidden_size}
        if head.layer_ids:
            capture_layers(head.layer_ids, target.num_layers)
    for name, ours in wanted.items():
        theirs = getattr(target, name)
        if ours != theirs:
            raise ValueError(
                f"drafter {path}: {name}={ours}, but the target has {theirs}; choose one that was"
                " made for this target"
            )


def _check_gpus(
    arguments: ServerArguments, engine: SglangSettings, target: ModelFacts | None
) -> None:
    """Refuse a target that this machine's GPUs cannot hold; a cluster's driver may have none."""
    here = gpus()
    if not here:
        return
    if len(here) < arguments.tp:
        raise ValueError(
            f"parallelism.tp={arguments.tp}: this machine has {len(here)} GPUs; lower it"
        )
    if target is None or engine.load_format == "dummy":
        return
    need = target.weight_bytes / arguments.tp / 2**30
    room = min(gpu.total_mib for gpu in here) * engine.mem_fraction / 2**10
    if need > room:
        raise ValueError(
            f"target: each of parallelism.tp={arguments.tp} GPUs must hold {need:.1f} GiB of"
            f" weights and engine.mem_fraction={engine.mem_fraction:g} leaves {room:.1f} GiB:"
            f" {need - room:.1f} GiB are missing; raise tp"
        )
