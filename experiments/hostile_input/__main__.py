"""Feed damaged inputs of every kind to what reads them, and print what came of it as a table.

python -m experiments.hostile_input [INPUTS_PER_KIND] [SEED] [KIND,…]
"""

from __future__ import annotations

import signal
import sys
import traceback
import warnings
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from experiments.hostile_input.kinds import KINDS, Kind, try_one

LONGEST_S = 10  # a sound input of these sizes takes milliseconds


class Hang(BaseException):
    """An input took too long; no reader catches this."""


def _too_long(*_: Any) -> None:
    raise Hang


def feed(name: str, kind: Kind, inputs: int, number: int) -> Counter[str]:
    """Count how the inputs of a kind ended; show each new kind of traceback once."""
    counts, shown = Counter[str](), set[str]()

    def one(value: Any) -> None:
        signal.alarm(LONGEST_S)
        try:
            counts["refused" if try_one(kind, value) else "taken"] += 1
        except Hang:
            counts["hangs"] += 1
            _show(name, "hang", value, shown)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            counts["tracebacks"] += 1
            frames = traceback.extract_tb(error.__traceback__)
            last = frames[-1]
            ours = next((f for f in reversed(frames) if "hostile_input" not in f.filename), last)
            place = f"{ours.filename.rsplit('/wt/')[-1]}:{ours.lineno} {last.name}"
            text = f"{type(error).__name__}: {str(error)[:150]!r}"
            _show(name, f"{place}: {text}", value, shown, key=f"{place}{type(error)}")
        finally:
            signal.alarm(0)

    quiet = settings(
        max_examples=int(inputs * kind.share),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    seed(number)(quiet(given(kind.inputs)(one)))()
    return counts


def _show(name: str, text: str, value: Any, shown: set[str], key: str = "") -> None:
    if (key or text) not in shown:
        shown.add(key or text)
        sys.stderr.write(f"{name}: {text}\n    {str(value)[:300]!r}\n")


def main(arguments: list[str]) -> int:
    """Print the table; 1 if anything was no refusal and no result."""
    inputs = int(arguments[0]) if arguments else 2000
    number = int(arguments[1]) if len(arguments) > 1 else 0
    signal.signal(signal.SIGALRM, _too_long)
    warnings.simplefilter("ignore")  # hypothesis's, of long inputs
    print("| kind | inputs | taken | refused | tracebacks | hangs |\n|---|--:|--:|--:|--:|--:|")
    total = Counter[str]()
    for name, kind in KINDS.items():
        if len(arguments) > 2 and name not in arguments[2].split(","):
            continue
        counts = feed(name, kind, inputs, number)
        total += counts
        _row(name, counts)
    _row("all", total)
    return int(bool(total["tracebacks"] or total["hangs"]))


def _row(name: str, counts: Counter[str]) -> None:
    cells = (counts.total(), *(counts[k] for k in ("taken", "refused", "tracebacks", "hangs")))
    print(f"| {name} | " + " | ".join(f"{cell:,}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
