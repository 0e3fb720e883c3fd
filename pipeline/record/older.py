"""What records lack that were written before 2026-12: told by the names of that time's parts.

The only place in `pipeline` where a drafter or a verify backend is known by its name. It can go
once nobody reports or syncs a sweep of before then; a part that is added later is never named here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from pipeline.cell.cell import Abilities

_COPIES = "ngram"  # the names of all its settings began so
_ABILITIES = {
    "extend": Abilities(),
    "graph_captured": Abilities(captures_verify=True),
    "fused_allreduce": Abilities(captures_verify=True, fuses_allreduce=True),
}
_SERVED = {
    "extend": "--cuda-graph-backend-decode disabled --enforce-disable-flashinfer-allreduce-fusion",
    "graph_captured": "--enforce-disable-flashinfer-allreduce-fusion",
    "fused_allreduce": "--flashinfer-allreduce-fusion-backend trtllm",
}
UNKNOWN = "# the command that serves this cell was not recorded: measure it again"


def abilities_of(plain: Mapping[str, Any]) -> Abilities:
    """Return the abilities in a record's plain data, which another version may have written."""
    own = plain.get("abilities")
    if own is None:
        return older_abilities(plain["params"])
    known = {f.name for f in fields(Abilities)}
    return Abilities(**{name: value for name, value in own.items() if name in known})


def older_abilities(params: Mapping[str, str]) -> Abilities:
    """Return what the parts of an older record could do; a part of an unknown name, nothing."""
    verify = _ABILITIES.get(str(params.get("verify", "")), Abilities())
    copies = str(params.get("drafter", "")).startswith(_COPIES)
    return Abilities(copies, verify.captures_verify, verify.fuses_allreduce)


def older_deploy(params: Mapping[str, str], settings: Mapping[str, str], width: int) -> str:
    """Return the server command of an older record's cell, or a comment that there is none.

    Args:
        params: The cell's settings.
        settings: What its engine resolved.
        width: Rows of a verify step; the server's number of draft tokens counts the root too.
    """
    target = params.get("target.source", "package:")
    if target.startswith("package:"):  # a file that only the embedded engine reads
        target = settings.get("target_folder", params.get("target", "MODEL"))
    drafter = [] if width == 1 else list(_drafter(params, width))
    if params["verify"] not in _SERVED or (width > 1 and not drafter):
        return UNKNOWN
    words = [
        "python -m sglang.launch_server",
        f"--model-path {target}",
        f"--tp-size {params.get('parallelism.tp', '1')}",
        _SERVED[params["verify"]],
        *drafter,
    ]
    return " \\\n  ".join(words)


def _drafter(params: Mapping[str, str], width: int) -> Iterator[str]:
    """Yield the arguments that name a drafter; none for one that cannot be told."""
    breadth = params.get("drafter.breadth", "1")
    if params["drafter"].startswith(_COPIES):
        yield (
            f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {width}"
            f" --speculative-ngram-max-bfs-breadth {breadth}"
        )
        return
    heads = dict(ast.literal_eval(params.get("drafter.heads", "[]")))
    if head := heads.get(params.get("target")):
        path = str(head).replace("shipped:", "drafters/eagle3/heads/")
        yield f"--speculative-algorithm EAGLE3 --speculative-draft-model-path {path}"
        yield (
            f"--speculative-num-steps {params.get('drafter.depth', width - 1)}"
            f" --speculative-eagle-topk {breadth} --speculative-num-draft-tokens {width}"
        )
