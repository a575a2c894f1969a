"""What the runtime system takes: barriers, forks, chunks, locks, creators, in closed form; and whose costs hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from node_programs import node_program
from scheduled_programs import COMPUTE, CREATE, flat, makespan

from manyscale.models.machine import Node
from manyscale.models.node.program.node_program import Action, LoopFlag, NodeProgram
from manyscale.models.node.scheduler.runtime_system import NodeRuntime, RuntimeSystem


def looped(chunks: int, flags: int, work: int = 100, action: Action = Action.loop) -> NodeProgram:
    """One loop of the initial task, and a piece after it."""
    steps = [[(action, 0), (COMPUTE, 7)], *([(COMPUTE, work)] for _ in range(chunks))]
    program = node_program(steps, loops=[(1, 1 + chunks)])
    return replace(program, loop_flags=np.array([flags, 0], np.uint8)[: len(program.first_chunk) - 1])


@pytest.mark.theory
@pytest.mark.parametrize(("cores", "doublings"), [(1, 0), (2, 1), (3, 2), (4, 2), (8, 3)])
def test_barriers_and_forks_cost_by_doublings(cores: int, doublings: int) -> None:
    """Eight chunks on so many cores; the region begins with the loop, or did before it."""
    shares = -(-8 // cores) * 100
    assert makespan(looped(8, LoopFlag.forks), cores, barrier=10, fork=3) == shares + 7 + 13 * doublings
    assert makespan(looped(8, 0), cores, barrier=10, fork=3) == shares + 7 + 10 * doublings


@pytest.mark.theory
def test_barriers_cost_once_however_long_they_wait() -> None:
    program = node_program([[(CREATE, 1), (COMPUTE, 20), (Action.barrier, 0), (COMPUTE, 7)], [(COMPUTE, 100)]])
    assert makespan(program, 2, barrier=10) == 100 + 10 + 7
    assert makespan(program, 1, barrier=10) == 20 + 100 + 7


@pytest.mark.theory
def test_chunks_cost_where_they_are_handed_out() -> None:
    """Where no cost of chunks is given, taking any one costs what taking an instance does."""
    asked, cut = looped(8, LoopFlag.asked), looped(8, 0)
    assert makespan(asked, 4, chunk=10, schedule=50) == 2 * 110 + 7
    assert makespan(cut, 4, chunk=10, schedule=50) == 2 * 100 + 7
    assert makespan(cut, 4, schedule=50) == 2 * 150 + 7


@pytest.mark.theory
def test_locks_cost_where_another_core_had_them() -> None:
    """Two instances that are under a lock for 100 each, and their creator, which had it first, on two cores."""
    held = [(Action.acquire, 0), (COMPUTE, 100), (Action.release, 0)]
    program = replace(node_program([[(CREATE, 1), *held, *held], held]), num_locks=1)
    # the other core waits for the first of the creator's, which then waits for it
    assert makespan(program, 2, lock=10) == 100 + 110 + 110
    assert makespan(program, 2) == 300
    assert makespan(program, 1, lock=10) == 300


@pytest.mark.theory
@pytest.mark.parametrize("speedup", [1, 2, 4, 8])
def test_a_creator_bounds_the_program_until_it_is_fast_enough(speedup: int) -> None:
    """One thread creates all (Grass, UPC 2017, section 6.4.5): creation takes N c / s, and the last instance w after
    it, as long as the p - 1 others keep up with it; else all cores have (N c / s + N w) / p, but for one instance."""
    number, create, work, cores = 600, 80, 100, 5
    takes = create // speedup
    found = makespan(flat([work] * number), cores, create=create, creator_speedup=speedup)
    if takes * (cores - 1) >= work:
        assert found == number * takes + work
    else:
        assert found == pytest.approx((number * takes + number * work) / cores, abs=work)


def test_costs_of_the_machine_hold_where_none_are_given() -> None:
    costs = {"create": "70 ns", "schedule": "130 ns", "chunk": "90 ns", "barrier": "40 ns"}
    node = Node.model_validate(
        {"sockets": 1, "cores_per_socket": 4, "runtime_system": NodeRuntime.model_validate(costs)}
    )
    everything = RuntimeSystem().on(node, 4)
    assert (everything.create_ps, everything.schedule_ps, everything.chunk_ps) == (70_000, 130_000, 90_000)
    assert (everything.barrier_ps, everything.steal_ps) == (40_000, 0)
    own = RuntimeSystem.model_validate({"create": "0 ns", "schedule": "5 ns", "policy": "lifo"}).on(node, 4)
    assert (own.create_ps, own.schedule_ps, own.chunk_ps, own.barrier_ps) == (0, 5_000, None, 40_000)
    assert own.policy == "lifo"
    assert RuntimeSystem().on(node, 1) == RuntimeSystem()  # which a trace of one thread contains
