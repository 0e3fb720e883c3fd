"""Every yaml builds, and what a cell's yaml names keeps the contracts of its seam."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_module

import conf
from pipeline.config.instantiate import build_part

FOLDER = Path(conf.__file__).parent
PARTS = ("target", "drafter", "verify", "engine", "workload")
# A workload of the user's own needs to be told where the prompts are.
NEEDED = {
    "jsonl": [f"workload.path={FOLDER.parent}/pipeline/workload/data/chat.jsonl"],
    "hub": ["workload.path=a/b"],
}


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (FOLDER / group).glob("*.yaml"))


def composed(*overrides: str):
    with initialize_config_module("conf", version_base=None):
        return compose("config", overrides=list(overrides))


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group in PARTS for name in names(group)]
)
def test_every_yaml_builds_its_part(group, name):
    part = build_part(composed(f"{group}={name}", *NEEDED.get(name, [])), group)
    assert part.name
    assert hash(part) == hash(build_part(composed(f"{group}={name}", *NEEDED.get(name, [])), group))


@pytest.mark.parametrize("name", names("drafter"))
def test_a_drafters_yaml_says_its_name(name):
    assert build_part(composed(f"drafter={name}"), "drafter").name == name


@pytest.mark.parametrize("name", names("verify"))
def test_a_backends_yaml_says_its_name(name):
    assert build_part(composed(f"verify={name}"), "verify").name == name


@pytest.mark.parametrize("name", names("experiment"))
def test_every_experiment_composes(name):
    config = composed(f"experiment={name}")
    first = (FOLDER / "experiment" / f"{name}.yaml").read_text().splitlines()
    assert first[1].startswith("# Question: "), "an experiment says what it asks"
    for part in PARTS:
        build_part(config, part)


def test_a_class_outside_the_project_is_refused():
    config = composed()
    config.drafter["_target_"] = "subprocess.Popen"
    with pytest.raises(ValueError, match=r"drafter\._target_=subprocess\.Popen: only classes in"):
        build_part(config, "drafter")


def test_an_unknown_setting_of_a_class_is_refused():
    config = composed("+drafter.num_draft_tokns=3", "drafter=ngram")
    with pytest.raises(ValueError, match=r"drafter: .*num_draft_tokns"):
        build_part(config, "drafter")


def test_what_an_experiment_sets_goes_before_the_defaults():
    assert composed("experiment=demo").measurement.max_repetitions == 2
    assert (
        composed("experiment=demo", "measurement.max_repetitions=7").measurement.max_repetitions
        == 7
    )
