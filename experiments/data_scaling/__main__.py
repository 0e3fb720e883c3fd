"""`python -m experiments.data_scaling FOLDER`: heads from 1K to 200K samples, table, fit, curve.

Every size takes the first so many samples of one corpus and is measured on the same held-out
prompts. All sizes are trained for at least `LEAST_STEPS` steps, or small sets would be undertrained
rather than short of data; no set is seen more than `MOST_EPOCHS` times. Further settings may
follow: those of the data begin with `data:`, all others are of the trainings.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from experiments.data_scaling.fit import Point, fit, gain
from experiments.data_scaling.trainings import Overrides, data, head, heading, row

SIZES = (1_000, 3_000, 10_000, 37_000, 200_000)
FROM, TO = 37_000, 200_000  # the question of the story
KEPT_BACK = 512
BATCH, MOST_EPOCHS, LEAST_STEPS = 64, 20, 2_000
CLASSES = ("chat", "code", "math", "copy")


def epochs(samples: int) -> int:
    """Return how often a set of this size is seen."""
    return min(MOST_EPOCHS, -(-LEAST_STEPS * BATCH // samples))


def main(folder: Path, sizes: tuple[int, ...], overrides: Overrides) -> None:
    """Train every size, and write `curve.json` and `data_scaling.txt`."""
    corpus = data(folder / "data_answers", max(sizes) + KEPT_BACK, overrides.data)
    points, lines = [], [heading("samples", CLASSES)]
    for size in sizes:
        settings = [f"data={corpus}", f"samples={size}", f"kept_back={KEPT_BACK}"]
        settings += [f"course.batch={BATCH}", f"course.epochs={epochs(size)}"]
        card = head(folder / f"samples_{size}", [*settings, *overrides.train])
        found = [card["metrics"][f"held_out/accept_length{end}"] for end in ("", "_low", "_high")]
        points.append(Point(size, *found))
        lines.append(row(f"{size:,}", card, CLASSES))
    curve, more = fit(points, FROM), gain(points, FROM, TO)
    lines += [
        "",
        f"accept length = {curve.ceiling:.2f} - {curve.distance:.2f} × (samples / {FROM:,})"
        f" ^ -{curve.exponent:.2f}; no point is further than {curve.worst:.2f} from the curve",
        f"{FROM:,} → {TO:,} samples: +{more.value:.2f} ({more.low:.2f} to {more.high:.2f})",
    ]
    kept = {"points": [point._asdict() for point in points], "fit": curve._asdict()}
    (folder / "curve.json").write_text(json.dumps(kept, indent=1) + "\n")
    text = "\n".join(lines) + "\n"
    (folder / "data_scaling.txt").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("usage: python -m experiments.data_scaling FOLDER [SETTING …]")
    main(Path(sys.argv[1]), SIZES, Overrides.of(sys.argv[2:]))
