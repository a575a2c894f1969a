"""SimProf's phases and sample, on units whose phases are known."""

from __future__ import annotations

import numpy as np
import pytest
from told import told

from manyscale.sampling import simprof
from manyscale.sampling.simprof import (
    Phases,
    SimProfRules,
    choose,
    choose_methods,
    find_phases,
    first_of_code,
    go_on,
    kinds_of_phases,
    names_of_phases,
    variation,
)
from manyscale.sampling.simprof.stack_population import StackPopulation, kinds_of

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
    names = names_of_phases(found, units, 1)
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
    assert "pilot" in told(chosen.notes)[0]


def test_units_of_another_input_go_to_the_nearest_phase() -> None:
    units, _ = population(MAP, SORT, WRITE)
    other, truth = population(WRITE, MAP, SORT, seed=9)
    phases = find_phases(units.vectors, units.cpi, SimProfRules(), 0)
    own = {int(phases.label[row]): kind for row, kind in ((0, 1), (60, 2), (90, 0))}
    assert [own[each] for each in phases.of(other.vectors).tolist()] == truth.tolist()


def test_variation_by_hand() -> None:
    """CPI 1, 3 | 10, 10: mean 6, deviation sqrt((25 + 9 + 16 + 16) / 4); inside 1/2 and 0."""
    found = variation(np.array([1.0, 3.0, 10.0, 10.0]), np.array([0, 0, 1, 1]))
    assert found.population == pytest.approx(np.sqrt(16.5) / 6)
    assert (found.weighted, found.largest) == pytest.approx((0.25, 0.5))


def test_a_sample_of_units_decides_on_the_silhouette(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simprof, "SILHOUETTE_POINTS", 40)
    units, _ = population(MAP, SORT, WRITE)
    assert find_phases(units.vectors, units.cpi, SimProfRules(), 0).num_phases == 3


def named(*stacks: tuple[int, tuple[str, ...]]) -> tuple[StackPopulation, Phases]:
    """A unit per stack, each its phase; as many of them as is said."""
    methods = list(dict.fromkeys(name for _, stack in stacks for name in stack))
    label = np.repeat(np.arange(len(stacks), dtype=np.int32), [number for number, _ in stacks])
    vectors = np.array([[name in stacks[phase][1] for name in methods] for phase in label], float)
    depth = np.array([np.mean([stack.index(name) for _, stack in stacks if name in stack]) for name in methods])
    kinds, of_method = kinds_of(methods)
    innermost = [[of_method[methods.index(name)] for name in reversed(stack)] for _, stack in stacks]
    kind = np.array([next((each for each in found if each >= 0), len(kinds) - 1) for found in innermost])
    units = StackPopulation(
        np.arange(len(label)), vectors, methods, np.ones(len(label)), None, np.zeros(len(label)), depth, kinds,
        np.eye(len(kinds))[kind[label]],
    )  # fmt: skip
    every = np.arange(len(methods))
    centre = np.array([vectors[label == phase].mean(axis=0) for phase in range(len(stacks))])
    return units, Phases(label, centre, every, np.zeros(0))


def test_phases_are_named_by_what_is_innermost_and_tells_them() -> None:
    """Not by what all have, nor by what a compiler put between."""
    outer = ("java.lang.Thread.run", "Task.run", "Task$$Lambda.apply")
    units, phases = named((5, (*outer, "WC.map", "WC.lambda$map$1", "java.lang.String.split")),
                          (5, (*outer, "WC.order", "java.util.TimSort.sort")))  # fmt: skip
    assert names_of_phases(phases, units) == [
        ["java.lang.String.split", "WC.map"], ["java.util.TimSort.sort", "WC.order"]
    ]  # fmt: skip
    assert kinds_of_phases(phases, units) == ["map", "sort"]


