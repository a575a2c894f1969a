"""Efficiencies of ranks with several cores: closed forms of POP's hybrid metrics, and products that are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.runner.predict.core_efficiencies import with_cores
from manyscale.runner.predict.node.schedule_units import core_use
from manyscale.runner.predict.phase_source import CoreUse
from manyscale.runner.predict.statistic import Statistic


def efficiencies(
    compute: list[int], run_time: int, cores: int, busy: list[int], serial: list[int], overhead: list[int],
    scheduled: list[int] | None = None,
) -> dict[str, float]:  # fmt: skip
    """Of ranks that compute so long, whose cores execute, wait for the initial task's serial time, and are in the
    runtime system, in ``scheduled`` ps of time (as long as they compute)."""
    took = compute if scheduled is None else scheduled
    use = [
        core_use(*each, cores * time, cores) for *each, time in zip(busy, overhead, serial, took, strict=True)
    ]  # fmt: skip
    process = Statistic(sum(compute) / len(compute) / run_time, "1", "ratio", "")
    figures = {
        "application.makespan": Statistic(run_time / 1e12, "s", "total", ""),
        "application.parallel_efficiency": process,
        "application.transfer_efficiency": Statistic(1.0, "1", "ratio", ""),
    }
    found = with_cores(figures, np.array(compute), CoreUse(*np.array(use).T))
    assert list(found)[:3] == [
        f"application.{name}" for name in ("makespan", "parallel_efficiency", "process_efficiency")
    ]
    return {name.removeprefix("application."): float(each.value) for name, each in found.items() if each.unit == "1"}


@pytest.mark.theory
def test_all_cores_at_work_all_the_time_are_100_per_cent() -> None:
    found = efficiencies([100, 100], 100, 4, [400, 400], [0, 0], [0, 0])
    assert set(found.values()) == {1.0}


@pytest.mark.theory
@pytest.mark.parametrize("ranks", [2, 7])
def test_one_rank_of_n_at_work_is_one_nth(ranks: int) -> None:
    """Its cores are all at work: what is lost, is lost between processes."""
    idle = [0] * (ranks - 1)
    found = efficiencies([100, *idle], 100, 4, [400, *idle], [0, *idle], [0, *idle])
    assert found["parallel_efficiency"] == pytest.approx(1 / ranks)
    assert found["process_efficiency"] == pytest.approx(1 / ranks)
    assert found["thread_efficiency"] == 1.0


@pytest.mark.theory
def test_half_of_the_cores_idle_is_50_per_cent_of_threads() -> None:
    found = efficiencies([100, 100], 125, 4, [200, 200], [0, 0], [0, 0])
    assert found["thread_efficiency"] == found["thread_load_balance"] == 0.5
    assert found["serial_efficiency"] == found["scheduling_efficiency"] == 1.0
    assert found["process_efficiency"] == 0.8
    assert found["parallel_efficiency"] == 0.4


@pytest.mark.theory
@pytest.mark.parametrize("cores", [1, 2, 16])
def test_amdahl(cores: int) -> None:
    """A serial share s and a perfect rest on n cores: 1 / (s n + 1 - s), all of it serial efficiency."""
    serial, rest = 300, 700 * 16
    time = serial + rest // cores
    found = efficiencies([time], time, cores, [serial + rest], [serial], [0])
    share = serial / (serial + rest)
    assert found["parallel_efficiency"] == pytest.approx(1 / (share * cores + 1 - share))
    assert found["serial_efficiency"] == pytest.approx(found["parallel_efficiency"])
    assert found["thread_load_balance"] == pytest.approx(1)


@pytest.mark.theory
def test_the_runtime_system_takes_a_fifth_of_the_time_with_work() -> None:
    found = efficiencies([100], 100, 2, [160], [0], [40])
    assert found["scheduling_efficiency"] == 0.8
    assert found["parallel_efficiency"] == found["thread_efficiency"] == 0.8


@pytest.mark.theory
def test_ranks_count_by_how_long_they_compute() -> None:
    """The first is scheduled in 100 ps, and takes twice as long in the run (two ranks share its cores)."""
    found = efficiencies([200, 100], 200, 2, [200, 100], [0, 0], [0, 0], scheduled=[100, 100])
    assert found["thread_efficiency"] == pytest.approx((200 * 1 + 100 * 0.5) / 300)
    assert found["parallel_efficiency"] == pytest.approx((200 * 1 + 100 * 0.5) / 400)


@pytest.mark.peer
@pytest.mark.parametrize(
    ("threads", "region", "serial", "parallel"),
    [
        (2, 0.998448, 0.728963, 0.723112),
        (4, 0.995565, 0.498454, 0.488539),
        (6, 0.951526, 0.438806, 0.384788),
        (8, 0.957615, 0.373220, 0.325171),
    ],
)
def test_imagemagick_as_published(threads: int, region: float, serial: float, parallel: float) -> None:
    """PyPOP's metrics of ImageMagick with OpenMP (github.com/numericalalgorithmsgroup/pypop, "OMP Metrics Example",
    additive: 1 less what is lost of the run time in regions, and outside of them). Each gives a time; put together
    they are the efficiencies here. Of one process nothing is left but the start of the tracer, below 0.6 %."""
    run_time = 10**12
    alone = (1 - serial) / (1 - 1 / threads)  # the serial time
    useful = parallel * threads
    computes = (1 - region) + (parallel - alone / threads) + alone
    given = [round(each * run_time) for each in (computes, useful, alone)]
    found = efficiencies([given[0]], run_time, threads, [given[1]], [given[2]], [0])
    assert found["parallel_efficiency"] == pytest.approx(parallel, rel=1e-9)
    assert 0.994 < found["process_efficiency"] < 1
    in_regions = found["thread_load_balance"] * found["scheduling_efficiency"]
    assert found["serial_efficiency"] * in_regions == pytest.approx(found["thread_efficiency"])
    assert in_regions == pytest.approx(region, abs=0.001)
    assert 1 - found["serial_efficiency"] == pytest.approx((1 - serial) / (parallel + 1 - serial), rel=1e-6)


_RANK = st.tuples(*(st.integers(0, 10**12) for _ in range(5)))


@pytest.mark.property
@settings(max_examples=60, deadline=None)
@given(st.lists(_RANK, min_size=1, max_size=5), st.integers(1, 64), st.integers(0, 10**12))
def test_factors_multiply_to_the_whole_and_none_is_above_one(
    ranks: list[tuple[int, ...]], cores: int, more: int
) -> None:
    """Whatever cores do: parts of each rank's time in any proportion, computing for any time that ends in the run."""
    compute, busy, overhead, serial, idle = (list(each) for each in zip(*ranks, strict=True))
    scheduled = [
        -(-(b + o + (cores - 1) * s + i) // cores) for b, o, s, i in zip(busy, overhead, serial, idle, strict=True)
    ]
    run_time = max(*compute, 1) + more
    found = efficiencies(compute, run_time, cores, busy, serial, overhead, scheduled)
    assert all(0 <= value <= 1 for value in found.values())
    threads = found["serial_efficiency"] * found["scheduling_efficiency"] * found["thread_load_balance"]
    assert math.isclose(threads, found["thread_efficiency"], rel_tol=1e-12)
    assert found["process_efficiency"] * found["thread_efficiency"] == found["parallel_efficiency"]
    busy_share = sum(c * b / (cores * s) for c, b, s in zip(compute, busy, scheduled, strict=True) if s)
    if all(scheduled):
        assert math.isclose(found["parallel_efficiency"], busy_share / (len(ranks) * run_time), rel_tol=1e-9)
