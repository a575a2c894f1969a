"""Cores of several kinds in one simulated node, against nodes of one kind, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from block_programs import LINE, Op, alu, blocks, load, node, node_content, run_tasks, store, tasks_program

from manyscale.models.machine import Node
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload.detail_tables import InstructionClass as Kind

pytestmark = pytest.mark.slow  # its kernels take half a minute to compile

COUNT = 400


def of_kinds(content: dict[str, Any], *kinds: dict[str, Any]) -> Node:
    return Node.model_validate({**content, "core_kinds": list(kinds)})


def walk(task: int, lines: int) -> tuple[list[int], list[int]]:
    """Over so many lines of its own, again and again."""
    return [0] * COUNT, [(1 << 20) * task + LINE * (k % lines) for k in range(COUNT)]


@pytest.mark.theory
def test_half_the_clock_takes_twice_as_long() -> None:
    """Two tasks on a core each that find their lines in the first cache: all of the slower core's cycles are twice as
    long, whatever bounds them."""
    mixed = blocks([load(1), Op(Kind.fp_add, (1, 32), (32,)), *alu(7), store(32), Op(Kind.branch)])
    tasks = [([0] * COUNT, [(1 << 20) * task + LINE * (k % 16) for k in range(2 * COUNT)]) for task in range(2)]
    content = node_content(2, costs=[(Kind.fp_add, 3, 1)], misprediction="20 cycles", store_buffer=4)
    machine = Node.model_validate(content)
    half = of_kinds(content, {"cores": 1, "speed": 1}, {"cores": 1, "speed": 0.5, "frequency": "0.5 GHz"})
    both = of_kinds(content, {"cores": 2, "speed": 0.5, "frequency": "0.5 GHz"})
    alone, twice = (run_tasks(mixed, each, tasks, 2, warm="second-run").piece_ps for each in (machine, both))
    assert twice == pytest.approx(2 * alone, rel=1e-3)
    found = run_tasks(mixed, half, tasks, 2, warm="second-run")
    fast, slow = sorted(found.piece_ps.tolist())
    assert fast == pytest.approx(alone.max(), abs=1000)  # where in a cycle it began
    assert slow == pytest.approx(2 * fast, rel=1e-3)


@pytest.mark.theory
def test_each_core_is_as_in_a_node_of_its_kind() -> None:
    """Two tasks, of which the first core of a plain node takes one: 48 lines fit its first cache of 64, but not one of
    32, and a width of 1 or fewer line fill buffers are the other core's own."""
    code = blocks([load(1), *alu(7)])
    content = node_content(2)
    big = Node.model_validate(content)
    core = {"width": 1, "reorder_buffer": 16, "line_fill_buffers": 2}
    small = {"size": "2 KiB"}
    both = of_kinds(
        content, {"cores": 1, "speed": 1}, {"cores": 1, "speed": 0.4, "core": core, "caches": {"L1D": small}}
    )
    content["core"] |= core
    content["caches"]["L1D"] |= small
    little = Node.model_validate(content)
    tasks = [walk(0, 48), walk(1, 48)]
    of_big, of_little, of_both = (
        run_tasks(code, machine, tasks, 2, warm="second-run") for machine in (big, little, both)
    )
    on = of_both.instances["core"][1:]
    assert sorted(on.tolist()) == [0, 1]
    cycle_ps = 1000  # within which a piece may begin
    assert of_both.piece_ps[on == 0] == pytest.approx(of_big.piece_ps[on == 0], abs=cycle_ps)
    assert of_both.piece_ps[on == 1] == pytest.approx(of_little.piece_ps[on == 1], abs=cycle_ps)
    assert of_little.piece_ps.min() > 1.5 * of_big.piece_ps.max()
    assert of_both.counts[0, 0].tolist() == of_big.counts[0, 0].tolist()
    assert of_both.counts[1, 0].tolist() == of_little.counts[1, 0].tolist()


@pytest.mark.property
def test_kinds_that_do_not_differ_are_one_kind() -> None:
    """Tasks that write each other's lines, to the bit, from any first core on."""
    code = blocks([load(1), *alu(3), store(1)])
    generator = np.random.default_rng(2)
    tasks = [([0] * COUNT, (generator.integers(0, 400, 2 * COUNT) * 8 * LINE // 8).tolist()) for _ in range(12)]
    program = tasks_program(12, edges=[(1, 5), (2, 6), (5, 9)])
    plain = run_tasks(code, node(4), tasks, 4, program=program)
    same = of_kinds(
        node_content(4), {"cores": 1, "speed": 1}, {"cores": 3, "speed": 1, "caches": {"L2": {"size": "64 KiB"}}}
    )
    found = run_tasks(code, same, tasks, 4, program=program)
    assert found.piece_ps.tolist() == plain.piece_ps.tolist()
    assert found.counts.tolist() == plain.counts.tolist()


@pytest.mark.theory
def test_what_is_critical_goes_to_the_fast_core() -> None:
    """Chains of three and of two tasks and a single one, all alike: by critical path the core at a third of the clock
    takes the single one."""
    code = blocks([load(1), *alu(7)])
    machine = of_kinds(node_content(2), {"cores": 1, "speed": 1}, {"cores": 1, "speed": 0.33, "frequency": "0.33 GHz"})
    program = tasks_program(6, edges=[(1, 2), (2, 3), (4, 5)])
    tasks = [walk(task, 16) for task in range(6)]
    runtime = RuntimeSystem(policy="critical-path")
    found = run_tasks(code, machine, tasks, 2, runtime, program, warm="second-run")
    first = found.instances[1:]
    assert min((each["start_ps"], task) for task, each in enumerate(first, 1) if each["core"] == 1)[1] == 6


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ({"caches": {"L3": {"size": "1 MiB"}}}, "core_kinds.1.caches: .*'L3'"),
        ({"caches": {"L2": {"line": "32 B"}}}, "core_kinds.1.caches.L2.line: is the same for all kinds"),
        ({"caches": {"L2": {"size": "63 KiB", "ways": 64}}}, "core_kinds.1.caches.L2"),
        ({"core": {"width": 0}}, "core_kinds.1.core.width"),
        ({"core": {"wide": 2}}, "core_kinds.1.core.wide"),
    ],
)
def test_what_a_kind_cannot_be(kind: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        of_kinds(node_content(2), {"cores": 1, "speed": 1}, {"cores": 1, "speed": 0.5, **kind})
