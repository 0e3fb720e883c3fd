"""The cost model: terms that can be counted by hand, and steps that were not fitted."""

import itertools

import numpy as np
import pytest

from pipeline.roi.__main__ import main
from pipeline.roi.public_figures import NCCL_PCIE_8, Curve, floor_us, more_data
from pipeline.roi.scale import cost_model as measured
from pipeline.roi.scale.command import PaperDrafter, outlook
from pipeline.roi.scale.cost_model import cost, cost_model, fit
from pipeline.roi.scale.forward_cost import KIMI_K2_5, NVLINK8, PCIE8, Terms, Work, terms


def test_rows_visit_distinct_experts_as_even_routing_says():
    # 384 (1 - (1 - 8/384)^rows)
    expected = {1: 8.0, 2: 15.8, 4: 31.0, 6: 45.6, 8: 59.5}
    for rows, experts in expected.items():
        assert KIMI_K2_5.distinct_experts(rows) == pytest.approx(experts, abs=0.06)


def test_the_bytes_of_a_forward_are_those_of_the_published_shape():
    gigabytes = KIMI_K2_5.rank_bytes(1, 8) / 1e9

    # (11.9 routed + 18.9 shared, attention, dense, head) / 8 + 1.85 that every rank reads whole
    assert gigabytes == pytest.approx((11.9 + 18.9) / 8 + 1.85, abs=0.05)
    assert KIMI_K2_5.message_kib(8) == 112
    assert KIMI_K2_5.allreduces == 122


def test_a_curve_is_read_between_its_points_and_continued_beyond_them():
    curve = Curve((8, 64), (10.0, 24.0), "")

    assert curve.at(1) == 10.0
    assert curve.at(36) == 17.0
    assert curve.at(120) == 38.0


def test_the_public_floor_holds_five_machines():
    low, high = floor_us(64)

    assert low == 21.6
    assert high == 68
    assert all(c.source.startswith("https://") for c in NCCL_PCIE_8)


def test_more_data_is_a_range_that_begins_at_nothing():
    assert more_data(1) == (1, 1)
    low, high = more_data(8)
    assert low == pytest.approx(1.006**3)
    assert high == pytest.approx(1.22)


def test_the_fit_recovers_coefficients_and_gives_no_negative_one():
    truth = Terms(1.2, 2.0, 0.5, 1.5, 7.0, 3.0)
    work = [Work(b, w, c) for b in (1, 4, 16) for w in (1, 4) for c in (0, 8192, 65536)]
    curve = PCIE8.nccl[0]
    steps = [measured.Step(w, cost(truth, terms(KIMI_K2_5, PCIE8, w, curve))) for w in work]

    found = fit(KIMI_K2_5, PCIE8, curve, steps)

    assert found == pytest.approx(truth, rel=1e-6)
    with pytest.raises(ValueError, match="5 measured steps: the cost model has 6 terms"):
        fit(KIMI_K2_5, PCIE8, curve, steps[:5])
    assert min(cost_model().coefficients) >= 0


def test_the_fit_is_the_best_of_all_subsets_of_terms():
    steps = measured.to_fit()
    # Half the time where a cache is read: its terms would have to be negative.
    bent = [s._replace(ms=s.ms / 2) if s.work.context else s for s in steps]
    for given in (steps, bent):
        rows = np.array([terms(KIMI_K2_5, PCIE8, s.work, measured.ALLREDUCE) for s in given])
        rows = rows / np.array([s.ms for s in given])[:, None]
        best, least = np.zeros(6), float(len(given))
        for chosen in (list(c) for n in range(1, 7) for c in itertools.combinations(range(6), n)):
            part = np.linalg.lstsq(rows[:, chosen], np.ones(len(given)), rcond=None)[0]
            error = float(((rows[:, chosen] @ part - 1) ** 2).sum())
            if (part >= 0).all() and error < least:
                best, least = np.zeros(6), error
                best[chosen] = part
        found = fit(KIMI_K2_5, PCIE8, measured.ALLREDUCE, given)
        assert found == pytest.approx(best, rel=1e-12, abs=1e-12)
    assert 0 in found


def test_published_steps_that_were_not_fitted_are_found_within_an_eighth_in_the_median():
    model = cost_model()

    assert float(np.median(model.fitted)) < 0.07
    assert float(np.median(model.checked)) < 0.125
    assert model.spread < 0.3
    assert len(measured.to_check()) == 17


def test_a_wider_range_of_accept_lengths_never_changes_the_order_of_its_ends():
    drafters = [PaperDrafter("x", 4, 1.5, 3.0, True, ""), PaperDrafter("y", 8, 1.1, 1.2, False, "")]
    for box in (PCIE8, NVLINK8):
        for row in outlook(cost_model(), KIMI_K2_5, box, drafters, Work(1, 1, 2048)):
            assert row.speed_up[0] < row.speed_up[1]
            assert row.step_ms[0] < row.step_ms[1]
            assert row.speed_up[1] <= row.drafter.high * (1 + cost_model().spread)


def test_eager_is_never_faster_than_captured_and_fusion_loses_at_large_batches_on_pcie():
    drafter = [PaperDrafter("x", 4, 2.0, 2.0, True, "")]
    model = cost_model()

    def best(batch):
        rows = outlook(model, KIMI_K2_5, PCIE8, drafter, Work(batch, 1, 2048))
        return {row.way.name: row.tok_s[1] for row in rows}

    one, many = best(1), best(64)
    assert one["eager"] <= one["captured"]
    assert one["captured and fused"] >= one["captured"]
    assert many["captured and fused"] < many["captured"]


@pytest.mark.parametrize("name", ["kimi_k2_5_pcie8", "kimi_k2_5_nvlink8", "kimi_k2_5_16"])
def test_each_scale_answers_with_terms_sources_and_its_check(name, capsys):
    assert main([f"scale={name}", "batch=1,8", "context=2048"]) == 0
    out = capsys.readouterr().out

    assert "## Terms, each with its source" in out
    assert "## How far off the model is" in out
    assert "https://huggingface.co/moonshotai/Kimi-K2.5" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scale=moon"], "scale=moon: known are kimi_k2_5_pcie8"),
        (["scale=kimi_k2_5_16", "speed=1"], "speed=1: give batch="),
        (["scale=kimi_k2_5_16", "batch=0"], "batch=0: must be 1 or more"),
        (["scale=kimi_k2_5_16", "batch=one"], "batch=one: numbers with commas between"),
        (["scale=kimi_k2_5_16", "accept_length=5"], "accept_length=5: at most the width, 4"),
    ],
)
def test_an_impossible_scale_is_refused_in_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_your_own_drafter_joins_the_table(capsys):
    assert main(["scale=kimi_k2_5_pcie8", "batch=1", "context=2048", "accept_length=2.35"]) == 0
    assert "yours" in capsys.readouterr().out
