"""Scheduler, cores and memory together: what several cores take, and what is said of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from block_programs import LINE, Op, alu, blocks, load, node, run_tasks, store, stream_of, tasks_program
from node_programs import node_program

from manyscale.models.node.detailed import DetailedPhases, simulate
from manyscale.models.node.program.node_program import Action
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload, WorkloadError
from manyscale.models.workload.detail_tables import InstructionClass as Kind

pytestmark = pytest.mark.slow  # its kernels take half a minute to compile

COUNT = 1000
RUNTIME = RuntimeSystem()


def resident(count: int) -> list[tuple[list[int], list[int]]]:
    """Tasks that go over 16 lines of their own again and again."""
    return [([0] * COUNT, [(1 << 20) * task + LINE * (k % 16) for k in range(COUNT)]) for task in range(count)]


def streaming(count: int) -> list[tuple[list[int], list[int]]]:
    """Tasks that go over lines of their own once."""
    return [([0] * COUNT, [(1 << 20) * task + LINE * k for k in range(COUNT)]) for task in range(count)]


def compute() -> Workload:
    return blocks([load(1), *alu(7)])


def makespan(found: DetailedPhases) -> float:
    """In cycles."""
    return int(found.makespan_ps.sum()) / 1000


@pytest.mark.theory
@pytest.mark.parametrize("cores", [2, 4])
def test_cores_with_work_of_their_own_take_what_one_takes(cores: int):
    one = run_tasks(compute(), node(), resident(1), warm="second-run")
    several = run_tasks(compute(), node(cores), resident(cores), cores, warm="second-run")
    assert makespan(several) == pytest.approx(makespan(one), rel=0.002)
    assert makespan(one) == pytest.approx(2 * COUNT, rel=0.005)


@pytest.mark.theory
def test_one_core_takes_the_sum_of_its_tasks():
    one = run_tasks(compute(), node(), resident(1), warm="second-run")
    three = run_tasks(compute(), node(), resident(3), warm="second-run")
    assert makespan(three) == pytest.approx(3 * makespan(one), rel=0.01)


@pytest.mark.theory
def test_cores_share_the_bandwidth_of_memory():
    """A line takes 16 cycles of what all cores have together."""
    machine = node(2, shared="4 GB/s")
    one = run_tasks(compute(), machine, streaming(1))
    two = run_tasks(compute(), machine, streaming(2), 2)
    assert makespan(one) == pytest.approx(16 * COUNT, rel=0.02)
    assert makespan(two) == pytest.approx(2 * 16 * COUNT, rel=0.02)


@pytest.mark.theory
def test_dependences_and_runtime_costs_stand_between_tasks():
    runtime = RuntimeSystem.model_validate({"schedule": "30 ns", "complete": "20 ns"})
    program = tasks_program(3, edges=[(1, 2), (2, 3)])
    chain = run_tasks(compute(), node(2), resident(3), 2, runtime, program, warm="second-run")
    single = run_tasks(compute(), node(), resident(1), warm="second-run")
    assert makespan(chain) == pytest.approx(3 * (makespan(single) + 50), rel=0.01)
    overhead = chain.core_stack[:, chain.core_parts.index("overhead")].sum()
    assert overhead == pytest.approx(3 * 50, rel=0.01)


@pytest.mark.theory
def test_the_parts_of_the_stack_sum_to_the_cycles():
    mixed = blocks([load(1, address=1), store(2), Op(Kind.fp_add, (32,), (32,)), load(3, address=2), Op(Kind.branch)])
    machine = node(2, costs=[(Kind.fp_add, 3, 1)], store_buffer=4, misprediction="20 cycles")
    generator = np.random.default_rng(1)
    tasks = [([0] * COUNT, (generator.integers(0, 2000, 3 * COUNT) * 8).tolist()) for _ in range(5)]
    found = run_tasks(mixed, machine, tasks, 2)
    assert found.core_stack.sum(axis=1) == pytest.approx(np.full(2, makespan(found)))
    assert found.type_stack.sum() == pytest.approx(found.instances["cycles"].sum())
    busy = len(found.parts)
    assert found.type_stack.sum(axis=0) == pytest.approx(found.core_stack[:, :busy].sum(axis=0))
    assert found.core_stack.min() >= -1e-6
    assert found.num_instructions == 5 * 5 * COUNT == found.instances["instructions"].sum()


@pytest.mark.theory
def test_each_level_has_the_cycles_that_its_latency_takes():
    chase = blocks([load(1, address=1)])
    found = run_tasks(chase, node(), [([0] * 4096, [LINE * k for k in range(4096)])], keep_served=True)
    parts = dict(zip(found.parts, found.type_stack[0], strict=True))
    assert parts["memory"] == pytest.approx(50 * 4096, rel=0.01)
    assert found.served[1].tolist() == [0, 0, 4096, 0]


@pytest.mark.theory
def test_instances_take_given_times_where_they_are_not_detailed():
    detailed = np.array([0, 1, 0, 0], np.int8)
    program = tasks_program(3, traced_ps=7_000_000)
    found = run_tasks(compute(), node(), resident(3), program=program, is_detailed=detailed)
    single = run_tasks(compute(), node(), resident(1))
    assert makespan(found) == pytest.approx(makespan(single) + 2 * 7000, abs=1)
    assert found.piece_ps.tolist() == [found.piece_ps[0], 7_000_000, 7_000_000]
    assert found.num_pieces == 1
    assert found.core_stack[0, found.core_parts.index("fast")] == 14000


@pytest.mark.theory
@pytest.mark.parametrize("is_detailed", [True, False])
def test_what_comes_on_top_is_given_time_behind_the_instructions(is_detailed: bool):
    """700 and 300 cycles of the first and the third task's pieces, simulated or given; none of the second's."""
    detailed = np.full(4, is_detailed, np.int8)
    beside = np.array([700_000, 0, 300_000])
    program = tasks_program(3, traced_ps=7_000_000)
    plain, found = (
        run_tasks(compute(), node(), resident(3), program=program, is_detailed=detailed, **more)
        for more in ({}, {"beside_ps": beside})
    )
    assert makespan(found) == makespan(plain) + 1000
    assert (found.piece_ps - plain.piece_ps).tolist() == beside.tolist()
    more = {part: found.core_stack[0, at] - plain.core_stack[0, at] for at, part in enumerate(found.core_parts)}
    assert more == pytest.approx({**dict.fromkeys(found.core_parts, 0), "fast": 1000}, abs=1e-6)
    assert found.type_stack.sum() == plain.type_stack.sum()


@pytest.mark.theory
def test_what_comes_on_top_is_there_where_no_instructions_are():
    """Such as the page faults of a library's function, which nobody instrumented."""
    nothing = np.zeros(0, np.int64)
    tasks = [resident(1)[0], (nothing, nothing), resident(1)[0]]
    plain, found = (
        run_tasks(compute(), node(), tasks, program=tasks_program(3), **more)
        for more in ({}, {"beside_ps": np.array([0, 500_000, 0])})
    )
    assert makespan(found) == makespan(plain) + 500


