"""The pivot: the numbers of one afternoon, what was concluded from them, and what holds.

A team serves Kimi-K2.5 on 8 PCIe GPUs: plain 82 tok/s; EAGLE-3 on 37k samples 60 tok/s at accept
length 2.0; AQ-MedAI's K2 drafter 52 tok/s at 1.5; n-gram 41 tok/s; verify 30 ms, of it 25 ms in
122 all-reduces. They were told that a verify of 15 ms gives 82 → 133 tok/s, or 82 → 100.
"""

import pytest

from pipeline.roi.levers.gain import Side
from pipeline.roi.numbers import parse
from pipeline.roi.text import headline, lines
from pipeline.roi.verdict import from_numbers

SHARED = "baseline_tok_s=82 verify_ms=30 allreduce_ms=25 allreduces=122 width=8 hidden_size=7168"
EAGLE = f"{SHARED} accept_length=2.0 tok_s=60 drafter=EAGLE-3"
AQ_MEDAI = f"{SHARED} accept_length=1.5 tok_s=52"


def verdict(text):
    return from_numbers(parse(text.split()))


def gain(found, start):
    return next(g for g in found.gains if g.name.startswith(start))


def test_the_step_is_33_ms_and_break_even_is_2_73_and_not_2_46():
    at = verdict(EAGLE).situation

    assert at.step_ms == pytest.approx(33.3, abs=0.05)
    assert at.levers.break_even == pytest.approx(2.73, abs=0.005)
    assert at.levers.break_even_floor == pytest.approx(2.46, abs=0.005)
    assert at.overhead_ms == pytest.approx(3.3, abs=0.05)


@pytest.mark.parametrize(
    ("accept_length", "told", "true"),
    [(2.0, 133, 109), (1.5, 100, 82)],  # 3.3 ms of draft and host stay in the true one
)
def test_a_verify_of_15_ms_gives_what_the_owner_was_told_only_without_draft_time(
    accept_length, told, true
):
    numbers = f"baseline_tok_s=82 accept_length={accept_length} verify_ms=15"

    without = verdict(numbers)
    with_draft = verdict(f"{numbers} draft_ms=3.333")

    assert without.situation.tok_s == pytest.approx(told, abs=0.5)
    (assumption,) = without.situation.assumptions
    assert "draft and host time is not given and counted as 0: step time is a lower" in assumption
    assert with_draft.situation.tok_s == pytest.approx(true, abs=0.5)


def test_halving_verify_from_the_measured_step_states_both_figures():
    half = gain(verdict(f"{EAGLE} verify_ms_to=15"), "verify in 15")

    assert half.tok_s(60)[0] == pytest.approx(109, abs=0.5)
    assert "133 tok/s" in half.factor.source


def test_the_k2_drafter_reports_a_step_shorter_than_its_own_verify():
    found = verdict(AQ_MEDAI)

    assert found.situation.step_ms == pytest.approx(28.8, abs=0.05)
    (clash,) = [c for c in found.clashes if "less than its own verify" in c]
    assert "one of the two is wrong" in clash
    assert "at most 50.0 tok/s" in clash
    assert "at least 1.56" in clash
    assert not [g for g in found.gains if g.side is Side.STEP], "its step is not known"
    assert "lower bound" not in headline(found)[1], "such a verify bounds nothing"


def test_ngram_at_41_tok_s_accepted_about_1_23():
    at = verdict("baseline_tok_s=82 tok_s=41 verify_ms=30 drafter=ngram").situation

    assert at.accept_length == pytest.approx(1.23, abs=0.005)
    assert "lower bounds" in at.assumptions[0]


def test_205_us_an_all_reduce_is_several_times_what_nccl_needs_at_112_kib():
    found = verdict(EAGLE)

    assert found.situation.message_kib == 112
    (clash,) = [c for c in found.clashes if "what NCCL needs" in c]
    times = [float(word) for word in clash.split() if word.replace(".", "").isdigit()]
    assert times[0] == 205
    assert 2.5 < times[1] < times[2] < 10
    assert "at 112 KiB" in clash
    assert any("at most 100 µs" in c for c in found.clashes)


def test_the_verdict_is_a_cheaper_verify_before_more_data():
    found = verdict(f"{EAGLE} samples=37000 samples_to=200000 target=kimi_k2_5")

    (first,) = found.decision.levers
    assert first.name == "bring the all-reduces down to their floor"
    assert first.factor.low > 1.85
    data = gain(found, "more training data")
    assert data.tok_s(60)[1] < 82, "5.4 times the data alone does not reach plain decoding"
    assert data.factor.high * 2.0 == pytest.approx(2.35, abs=0.01)


def test_a_lever_before_a_larger_one_says_why_it_comes_first():
    numbers = "baseline_tok_s=100 accept_length=2.35 tok_s=130 drafter=eagle3"
    found = verdict(numbers)

    assert found.gains[0].name == "training data of a domain that is missing"
    (line,) = [x for x in headline(found) if x.startswith("**Next:**")]
    assert line.startswith(
        "**Next:** more training data (twice the samples), the most that gains even at its low end:"
    )


def test_one_number_is_not_written_as_a_range():
    found = verdict(
        "baseline_tok_s=100 accept_length=2.35 tok_s=130 accept_length_to=4 drafter=ngram"
    )

    assert headline(found)[2] == "**Next:** accept length 4.00: 221 tok/s (2.21x the baseline)."


def test_the_two_levers_multiply_and_the_widest_range_names_its_measurement():
    text = "\n".join(lines(verdict(f"{EAGLE} samples=37000 samples_to=200000 target=kimi_k2_5")))

    assert "Two levers together" in text
    assert "Measure next:" in text
    assert "measure the baseline again" in text
    assert text.startswith("- **EAGLE-3 does not pay:** 60.0 against 82.0 tok/s, 0.73x")


def test_no_lever_on_verify_promises_less_than_a_plain_forward():
    found = verdict(EAGLE)
    floor_ms = 1000 / 82 + found.situation.overhead_ms

    for lever in found.gains:
        if lever.side is Side.STEP and "draft and host" not in lever.name:
            assert found.situation.step_ms / lever.factor.high >= floor_ms - 1e-9
