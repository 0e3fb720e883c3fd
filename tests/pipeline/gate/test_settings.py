"""The command line: one thing asked for, grids by commas, one line for what is wrong."""

import pytest

from pipeline.config.compose import expand
from pipeline.gate.settings import read


def test_the_default_grid_is_plain_and_ngram_on_the_captured_step():
    settings = read(["baseline=main"])
    assert [job[:2] for job in settings.jobs] == [
        ("drafter=none", "verify=graph_captured"),
        ("drafter=ngram", "verify=graph_captured"),
    ]
    assert settings.promise.alpha == 0.01
    assert (settings.baseline, settings.reference, settings.record) == ("main", "", False)


def test_what_is_given_replaces_a_default_and_a_group_its_settings():
    given = ["baseline=main", "drafter=ngram", "workload=jsonl", "workload.path=a b.jsonl"]
    (job,) = read(given).jobs
    assert "drafter=ngram" in job
    assert "workload.path=a b.jsonl" in job
    assert not any(o.startswith("workload.per_class") for o in job)


def test_what_concerns_a_sweep_alone_is_not_told_to_a_version():
    settings = read(["baseline=main", "runs=/tmp/x", "launcher.on_busy=wait", "drafter=none"])
    assert "runs=/tmp/x" in settings.jobs[0]
    told = ("verify=graph_captured", "workload.per_class=3", "sampling.max_new_tokens=48")
    assert settings.cell_jobs == ((*told, "drafter=none"),)


def test_a_recorded_number_of_threads_is_used_unless_one_is_given():
    assert read(["reference=a"]).jobs_on("2")[0][-1] == "engine.threads=2"
    given = read(["reference=a", "engine.threads=1"])
    assert given.jobs_on("2") == given.jobs
    assert read(["reference=a"]).jobs_on("") == read(["reference=a"]).jobs


def test_every_comma_multiplies_the_cells():
    jobs = expand(["drafter=none,ngram", "verify=extend,graph_captured", "sampling.seed=1"])
    assert len(jobs) == 4
    assert jobs[0] == ("drafter=none", "verify=extend", "sampling.seed=1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give exactly one of baseline=GIT_REF"),
        (["baseline=main", "reference=a.json"], "give exactly one of"),
        (["baseline=main", "record_to=a.json"], "record_to=a.json: only gate.record=true records"),
        (["baseline=main", "gate.alpha=0"], r"gate\.alpha=0: above 0"),
        (["baseline=main", "gate.alpha=often"], r"gate\.alpha=often: must be a number"),
        (["baseline=main", "gate.max_seconds=0"], r"gate\.max_seconds=0: must be a number above 0"),
        (
            ["baseline=main", "gate.max_rounds=2.5"],
            r"gate\.max_rounds=2\.5: must be a whole number",
        ),
        (["baseline=main", "gate.trend=-1"], r"gate\.trend=-1"),
        (["gate.record=maybe"], r"gate\.record=maybe: must be true or false"),
        (["baseline=main", "gate.strictness=9"], "strictness"),
        (["baseline=main", "drafter"], "drafter: not written as setting=value"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        read(arguments)
