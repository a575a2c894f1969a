"""Speed of cores and memory in detail: accesses per CPU second, in strict order of time over all cores.

The bound is relative to a fixed amount of work measured in the same process (a sort), as in test_memory_dataflow.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from cpu_time import UNIT, least_cpu, second

sys.path.insert(0, str(Path(__file__).parents[1] / "models" / "node"))
from block_programs import RUNTIME, Op, blocks, load, node, run_tasks, store, stream_of, tasks_program

from manyscale.models.node.detailed import simulate
from manyscale.models.workload.detail_tables import InstructionClass as Kind

pytestmark = pytest.mark.bench

NOISE = 1.3
CORES, COUNT = 16, 100_000


@pytest.mark.parametrize(("stream", "millions", "faster"), [("friendly", 15, 1.3), ("hostile", 6, 0.9)])
def test_accesses_per_second(stream: str, millions: float, faster: float) -> None:
    """Friendly: 24 lines per core again and again. Hostile: random lines of 4 MiB per core, hardly one of which is in a
    cache. The stream is decoded before: what is measured is the simulation. ``faster``: where cores may go ahead."""
    program = blocks([load(8), Op(), load(10), Op(Kind.fp_add, (32,), (32,)), store(8), Op(Kind.branch)])
    if stream == "friendly":
        addresses = np.resize(np.arange(3 * 64) * 8, 3 * COUNT)
    else:
        addresses = np.random.default_rng(1).integers(0, 1 << 16, 3 * COUNT) * 64
    tasks = [([0] * COUNT, addresses + (core << 24)) for core in range(CORES)]
    machine = node(CORES, costs=[(Kind.fp_add, 3, 0.5), (Kind.int_alu, 1, 0.25)], line_fill_buffers=10)
    given = program, machine, CORES, RUNTIME, *stream_of(program, tasks)
    taken = {}
    for window in (0, 100):
        found = run_tasks(program, machine, tasks[:1], window_cycles=window)
        taken[window] = least_cpu(lambda w=window: simulate(tasks_program(CORES), *given, window_cycles=w), 2)
    speed = found.num_instructions // 2 * CORES / taken[0]
    unit = second()
    print(
        f"\n{stream}: {speed / 1e6:.1f} M accesses/s, {taken[0] / taken[100]:.2f}x with a window of 100 cycles; ",
        end="",
    )
    print(f"{UNIT} sorts {unit:.2f} s")
    assert speed * unit >= millions * 1e6 / NOISE
    assert taken[0] / taken[100] >= faster / NOISE