def test_a_phase_of_nothing_but_wrappers_has_a_name() -> None:
    units, phases = named((3, ("A.main", "A$$Lambda.apply")), (3, ("A.main", "A.f")))
    assert names_of_phases(phases, units)[0] == ["A$$Lambda.apply"]


def test_code_is_the_unit_nearest_the_centre_of_each_phase() -> None:
    """Section 5.4.1; by the stacks alone, so that cycles play no part."""
    units, truth = population(MAP, SORT, WRITE)
    chosen = first_of_code(units, SimProfRules(), 0)
    assert sorted(truth[chosen.element]) == [0, 1, 2]
    assert not chosen.is_random
    assert chosen.weight.sum() == pytest.approx(1, abs=1e-12)
    varying = units.vectors[:, np.ptp(units.vectors, axis=0) > 0]
    for element, kind in zip(chosen.element.tolist(), truth[chosen.element].tolist(), strict=True):
        off = ((varying - varying[truth == kind].mean(axis=0)) ** 2).sum(axis=1)
        assert element == np.flatnonzero(truth == kind)[np.argmin(off[truth == kind])]


def blind(units: StackPopulation) -> StackPopulation:
    return StackPopulation(units.row, units.vectors, units.methods, units.snapshots, None)


def test_a_sample_goes_on_until_it_is_enough() -> None:
    """From a pilot of two units a phase: units are added where they differ, none of them twice, until the interval is
    as narrow as was asked for."""
    units, truth = population(MAP, SORT, WRITE)
    assert units.cpi is not None
    rules = SimProfRules(error=0.04, pilot=2)
    chosen, phases = choose(blind(units), rules, 0)
    sizes = []
    for _ in range(20):
        progress = go_on(phases, chosen.element, units.cpi[chosen.element], rules, 0, False)
        sizes.append(len(chosen.element))
        if progress.enough:
            break
        assert len(progress.further) > 0
        assert set(progress.choice.element) == set(chosen.element) | set(progress.further)
        assert len(set(progress.choice.element)) == len(progress.choice.element)
        chosen = progress.choice
    assert progress.enough
    assert progress.found.high - progress.found.mean <= 0.04 * progress.found.mean
    assert sizes[0] == 6
    assert len(progress.further) == 0
    assert np.bincount(truth[chosen.element])[1] > 8  # sorting differs most


def test_a_second_phase_is_unbiased_and_holds() -> None:
    """Pilot of two, then as many as optimal allocation wants by it: 600 draws; 95 % intervals hold in 92 % at least."""
    units, _ = population((100, [1, 1, 0, 0, 0.5], 1.0, 0.05), (60, [1, 0, 1, 0, 0.5], 4.0, 0.5))
    assert units.cpi is not None
    rules, truth = SimProfRules(units=20), float(units.cpi.mean())
    _, phases = choose(blind(units), rules, 0)
    members = [np.flatnonzero(phases.label == phase) for phase in range(phases.num_phases)]
    random = np.random.default_rng(0)
    means, held = [], 0
    for seed in range(600):
        pilot = np.sort(np.concatenate([random.choice(each, 2, replace=False) for each in members]))
        more = go_on(phases, pilot, units.cpi[pilot], rules, seed, False)
        assert len(more.choice.element) == 20
        both = more.choice.element
        found = go_on(phases, both, units.cpi[both], rules, seed, False)
        assert len(found.further) == 0
        means.append(found.found.mean)
        held += found.found.low <= truth <= found.found.high
    assert np.mean(means) == pytest.approx(truth, abs=3 * np.std(means) / np.sqrt(600))
    assert held / 600 > 0.92


def test_a_phase_that_was_not_measured() -> None:
    units, _ = population(MAP, SORT)
    _, phases = choose(blind(units), SimProfRules(), 0)
    own = np.flatnonzero(phases.label == phases.label[0])[:5]
    with pytest.raises(ValueError, match="0 units are measured; 2 are needed"):
        go_on(phases, own, np.ones(5), SimProfRules(), 0, False)