@pytest.mark.theory
def test_what_stays_in_caches_is_there_in_the_next_phase():
    program = node_program(
        [[(Action.create, 1), (Action.create, 2)], [(Action.compute, 1)], [(Action.compute, 1)]],
        phases=[(1, 1), (1, 1)],
    )
    tasks = [resident(1)[0], resident(1)[0]]
    cold = run_tasks(compute(), node(memory_latency=400), tasks, program=program)
    warm = run_tasks(compute(), node(memory_latency=400), tasks, program=program, warm="second-run")
    assert cold.makespan_ps[0] > 1.2 * cold.makespan_ps[1]
    assert warm.makespan_ps[0] == pytest.approx(warm.makespan_ps[1], rel=0.01)
    assert cold.makespan_ps[1] == pytest.approx(warm.makespan_ps[1], rel=0.01)


@pytest.mark.theory
def test_a_line_that_another_core_writes_has_to_be_fetched_again():
    """Two cores that store to one line, against two that store to lines of their own."""
    stores = blocks([store(1), *alu(7)])
    together = [([0] * COUNT, [8 * task] * COUNT) for task in range(2)]
    apart = [([0] * COUNT, [4096 * task] * COUNT) for task in range(2)]
    machine = node(2, store_buffer=1)
    assert makespan(run_tasks(stores, machine, together, 2)) > 1.2 * makespan(run_tasks(stores, machine, apart, 2))


