"""All parts of parallel phases from a profile of a real program with four threads.

Data: $MANYSCALE_DATA/phase/mt4g (README there): 845 intervals of 500,000 instructions of all threads, vectors of each
thread, and a table with a row per interval and thread that ran.
"""

from __future__ import annotations

import csv
import lzma
import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.readers import simpoint_bb
from manyscale.sampling.phases import parallel_phases
from manyscale.sampling.phases.parallel_phases import PARTS, PhaseRules, counts_of, sampled
from manyscale.sampling.population import IntervalPopulation, intervals_of

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "phase"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the profiles")


@pytest.fixture(scope="module")
def mt4g() -> IntervalPopulation:
    return intervals_of(simpoint_bb.read(DATA / "mt4g.bb.xz"))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, int]]:
    """The table, read line by line."""
    with lzma.open(DATA / "mt4g.cpi.csv.xz", "rt") as lines:
        return [{name: int(value) for name, value in row.items()} for row in csv.DictReader(lines)]


def test_counts_are_those_of_the_table(mt4g: IntervalPopulation, rows: list[dict[str, int]]) -> None:
    expected = {part: np.zeros((845, 4)) for part in PARTS if part != "sbbv"}
    for row in rows:
        interval, thread = row["interval"], row["tid"] - 1
        expected["icv"][interval, thread] += row["instrs"]
        expected["tcv"][interval, thread] += row["l1i_miss"] + row["l1d_miss"]
        expected["mcv"][interval, thread] += row["l2_miss"]
        expected["ccv"][interval, thread] += row["invalidated_by_others"]
        for other in range(4):
            if other != thread:
                expected["ccv"][interval, other] += row[f"readfrom{other + 1}"]
    for part, counts in expected.items():
        assert counts_of(mt4g, part).tolist() == counts.tolist(), part
        assert np.all(counts.sum(axis=0) > 0), part


def test_intervals_are_of_a_global_number_of_instructions(mt4g: IntervalPopulation) -> None:
    """SBBV's counts are the threads' instructions side by side: all but the last interval have 500,000, and
    a first one more."""
    assert sorted(set((mt4g.instructions[:-1] - 500_000).tolist())) == [0, 1]
    assert mt4g.vectors.sums() == pytest.approx(mt4g.instructions)
    samples = sampled(mt4g.vectors, 1000, 0).sums()
    assert np.all(samples[:-1] == 500)


@pytest.mark.parametrize("parts", [parts for n in (1, 2, 3) for parts in combinations(PARTS, n)])
def test_every_combination_makes_a_plan(mt4g: IntervalPopulation, parts: tuple[str, ...]) -> None:
    found = parallel_phases.choose(mt4g, parts, PhaseRules(max_k=6, seeds=1), 0)
    assert 1 <= len(found.element) <= 6
    assert found.weight.sum() == pytest.approx(1, abs=1e-12)
    assert not found.notes
