"""A number that is set is finite and of a size that can be computed with, wherever it is set."""

import pytest
from hydra import compose, initialize_config_module

from pipeline.config.instantiate import build_part, check_numbers, check_positive
from pipeline.sweep.settings import Settings


def composed(*overrides):
    with initialize_config_module("conf", version_base=None):
        return compose("config", overrides=list(overrides))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sampling.temperature=nan", "sampling.temperature=nan: must be a finite number"),
        ("sampling.temperature=inf", "sampling.temperature=inf: must be a finite number"),
        ("sampling.temperature=-inf", "sampling.temperature=-inf: must be a finite number"),
        ("sampling.temperature=1e-300", "sampling.temperature=1e-300: too small"),
        ("sampling.temperature=1e-5", "sampling.temperature=1e-05: 0 .greedy., or from 0.001"),
        ("sampling.temperature=1e300", "sampling.temperature=1e[+]300: too large"),
        ("sampling.temperature=200", "sampling.temperature=200: 0 .greedy., or from 0.001 to 100"),
        ("sampling.held_accept_length=nan", "sampling.held_accept_length=nan: must be a finite"),
        ("sampling.held_accept_length=1e9", "sampling.held_accept_length=1000000000.0: more"),
        (f"sampling.seed={10**30}", "sampling.seed: a whole number of 100 bits"),
        (f"parallelism.batch={10**9}", "parallelism.batch=1000000000: at most 65536"),
        ("+target.extra=[1,{a: nan}]", r"target.extra\[1\].a=nan: must be a finite number"),
        ("workload.per_class=nan", "workload.per_class=nan: must be"),
    ],
)
def test_a_part_with_such_a_number_is_refused_by_name(override, message):
    config, part = composed(override), override.lstrip("+").split(".")[0]
    with pytest.raises(ValueError, match=f"^{message}"):
        build_part(config, part)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("measurement.precision=nan", "measurement.precision=nan: must be a finite number"),
        ("measurement.max_seconds=inf", "measurement.max_seconds=inf: must be a finite number"),
        ("measurement.precision=1e-200", "measurement.precision=1e-200: too small"),
        ("measurement.precision=2", "measurement.precision=2: a share of tok/s, below 1"),
        ("measurement.min_repetitions=1.5", "measurement.min_repetitions=1.5: must be a whole"),
        ("launcher.start_timeout_s=nan", "launcher.start_timeout_s=nan: must be a finite number"),
        ("launcher.repetition_timeout_s=inf", "launcher.repetition_timeout_s=inf: must be a fin"),
        ("launcher.cpus_per_cell=nan", "launcher.cpus_per_cell=nan: must be a finite number"),
    ],
)
def test_a_sweeps_own_number_is_refused_by_name(override, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Settings.read(composed(override))


def test_numbers_in_use_are_taken():
    check_numbers("x", {"seed": 2**63 - 1, "eps": 1e-6, "theta": 1e7, "no": [None, True, "nan", 0]})
    check_positive("x", 0.02)
    for value in (float("nan"), float("inf"), 1e-300):
        with pytest.raises(ValueError, match=r"^x="):
            check_positive("x", value)
