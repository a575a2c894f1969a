"""SimPoint against SimPoint 3.2: its matrices and centres give its projections and criteria; fewer points, less error.

Data: $MANYSCALE_DATA/phase (README there): basic-block vectors of real programs with cycles of every interval, and what
SimPoint 3.2 made of them (``-maxK 30``, else defaults; ``phases_all``: all numbers of clusters up to 15, one seed).
Intervals of unequal length: tests/data/simpoint (SOURCES.md there), ``-fixedLength off``.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from manyscale.runner.readers import simpoint_bb
from manyscale.runner.readers.simpoint_bb import projection
from manyscale.sampling import simpoint
from manyscale.sampling.interval_samplers import simpoints
from manyscale.sampling.population import IntervalPopulation, intervals_of
from manyscale.sampling.simpoint import SimPointRules, bic, kmeans

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "phase"
SIMPOINT = DATA / "simpoint32"
LENGTHS = Path(__file__).parents[1] / "data" / "simpoint"
pytestmark = pytest.mark.peer
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the profiles")
PROFILES = {"phases": 15, "gzip": 15, "sqlite": 13, "python": 15}  # points that SimPoint 3.2 takes
SIMPOINT_ERROR = 0.0196  # its mean error of CPI, weighted by instructions: 2.40, 0.88, 0.20 and 4.37 %
SEEDS = range(10)


def population(name: str) -> IntervalPopulation:
    return intervals_of(simpoint_bb.read(DATA / name))


@needs_data
@pytest.mark.parametrize(("vectors", "name"), [
    ("phases.bb.xz", "phases"), ("phases.m.bb.xz", "phases_m"), ("gzip.m.bb.xz", "gzip_m"),
    ("sqlite.m.bb.xz", "sqlite_m"), ("python.m.bb.xz", "python_m"), ("mt4g.sbbv.bb.xz", "mt4g_sbbv"),
])  # fmt: skip
def test_its_matrix_gives_its_projection(vectors: str, name: str) -> None:
    if not (SIMPOINT / f"{name}.proj.xz").is_file():
        pytest.skip("no matrix of this profile was kept")
    theirs = projection.read(SIMPOINT / f"{name}.vectors.xz")
    ours = population(vectors).vectors.normalised().times(projection.read(SIMPOINT / f"{name}.proj.xz"))
    assert np.abs(ours[: len(theirs)] - theirs).max() < 1e-12


@needs_data
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 10, 12, 15])
def test_its_centres_give_its_criterion_to_the_printed_digits(k: int) -> None:
    points = projection.read(SIMPOINT / "phases.vectors.xz")
    clusters = kmeans.nearest(points, projection.read(SIMPOINT / "phases_all" / f"final.run_{k}_k_{k}"))
    ones = np.ones(len(points))
    with (SIMPOINT / "phases_all" / "bic.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if int(row["k"]) == k)
    assert f"{clusters.distortion(ones):.6g}" == row["distortion"]
    assert f"{bic(clusters.weight(ones), clusters.distortion(ones), 15):.6g}" == row["bic"]


def lines(name: str) -> list[tuple[str, str]]:
    return [tuple(line.split()) for line in (LENGTHS / name).read_text().splitlines()]  # type: ignore[misc]


@pytest.mark.parametrize("k", [3, 5, 8])
def test_its_beginnings_give_its_clusters_of_intervals_of_unequal_length(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``-fixedLength off``: centres, criterion, weights, points and coverage by instructions, to all digits printed."""
    intervals = intervals_of(simpoint_bb.read(LENGTHS / "lengths.bb.xz"))
    instructions = intervals.instructions
    points = intervals.vectors.normalised().times(projection.read(LENGTHS / "lengths.proj"))
    weight = instructions / instructions.mean()
    clusters = kmeans.from_centres(points, weight, projection.read(LENGTHS / f"k{k}.initial"))
    assert clusters.label.tolist() == [int(line[0]) for line in lines(f"k{k}.labels")]
    with (LENGTHS / "bic.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if int(row["k"]) == k)
    assert f"{clusters.distortion(weight):.6g}" == row["distortion"]
    assert f"{bic(clusters.weight(weight), clusters.distortion(weight), 6):.6g}" == row["bic"]
    monkeypatch.setattr(simpoint, "find_clusters", lambda *_: (clusters, ()))
    for coverage, names in (1.0, f"k{k}"), (0.7, f"k{k}.lpt"):
        rules = SimPointRules(representative="nearest", coverage=coverage)
        found = simpoint.choose(points, instructions, rules, 0)
        order = np.argsort(found.cluster)
        shown = [(str(found.point[at]), str(found.cluster[at])) for at in order]
        assert shown == lines(f"{names}.simpoints")
        assert [(f"{found.weight[at]:.6g}", str(found.cluster[at])) for at in order] == lines(f"{names}.weights")


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


@needs_data
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
