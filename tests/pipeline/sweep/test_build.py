"""Building the cells of a grid, from the real configs."""

import json
import re
import shlex

import pytest
from hydra import compose, initialize_config_module

from pipeline.sweep.build import Refused, build_cells, command


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"prompt": "Say hello."}) + "\n")
    return ["workload=jsonl", f"workload.path={path}"]


def build(jobs, prompts, on_impossible="refuse"):
    """Compose and build; each job is its overrides in one string."""
    overrides = [[*prompts, *job.split()] for job in jobs]
    with initialize_config_module("conf", version_base="1.3"):
        configs = [compose("config", overrides=each) for each in overrides]
    return build_cells(configs, overrides, on_impossible)


def test_equal_cells_become_one_and_the_order_of_the_grid_stays(prompts):
    jobs = ["drafter=ngram", "drafter=none", "drafter=ngram drafter.num_draft_tokens=3"]
    assert [plan.cell.drafter.name for plan in build(jobs, prompts)] == ["ngram", "none"]


def test_the_command_keeps_the_folder_of_the_users_own_configs(monkeypatch):
    for words in (["--config-dir", "my confs"], ["-cd", "my confs"], ["--config-dir=my confs"]):
        monkeypatch.setattr("sys.argv", ["pipeline", *words, "drafter=mine"])
        shown = command(["drafter=mine", "resume=true"])
        assert shlex.split(shown)[-1] == "drafter=mine"
        assert "".join(shlex.split(shown)[3:-1]).replace("=", "") == "--config-dirmy confs"
    monkeypatch.setattr("sys.argv", ["pipeline", "drafter=mine"])
    assert command(["drafter=mine"]) == "python -m pipeline drafter=mine"


def test_a_record_before_measuring_names_the_cell_and_its_command(prompts):
    (plan,) = build(["drafter=ngram verify=extend"], prompts)
    record = plan.record
    assert record.label == "ngram × extend"
    assert record.width == 4
    assert not record.is_baseline
    assert record.greedy
    assert record.params["drafter.max_match"] == "4"
    assert record.command.endswith("drafter=ngram verify=extend")


def test_all_mistakes_of_a_grid_are_shown_at_once_with_what_sets_their_cells_apart(prompts):
    jobs = [
        "drafter=none",
        "drafter=ngram drafter.num_draft_tokens=0",
        "drafter=none parallelism.batch=2",
    ]
    with pytest.raises(Refused) as refusal:
        build(jobs, prompts)
    first, second = str(refusal.value).splitlines()
    assert first.startswith("drafter.num_draft_tokens=0: must be")
    assert first.endswith("[drafter=ngram drafter.num_draft_tokens=0]")
    assert second.startswith("parallelism.batch=2: engine=torch")
    assert "on_impossible=skip" in second


def test_a_mistake_of_every_cell_is_shown_once(prompts):
    with pytest.raises(Refused, match=r"^sampling.max_new_tokens=1: at least 2[^\n\[]*$"):
        build(["drafter=none sampling.max_new_tokens=1", "sampling.max_new_tokens=1"], prompts)


def test_an_impossible_cell_is_kept_with_its_reason_when_skipping(prompts):
    possible, impossible = build(["drafter=none", "parallelism.batch=2"], prompts, "skip")
    assert not possible.impossible
    assert impossible.impossible.startswith("parallelism.batch=2")


@pytest.mark.parametrize("drafter", ["ngram", "ngram_tree", "eagle3_scratch"])
def test_a_draft_wider_than_the_context_is_refused_with_the_largest_that_fits(drafter, prompts):
    wide = f"drafter={drafter} drafter.num_draft_tokens=100000"
    jobs = ["drafter=none", f"drafter={drafter}", wide]
    with pytest.raises(Refused, match=r"^drafter.num_draft_tokens=100000: [^\n]*$") as refusal:
        build(jobs, prompts)
    (most,) = re.findall(r"set it to (\d+) or less", str(refusal.value))
    fits = f"drafter={drafter} drafter.num_draft_tokens={most}"
    too_wide = f"drafter={drafter} drafter.num_draft_tokens={int(most) + 1}"
    _, kept, skipped = build(["drafter=none", fits, too_wide], prompts, "skip")
    assert kept.cell.drafter.num_draft_tokens == int(most)
    assert not kept.impossible
    assert skipped.impossible.startswith(f"drafter.num_draft_tokens={int(most) + 1}: ")


def test_a_server_of_a_shorter_context_than_its_target_has_room_for_fewer_draft_tokens(prompts):
    job = "engine=sglang engine.context_length=512 drafter=ngram drafter.num_draft_tokens=600"
    with pytest.raises(Refused, match=r"num_draft_tokens=600: the context of 512 tokens has room"):
        build([job], prompts)


def test_a_class_of_another_project_is_refused_before_it_is_imported(prompts):
    with pytest.raises(Refused, match=r"drafter._target_=os.system: only classes in drafters"):
        build(["drafter._target_=os.system"], prompts)


def test_a_setting_that_the_class_does_not_have_is_refused(prompts):
    with pytest.raises(Refused, match=r"drafter: .*unexpected keyword argument 'depth'"):
        build(["drafter=ngram +drafter.depth=3"], prompts)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("parallelism.tp=two", "parallelism.tp=two: must be a whole number"),
        ("parallelism.tp=1.5", "parallelism.tp=1.5: must be a whole number"),
        ("sampling.temperature=hot", "sampling.temperature=hot: must be a number"),
        ("sampling.seed=null", "sampling.seed=null: must be a whole number"),
        ("workload.num_prompts=all", "workload.num_prompts=all: must be a whole number or null"),
        ("target.trust_remote_code=1", "target.trust_remote_code=1: must be true or false"),
    ],
)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_setting(override, line, prompts):
    with pytest.raises(Refused, match=f"^{re.escape(line)}$"):
        build([override], prompts)


def test_a_whole_number_is_a_number(prompts):
    (plan,) = build(["sampling.temperature=1"], prompts)
    assert plan.cell.sampling.temperature == 1


def test_the_command_quotes_hides_passwords_and_does_not_resume():
    overrides = ["drafter=none", "resume=true", "tracking.uri=http://me:secret@host", "runs=a b"]
    assert command(overrides) == (
        "python -m pipeline drafter=none tracking.uri=http://***@host 'runs=a b'"
    )