@pytest.mark.property
def test_the_same_comes_out_again():
    generator = np.random.default_rng(2)
    tasks = [([0] * 300, (generator.integers(0, 500, 300) * 64).tolist()) for _ in range(9)]
    first, second = (run_tasks(compute(), node(3), tasks, 3) for _ in range(2))
    for name in ("makespan_ps", "piece_ps", "core_stack", "type_stack", "counts", "instances"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()


@pytest.mark.property
def test_cores_that_have_nothing_to_do_change_nothing():
    """Two tasks that share the bandwidth of memory, and cores beside."""
    two, eight = (run_tasks(compute(), node(cores, shared="4 GB/s"), streaming(2), cores) for cores in (2, 8))
    for name in ("makespan_ps", "piece_ps", "type_stack"):
        assert getattr(two, name).tobytes() == getattr(eight, name).tobytes()


def mixed(count: int, common_lines: int = 0) -> list[tuple[list[int], list[int]]]:
    """Tasks that load, load and store lines drawn at random: 24 of their own (most hit a first cache of 64 lines), one
    in eight of 2,000 of their own, and one in four of those that all have in common."""
    generator = np.random.default_rng(3)
    places = []
    for task in range(count):
        number, draw = generator.integers(0, 1 << 16, 3 * COUNT), generator.random(3 * COUNT)
        own = (1 << 20) * (task + 1) + LINE * np.where(draw < 1 / 8, number % 2000, number % 24)
        common = LINE * (number % max(common_lines, 1))
        places.append(np.where((draw > 3 / 4) & (common_lines > 0), common, own).tolist())
    return [([0] * COUNT, each) for each in places]


@pytest.mark.property
@pytest.mark.parametrize("window", [10, 100, 1000])
def test_cores_that_go_ahead_change_nothing_where_no_lines_are_common(window: int):
    """They share the bandwidth of memory, which has to be asked in order of time, and what schedules their tasks."""
    program, machine = blocks([load(1), *alu(3), load(2), *alu(3), store(2)]), node(4, shared="4 GB/s")
    strict, ahead = (run_tasks(program, machine, mixed(9), 4, window_cycles=each) for each in (0, window))
    for name in ("makespan_ps", "piece_ps", "core_stack", "type_stack", "counts", "instances"):
        assert getattr(ahead, name).tobytes() == getattr(strict, name).tobytes()


@pytest.mark.property
@pytest.mark.parametrize("window", [10, 100, 1000])
def test_cores_that_go_ahead_change_little_where_lines_are_common_and_it_is_told(window: int):
    """A quarter of all accesses is to two lines, which cores take from each other some 5,000 times."""
    program = blocks([load(1), *alu(3), load(2), *alu(3), store(2)])
    strict, ahead = (run_tasks(program, node(4), mixed(9, 2), 4, window_cycles=each) for each in (0, window))
    assert strict.counts[:, :, 3].sum() > 100  # lines that others take away
    assert ahead.counts.tobytes() != strict.counts.tobytes()
    assert makespan(ahead) == pytest.approx(makespan(strict), rel=0.03)
    assert [note.code for note in ahead.notes if note not in strict.notes] == ["cores-go-ahead"]


@pytest.mark.contract
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"end_phase": 2}, "phases 0 to 2 of 1"),
        ({"piece_ps": np.zeros(1, np.int64)}, "1 times for 2 pieces"),
        ({"is_detailed": np.zeros(1, np.int8)}, "is_detailed says 1 instances"),
        ({"window_cycles": -1}, "window of -1 cycles"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        run_tasks(compute(), node(), resident(2), **options)


@pytest.mark.contract
def test_no_cores_are_refused():
    stream, pieces = stream_of(compute(), resident(1))
    with pytest.raises(ValueError, match="0 cores"):
        simulate(tasks_program(1), compute(), node(), 0, RUNTIME, stream, pieces)


@pytest.mark.theory
def test_mpi_inside_phases_takes_no_time():
    program = node_program(
        [[(Action.create, 1), (Action.create, 2)], [(Action.compute, 1), (Action.operation, 0)], [(Action.compute, 1)]]
    )
    tasks = resident(2)
    without = run_tasks(compute(), node(), tasks)
    assert makespan(run_tasks(compute(), node(), tasks, program=program)) == makespan(without)


@pytest.mark.contract
def test_a_phase_that_cannot_end_says_why():
    program = tasks_program(2, edges=[(1, 2), (2, 1)])
    with pytest.raises(WorkloadError, match="cycle"):
        run_tasks(compute(), node(), resident(2), program=program)
