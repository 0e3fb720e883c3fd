"""What Hydra refuses is one line that names the setting and the way on."""

import pytest

from pipeline.config.compose import compose_each, plain


def test_each_job_is_composed_with_its_own_overrides():
    configs = compose_each([["drafter=none"], ["drafter=ngram", "drafter.num_draft_tokens=2"]])
    assert [config.drafter.get("num_draft_tokens") for config in configs] == [None, 2]
    (gate,) = compose_each([["baseline=main"]], "gate")
    assert gate.baseline == "main"


@pytest.mark.parametrize(
    ("jobs", "line"),
    [
        ([["drafter=nope"]], "In 'config': Could not find 'drafter/nope' Available options in"),
        ([["a b"]], "; write NAME=VALUE, and quotes around"),
        ([["verify.nope=1"]], "verify.nope: there is no such setting; `python -m pipeline --cfg"),
        (
            [["drafter=ngram"], ["drafter=none", "drafter.num_draft_tokens=2"]],
            "drafter.num_draft_tokens is not a setting of every drafter; in a grid over drafter",
        ),
    ],
)
def test_a_job_that_cannot_be_composed_is_refused_in_one_line(jobs, line):
    with pytest.raises(ValueError, match=r"\A[^\n]*\Z") as refused:
        compose_each(jobs)
    assert line in str(refused.value)


def test_another_file_names_where_its_settings_are_shown():
    with pytest.raises(ValueError, match=r"^gate\.nope: there is no such setting; conf/gate\.yaml"):
        compose_each([["gate.nope=1"]], "gate", "conf/gate.yaml")


def test_an_unknown_setting_is_named_with_the_command_that_shows_all():
    error = "Could not override 'drafter.nope'.\nTo append to your config use +drafter.nope=3"
    assert plain(error, ["drafter.nope=3"]) == (
        "drafter.nope: there is no such setting; `python -m pipeline --cfg job` shows all"
    )


def test_a_setting_that_only_some_cells_of_a_grid_have_comes_with_the_way_to_set_it():
    error = "Could not override 'drafter.num_draft_tokens'.\nTo append to your config use +x"
    found = plain(error, ["drafter=ngram,eagle3", "drafter.num_draft_tokens=3"])
    assert "write drafter.num_draft_tokens=choice(VALUE)" in found
