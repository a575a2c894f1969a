"""Preset "mpich" against SimGrid 3.32 with smpi/coll-selector:mpich, where that takes an algorithm of MPICH's.

For bcast, reduce and allreduce of longer messages SimGrid takes variants for nodes of several cores, for alltoall(v)
and reduce_scatter those of MVAPICH or of older releases (see DEVIATIONS.md): these are left out. Algorithms of MPICH
that the tables of Open MPI name too are compared in test_collectives_openmpi.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_collectives_openmpi import EAGER_BYTES, MEMORY_BYTES, call_of
from test_collectives_simgrid import ROOTED, TOLERANCE_S, Case, run_smpi

from manyscale.models.network.collectives.algorithms import Choice, CollectiveCall, choose, schedule

Execute = Callable[..., list[float]]


def is_same_in_simgrid(call: CollectiveCall, name: str) -> bool:
    kind, n, size = call.base_kind, call.num_participants, call.send_bytes
    if kind in ("barrier", "gather"):
        return True
    if kind == "scatter":  # SimGrid serves the nearest child first, which shows if sends wait
        return size * n < EAGER_BYTES
    if kind in ("reduce", "allreduce"):
        return size < 2048
    if kind in ("allgather", "allgatherv"):  # exactly 81,920 bytes in all are short in SimGrid
        return name in ("recursive-doubling", "bruck") and n * size != 81920
    if kind == "alltoall":
        return n & (n - 1) == 0 and (name == "pairwise" or (name == "bruck" and size < 256))
    return False


def cases_of(n: int) -> Iterator[tuple[Case, Choice]]:
    rng = np.random.default_rng(n)
    near = [81920 // n // 8 * 8, 524288 // n // 8 * 8]
    sizes = sorted({8, 40, 248, 256, 1000, 2040, 2048, 12288, 32760, 32776, *near, *(size + 8 for size in near)})
    for kind in ("barrier", "reduce", "allreduce", "gather", "scatter", "allgather", "allgatherv", "alltoall"):
        for size in sizes if kind != "barrier" else [0]:
            call = call_of(kind, n, size, int(rng.integers(n)) if kind in ROOTED else 0, 8)
            choice = choose(call, "mpich")
            assert isinstance(choice, Choice)
            if is_same_in_simgrid(call, choice.algorithm) and size * n * n <= MEMORY_BYTES:
                yield (call, (rng.integers(0, 400, n) * 7e-7).round(9), np.zeros(n)), choice


@pytest.mark.peer
@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 32, 33])
def test_choices_and_algorithms_against_smpi(n: int, tmp_path: Path, execute: Execute) -> None:
    chosen = list(cases_of(n))
    first: Case = (call_of("reduce", n, 8, 0, 8), np.zeros(n), np.zeros(n))  # makes communicators, not compared
    cases = [first, *(case for case, _ in chosen)]
    ends = run_smpi(tmp_path, n, cases, "--cfg=smpi/coll-selector:mpich")[1:]
    worst, wrong = 0.0, []
    for (case, choice), expected in zip(chosen, ends, strict=True):
        call, arrival, _ = case
        difference = float(np.abs(np.array(execute(schedule(call, choice), arrival=arrival)) - expected).max())
        worst = max(worst, difference)
        if not difference <= TOLERANCE_S:
            wrong.append((call.kind, call.send_bytes, choice, difference))
    print(f"\n{n} participants: {len(chosen)} cases, worst difference {worst:.1e} s")
    assert not wrong, wrong
