"""Speed of running loop nests and of recognising them, in accesses a CPU second.

The bound is a ratio to work measured in the same run: NumPy adding up the same addresses' terms by broadcasting, the
plainest vectorised way to make them. Goal, printed with `pytest -m bench -s`: 500 million accesses a CPU second.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from cpu_time import median_cpu

from manyscale.models.memory.nests.extrapolation import recognise

sys.path.insert(0, str(Path(__file__).parents[1] / "models" / "memory"))
from nest_programs import P, Q, matrix_multiply, run, sites_of

pytestmark = pytest.mark.bench

N = 200


def by_broadcasting() -> int:
    """Both operands of the innermost loop, in order, row by row of the result."""
    total = 0
    j, k = np.ogrid[:N, :N]
    for i in range(N):
        addresses = np.empty((N, N, 2), np.uint64)
        addresses[..., 0] = P + 8 * (N * i + k)
        addresses[..., 1] = Q + 8 * (N * k + j)
        total += addresses.size
    return total


def test_running_a_nest_is_at_least_half_as_fast_as_broadcasting() -> None:
    traces = [run(matrix_multiply(), x) for x in (10, 12, 14, 16, 18)]
    sites = sites_of(matrix_multiply())
    program = recognise(traces, sites)
    instance = program.at(N)
    num_accesses = instance.num_accesses()
    running = median_cpu(lambda: sum(len(addresses) for _, addresses in instance.generate()))
    broadcasting = median_cpu(by_broadcasting)
    recognising = median_cpu(lambda: recognise(traces, sites))
    traced = sum(len(addresses) for _, _, addresses in traces)
    print(
        f"\nrunning: {num_accesses / running / 1e6:.0f} M accesses/s, NumPy {2 * N**3 / broadcasting / 1e6:.0f}; "
        f"recognising: {traced / recognising / 1e6:.1f} M accesses/s"
    )
    assert running < 2 * broadcasting
