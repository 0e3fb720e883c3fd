"""A damaged input of any kind is refused in one line, or read: no traceback, no hang."""

import signal

import pytest
from hypothesis import HealthCheck, given, settings

from experiments.hostile_input.kinds import KINDS, try_one

LONGEST_S = 60  # a hang; a sound input takes milliseconds


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_input_is_refused_in_one_line_or_read(name):
    kind = KINDS[name]

    @settings(
        max_examples=int(60 * kind.share),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(kind.inputs)
    def check(value):
        signal.alarm(LONGEST_S)
        try:
            try_one(kind, value)
        finally:
            signal.alarm(0)

    def too_long(*_):
        pytest.fail("a hang")

    before = signal.signal(signal.SIGALRM, too_long)
    try:
        check()
    finally:
        signal.signal(signal.SIGALRM, before)
