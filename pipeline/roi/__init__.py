"""The verdict: break-even, what each lever is worth, what a cell that was not run would give."""

from pipeline.roi.numbers import Numbers, parse
from pipeline.roi.situation import Situation, close
from pipeline.roi.text import headline, lines
from pipeline.roi.verdict import Verdict, from_numbers, weigh_levers

__all__ = [
    "Numbers",
    "Situation",
    "Verdict",
    "close",
    "from_numbers",
    "headline",
    "lines",
    "parse",
    "weigh_levers",
]
