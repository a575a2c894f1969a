"""Preset "simgrid-3.32" against SimGrid 3.32 itself: when each participant leaves a collective, to the digit.

`run_smpi` compiles `collectives_driver.c` with smpicc and runs it on a contention-free crossbar (10 us,
1.25 GB/s) with every factor of SMPI's network model off: smpirun -np N -platform platform.xml -hostfile
hosts.txt SMPIRUN_FLAGS ./driver cases.txt. The times in GOLDEN were printed that way, so that they can be compared with
where SimGrid is not installed; `test_golden_times_are_simgrids` makes them anew.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from simgrid_platform import CONTENTION_FREE, write_platform

from manyscale.models.network.collectives.algorithms import (
    KINDS,
    Choice,
    CollectiveCall,
    choose,
    schedule,
)
from manyscale.models.network.collectives.call import BLOCKING_KINDS

Execute = Callable[..., list[float]]
Case = tuple[CollectiveCall, Sequence[float], Sequence[float]]  # the call, arrival (s), overlap (s)

TOLERANCE_S = 1e-10  # the driver prints picoseconds
ROOTED = ("bcast", "reduce", "gather", "gatherv", "scatter", "scatterv")
SMPIRUN_FLAGS = [
    *CONTENTION_FREE,
    *("--cfg=smpi/simulate-computation:no", "--cfg=smpi/wtime:0"),
    *("--cfg=surf/precision:1e-12", "--log=root.thres:critical"),
]


def counts_of(call: CollectiveCall) -> list[int]:
    """The sizes as the driver wants them, in elements."""
    kind = call.base_kind
    sizes = call.pair_bytes if kind == "alltoallv" else call.block_bytes
    one = kind not in ("gatherv", "scatterv", "allgatherv", "alltoallv", "reduce_scatter")
    return [int(size) // call.element_bytes for size in ([call.send_bytes] if one else sizes.ravel())]


def run_smpi(directory: Path, n: int, cases: Sequence[Case], *flags: str) -> np.ndarray:
    """(cases, n) time in s, since the case began, at which each participant leaves, according to SimGrid."""
    if shutil.which("smpirun") is None:
        pytest.skip("SimGrid is not installed")
    driver = directory / "driver"
    subprocess.run(["smpicc", "-o", driver, Path(__file__).with_name("collectives_driver.c")], check=True)
    platform = write_platform(directory, n)
    lines = [str(len(cases))]
    for call, arrival, overlap in cases:
        counts = counts_of(call)
        head = (BLOCKING_KINDS.index(call.base_kind), int(call.is_nonblocking), call.root, call.element_bytes)
        lines.append(" ".join(map(str, (*head, len(counts), *counts, *arrival, *overlap))))
    (directory / "cases.txt").write_text("\n".join(lines) + "\n")
    command = ["smpirun", *platform, *SMPIRUN_FLAGS, *flags]
    run = subprocess.run([*command, "./driver", "cases.txt"], cwd=directory, capture_output=True, text=True, check=True)
    ends = np.full((len(cases), n), np.nan)
    for line in run.stdout.splitlines():
        case, participant, time = line.split()
        ends[int(case), int(participant)] = float(time)
    return ends


def ours(case: Case, execute: Execute) -> list[float]:
    call, arrival, overlap = case
    choice = choose(call, "simgrid-3.32")
    assert isinstance(choice, Choice)
    plan = schedule(call, choice)
    plan.validate()
    return execute(plan, arrival=arrival, overlap=overlap if call.is_nonblocking else None)


def staggered_case(kind: str, n: int, size: int, element_bytes: int = 1) -> Case:
    """Everybody arrives at another time; sizes of the v kinds differ."""
    rank = np.arange(n)
    base = kind.removeprefix("i")
    growing = size * (rank + 1)
    counts = {
        "gatherv": {"receive_counts": growing},
        "allgatherv": {"receive_counts": growing},
        "reduce_scatter": {"receive_counts": growing},
        "scatterv": {"send_counts": growing},
        "alltoallv": {"send_counts": size * (1 + rank[:, None] + 2 * rank[None, :])},
    }
    root = n // 2 if base in ROOTED else 0
    call = CollectiveCall(kind, n, root, size, size, **counts.get(base, {}), element_bytes=element_bytes)
    return call, (7 * rank % n * 3e-6).round(9), (5 * rank % n * 4e-6).round(9)


# (kind, participants, size, element_bytes) of staggered_case: when participants 0, 1, ... leave, in ns.
GOLDEN: dict[tuple[str, int, int, int], list[float]] = {
    ("barrier", 5, 0, 1): [22012.8, 32025.6, 32025.6, 32025.6, 32025.6],
    ("bcast", 5, 1000, 1): [33625.6, 22812.8, 12000, 22812.8, 22812.8],
    ("bcast", 5, 100000, 1): [282038.4, 102012.8, 282038.4, 282038.4, 282038.4],
    ("reduce", 5, 1000, 1): [0, 6000, 22812.8, 3000, 9000],
    ("reduce", 5, 100000, 1): [102012.8, 102012.8, 102012.8, 102012.8, 102012.8],
    ("allreduce", 5, 1000, 8): [22812.8, 33625.6, 33625.6, 44438.4, 33625.6],
    ("scan", 5, 1000, 1): [0, 16812.8, 22812.8, 22812.8, 22812.8],
    ("exscan", 5, 100000, 1): [102012.8, 102012.8, 102012.8, 102012.8, 102012.8],
    ("gather", 5, 1000, 1): [0, 6000, 22812.8, 3000, 9000],
    ("gatherv", 5, 100000, 1): [102012.8, 182012.8, 422012.8, 342012.8, 422012.8],
    ("scatter", 5, 1000, 1): [22812.8, 22812.8, 12000, 22812.8, 22812.8],
    ("scatterv", 5, 20000, 1): [38012.8, 54012.8, 102012.8, 86012.8, 102012.8],
    ("allgather", 5, 100000, 1): [102012.8, 102012.8, 102012.8, 102012.8, 102012.8],
    ("allgatherv", 5, 20000, 1): [99012.8, 99012.8, 102012.8, 99012.8, 102012.8],
    ("alltoall", 5, 1000, 1): [22812.8, 22812.8, 22812.8, 22812.8, 22812.8],
    ("alltoallv", 5, 10000, 1): [91012.8, 99012.8, 110012.8, 115012.8, 115012.8],
    ("reduce_scatter", 5, 1000, 8): [65238.4, 83251.2, 83251.2, 101264, 61238.4],
    ("reduce_scatter", 7, 1000, 8): [75638.4, 99251.2, 78838.4, 117264, 82038.4, 105651.2, 85238.4],
    ("reduce_scatter", 7, 80000, 1): [
        *(2748076.8, 2428076.8, 2428076.8),
        *(2428076.8, 2492076.8, 2684076.8, 2748076.8),
    ],
    ("alltoall", 16, 256, 1): [
        *(91604.8, 91604.8, 91604.8, 91604.8, 91604.8, 91604.8, 91604.8, 91604.8),
        *(91604.8, 91604.8, 91604.8, 91604.8, 91604.8, 91604.8, 91604.8, 91604.8),
    ],
    ("alltoall", 4, 600000, 1): [1479038.4, 1479038.4, 1479038.4, 1479038.4],
    ("ibarrier", 5, 0, 1): [22012.8, 16012.8, 22012.8, 13012.8, 19012.8],
    ("ibcast", 5, 100000, 1): [102012.8, 102012.8, 102012.8, 102012.8, 102012.8],
    ("iallreduce", 5, 1000, 1): [22812.8, 22812.8, 22812.8, 22812.8, 22812.8],
    ("ialltoallv", 5, 10000, 1): [91012.8, 99012.8, 110012.8, 115012.8, 115012.8],
    ("ireduce_scatter", 5, 1000, 1): [22812.8, 23612.8, 24412.8, 25212.8, 26012.8],
}


@pytest.mark.golden
@pytest.mark.parametrize("case", GOLDEN)
def test_golden_times(case: tuple[str, int, int, int], execute: Execute) -> None:
    assert ours(staggered_case(*case), execute) == pytest.approx([t * 1e-9 for t in GOLDEN[case]], abs=1e-10)


@pytest.mark.peer
@pytest.mark.parametrize("n", sorted({n for _, n, _, _ in GOLDEN}))
def test_golden_times_are_simgrids(n: int, tmp_path: Path) -> None:
    names = [name for name in GOLDEN if name[1] == n]
    ends = run_smpi(tmp_path, n, [staggered_case(*name) for name in names])
    assert ends == pytest.approx(np.array([GOLDEN[name] for name in names]) * 1e-9, abs=1e-10)


def random_cases(n: int, seed: int) -> list[Case]:
    """Every kind with sizes on both sides of the eager limit, and all-to-all sizes for the rows of its table."""
    rng = np.random.default_rng(seed)
    cases = []
    for kind in KINDS:
        base = kind.removeprefix("i")
        sizes = [0] if base == "barrier" else [0, 8, 104, 600, 4096, 65536, 200_000]
        if kind == "alltoall" and n <= 4:
            sizes += [600_000, 1_048_576] if n != 3 else [1_048_576]
        for size in sizes:
            for element_bytes in (1, 8):
                call, _, _ = staggered_case(kind, n, size, element_bytes)
                shape = (n, n) if base == "alltoallv" else (n,)
                counts = rng.integers(0, 2 * size // element_bytes + 1, shape) * element_bytes
                call = CollectiveCall(
                    kind,
                    n,
                    root=int(rng.integers(n)) if base in ROOTED else 0,
                    send_bytes=size,
                    receive_bytes=size,
                    send_counts=counts if call.send_counts is not None else None,
                    receive_counts=counts if call.receive_counts is not None else None,
                    element_bytes=element_bytes,
                )
                arrival, overlap = (rng.integers(0, 400, n) * 7e-7).round(9), (rng.integers(0, 300, n) * 1e-6)
                cases.append((call, arrival, overlap.round(9)))
        if base == "reduce_scatter":
            cases += [(CollectiveCall(kind, n, receive_bytes=s), np.zeros(n), np.zeros(n)) for s in (0, 70_000)]
    return cases


@pytest.mark.peer
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, pytest.param(16, marks=pytest.mark.slow)])
def test_every_kind_against_smpi(n: int, tmp_path: Path, execute: Execute) -> None:
    cases = random_cases(n, seed=n)
    ends = run_smpi(tmp_path, n, cases)
    for case, expected in zip(cases, ends, strict=True):
        assert ours(case, execute) == pytest.approx(expected, abs=TOLERANCE_S), (case[0].kind, case[0])


@pytest.mark.peer
def test_alltoall_of_64_against_smpi(tmp_path: Path, execute: Execute) -> None:
    cases = [staggered_case("alltoall", 64, size) for size in (8, 1023, 1024)]
    ends = run_smpi(tmp_path, 64, cases)
    for case, expected in zip(cases, ends, strict=True):
        assert ours(case, execute) == pytest.approx(expected, abs=TOLERANCE_S), case[0].send_bytes
