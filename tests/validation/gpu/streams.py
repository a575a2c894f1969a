"""Launches that share a GPU: runs of programs with streams, against what they should take.

Launches of blocks of one shape, A and B, are made up; the cycle model simulates A, B, and one launch whose blocks are
those of A and then those of B, which knows nothing of streams and of several launches. A run is given A and B in two
streams; and the model of devices, which takes the place of what is not simulated together, A and B alone. What further
cases should take follows from launches alone (streams_closed.py). With ``python tests/validation/gpu/streams.py``
(``tests`` in PYTHONPATH) the tables of RESULTS-STREAMS.md are printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
from gpu_host import Gives, host_of
from gpu_programs import Instruction, integer, launch, load, special

from manyscale.models.gpu import detailed
from manyscale.models.gpu.device.hosts import Given
from manyscale.models.gpu.device.program import BlockTimes, LaunchKind, build
from manyscale.models.gpu.device.state import RESOURCES
from manyscale.models.gpu.occupancy import allocated, resident_blocks
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine import Network
from manyscale.models.network.devices.model import replay_with_devices
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.api import studies
from manyscale.runner.predict.gpu.blocks import work_columns
from manyscale.runner.predict.gpu.models import _of_detailed
from manyscale.runner.predict.gpu.resources import NAMES, resources_of
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.run.results import Result
from manyscale.runner.study.targets import shipped_targets

SMS, WARPS = 8, 8
CHANGES: dict[str, Any] = {
    "sms": SMS, "l2": {"size": "1 MiB", "slices": 8}, "dram": {"channels": 4, "bandwidth": "112.016 GB/s"}
}  # fmt: skip
Block = list[list[Instruction]]


def small_gpu() -> Gpu:
    """An RTX 3070 with 8 SMs and a quarter of its memory."""
    content = load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"]
    for name, own in CHANGES.items():
        content[name] = {**content[name], **own} if isinstance(own, dict) else own
    return Gpu.model_validate(content)


def computing(count: int) -> Block:
    """Integers that depend on nothing: the unit of integers is busy."""
    return [[integer(k % 40, 100) for k in range(count)] for _ in range(WARPS)]


def waiting(count: int) -> Block:
    """Chains of special functions: latency alone."""
    return [[special(1, 1) for _ in range(count)] for _ in range(WARPS)]


def reading(count: int, block: int, first: int) -> Block:
    """Lines of 128 B that nobody read before, one for each instruction."""
    begin = first + block * WARPS * count * 4
    return [
        [load(k % 40, *range(begin + 4 * (w * count + k), begin + 4 * (w * count + k + 1))) for k in range(count)]
        for w in range(WARPS)
    ]


def using(count: int, block: int, first: int) -> Block:
    """Each line is added up before the next is asked for."""
    return [
        [each for k, one in enumerate(warp) for each in (one, integer(50, k % 40, 50), integer(51, 50))]
        for warp in reading(count, block, first)
    ]


def simulated(blocks: Sequence[Block], gpu: Gpu) -> tuple[LaunchTrace, detailed.LaunchResult]:
    trace = launch(blocks)
    return trace, detailed.simulate(trace, gpu)[0]


def kind_of(trace: LaunchTrace, found: detailed.LaunchResult, gpu: Gpu) -> LaunchKind:
    """As predict/gpu/streams/given.py makes it, without a launch latency."""
    ps = PS_PER_SECOND / gpu.frequency_hz
    result = replace(_of_detailed(found, detailed.CAUSES), **work_columns(trace, gpu))
    threads = trace.block[0]
    at_peak = resources_of([result], gpu).cycles[0, [NAMES.index(name) for name in RESOURCES]] * ps
    return LaunchKind(
        trace.num_blocks, *allocated(gpu, threads, trace.registers, trace.shared_bytes),
        resident_blocks(gpu, threads, trace.registers, trace.shared_bytes), 0, round(found.busy_cycles * ps), at_peak,
        BlockTimes(found.block_begin * ps, found.block_end * ps, found.block_sm.astype(np.int32)),
    )  # fmt: skip


def together(kinds: Sequence[LaunchKind], gpu: Gpu) -> int:
    """Cycles until both have ended, in streams of their own."""
    count = len(kinds)
    nothing = np.zeros(count, np.int64)
    given = Given(
        nothing, nothing - 1, np.full(count, int(GpuOperationKind.launch)), np.arange(count) + 1, np.arange(count),
        nothing, nothing, nothing, nothing - 1, nothing, nothing, nothing,
    )  # fmt: skip
    program = build(given, kinds, gpu, np.array([0, 0]), nothing[:0])
    network = Network.model_validate(load_yaml(shipped_targets()["rtx3070"])["network"])
    workload = Workload("none", 1, rank_tables(1, {}))
    found = replay_with_devices(
        build_program(workload, network.collectives), program, network, Placement.one_per_node(1)
    )
    return round(found.makespan_ps * gpu.frequency_hz / PS_PER_SECOND)


def cases() -> dict[str, tuple[list[Block], list[Block]]]:
    full = SMS * 48 // WARPS  # blocks that fill the GPU
    far, other = 1 << 24, (1 << 24) + 5_000_000 - 64 * 7  # sectors of lines, other rows and banks of DRAM
    return {
        "compute + compute, half of the GPU each": ([computing(400)] * (full // 2), [computing(400)] * (full // 2)),
        "compute + compute, two and a half waves each": (
            [computing(200)] * (5 * full // 2), [computing(300)] * (5 * full // 2),
        ),
        "compute + latency, a third of the GPU each": ([computing(400)] * (full // 3), [waiting(150)] * (full // 3)),
        "small + small, a quarter of the SMs each": ([computing(400)] * (SMS // 4), [computing(700)] * (SMS // 4)),
        "compute + memory, half of the GPU each": (
            [computing(600)] * (full // 2), [using(24, b, far) for b in range(full // 2)],
        ),
        "compute + memory, two and a half waves each": (
            [computing(400)] * (5 * full // 2), [using(24, b, far) for b in range(5 * full // 2)],
        ),
        "memory + memory, a third of the GPU each": (
            [using(48, b, far) for b in range(full // 3)], [using(48, b, other) for b in range(full // 3)],
        ),
        "memory + memory, two and a half waves each": (
            [using(24, b, far) for b in range(5 * full // 2)], [using(24, b, other) for b in range(5 * full // 2)],
        ),
        "compute + loads that nothing waits for, half of the GPU each": (
            [computing(600)] * (full // 2), [reading(24, b, far) for b in range(full // 2)],
        ),
        "loads that nothing waits for, a third of the GPU each": (
            [reading(48, b, far) for b in range(full // 3)], [reading(48, b, other) for b in range(full // 3)],
        ),
    }  # fmt: skip


def run(*gives: Gives, cache: Path | None = None) -> Result:
    """A run of one host on ``small_gpu`` without launch latency, all of the pipe."""
    with TemporaryDirectory() as folder, patch("manyscale.runner.run.study_runs.read_workload") as reads:
        reads.return_value = host_of(Path(folder), *gives)
        study = {
            "schema": 1, "workload": {"path": "launches"},
            "target": {"name": "rtx3070", "node": {"gpu": {**CHANGES, "launch_latency": "0 cycles"}}},
        }  # fmt: skip
        kept = cache or Path(folder) / "cache"
        return studies.run(study, Path(folder) / "out", executor="local", cache=kept, report=False)


def cycles_of(result: Result) -> int:
    return round(float(result.statistics["application.makespan"].value) * small_gpu().frequency_hz)


def compared(first: list[Block], second: list[Block], gpu: Gpu) -> tuple[int, int, int]:
    """Cycles: one after the other, as one launch by the cycle model, by the model of devices."""
    found = [simulated(blocks, gpu) for blocks in (first, second)]
    _, both = simulated([*first, *second], gpu)
    kinds = [kind_of(trace, result, gpu) for trace, result in found]
    return sum(result.busy_cycles for _, result in found), both.busy_cycles, together(kinds, gpu)


def main() -> None:
    gpu = small_gpu()
    print("| launches | one after the other | as one launch | run | error | devices | error |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, (first, second) in cases().items():
        serial, both, devices = compared(first, second, gpu)
        found = cycles_of(run(Gives(launch(first), 1), Gives(launch(second), 2)))
        errors = [f"{100 * (each / both - 1):+.1f} %" for each in (found, devices)]
        print(f"| {name} | {serial:,} | {both:,} | {found:,} | {errors[0]} | {devices:,} | {errors[1]} |", flush=True)
    print("\n| launches | expected | run | error |\n| --- | --- | --- | --- |")
    from validation.gpu.streams_closed import closed_cases  # it uses this module

    for name, expected, found in closed_cases():
        print(f"| {name} | {expected:,} | {found:,} | {100 * (found / expected - 1):+.1f} % |", flush=True)


if __name__ == "__main__":
    main()
