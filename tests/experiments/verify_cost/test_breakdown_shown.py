"""The table and the plot of where a step's time goes."""

from experiments.verify_cost.breakdown_shown import plot, table
from verify.breakdown import Breakdown


def test_the_table_and_the_plot_show_every_cell(tmp_path):
    one = Breakdown(0.020, 0.003, 0.002, 0.004)
    text = table({"fused": (one, one), "eager": (one, None)})
    assert "| fused | 0.029 | 0.020 | 0.003 | 0.002 | 0.004 |" in text
    assert "0.0%" in text
    plot({"fused": one, "eager": one}, tmp_path / "breakdown.png")
    assert (tmp_path / "breakdown.png").stat().st_size > 1000
