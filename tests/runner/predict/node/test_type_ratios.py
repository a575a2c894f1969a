"""Ratios by task type and their intervals, computed by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import t as student

from manyscale.runner.predict.node.cells import cell_units
from manyscale.runner.predict.node.type_ratios import CellTimes, type_ratios

FLAT = np.zeros(3)


def cell(stratum, predicted, traced, half_width=0.0):
    return CellTimes(stratum, np.array(predicted, float), np.array(traced, float), half_width)


@pytest.mark.theory
def test_each_type_has_its_own_ratio_and_unknown_ones_the_overall():
    found = type_ratios([cell(0, [20, 0, 3], [10, 0, 6])], 1, FLAT)
    assert found.ratio[0].tolist() == [2.0, 23 / 16, 0.5]
    assert found.overall == 23 / 16
    assert found.is_known.tolist() == [True, False, True]


@pytest.mark.theory
def test_ranks_go_by_their_own_stratum_and_else_by_all():
    found = type_ratios([cell(0, [20, 0, 4], [10, 0, 4]), cell(1, [0, 6, 4], [0, 2, 4])], 2, FLAT)
    assert found.ratio.tolist() == [[2.0, 3.0, 1.0], [2.0, 3.0, 1.0]]
    found = type_ratios([cell(0, [20, 0, 4], [10, 0, 4]), cell(1, [40, 6, 4], [10, 2, 4])], 2, FLAT)
    assert found.ratio[:, 0].tolist() == [2.0, 4.0]


@pytest.mark.theory
def test_half_width_of_several_cells_is_students():
    """Ratios 1.9, 2.0, 2.1 of one rank: deviation 0.05 of the mean, two degrees of freedom, three cells."""
    found = type_ratios([cell(0, [x, 0, 0], [10, 0, 0]) for x in (19, 20, 21)], 1, FLAT)
    assert found.half_width[0] == pytest.approx(student.ppf(0.975, 2) * 0.05 / np.sqrt(3))
    inside = type_ratios([cell(0, [x, 0, 0], [10, 0, 0], 0.03) for x in (20, 20, 20)], 1, FLAT)
    assert inside.half_width[0] == pytest.approx(0.03 / np.sqrt(3))


@pytest.mark.theory
def test_of_one_cell_the_traced_spread_stands_for_its_own():
    found = type_ratios([cell(0, [20, 0, 3], [10, 0, 6], 0.04)], 1, np.array([0.02, 0.1, 0.0]))
    normal = 1.959963984540054
    assert found.half_width[0] == pytest.approx(np.hypot(0.02 * normal, 0.04))
    assert found.half_width[1] == pytest.approx(0.1 * normal)


@pytest.mark.theory
def test_types_combine_as_independent():
    found = type_ratios([cell(0, [20, 0, 3], [10, 0, 6], 0.04)], 1, FLAT)
    assert found.combined(np.array([30.0, 0.0, 40.0])) == pytest.approx(0.04 * 50 / 70)


@pytest.mark.theory
def test_nothing_follows_from_no_time():
    with pytest.raises(ValueError, match="took no time"):
        type_ratios([cell(0, [0, 0, 0], [10, 0, 0])], 1, FLAT)


@pytest.mark.parametrize("in_detail", [99_950, 900])
def test_an_initial_task_that_does_next_to_nothing_has_no_ratio_whatever_was_sampled(monkeypatch, in_detail):
    """50 of 100,000 instructions, in six of sixteen units of traced time: the runtime system's."""
    monkeypatch.setattr(cell_units, "traced_spread", lambda _: np.zeros(2))
    plan = SimpleNamespace(
        cells=[SimpleNamespace(stratum=0, weight=1.0)], ranks=SimpleNamespace(element_id=[0]), detail=None
    )
    result = {
        "predicted_ps": np.array([20.0, 1]),
        "traced_ps": np.array([10.0, 6]),
        "type_instructions": np.array([in_detail, 50]),
        "num_instructions": np.array([100_000]),
        "half_width": np.zeros(1),
    }
    traced = SimpleNamespace(tables={"task_types": SimpleNamespace(num_rows=1)})
    assert cell_units.ratios(plan, [result], traced).ratio.tolist() == [[2, 2]]
