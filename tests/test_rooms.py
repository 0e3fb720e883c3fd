"""Imports run down the list of rooms in `pipeline.__doc__`, and never in a circle."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pipeline

ROOT = Path(__file__).parents[1]
ROOMS = re.findall(r"^ {4}([\w.]+) {2,}\S", pipeline.__doc__, re.MULTILINE)
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for top in {room.split(".")[0] for room in ROOMS}
    for path in (ROOT / top).rglob("*.py")
}


def room(module: str) -> str:
    """Return the room that a module is in, or ""."""
    inside = (name for name in ROOMS if f"{module}.".startswith(f"{name}."))
    return max(inside, key=len, default="")


def imported(module: str) -> set[str]:
    """Return the modules of ours that a module's text imports, wherever it does."""
    names = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}, line {node.lineno}: a relative import"
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in MODULES else str(node.module) for name in full}
    return {name for name in names if name in MODULES} - {module}


ARROWS = {module: imported(module) for module in MODULES}


def test_the_rooms_that_are_listed_are_those_that_are_there():
    assert len(ROOMS) > 15, "the list is read"
    assert {room(module) for module in MODULES} == {*ROOMS, ""}
    assert [module for module in MODULES if not room(module)] == ["pipeline"], "a loose module"


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_imports_only_itself_and_rooms_below_it(name):
    below = {"", *ROOMS[ROOMS.index(name) :]}
    arrows = [(a, b) for a, found in ARROWS.items() if room(a) == name for b in found]
    assert [f"{a} -> {b}" for a, b in arrows if room(b) not in below] == []


def test_no_module_imports_itself_by_way_of_others():
    try:
        TopologicalSorter(ARROWS).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))
