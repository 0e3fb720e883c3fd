r"""Record what a real SGLang answers, for the contract test of machines without a GPU.

    python -m experiments.sglang_grid.record_answers target.source=/models/small \
        engine.attention=triton

Any override of `python -m pipeline` is taken. Writes tests/pipeline/engine/sglang/recorded/
VERSION.json, and the parser's options where the product looks for them, and prints the names that
this version no longer has.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from pipeline.cell.cell import Cell
from pipeline.config.compose import compose_each
from pipeline.config.instantiate import build_part
from pipeline.engine.sglang.options import FOLDER as OPTIONS
from pipeline.engine.sglang.session import SglangSession
from pipeline.engine.sglang.versions import installed_options, lacking
from pipeline.sweep.build import PARTS
from pipeline.workload.prompts import Prompt

FOLDER = Path(__file__).parents[2] / "tests/pipeline/engine/sglang/recorded"
PROMPT = Prompt("recorded", "chat", tuple(range(3, 35)))


def main(overrides: list[str]) -> None:
    """Record a plain and a speculative cell of the installed version."""
    plain, speculative = (answers(overrides, drafter) for drafter in ("none", "ngram"))
    options = installed_options(getattr(cell(overrides, "none").engine, "python", ""))
    recorded: dict[str, Any] = {
        "version": plain["server_info"]["version"],
        "source": "a running server",
        "options": sorted(name for option in options for name in option["names"]),
        "meta_info": sorted(plain["meta_info"]),
        "speculative_meta_info": sorted(speculative["meta_info"]),
        "server_info": sorted(plain["server_info"]),
        "metrics": sorted(set(re.findall(r"^(sglang:\w+)", speculative["metrics"], re.MULTILINE))),
        "steps": {"none": plain["committed"], "ngram": speculative["committed"]},
    }
    path = FOLDER / f"{recorded['version']}.json"
    path.write_text(json.dumps(recorded, indent=1) + "\n")
    lines = ",\n".join(f" {json.dumps(option)}" for option in options)
    (OPTIONS / path.name).write_text(f"[\n{lines}\n]\n")
    print(f"{path}\nnames that it lacks: {', '.join(lacking(recorded)) or 'none'}")


def answers(overrides: list[str], drafter: str) -> dict[str, Any]:
    """Start one cell, ask it once, and return what it said."""
    made = cell(overrides, drafter)
    session: SglangSession = made.engine.start(made)  # type: ignore[assignment]
    try:
        session.warm_up([PROMPT])
        client = session.server.client
        body = {"input_ids": list(PROMPT.tokens), "sampling_params": {"max_new_tokens": 32}}
        return {
            "server_info": client.get("/server_info"),
            "committed": list(session.generate(PROMPT, 0).committed),
            "meta_info": client.generate(body)["meta_info"],
            "metrics": client.metrics(),
        }
    finally:
        session.close()


def cell(overrides: list[str], drafter: str) -> Cell:
    """Compose one cell; the prompts of its workload are not read."""
    fixed = ["engine=sglang", "verify=graph_captured", f"drafter={drafter}"]
    (config,) = compose_each([[*fixed, *overrides]])
    return Cell(**{name: build_part(config, name) for name in PARTS}, prompts_digest="recorded")


if __name__ == "__main__":
    main(sys.argv[1:])
