"""Known faults, written into a copy of the tree: what a gate must find. The product has none.

Each is a few lines at the end of one module of the copy, behind a public seam.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

HERE = Path(__file__).parents[2]
EVERY, FIRST = 7, 5  # steps of an answer that go without a draft: 2.00 % of the accept length
TOKEN_PLACE = 17

SLOW = """

# Planted: every captured step takes {percent} % longer, in the core that waits for it.
import time as _time


class _Slowed:
    def __init__(self, step):
        self._step = step

    def __call__(self, given):
        began = _time.perf_counter()
        out = self._step(given)
        end = began + (_time.perf_counter() - began) * (1 + {percent} / 100)
        while _time.perf_counter() < end:
            pass
        return out._replace(device_ms=(_time.perf_counter() - began) * 1e3)

    def __getattr__(self, name):
        return getattr(self._step, name)


_build = GraphCaptured.build
GraphCaptured.build = lambda self, *given: _Slowed(_build(self, *given))
"""

ACCEPT = """

# Planted: of each answer the steps {first}, {first} + {every} … go without a draft.
_begin, _propose = NgramProposer.begin, NgramProposer.propose


def _begin_counted(self, context):
    self.asked = 0
    _begin(self, context)


def _propose_less(self, context):
    self.asked += 1
    draft = _propose(self, context)
    return Draft((), ()) if self.asked % {every} == {first} else draft


NgramProposer.begin, NgramProposer.propose = _begin_counted, _propose_less
"""

TOKEN = """

# Planted: one token of one answer is another one.
from dataclasses import replace as _replace

_respond = Decoder.respond


def _respond_otherwise(self, prompt, repetition):
    response = _respond(self, prompt, repetition)
    if prompt.id != {prompt!r}:
        return response
    tokens = list(response.tokens)
    tokens[{place}] += 1
    return _replace(response, tokens=tuple(tokens))


Decoder.respond = _respond_otherwise
"""


def copy_tree(folder: Path) -> Path:
    """Write the last commit's files into a new folder."""
    archive = subprocess.run(
        ["git", "-C", str(HERE), "archive", "--format=tar", "HEAD"], capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def plant_slow(tree: Path, percent: float) -> None:
    """Make each captured step longer by a share of itself."""
    _append(tree / "verify" / "graph_captured.py", SLOW.format(percent=percent))


def plant_accept(tree: Path) -> None:
    """Let the n-gram drafter miss some steps: 2 % of the accept length on the gate's own grid."""
    _append(tree / "drafters" / "ngram.py", ACCEPT.format(every=EVERY, first=FIRST))


def plant_token(tree: Path, prompt: str) -> None:
    """Change one token of one prompt's answer, in every cell alike."""
    text = TOKEN.format(prompt=prompt, place=TOKEN_PLACE)
    _append(tree / "pipeline" / "engine" / "torch" / "decode.py", text)


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)
