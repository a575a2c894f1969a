"""Time outside MPI that the calling thread does not compute itself (programs/mpi/outside.c says how much there is)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mpi_traces import MpiTrace, Tracing
from tracer_programs import Mpi

from manyscale.models.workload import OperationKind

pytestmark = pytest.mark.theory

MS = 10**9  # in ps
ROUNDS = 3


@pytest.fixture
def trace(mpi: Mpi, compiled: Callable[..., Path], tracer_cache: Path, tmp_path: Path) -> Tracing:
    return Tracing(mpi, compiled, tracer_cache, tmp_path)


def before_barriers(traced: MpiTrace, level: str, name: str) -> np.ndarray:
    """Times of the phases before the barriers of all ranks, by what a column says, in ms."""
    workload = traced.workload
    kind = workload.column("operations", "kind")
    phases = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    chosen = kind[phases] == OperationKind.barrier
    assert len(np.unique(phases[chosen])) == ROUNDS * workload.num_ranks
    return np.bincount(phases[chosen], workload.column(level, name)[chosen])[np.unique(phases[chosen])] / MS


@pytest.mark.parametrize("what", ["helper", "sleep", "team", "own"])
def test_a_phase_takes_what_its_longest_thread_takes(trace: Tracing, what: str) -> None:
    traced = trace("outside.c", 2, what)
    longest = before_barriers(traced, "phases", "duration_ps")
    assert np.all(longest >= 19.9)  # 20 ms in each case, and what starting and waking threads takes
    thread, process, wall = (
        before_barriers(traced, "phase_times", f"{clock}_ps") for clock in ("thread", "process", "wall")
    )
    assert np.all(wall >= longest - 0.01)
    if what == "own":
        assert np.all(thread >= 19.9)
    else:
        assert np.all(thread < 10)
    computed = {"helper": 20, "sleep": 0, "team": 35, "own": 20}[what]
    assert np.all(process >= computed - 0.1)
    assert np.all(process < computed + 10)


def test_short_phases_are_by_one_clock(trace: Tracing) -> None:
    """Nothing is read where nothing that would show can happen: phases of less than 50 us."""
    traced = trace("ping_pong.c", 2)
    operations = traced.processes[0].operations
    short = operations["cpu_ns"] < 50_000
    short[1:] &= operations["start_ns"][1:] - operations["end_ns"][:-1] < 50_000
    short[0] = False
    assert short.any()
    for name in ("process_ns", "longest_ns", "elapsed_ns"):
        assert np.array_equal(operations[name][short], operations["cpu_ns"][short])
