"""``a100``, ``h100`` and ``l40`` against published microbenchmarks of the hardware: bandwidths of L2 and DRAM, and
throughput of matrix instructions by warps and independent instructions of a warp. Deviations stand in RESULTS.md."""

from __future__ import annotations

import dataclasses

import pytest
from gpu_programs import Instruction, launch, load, store

from manyscale.models.gpu import detailed
from manyscale.models.gpu.matrix.shapes import parse
from manyscale.models.gpu.parameters import BlockDispatch
from manyscale.models.workload.launch_trace import UnitClass
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import build_machine, shipped_targets

pytestmark = pytest.mark.slow
SECTOR, OF_WARP = 32, 16  # bytes; sectors of an FP32.v4 load of a warp
WARPS, LOADS = 16, 24  # of an SM, of a warp
GRID = 8  # blocks of an SM


def gpu_of(name):
    """Without what the first blocks wait for: the benchmarks are of what has begun everywhere."""
    found = build_machine(load_yaml(shipped_targets()[name]), name).node.gpu
    return found.model_copy(update={"core": None, "dispatch": BlockDispatch()})


@pytest.fixture(scope="module", params=["a100", "h100", "l40"])
def read_twice(request):
    """(target, bytes, cycles of a launch whose SMs read again, from L2, addresses of their own)."""
    gpu = gpu_of(request.param)
    at = iter(range(0, OF_WARP * gpu.sms * WARPS * LOADS, OF_WARP))
    blocks = [
        [
            [load(10 + 4 * i, *range(first, first + OF_WARP), bypasses_l1=True) for i, first in enumerate(own)]
            for own in ([next(at) for _ in range(LOADS)] for _ in range(WARPS))
        ]
        for _ in range(gpu.sms)
    ]
    _, memory = detailed.simulate(launch(blocks), gpu, None)
    second, _ = detailed.simulate(launch(blocks, launch_id=2), gpu, memory)
    assert second.l2_misses == 0
    return request.param, gpu.sms * WARPS * LOADS * OF_WARP * SECTOR, second.busy_cycles


@pytest.mark.golden
def test_bandwidth_of_l2(read_twice):
    """github.com/te42kyfo/gpu-benches, gpu-l2-cache: 5,400 GB/s on an A100 of 1410 MHz (a100_80.txt, 2 to 25 MB), 9,750
    on an H200, which has an H100's L2 (h200.txt, 10 to 30 MB). Luo and others (2024), table V, reached 2,007.9 bytes a
    cycle on an A100, and 3,942.4 on an H800 of 114 SMs, an SM 34.6. On an L40 of 2490 MHz 5,309 GB/s (l40.txt)."""
    name, bytes_read, cycles = read_twice
    measured = {"a100": 5400 / 1.41, "h100": 9750 / 1.98, "l40": 5309 / 2.49}[name]
    assert bytes_read / cycles == pytest.approx(measured, rel={"a100": 0.2, "h100": 0.05, "l40": 0.12}[name])


def moved_of_dram(gpu, reads, writes):
    """The share of DRAM's peak, without its begin and end, of a grid whose warps read so many arrays of double
    precision and write others, in order, with L2 full of what was written before."""
    loads, stores, warps = range(reads), range(reads, reads + writes), 8
    found = []
    for blocks in (GRID, 3 * GRID):
        far = gpu.sms * blocks * warps * OF_WARP + 640

        def warp(at, far=far):
            return [
                *(load(10 + 4 * i, *range(far * i + at, far * i + at + OF_WARP)) for i in loads),
                *(store(*range(far * i + at, far * i + at + OF_WARP), source=10) for i in stores),
            ]

        grid = launch([[warp(OF_WARP * (b * warps + w)) for w in range(warps)] for b in range(gpu.sms * blocks)])
        _, memory = detailed.simulate(grid, gpu, None)
        result, _ = detailed.simulate(grid, gpu, memory)
        found.append((SECTOR * (result.dram_reads + result.dram_writes), result.busy_cycles))
    (less, sooner), (more, later) = found
    return (more - less) / (later - sooner) * gpu.frequency_hz * gpu.dram.bandwidth_ps_per_byte / 1e12


@pytest.mark.golden
@pytest.mark.parametrize(
    ("name", "reads", "writes", "measured", "off"),
    [  # github.com/te42kyfo/gpu-benches: read, init, scale, triad of gpu-stream/a100_40.txt, cuda-stream/h100_pcie.txt
        # (of 2,039 GB/s); five arrays and one: Luo and others (2024), whose A100 gives 1 / 2.01 of L2's 2,007.9 bytes a
        # cycle (github.com/HPMLL/NVIDIA-Hopper-Benchmark, mem_bw.cu)
        ("a100", 1, 0, 1490 / 1555.2, 0.04),
        ("a100", 0, 1, 1503 / 1555.2, 0.05),
        ("a100", 1, 1, 1381 / 1555.2, 0.02),
        ("a100", 2, 1, 1375 / 1555.2, 0.04),
        ("a100", 5, 1, 2007.9 / 2.01 * 1.41 / 1555.2, 0.05),
        ("h100", 1, 0, 1942 / 2039, 0.05),
        ("h100", 2, 1, 1832 / 2039, 0.05),
    ],
)
def test_bandwidth_of_dram(name, reads, writes, measured, off):
    """With a sixteenth of L2, so that less has to be moved."""
    gpu = gpu_of(name)
    gpu = gpu.model_copy(update={"l2": gpu.l2.model_copy(update={"size_bytes": gpu.l2.size_bytes // 16})})
    assert moved_of_dram(gpu, reads, writes) == pytest.approx(measured, abs=off)


@pytest.mark.golden
@pytest.mark.parametrize(
    ("opcode", "warps", "independent", "measured", "off"),
    [  # Sun and others (TPDS 2023), tables 3 and 6, A100: multiply-adds of an SM in a cycle
        ("HMMA.16816.F32", 8, 2, 1004.2, 0.04),
        ("HMMA.1688.F32", 8, 3, 974.1, 0.06),
        ("HMMA.1688.F32.TF32", 8, 2, 492.4, 0.05),
        ("IMMA.16832.S8.S8", 8, 2, 1986.5, 0.04),
        ("HMMA.SP.16832.F32", 8, 2, 1979.1, 0.04),
        ("HMMA.SP.16816.F32", 8, 3, 1290.5, 0.06),
        ("HMMA.16816.F32", 4, 3, 897.6, 0.1),
        ("HMMA.1688.F32", 4, 4, 800.2, 0.15),
        ("IMMA.16832.S8.S8", 4, 3, 1812.4, 0.1),
    ],
)
def test_throughput_by_warps_and_independent_instructions(opcode, warps, independent, measured, off):
    """Chains of sums, so many of a warp at once."""
    gpu = gpu_of("a100")
    sums = [10 + 8 * (i % independent) for i in range(40 * independent)]
    stream = [Instruction(UnitClass.tensor, each, (each, 210)) for each in sums]
    times = []
    for rounds in (10, 40):
        trace = launch([[stream[: rounds * independent]] * warps])
        trace = dataclasses.replace(trace, static=dataclasses.replace(trace.static, opcodes=(opcode,)))
        times.append(detailed.simulate(trace, gpu, None)[0].busy_cycles)
    reached = parse(opcode).multiply_adds * 30 * independent * warps / (times[1] - times[0])
    assert reached == pytest.approx(measured, rel=off)
