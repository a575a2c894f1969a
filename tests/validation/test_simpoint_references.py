"""SimPoint against SimPoint 3.2: its matrices and centres give its projections and criteria; fewer points, less error.

Data: $MANYSCALE_DATA/phase (README there): basic-block vectors of real programs with cycles of every interval, and what
SimPoint 3.2 made of them (``-maxK 30``, else defaults; ``phases_all``: all numbers of clusters up to 15, one seed).
"""

from __future__ import annotations

import csv
import lzma
import os
from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.readers import simpoint_bb
from manyscale.sampling import kmeans
from manyscale.sampling.interval_population import IntervalPopulation, intervals_of
from manyscale.sampling.interval_samplers import simpoints
from manyscale.sampling.simpoint import SimPointRules, bic

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "phase"
SIMPOINT = DATA / "simpoint32"
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the profiles"),
]
PROFILES = {"phases": 15, "gzip": 15, "sqlite": 13, "python": 15}  # points that SimPoint 3.2 takes
SIMPOINT_ERROR = 0.0196  # its mean error of CPI, weighted by instructions: 2.40, 0.88, 0.20 and 4.37 %
SEEDS = range(10)


def matrix(path: Path) -> np.ndarray:
    """A file of SimPoint: ``rows:w``, then ``weight dimensions: numbers`` in each line."""
    text = lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text()
    return np.array([line.split(":")[1].split() for line in text.splitlines()[1:] if line.strip()], np.float64)


def population(name: str) -> IntervalPopulation:
    return intervals_of(simpoint_bb.read(DATA / name))


@pytest.mark.parametrize(("vectors", "name"), [
    ("phases.bb.xz", "phases"), ("phases.m.bb.xz", "phases_m"), ("gzip.m.bb.xz", "gzip_m"),
    ("sqlite.m.bb.xz", "sqlite_m"), ("python.m.bb.xz", "python_m"), ("mt4g.sbbv.bb.xz", "mt4g_sbbv"),
])  # fmt: skip
def test_its_matrix_gives_its_projection(vectors: str, name: str) -> None:
    if not (SIMPOINT / f"{name}.proj.xz").is_file():
        pytest.skip("no matrix of this profile was kept")
    theirs = matrix(SIMPOINT / f"{name}.vectors.xz")
    ours = population(vectors).vectors.normalised().times(matrix(SIMPOINT / f"{name}.proj.xz"))
    assert np.abs(ours[: len(theirs)] - theirs).max() < 1e-12


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 10, 12, 15])
def test_its_centres_give_its_criterion_to_the_printed_digits(k: int) -> None:
    points = matrix(SIMPOINT / "phases.vectors.xz")
    clusters = kmeans.nearest(points, matrix(SIMPOINT / "phases_all" / f"final.run_{k}_k_{k}"))
    ones = np.ones(len(points))
    with (SIMPOINT / "phases_all" / "bic.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if int(row["k"]) == k)
    assert f"{clusters.distortion(ones):.6g}" == row["distortion"]
    assert f"{bic(clusters.weight(ones), clusters.distortion(ones), 15):.6g}" == row["bic"]


def errors(name: str, rules: SimPointRules) -> tuple[np.ndarray, np.ndarray]:
    """(relative error of CPI, points) for each seed."""
    intervals = population(f"{name}.m.bb.xz")
    cpi = intervals.cpi
    assert cpi is not None
    truth = intervals.instructions @ cpi / intervals.instructions.sum()
    chosen = [simpoints(intervals, rules, seed) for seed in SEEDS]
    return (
        np.array([each.weight @ cpi[each.element] / truth - 1 for each in chosen]),
        np.array([len(each.element) for each in chosen]),
    )


def test_less_error_with_no_more_points() -> None:
    means, counts = [], []
    for name, points in PROFILES.items():
        found, count = errors(name, SimPointRules())
        means.append(np.abs(found).mean())
        counts.append(count.mean())
        print(f"{name}: mean {means[-1]:.2%}, largest {np.abs(found).max():.2%}, {count.mean():.1f} points ({points})")
    print(f"mean of all {np.mean(means):.2%} (SimPoint 3.2: {SIMPOINT_ERROR:.2%})")
    assert np.mean(counts) <= np.mean(list(PROFILES.values()))
    assert np.mean(means) <= 0.75 * SIMPOINT_ERROR
