"""Real traces: against a reader written line by line, and against what others counted in them."""

from __future__ import annotations

import csv
import os
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from accelsim_plain import PlainInstruction, plain_instructions

from manyscale.models.workload import Workload
from manyscale.models.workload.launch_trace import LaunchTrace, Space
from manyscale.runner.readers import accelsim

DATA = Path(__file__).parents[2] / "data" / "gpu"
SHARED = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "gpu"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")
TRACES = [
    "bfs/kernel-1.traceg.xz",
    "bfs/kernel-2.traceg.xz",
    "bfs/kernel-16.traceg.xz",
    "vectoradd/kernel-1.traceg.xz",
    "ffma/kernel-1-ctx_0x55e3a796e730.traceg.xz",
    "btree/kernel-1-ctx_0x5607b0e17740.traceg.xz",
]


def launch(workload: Workload, launch_id: int = 1) -> LaunchTrace:
    assert workload.gpu is not None
    return workload.gpu.trace(launch_id)


def num_requests(trace: LaunchTrace) -> np.ndarray:
    """Of each instruction to global and local memory."""
    return np.where(trace.static.space[trace.instruction] == Space.shared, 0, trace.accesses)


@pytest.mark.peer
@pytest.mark.parametrize("name", TRACES)
def test_equals_a_plain_reader(name: str, private_cache: Path) -> None:
    trace = launch(accelsim.read(DATA / name))
    plain = plain_instructions(DATA / name)
    static = trace.static
    assert [static.opcodes[k] for k in static.opcode[trace.instruction]] == [each.opcode for each in plain]
    assert static.pc[trace.instruction].tolist() == [each.pc for each in plain]
    assert static.immediate[trace.instruction].tolist() == [each.immediate for each in plain]
    assert trace.active.tolist() == [each.active for each in plain]
    for side, listed in ((static.destinations, "destinations"), (static.sources, "sources")):
        for row, each in zip(side[trace.instruction].tolist(), plain, strict=True):
            registers = [register for register in row if register >= 0]
            assert set(getattr(each, listed)) <= set(registers)
    warps = [(key, len(list(group))) for key, group in groupby(plain, lambda each: (each.block, each.warp))]
    assert np.diff(trace.warp_instructions).tolist() == [size for _, size in warps]
    assert np.diff(trace.block_warps).tolist() == [len(list(g)) for _, g in groupby(warps, lambda item: item[0][0])]
    check_requests(trace, plain)


def check_requests(trace: LaunchTrace, plain: list[PlainInstruction]) -> None:
    numbers = num_requests(trace)
    ends = np.cumsum(numbers, dtype=np.int64)
    assert ends[-1] == len(trace.sector) == len(trace.written)
    assert np.diff(ends[trace.warp_instructions[1:] - 1], prepend=0).tolist() == np.diff(trace.warp_accesses).tolist()
    for k, each in enumerate(plain):
        part = slice(int(ends[k] - numbers[k]), int(ends[k]))
        if static_space(trace, k) == Space.local:
            continue
        assert list(zip(trace.sector[part].tolist(), trace.written[part].tolist(), strict=True)) == each.requests
        if static_space(trace, k) == Space.shared:
            assert trace.accesses[k] == each.words


def static_space(trace: LaunchTrace, instruction: int) -> int:
    return int(trace.static.space[trace.instruction[instruction]])


def test_local_memory_of_a_warp_is_a_line_for_each_word(private_cache: Path) -> None:
    """b+tree's threads store pairs of words at one place of their own memory: 2 words x 4 sectors, all of them whole.
    1,000 threads work, in 31 whole warps."""
    trace = launch(accelsim.read(DATA / TRACES[-1]))
    is_local = trace.static.space[trace.instruction] == Space.local
    stores = is_local & (trace.static.access[trace.instruction] == 2) & (trace.active == 32)
    assert stores.sum() == 31 * 132  # instructions of the kernel
    assert set(trace.accesses[stores].tolist()) == {8}
    ends = np.cumsum(num_requests(trace), dtype=np.int64)
    ours = trace.sector[np.concatenate([np.arange(end - 8, end) for end in ends[stores].tolist()])].reshape(-1, 8)
    assert (ours[:, 0] % 4 == 0).all()
    assert (np.diff(ours[:, :4]) == 1).all()
    assert (np.diff(ours[:, 4:]) == 1).all()
    assert len(np.unique(ours)) == 31 * 264 // 8 * 8  # each warp has its own lines, of a frame of 264 bytes
    of_local = np.repeat(is_local, num_requests(trace))
    assert trace.sector[~of_local].max() < trace.sector[of_local].min()
    written = trace.written[np.concatenate([np.arange(end - 8, end) for end in ends[stores].tolist()])]
    assert (written == 0xFFFFFFFF).all()


@pytest.mark.peer
@needs_shared
def test_bfs_counts_are_those_of_accelsim(private_cache: Path) -> None:
    """Thread instructions of each launch as Accel-Sim counted them; warp instructions as lines of the traces."""
    workload = accelsim.read(SHARED / "bfs")
    with (SHARED / "bfs" / "accelsim_rtx3070_reference.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert workload.column("launches", "launch_id").tolist() == [int(row["launch"]) for row in rows]
    assert workload.tables["launches"].column("kernel_name").to_pylist() == [row["kernel"] for row in rows]
    threads = workload.column("launches", "thread_instructions").tolist()
    assert threads == [int(row["thread_instructions"]) for row in rows]
    assert sum(threads) == 1_280_630
    assert workload.column("launches", "warp_instructions").sum() == 159_509
    assert workload.notes == ()


@pytest.mark.peer
@needs_shared
@pytest.mark.parametrize(
    ("name", "instructions"),
    [
        ("misc/rodinia-b+tree-128-1000", 43_664),
        ("misc/simple-trace-example", 26_601),
        ("misc/simtune-ffmakernel-1-32-10", 1_328),
        ("misc/simtune-ffmakernel-1-32-20", 2_648),
        ("misc/simtune-ffmakernel-1-32-30", 3_968),
        ("misc/simtune-ffmakernel-1-32-40", 5_288),
    ],
)
def test_counts_of_other_traces(name: str, instructions: int, private_cache: Path) -> None:
    workload = accelsim.read(SHARED / name)
    assert workload.column("launches", "warp_instructions").sum() == instructions


@pytest.mark.peer
@needs_shared
def test_micro_traces_count_as_accelsim_does(private_cache: Path) -> None:
    with (SHARED / "micro" / "accelsim_rtx3070_cycles.csv").open() as file:
        for row in csv.DictReader(file):
            workload = accelsim.read(SHARED / "micro" / row["trace"])
            counted = workload.column("launches", "thread_instructions")[int(row["launch"]) - 1]
            assert counted == int(row["thread_instructions"]), row
