"""SimProf on a program whose units' cycles are known, and on Java and Spark programs whose stacks alone are.

Data: $MANYSCALE_DATA/phase: ``spstk``, 299 units with 50 call stacks each and their CPI; ``wc2`` and ``spark2``, Flight
Recorder's stacks of a word count and of PySpark. The source (Huang, Georgia Tech 2015, section 5.4) has 1.6 % of error
with 20 units, where simple random sampling has 8.9 %.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.readers import jfr, unit_stacks
from manyscale.sampling import stratified
from manyscale.sampling.simprof import SimProfRules, find_phases, names_of_phases, variation
from manyscale.sampling.stack_population import StackPopulation, stack_units_of

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "phase"
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the profiles"),
]
UNITS, DRAWS, SEEDS = 20, 1000, range(5)


@pytest.fixture(scope="module")
def units() -> StackPopulation:
    return stack_units_of(unit_stacks.read(DATA / "spstk.stk.xz"))


def test_twenty_units(units: StackPopulation) -> None:
    """Mean error of 1,000 draws for each of five seeds of the phases, and how often 95 % intervals hold."""
    cpi = units.cpi
    assert cpi is not None
    truth, random = cpi.mean(), np.random.default_rng(0)
    figures = []
    for seed in SEEDS:
        label = find_phases(units.vectors, cpi, SimProfRules(), seed).label
        members = [np.flatnonzero(label == phase) for phase in range(label.max() + 1)]
        sizes = np.array(list(map(len, members)))
        deviations = np.array([cpi[each].std() for each in members])
        known = stratified.allocate(sizes, deviations, UNITS)
        found = np.empty((DRAWS, 4))
        for draw in range(DRAWS):
            orders = [random.permutation(each) for each in members]
            drawn = [cpi[each[:n]] for each, n in zip(orders, known, strict=True)]
            one = stratified.estimate(sizes, drawn, 0.95, deviations)
            count = stratified.second_phase(sizes, [cpi[each[:2]] for each in orders], UNITS)
            two = stratified.estimate(
                sizes, [cpi[each[:n]] for each, n in zip(orders, count, strict=True)], 0.95, pooled=True
            )
            found[draw] = (
                abs(one.mean / truth - 1), one.low <= truth <= one.high,
                abs(two.mean / truth - 1), two.low <= truth <= two.high,
            )  # fmt: skip
        figures.append(found.mean(axis=0))
        print(f"seed {seed}: {len(sizes)} phases, {np.array2string(100 * figures[-1], precision=2)}")
    error, coverage, two_phase_error, two_phase_coverage = np.mean(figures, axis=0)
    simple = np.mean([abs(random.choice(cpi, UNITS, replace=False).mean() / truth - 1) for _ in range(DRAWS)])
    print(
        f"known deviations {error:.2%}, intervals hold {coverage:.1%}; two phases {two_phase_error:.2%}, "
        f"{two_phase_coverage:.1%}; simple random {simple:.2%}"
    )
    assert error <= 0.02
    assert 0.93 <= coverage <= 0.97
    assert two_phase_coverage >= 0.90
    assert simple > 3 * error


def test_phases_hold_units_that_are_alike(units: StackPopulation) -> None:
    """The source's weighted coefficient of variation is a fraction of the population's (figure 5.7)."""
    assert units.cpi is not None
    found = variation(units.cpi, find_phases(units.vectors, units.cpi, SimProfRules(), 0).label)
    assert found.weighted < found.population / 3


@pytest.mark.parametrize(("name", "expected"), [
    ("wc2", {"WC.map", "java.util.ArrayList.sort"}), ("spark2", {"executor.Executor$TaskRunner", "py4j"}),
])  # fmt: skip
def test_phases_are_named_by_methods_and_idle_threads_are_out(name: str, expected: set[str]) -> None:
    found = stack_units_of(jfr.read(DATA / f"{name}_jfr_stacks.tsv.gz"))
    phases = find_phases(found.vectors, None, SimProfRules(), 0)
    names = names_of_phases(phases, found.methods, found.vectors, 10)
    print(name, phases.num_phases, [each[:3] for each in names])
    assert phases.num_phases >= 2
    assert all(names)
    told = " ".join(method for each in names for method in each)
    assert all(each.lower() in told.lower() for each in expected)
    waits = [method for method in found.methods if method.endswith((".epollWait", ".park", ".wait0", "Thread.sleep"))]
    assert not waits or found.vectors[:, [found.methods.index(each) for each in waits]].max() < 0.5
