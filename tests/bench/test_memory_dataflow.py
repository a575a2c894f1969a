"""Speed of the dataflow model: instructions per CPU second, caches and branch predictor included.

The bound is relative to a fixed amount of work measured in the same process (a sort), so that it moves with the
machine: `UNIT` sorts took one second where it was set.
"""

from __future__ import annotations

import pytest
from cpu_time import UNIT, least_cpu, second
from memory_programs import stream, traced

from manyscale.models.cpu.dataflow import Dataflow
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import build_machine, shipped_targets

pytestmark = pytest.mark.bench

NOISE = 1.3


@pytest.mark.parametrize(("name", "level", "size"), [("matmul", 1, 50), ("stream", 0, 10_000)])
def test_instructions_per_second(name: str, level: int, size: int) -> None:
    """At least 10 M instructions per CPU second."""
    workload = traced(name, level, size)
    machine = build_machine(load_yaml(shipped_targets()["epyc-zen4"]), "epyc-zen4")
    block_ids, addresses, _ = stream(workload)
    core = Dataflow(workload, machine.node)
    speed = core.num_instructions(block_ids) / least_cpu(lambda: core.execute(block_ids, addresses))
    unit = second()
    print(f"\n{name} -O{level} {size}: {speed / 1e6:.1f} M instructions/s; {UNIT} sorts {unit:.2f} s")
    assert speed * unit >= 10e6 / NOISE
