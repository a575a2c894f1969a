"""Instances from micro-profiles against what follows by hand (as test_core.py: width 4, reorder buffer 64, 1 GHz), and
against the detailed model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from block_programs import LINE, Op, Task, alu, blocks, load, node, run_tasks, store, stream_of, tasks_program

from manyscale.models.machine import Node
from manyscale.models.node.micro import response_kernel as kernel
from manyscale.models.node.micro.collect import DEFAULT, collect_profiles
from manyscale.models.node.micro.profiles import MicroProfiles, profiles_from
from manyscale.models.node.micro.response import core_response
from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import InstructionClass as Kind

pytestmark = pytest.mark.slow  # its kernels take a quarter of a minute to compile

COUNT = 8192  # executions: more instructions than are kept whole
CHAIN = blocks([Op(Kind.fp_add, (32, 33), (32,))] * 4)


def profiles_of(workload: Workload, tasks: Sequence[Task]) -> MicroProfiles:
    stream, pieces = stream_of(workload, tasks)
    return collect_profiles(tasks_program(len(tasks)), stream, pieces, workload)


def respond(
    profiles: MicroProfiles, workload: Workload, machine: Node, instance: int = 1, *,
    state: Sequence[float] = (1, 0, 0, 0), **options: object,
) -> np.ndarray:  # fmt: skip
    response, _ = core_response(profiles, workload, machine, **options)  # type: ignore[arg-type]
    out = np.zeros(response.rate.shape[-1])
    kernel.respond(response, int(profiles.sample_of[instance]), *map(float, state), out)
    return out


def cpi(workload: Workload, machine: Node, addresses: Sequence[int] = (), **options: object) -> float:
    """Of one task that executes block 0."""
    profiles = profiles_of(workload, [([0] * COUNT, addresses)])
    return float(respond(profiles, workload, machine, **options)[kernel.CYCLES])  # type: ignore[arg-type]


def shares_l2(**changes: int) -> Node:
    """Four cores with an L2 in common."""
    machine = node(cores=4)
    shared = machine.caches["L2"].model_copy(update={"shared_by_cores": 4, **changes})
    return machine.model_copy(update={"caches": {**machine.caches, "L2": shared}})


def lines(count: int, of: int) -> list[int]:
    return [LINE * (k % of) for k in range(count)]


@pytest.mark.theory
@pytest.mark.parametrize("latency", [1, 3, 7])
def test_a_chain_takes_its_latency(latency: int):
    """Each waits for the one before, across iterations."""
    machine = node(costs=[(Kind.fp_add, latency, 0.5)])
    assert cpi(CHAIN, machine) == pytest.approx(latency, rel=1e-3)


@pytest.mark.theory
def test_a_recurrence_over_iterations_bounds_them():
    """One of eight instructions waits for the iteration before: 6 cycles, not the 2 of the width."""
    program = blocks([Op(Kind.fp_add, (32,), (32,)), *alu(7)])
    assert cpi(program, node(costs=[(Kind.fp_add, 6, 0.5)])) == pytest.approx(6 / 8, rel=1e-3)
    assert cpi(program, node(costs=[(Kind.fp_add, 1, 0.5)])) == pytest.approx(2 / 8, rel=1e-3)


@pytest.mark.theory
def test_width_and_units_bound_what_waits_for_nothing():
    assert cpi(blocks(alu(8)), node()) == pytest.approx(1 / 4, rel=1e-3)
    assert cpi(blocks(alu(8)), node(width=2)) == pytest.approx(1 / 2, rel=1e-3)
    divisions = blocks([Op(Kind.fp_div, (33,), (32,)), *alu(3)])
    assert cpi(divisions, node(costs=[(Kind.fp_div, 13, 5)])) == pytest.approx(5 / 4, rel=1e-3)


@pytest.mark.theory
@pytest.mark.parametrize(("working_set", "latency"), [(4, 4), (256, 14), (4096, 50)])
def test_a_pointer_chase_takes_the_latency_of_its_level(working_set: int, latency: int):
    """L1D of 64 lines, L2 of 1,024 in sets of 4: distances far from both."""
    chase = blocks([load(1, address=1), *alu(3)])
    found = cpi(chase, node(), lines(COUNT, working_set), warm=True)
    assert found == pytest.approx(latency / 4, rel=0.02)


@pytest.mark.theory
@pytest.mark.parametrize(("distance", "buffers", "at_once"), [(8, 64, 8), (32, 64, 2), (64, 64, 1), (4, 4, 4)])
def test_misses_overlap_as_far_as_reorder_buffer_and_line_fill_buffers_reach(distance: int, buffers: int, at_once: int):
    program = blocks([load(1), *alu(distance - 1)])
    found = cpi(program, node(memory_latency=200, line_fill_buffers=buffers), lines(COUNT, COUNT))
    assert found * distance == pytest.approx(200 / at_once, rel=0.02)


@pytest.mark.theory
def test_stores_overlap_as_far_as_the_store_buffer_reaches():
    program = blocks([store(1), *alu(3)])
    found = cpi(program, node(memory_latency=200, store_buffer=8), lines(COUNT, COUNT))
    assert found * 4 == pytest.approx(200 / 8, rel=0.05)


@pytest.mark.theory
def test_what_others_do_takes_its_toll():
    """2,000 lines in turn: alone in an L2 of 4,096 they hit, with a quarter of it they miss; one that comes later by w
    cycles holds up a chain by w."""
    machine = shares_l2(size_bytes=4096 * LINE, ways=16)
    chase = blocks([load(1, address=1), *alu(3)])
    profiles = profiles_of(chase, [([0] * COUNT, lines(COUNT, 2000))])
    options = {"num_cores": 4, "warm": True}
    cases = {(1, 0, 0, 0): 14, (1, 0, 30, 0): 44, (0.25, 0, 0, 0): 50, (0.25, 0, 0, 40): 90, (0.25, 0, 0, 800): 850}
    for state, latency in cases.items():
        found = respond(profiles, chase, machine, state=state, **options)
        assert found[kernel.CYCLES] * 4 == pytest.approx(latency, rel=0.05), state
        assert found[kernel.LINES_READ] * 4 == pytest.approx(float(latency >= 50), abs=0.03)
        assert found[kernel.LINES_SHARED] * 4 == pytest.approx(1, abs=0.03)
        assert found[kernel.FIRST_SERVED :].sum() * 4 == pytest.approx(1, abs=0.01)


def test_what_another_instance_used_comes_from_a_shared_cache_if_it_ran_elsewhere():
    machine = shares_l2()
    chase = blocks([load(1, address=1), *alu(3)])
    profiles = profiles_of(chase, [([0] * 16, lines(16, 16)), ([0] * 16, lines(16, 16))])
    for elsewhere in (0.0, 0.5, 1.0):
        found = respond(profiles, chase, machine, 2, state=(1, elsewhere, 0, 0), num_cores=4)
        assert found[kernel.CYCLES] * 4 == pytest.approx(4 + elsewhere * 10, abs=0.1)


def test_instances_of_many_kinds_take_what_the_detailed_model_says():
    """Kept whole, each instance runs as there: to the cycle where all lines are new, or the only ones of a cache."""
    program = blocks([load(1, address=1), store(2), *alu(3)], [Op(Kind.fp_add, (32,), (32,)), load(3), *alu(9)])
    rng = np.random.default_rng(1)
    tasks = []
    for task in range(6):
        ids = rng.integers(0, 2, 100 + 50 * task)
        number = int((ids == 0).sum() * 2 + (ids == 1).sum())
        tasks.append((ids.tolist(), [LINE * (100_000 * task + k) for k in range(number)]))
    machine = node(costs=[(Kind.fp_add, 4, 0.5)], memory_latency=90, store_buffer=20)
    truth = run_tasks(program, machine, tasks).instances["cycles"]
    profiles = profiles_of(program, tasks)
    for instance in range(1, 7):
        found = respond(profiles, program, machine, instance)[kernel.CYCLES] * profiles.instructions[instance]
        assert found == pytest.approx(truth[instance], rel=0.01)


def test_few_of_many_equal_instances_are_kept():
    program = blocks([load(1), *alu(7)])
    tasks = [([0] * 500, [LINE * (500 * task + k) for k in range(500)]) for task in range(400)]
    profiles = profiles_of(program, tasks)
    assert profiles.num_samples <= DEFAULT.many
    assert int(profiles.weight.sum()) < int(profiles.instructions.sum()) / 5
    assert set(profiles.sample_of[1:].tolist()) == set(range(profiles.num_samples))
    kept = profiles_from(profiles.arrays())
    assert all(np.array_equal(value, profiles.arrays()[name]) for name, value in kept.arrays().items())
