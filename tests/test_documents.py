"""What the documents quote is there: modules, make targets, settings, files."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

import conf
from pipeline.config.compose import compose_each, expand
from pipeline.gate.settings import read
from pipeline.roi.__main__ import main as roi

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md")),
    *sorted(ROOT.glob("experiments/*/*.md")),
]
ROOMS = ("pipeline", "drafters", "verify", "experiments", "tests", "conf")
# Their words of the form NAME=VALUE are overrides of conf/config.yaml, behind some of their own.
COMPOSED = {
    "pipeline": [],
    "experiments.sglang_grid.away": [],
    "experiments.sglang_grid.faults": ["engine=sglang"],
}
OVERRIDE = re.compile(r"[a-z_.0-9]+=[^…]")


def commands(document: Path) -> list[list[str]]:
    """Return the words behind each `python -m`, the document's own variables filled in."""
    text = document.read_text().replace("\\\n", " ")
    for name, quoted, bare in re.findall(r'^([A-Z]+)=(?:"([^"]*)"|(\S+))$', text, re.MULTILINE):
        text = text.replace(f"${name}", " ".join((quoted or bare).split()))
    found = re.findall(r"python3? -m ([^`\n#]+)", text)
    return [shlex.split(re.sub(r"\$\(.*?\)", "PATH", command)) for command in found]


ALL = [
    (document.relative_to(ROOT).as_posix(), words)
    for document in DOCUMENTS
    for words in commands(document)
]
OF = {
    module: [pytest.param(words[1:], id=name) for name, words in ALL if words[0] == module]
    for module in {words[0] for _, words in ALL}
}
GRIDS = [
    pytest.param(own + param.values[0], id=param.id)
    for module, own in COMPOSED.items()
    for param in OF[module]
]
QUESTIONS = [p for p in OF["pipeline.roi"] if not p.values[0][0].startswith("sweep=")]


def test_enough_commands_are_found_to_be_worth_a_look():
    assert len(ALL) > 60
    assert len(GRIDS) > 10


@pytest.mark.parametrize("module", sorted(OF))
def test_a_module_that_a_document_runs_is_there(module):
    spec = importlib.util.find_spec(module)
    assert spec is not None
    if spec.submodule_search_locations is not None:
        assert importlib.util.find_spec(f"{module}.__main__") is not None


@pytest.mark.parametrize("words", GRIDS)
def test_the_settings_of_a_quoted_sweep_are_there(words):
    overrides = [word for word in words if OVERRIDE.match(word)]
    if "--config-dir" in words:  # which brings yamls that are the reader's own
        overrides = [word for word in overrides if is_ours(word)]
    compose_each(expand(overrides))


def is_ours(word: str) -> bool:
    """Whether the project has every yaml that a word chooses."""
    key, _, values = word.partition("=")
    group = Path(conf.__file__).parent / key
    return not group.is_dir() or all((group / f"{one}.yaml").exists() for one in values.split(","))


@pytest.mark.parametrize("words", [p for p in OF["pipeline.gate"] if p.values[0]])
def test_the_settings_of_a_quoted_gate_are_there(words):
    compose_each(read(words).jobs)


@pytest.mark.parametrize("words", QUESTIONS)
def test_a_quoted_question_has_an_answer(words, capsys):
    assert roi(words) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_make_targets_and_files_that_a_document_names_are_there(document):
    text = document.read_text()
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:`|^)make (\w+)", text, re.MULTILINE)) <= set(targets)
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (document.parent / link).exists(), link
    for name in re.findall(r"`([\w./-]+\.(?:py|c|h|cu|yaml|yml))`", text):
        assert is_file(name), name


def is_file(name: str) -> bool:
    """Whether the name is a file's path, or the end of one."""
    return (ROOT / name).exists() or any(
        path.as_posix().endswith(f"/{name}")
        for room in ROOMS
        for path in (ROOT / room).rglob(Path(name).name)
    )
