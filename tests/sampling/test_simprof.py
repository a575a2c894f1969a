"""SimProf's phases and sample, on units whose phases are known."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.sampling import simprof
from manyscale.sampling.simprof import (
    SimProfRules,
    choose,
    choose_methods,
    find_phases,
    names_of_phases,
    sensitive_phases,
    variation,
)
from manyscale.sampling.stack_population import StackPopulation

METHODS = ["main", "map", "sort", "write", "idle"]


def population(*phases: tuple[int, list[float], float, float], seed: int = 0) -> tuple[StackPopulation, np.ndarray]:
    """Units of phases (number, shares of METHODS, mean of CPI, deviation), and the phase of each."""
    random = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(phases)), [number for number, *_ in phases])
    shares = np.array([shares for _, shares, *_ in phases])[truth]
    vectors = np.clip(shares + 0.02 * random.standard_normal(shares.shape), 0, 1)
    mean, deviation = (np.array([phase[column] for phase in phases])[truth] for column in (2, 3))
    cpi = mean + deviation * random.standard_normal(len(truth))
    return StackPopulation(np.arange(len(truth)), vectors, METHODS, np.full(len(truth), 10.0), cpi), truth


MAP = (60, [1, 1, 0, 0, 0.5], 1.0, 0.05)
SORT = (30, [1, 0, 1, 0, 0.5], 4.0, 0.5)
WRITE = (10, [1, 0, 0, 1, 0.5], 2.0, 0.1)


def test_phases_of_methods_that_go_with_ipc() -> None:
    units, truth = population(MAP, SORT, WRITE)
    found = find_phases(units.vectors, units.cpi, SimProfRules(), 0)
    assert found.num_phases == 3
    assert len({(a, b) for a, b in zip(found.label.tolist(), truth.tolist(), strict=True)}) == 3
    names = names_of_phases(found, METHODS, units.vectors, 1)
    assert {truth[np.argmax(found.label == phase)]: names[phase] for phase in range(3)} == {
        0: ["map"], 1: ["sort"], 2: ["write"]
    }  # fmt: skip


def test_methods_are_ranked_by_regression_on_ipc() -> None:
    """The F of a linear regression with one variable is r^2 (n - 2) / (1 - r^2): the order is that of |r|."""
    units, _ = population(MAP, SORT, WRITE)
    assert units.cpi is not None
    ipc = 1 / units.cpi
    r = np.abs([np.corrcoef(column, ipc)[0, 1] for column in units.vectors.T])
    for count in range(1, 6):
        assert choose_methods(units.vectors, ipc, count).tolist() == sorted(np.argsort(-r)[:count].tolist())


def test_methods_without_variation_are_left_out() -> None:
    vectors = np.array([[1, 0.2], [1, 0.7], [1, 0.1]])
    assert choose_methods(vectors, np.array([1.0, 2.0, 0.5]), 5).tolist() == [1]
    assert choose_methods(np.ones((3, 2)), np.array([1.0, 2.0, 0.5]), 5).tolist() == []


def test_one_phase_where_methods_say_nothing_of_cpi() -> None:
    """Two clear clusters of stacks, the same CPI in both: Spark's grep (chapter 5) has one phase."""
    units, _ = population((50, [1, 1, 0, 0, 0], 2.0, 0.3), (50, [1, 0, 1, 0, 0], 2.0, 0.3))
    assert find_phases(units.vectors, units.cpi, SimProfRules(), 0).num_phases == 1


def test_one_phase_of_units_that_are_all_alike() -> None:
    cpi = np.linspace(1, 2, 12)
    found = find_phases(np.ones((12, 3)), cpi, SimProfRules(), 0)
    assert (found.num_phases, found.label.tolist()) == (1, [0] * 12)


def test_a_sample_is_optimally_allocated() -> None:
    units, truth = population(MAP, SORT, WRITE)
    chosen, _ = choose(units, SimProfRules(units=14), 0)
    assert len(chosen.element) == 14
    assert chosen.weight.sum() == pytest.approx(1, abs=1e-12)
    drawn = np.bincount(truth[chosen.element])
    assert drawn[1] > drawn[0] > 1  # sizes x deviations are 3, 15 and 1
    assert drawn[2] == 2
    assert chosen.expected_error is not None
    assert np.array_equal(chosen.label[chosen.element], chosen.stratum)


def test_all_units_are_no_error() -> None:
    units, _ = population(MAP, SORT, WRITE)
    assert units.cpi is not None
    chosen, _ = choose(units, SimProfRules(units=100), 0)
    assert chosen.element.tolist() == list(range(100))
    assert chosen.weight @ units.cpi == pytest.approx(units.cpi.mean(), rel=1e-12)
    assert chosen.expected_error == 0


def test_as_many_as_an_error_takes() -> None:
    units, _ = population(MAP, SORT, WRITE)
    wide, _ = choose(units, SimProfRules(error=0.05), 0)
    narrow, _ = choose(units, SimProfRules(error=0.01), 0)
    assert len(wide.element) < len(narrow.element)
    assert wide.expected_error == pytest.approx(0.05, rel=0.2)
    assert narrow.expected_error is not None
    assert narrow.expected_error <= 0.011


def test_a_pilot_where_cpi_is_not_known() -> None:
    units, truth = population(MAP, SORT, WRITE)
    blind = StackPopulation(units.row, units.vectors, units.methods, units.snapshots, None)
    chosen, phases = choose(blind, SimProfRules(pilot=3), 0)
    assert phases.num_phases == 3
    assert np.bincount(truth[chosen.element]).tolist() == [3, 3, 3]
    assert chosen.expected_error is None
    assert "pilot" in chosen.notes[0]


def test_units_of_another_input_go_to_the_nearest_phase() -> None:
    units, _ = population(MAP, SORT, WRITE)
    other, truth = population(WRITE, MAP, SORT, seed=9)
    phases = find_phases(units.vectors, units.cpi, SimProfRules(), 0)
    own = {int(phases.label[row]): kind for row, kind in ((0, 1), (60, 2), (90, 0))}
    assert [own[each] for each in phases.of(other.vectors).tolist()] == truth.tolist()


def test_sensitivity_to_an_input_by_hand() -> None:
    """Phase 0: mean 1 -> 1.05 and deviation 0.5 -> 0.5; 1: mean 2 -> 2.5; 2: deviation 1 -> 1.2; 3: not visited."""
    label = np.repeat([0, 1, 2, 3], 2)
    cpi = np.array([0.5, 1.5, 2, 2, 4, 6, 7, 9])
    other = np.array([0.55, 1.55, 2.5, 2.5, 3.8, 6.2])
    assert sensitive_phases(label, cpi, label[:6], other).tolist() == [False, True, True, False]


def test_variation_by_hand() -> None:
    """CPI 1, 3 | 10, 10: mean 6, deviation sqrt((25 + 9 + 16 + 16) / 4); inside 1/2 and 0."""
    found = variation(np.array([1.0, 3.0, 10.0, 10.0]), np.array([0, 0, 1, 1]))
    assert found.population == pytest.approx(np.sqrt(16.5) / 6)
    assert (found.weighted, found.largest) == pytest.approx((0.25, 0.5))


def test_a_sample_of_units_decides_on_the_silhouette(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simprof, "SILHOUETTE_POINTS", 40)
    units, _ = population(MAP, SORT, WRITE)
    assert find_phases(units.vectors, units.cpi, SimProfRules(), 0).num_phases == 3
