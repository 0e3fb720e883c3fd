"""Say what to invest in: `python -m pipeline.roi sweep=FOLDER`, typed-in numbers, or `scale=NAME`.

python -m pipeline.roi sweep=runs/sweeps/ID
python -m pipeline.roi baseline_tok_s=82 accept_length=2.0 tok_s=60 verify_ms=30
python -m pipeline.roi scale=kimi_k2_5_pcie8 batch=1,8 context=2048
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.config.messages import folded, guarded
from pipeline.judge.comparison import compare
from pipeline.measure.wording import arm_names, comparison_names
from pipeline.record.sweep_folder import SweepFolder
from pipeline.roi.advisor import advisor_details, advisor_section
from pipeline.roi.numbers import parse
from pipeline.roi.scale.command import scale_lines
from pipeline.roi.text import class_headlines, class_levers, lines
from pipeline.roi.verdict import class_verdicts, from_numbers

REFUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the verdict; 2 if the numbers are too few or impossible."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        text = "\n\n".join(_answer(given))
    except ValueError as error:
        sys.stderr.write(f"{folded(error)}\n")
        return REFUSED
    sys.stdout.write(f"{text}\n")
    return 0


def _answer(given: list[str]) -> Iterator[str]:
    """Yield the answer's blocks by the kind of question.

    Raises:
        ValueError: The question is none.
    """
    if not given:
        raise ValueError(
            "give sweep=FOLDER, scale=NAME, or numbers such as baseline_tok_s=82 accept_length=2.0"
            " tok_s=60 verify_ms=30"
        )
    key, _, value = given[0].partition("=")
    if key == "scale":
        yield from scale_lines(value, given[1:])
    elif key == "sweep":
        if given[1:]:
            raise ValueError(f"{given[1]}: sweep=FOLDER takes nothing else")
        yield from _sweep(Path(value))
    else:
        yield from lines(from_numbers(parse(given)))


def _sweep(path: Path) -> Iterator[str]:
    """Yield the verdicts of a sweep's folder: the decisions that its report tells.

    Raises:
        ValueError: There is no sweep.
    """
    if not (path / "sweep.json").exists():
        raise ValueError(f"sweep={path}: no sweep.json there; give a folder under runs/sweeps")
    comparisons = compare(SweepFolder(path).records())
    titles = comparison_names([c.records for c in comparisons])
    for title, comparison in zip(titles, comparisons, strict=True):
        yield f"# {title}"
        names = arm_names(comparison.records)
        verdicts = class_verdicts(comparison, names)
        yield from class_headlines(verdicts)
        yield from class_levers(verdicts)
        yield from advisor_section(comparison, names)
        yield from advisor_details(comparison, names)


if __name__ == "__main__":
    sys.exit(guarded("python -m pipeline.roi", main))
