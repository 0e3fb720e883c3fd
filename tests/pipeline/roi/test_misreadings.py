"""Numbers that say more than enough are held against each other, and the slip is named."""

import re

import pytest

from pipeline.roi.__main__ import main

PLAIN = "baseline_tok_s=60"
# 2.56 = 1 + 0.805 + 0.805·0.632 + 0.805·0.632·0.483 tokens in 25 ms.
RIGHT = f"{PLAIN} accept_length=2.56 tok_s=102.4 step_ms=25 verify_ms=20 draft_ms=3 host_ms=2"
RATES = "width=4 accept_rate=0.805/0.632/0.483"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            f"{PLAIN} accept_length=2.92 tok_s=111.46 verify_ms=20 {RATES}",
            r"look like shares of all steps .* 2.92.*: 0.805/0.785/0.764",
        ),
        (f"{PLAIN} accept_length=1.5 tok_s=60 accept_rate=0.4/0.1", "look like shares of all"),
        (f"{PLAIN} accept_length=1.56 tok_s=60 {RATES}", "without the bonus token: .*=2.56"),
        (f"{PLAIN} accept_length=3.56 tok_s=60 {RATES}", "bonus token was counted twice"),
        (f"{PLAIN} accept_length=3.2 tok_s=60 {RATES}", "gives accept length 2.56, and .* wrong"),
        (f"{PLAIN} accept_length=2.56 tok_s=60 width=3 {RATES[8:]}", "width=3: .* so width=4"),
        (
            f"{PLAIN} accept_length=2.56 tok_s=60 width=5 {RATES[8:]}",
            "num_draft_tokens counts the root already: width=4",
        ),
        (
            f"{PLAIN} accept_length=2.56 tok_s=60 accept_rate=80.5/63.2/48.3",
            r"80.5 looks like per cent: write 0.805",
        ),
        (f"{PLAIN} accept_length=2.56 tok_s=102.4 step_ms=0.025", "step_ms=0.025 looks like sec"),
        (f"{PLAIN} accept_length=2.56 tok_s=102.4 step_ms=25000", "looks like µs: step_ms=25"),
        (f"{PLAIN} accept_length=1.56 tok_s=102.4 step_ms=25", "without the bonus token: .*=2.56"),
        (f"{PLAIN} accept_length=2.56 tok_s=102.4 step_ms=9.77", "time of a token: step_ms=25"),
        (f"{PLAIN} accept_length=2.56 tok_s=819.2 step_ms=25", "8 requests together: give batch=8"),
        (
            "baseline_tok_s=480 batch=8 accept_length=2.56 tok_s=102.4 step_ms=25",
            "that of one request; .*tok_s=819.2",
        ),
        (f"{PLAIN} accept_length=2.56 tok_s=60 step_ms=25", "one of the three is wrong"),
        (f"{PLAIN} accept_length=2.56 tok_s=102.4 verify_ms=0.02", "seconds: verify_ms=20"),
        (f"{PLAIN} accept_length=2.56 tok_s=102.4 verify_ms=20000", "µs: verify_ms=20"),
        (f"{PLAIN} accept_length=2.56 step_ms=25 verify_ms=20 draft_ms=3000", "µs: draft_ms=3"),
        (f"{PLAIN} accept_length=2.56 step_ms=25 verify_ms=25 draft_ms=3 host_ms=2", "whole step"),
        (f"{PLAIN} accept_length=2.56 step_ms=25 verify_ms=20 draft_ms=9", "29 ms and a step"),
        (f"{PLAIN} accept_length=2.56 step_ms=50 verify_ms=20 draft_ms=3 host_ms=2", "25 ms and"),
        (f"{PLAIN} accept_length=2.56 tok_s=102.4 verify_ms=1e-300", "verify_ms=1e-300: too small"),
        (f"{PLAIN} accept_length=2.56 tok_s=1e300", "tok_s=1e300: too large"),
        (f"{PLAIN} accept_length=2.56 tok_s=60 width=3.7", "width=3.7: .*a whole number"),
        (f"{PLAIN} accept_length=2.56 tok_s=60 accept_rate=0.8/nan", "accept_rate=nan: must be f"),
    ],
)
def test_a_likely_misreading_is_named(arguments, message, capsys):
    assert main(arguments.split()) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(message, said), said


@pytest.mark.parametrize(
    "arguments",
    [
        f"{RIGHT} {RATES}",
        f"{PLAIN} accept_length=2.6 tok_s=103 step_ms=25 verify_ms=20",
        "baseline_tok_s=480 batch=8 accept_length=2.56 tok_s=819.2 step_ms=25",
        "baseline_tok_s=82 accept_length=2.0 tok_s=60 verify_ms=30 width=8",
    ],
)
def test_numbers_that_agree_within_their_digits_are_taken(arguments, capsys):
    assert main(arguments.split()) == 0
    assert capsys.readouterr().err == ""
