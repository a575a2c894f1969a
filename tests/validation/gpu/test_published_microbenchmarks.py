"""``a100``, ``h100`` and ``l40`` against published microbenchmarks of the hardware: bandwidths of L2 and DRAM, and
throughput of matrix instructions by warps and independent instructions of a warp. Deviations stand in RESULTS.md."""

from __future__ import annotations

import dataclasses

import pytest
from gpu_programs import Instruction, launch, load

from manyscale.models.gpu import detailed
from manyscale.models.gpu.matrix.shapes import parse
from manyscale.models.gpu.parameters import BlockDispatch
from manyscale.models.workload.launch_trace import UnitClass
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import build_machine, shipped_targets

pytestmark = pytest.mark.slow
SECTOR, OF_WARP = 32, 16  # bytes; sectors of an FP32.v4 load of a warp
WARPS, LOADS = 16, 24  # of an SM, of a warp


def gpu_of(name):
    """Without what the first blocks wait for: the benchmarks are of what has begun everywhere."""
    found = build_machine(load_yaml(shipped_targets()[name]), name).node.gpu
    return found.model_copy(update={"core": None, "dispatch": BlockDispatch()})


@pytest.fixture(scope="module", params=["a100", "h100", "l40"])
def read_twice(request):
    """(target, bytes, cycles of a launch whose SMs read addresses of their own from DRAM, of one that reads them
    again from L2)."""
    gpu = gpu_of(request.param)
    at = iter(range(0, OF_WARP * gpu.sms * WARPS * LOADS, OF_WARP))
    blocks = [
        [
            [load(10 + 4 * i, *range(first, first + OF_WARP), bypasses_l1=True) for i, first in enumerate(own)]
            for own in ([next(at) for _ in range(LOADS)] for _ in range(WARPS))
        ]
        for _ in range(gpu.sms)
    ]
    first, memory = detailed.simulate(launch(blocks), gpu, None)
    second, _ = detailed.simulate(launch(blocks, launch_id=2), gpu, memory)
    assert second.l2_misses == 0
    return request.param, gpu.sms * WARPS * LOADS * OF_WARP * SECTOR, first.busy_cycles, second.busy_cycles


@pytest.mark.golden
def test_bandwidth_of_l2(read_twice):
    """github.com/te42kyfo/gpu-benches, gpu-l2-cache: 5,400 GB/s on an A100 of 1410 MHz (a100_80.txt, 2 to 25 MB), 9,750
    on an H200, which has an H100's L2 (h200.txt, 10 to 30 MB). Luo and others (2024), table V, reached 2,007.9 bytes a
    cycle on an A100, and 3,942.4 on an H800 of 114 SMs, an SM 34.6. On an L40 of 2490 MHz 5,309 GB/s (l40.txt)."""
    name, bytes_read, _, cycles = read_twice
    measured = {"a100": 5400 / 1.41, "h100": 9750 / 1.98, "l40": 5309 / 2.49}[name]
    assert bytes_read / cycles == pytest.approx(measured, rel={"a100": 0.2, "h100": 0.05, "l40": 0.12}[name])


@pytest.mark.golden
def test_bandwidth_of_dram(read_twice):
    """Luo and others: L2 is 2.01 times as fast as memory on an A100 of 1,555 GB/s: 90.6 % of it are reached. Of an H100
    SXM no such figure is known here: at most its specification. An L40 reads 844 of its 864 GB/s (gpu-benches,
    gpu-stream/l40.txt)."""
    name, bytes_read, cycles, _ = read_twice
    gpu = gpu_of(name)
    reached = bytes_read / cycles * gpu.frequency_hz * gpu.dram.bandwidth_ps_per_byte / 1e12
    measured = 844 / 864 if name == "l40" else 2007.9 / 2.01 * 1.41e9 / 1555.2e9
    assert reached == pytest.approx(measured, abs=0.08)
    assert reached < 1


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
