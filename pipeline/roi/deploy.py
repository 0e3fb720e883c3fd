"""The command that serves a cell in production."""

from __future__ import annotations

import ast

from pipeline.record.record import CellRecord

# A verify step's width counts the root, as the server's own number of draft tokens does.
VERIFY = {
    "extend": "--cuda-graph-backend-decode disabled --enforce-disable-flashinfer-allreduce-fusion",
    "graph_captured": "--enforce-disable-flashinfer-allreduce-fusion",
    "fused_allreduce": "--flashinfer-allreduce-fusion-backend trtllm",
}


def deploy_command(record: CellRecord) -> str:
    """Return the server command of a cell: the engine's own where it left one, else built here."""
    if "deploy" in record.settings:
        return record.settings["deploy"]
    target = record.params.get("target.source", "package:")
    if target.startswith("package:"):  # a file that only the embedded engine reads
        target = record.settings.get("target_folder", record.params.get("target", "MODEL"))
    words = [
        "python -m sglang.launch_server",
        f"--model-path {target}",
        f"--tp-size {record.params.get('parallelism.tp', '1')}",
        VERIFY.get(record.params["verify"], ""),
        *_drafter(record),
    ]
    return " \\\n  ".join(word for word in words if word)


def _drafter(record: CellRecord) -> list[str]:
    """Return the arguments that name the drafter."""
    if record.is_baseline:
        return []
    width, drafter = record.width, record.params["drafter"]
    if drafter.startswith("ngram"):
        chain = "" if "tree" in drafter else " --speculative-ngram-max-bfs-breadth 1"
        return [f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {width}{chain}"]
    path = _head(record)
    return [
        f"--speculative-algorithm EAGLE3 --speculative-draft-model-path {path}",
        f"--speculative-num-steps {width - 1} --speculative-eagle-topk 1"
        f" --speculative-num-draft-tokens {width}",
    ]


def _head(record: CellRecord) -> str:
    """Return where the drafter's head for this target is: a hub id or a folder."""
    heads = dict(ast.literal_eval(record.params.get("drafter.heads", "[]")))
    found = str(heads.get(record.params.get("target"), "DRAFTER_FOLDER"))
    return found.replace("shipped:", "drafters/eagle3/heads/")
