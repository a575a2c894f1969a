"""The runtime system inside a node: closed forms, bounds, an independent scheduler, and refusals."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node_programs import Peer, Steps, node_program

from manyscale.models.node.burst import ScheduledPhases, run_phases
from manyscale.models.node.program.node_program import Action, InstanceFlag, NodeProgram
from manyscale.models.node.scheduler.runtime_system import POLICIES, RuntimeSystem
from manyscale.models.workload import WorkloadError

_COMPUTE, _CREATE, _CALL, _WAIT = Action.compute, Action.create, Action.call, Action.wait_children
_UNTIED, _PSEUDO = int(InstanceFlag.untied), int(InstanceFlag.pseudo)
every_policy = pytest.mark.parametrize("policy", POLICIES)


def runtime_of(**parameters: object) -> RuntimeSystem:
    """Costs in ps."""
    costs = ("create", "schedule", "complete", "steal")
    return RuntimeSystem.model_validate(
        {key: f"{value} ps" if key in costs else value for key, value in parameters.items()}
    )


def run(program: NodeProgram, num_cores: int, **parameters: object) -> ScheduledPhases:
    return run_phases(program, num_cores, runtime_of(**parameters), program.piece_ps, keep=True)


def makespan(program: NodeProgram, num_cores: int, **parameters: object) -> int:
    return int(run(program, num_cores, **parameters).makespan_ps[0, 0])


def flat(times: list[int], edges: list[tuple[int, int]] | None = None, **keywords: object) -> NodeProgram:
    """Instances 1, 2, ... of these times, created at once by the initial task."""
    instances: list[Steps] = [[(_CREATE, number + 1) for number in range(len(times))]]
    instances += [[(_COMPUTE, time)] for time in times]
    return node_program(instances, edges or [], **keywords)  # type: ignore[arg-type]


def order(result: ScheduledPhases) -> list[int]:
    """Instances in order of their begins, by core."""
    rows = sorted(result.stretches.tolist(), key=lambda row: (row[0], row[4]))
    return [row[5] for row in rows]


def cores_of(result: ScheduledPhases) -> dict[int, set[int]]:
    cores: dict[int, set[int]] = {}
    for *_, core, instance in result.stretches.tolist():
        cores.setdefault(instance, set()).add(core)
    return cores


@pytest.mark.theory
@every_policy
@pytest.mark.parametrize("num_cores", [1, 3, 8, 64, 65, 200])
def test_equal_independent_instances(policy: str, num_cores: int) -> None:
    """Full rounds of all cores, and each is as busy as another."""
    result = run(flat([1000] * (3 * num_cores)), num_cores, policy=policy)
    assert result.makespan_ps.tolist() == [[3000]]
    assert result.busy_ps.tolist() == [3000] * num_cores
    assert not result.idle_ps.any()


@pytest.mark.theory
@every_policy
@pytest.mark.parametrize("num_cores", [1, 2, 7])
def test_chain_is_its_sum(policy: str, num_cores: int) -> None:
    times = [5, 70, 11, 2, 90]
    program = flat(times, [(k, k + 1) for k in range(1, 5)])
    assert makespan(program, num_cores, policy=policy) == sum(times)


@pytest.mark.theory
@every_policy
def test_one_core_does_all(policy: str) -> None:
    """All pieces, and for each instance what it costs to create, schedule and complete it; nothing is stolen."""
    program = flat([5, 70, 11, 2], [(1, 3), (2, 3)])
    result = run(program, 1, policy=policy, create=3, schedule=20, complete=100, steal=1000)
    assert result.makespan_ps[0, 0] == 88 + 4 * 123
    assert result.busy_ps.tolist() == [88]
    assert result.overhead_ps.tolist() == [4 * 123]
    assert result.idle_ps.tolist() == [0]


@pytest.mark.theory
@every_policy
def test_creation_bounds_small_instances(policy: str) -> None:
    """Each begins when its creation ends, and is over before the next one does."""
    assert makespan(flat([4] * 50), 8, policy=policy, create=10) == 50 * 10 + 4


@pytest.mark.theory
def test_creator_speedup() -> None:
    """What the creating instance does and its creation costs are faster, what it creates is not."""
    program = node_program(
        [[(_COMPUTE, 60), (_CREATE, 1), (_COMPUTE, 30), (_WAIT, 0), (_COMPUTE, 90)], [(_COMPUTE, 8)]]
    )
    assert makespan(program, 2, create=12) == 60 + 12 + 30 + 90
    assert makespan(program, 2, create=12, creator_speedup=3) == 20 + 4 + 10 + 30
    assert makespan(program, 2, create=12, creator_speedup=6) == 10 + 2 + 8 + 15


@pytest.mark.theory
@every_policy
def test_steals_cost(policy: str) -> None:
    """Instances of the creating core, taken by another: two at once, then two more."""
    expected = {"work-stealing": 1000 + 7}.get(policy, 1000)
    program = node_program([[(_CREATE, 1), (_COMPUTE, 1000)], [(_COMPUTE, 1000)]])
    assert makespan(program, 2, policy=policy, steal=7) == expected


@pytest.mark.theory
def test_nested_creation() -> None:
    """A binary tree: leaves of 100 at depth 3, each parent waits for both; 8 cores do one level at a time."""
    instances: list[list[tuple[Action, int]]] = [[(_CREATE, 1), (_WAIT, 0)]]
    for number in range(1, 16):
        children = [(_CREATE, 2 * number), (_CREATE, 2 * number + 1), (_WAIT, 0)] if number < 8 else []
        instances.append([(_COMPUTE, 100), *children, (_COMPUTE, 10)])
    program = node_program(instances)
    assert makespan(program, 8) == 4 * 110
    assert makespan(program, 1) == 15 * 110


@pytest.mark.theory
@pytest.mark.parametrize(
    ("wait", "after"),
    [
        ([(_WAIT, 0)], 100),  # for the child only, which has created another and ended
        ([(Action.wait_instance, 1)], 100),
        ([(Action.wait_instance, 2)], 600),
        ([(Action.end_group, 0)], 600),
        ([(Action.barrier, 0)], 600),
        ([], 0),
    ],
)
def test_what_is_waited_for(wait: list[tuple[Action, int]], after: int) -> None:
    """Instance 1 takes 100 and creates instance 2 of 500; then the initial task does 1000."""
    begin = [(Action.begin_group, 0)] if (Action.end_group, 0) in wait else []
    program = node_program(
        [[*begin, (_CREATE, 1), *wait, (_COMPUTE, 1000)], [(_COMPUTE, 100), (_CREATE, 2)], [(_COMPUTE, 500)]]
    )
    assert makespan(program, 3) == after + 1000


@pytest.mark.theory
def test_groups_nest_and_leave_earlier_instances_alone() -> None:
    """Instance 1 (900) is older than the outer group of 2 (300), and the inner one of 3 (50)."""
    steps = [
        (_CREATE, 1), (Action.begin_group, 0), (_CREATE, 2), (Action.begin_group, 0), (_CREATE, 3),
        (Action.end_group, 0), (_COMPUTE, 5), (Action.end_group, 0), (_COMPUTE, 1),
    ]  # fmt: skip
    result = run(node_program([steps, [(_COMPUTE, 900)], [(_COMPUTE, 300)], [(_COMPUTE, 50)]]), 4)
    assert result.makespan_ps[0, 0] == 900
    assert [row[:2] for row in result.stretches.tolist() if row[5] == 0] == [(50, 55), (300, 301)]


@pytest.mark.theory
def test_group_over_two_phases() -> None:
    """A group that an MPI operation lies in: its end waits for what this phase created."""
    steps = [(Action.begin_group, 0), (_COMPUTE, 5), (_CREATE, 1), (Action.end_group, 0), (_COMPUTE, 3)]
    program = node_program([steps, [(_COMPUTE, 70)]], phases=[(2, 0), (3, 1)])
    assert run(program, 2).makespan_ps.tolist() == [[5, 73]]


@pytest.mark.theory
def test_called_instance_runs_inside_its_caller() -> None:
    """At once, before what is ready longer, and the caller goes on at once when it has ended."""
    program = node_program([[(_CREATE, 1), (_CALL, 2), (_COMPUTE, 7)], [(_COMPUTE, 100)], [(_COMPUTE, 20)]])
    result = run(program, 1, schedule=1000, create=1)
    assert order(result) == [0, 2, 0, 1]
    assert result.makespan_ps[0, 0] == 1 + 1 + 20 + 7 + 1000 + 100


@pytest.mark.theory
def test_called_instance_waits_for_its_predecessors() -> None:
    """On its caller's core, which executes something else meanwhile."""
    program = node_program(
        [[(_CREATE, 1), (_CREATE, 2), (_CALL, 3), (_COMPUTE, 7)], [(_COMPUTE, 90)], [(_COMPUTE, 60)], [(_COMPUTE, 20)]],
        [(1, 3)],
    )
    result = run(program, 2)
    assert result.makespan_ps[0, 0] == 90 + 20 + 7
    assert cores_of(result)[3] == {0}


@pytest.mark.theory
def test_wait_with_dependences() -> None:
    """A pseudo instance takes no time and no core, and costs nothing."""
    instances = [[(_CREATE, 1), (_CREATE, 2), (_CREATE, 3), (Action.wait_instance, 3), (_COMPUTE, 7)]]
    instances += [[(_COMPUTE, 90)], [(_COMPUTE, 400)], []]
    program = node_program(instances, [(1, 3)], flags={3: _PSEUDO})
    result = run(program, 3, create=1)
    assert [row[:2] for row in result.stretches.tolist() if row[5] == 0] == [(0, 2), (91, 98)]


@pytest.mark.theory
@pytest.mark.parametrize("untied", [False, True])
def test_tied_instances_wait_for_their_core(untied: bool) -> None:
    """Instance 1, on core 0, waits for its child 2 of 100 on core 1; core 0 has begun instance 3 of 500 meanwhile."""
    steps = [(_CREATE, 2), (_COMPUTE, 1), (_CREATE, 3), (Action.wait_instance, 2), (_COMPUTE, 10)]
    instances: list[Steps] = [[(_CREATE, 1), (_WAIT, 0)], steps, [(_COMPUTE, 100)], [(_COMPUTE, 500)]]
    program = node_program(instances, flags={1: _UNTIED if untied else 0})
    stretches = [row for row in run(program, 2).stretches.tolist() if row[5] == 1]
    first_core = stretches[0][4]
    if untied:
        assert [(row[0], row[4]) for row in stretches] == [(0, first_core), (100, 1 - first_core)]
    else:
        assert [(row[0], row[4]) for row in stretches] == [(0, first_core), (501, first_core)]


@pytest.mark.theory
@pytest.mark.parametrize(
    ("action", "main_after"), [(Action.loop, 30), (Action.loop_nowait, 20)], ids=["loop", "loop_nowait"]
)
def test_loop(action: Action, main_after: int) -> None:
    """Chunks of 10, 10, 10, 20 on two cores end at 10, 10, 20, 30: a loop without wait goes on where none is left."""
    instances: list[Steps] = [[(action, 0), (_COMPUTE, 100)]]
    instances += [[(_COMPUTE, time)] for time in (10, 10, 10, 20)]
    program = node_program(instances, loops=[(1, 5)])
    result = run(program, 2)
    assert [row[:1] for row in result.stretches.tolist() if row[5] == 0] == [(main_after,)]
    assert result.makespan_ps[0, 0] == main_after + 100


@pytest.mark.theory
@pytest.mark.parametrize("num_cores", [1, 2, 5])
def test_chunks_are_handed_out_in_order(num_cores: int) -> None:
    times = [7, 30, 4, 4, 4, 9, 1, 22]
    instances: list[Steps] = [[(Action.loop, 0)]] + [[(_COMPUTE, time)] for time in times]
    free = [0] * num_cores
    for time in times:
        free[free.index(min(free))] += time
    assert makespan(node_program(instances, loops=[(1, 9)]), num_cores) == max(free)


@pytest.mark.theory
def test_two_loops_and_none() -> None:
    """One after another, with a task between, and a loop without chunks."""
    instances: list[Steps] = [[(Action.loop_nowait, 0), (_CREATE, 3), (Action.loop, 2), (Action.loop, 1)]]
    instances += [[(_COMPUTE, 10)]] * 5
    program = node_program(instances, loops=[(1, 3), (4, 6), (6, 6)])
    assert makespan(program, 1) == 50
    assert makespan(program, 5) == 20


@pytest.mark.theory
@every_policy
def test_locks_serialise(policy: str) -> None:
    """Each instance: 5 alone, 100 under the lock."""
    locked = [(_COMPUTE, 5), (Action.acquire, 0), (_COMPUTE, 100), (Action.release, 0)]
    program = node_program([[(_CREATE, k) for k in range(1, 7)], *[locked] * 6], num_locks=1)
    assert makespan(program, 6, policy=policy) == 5 + 600
    assert makespan(program, 1, policy=policy) == 6 * 105
    other = [*locked[:1], (Action.acquire, 1), *locked[2:3], (Action.release, 1)]
    program = node_program([[(_CREATE, k) for k in range(1, 7)], *[locked, other] * 3], num_locks=2)
    assert makespan(program, 6, policy=policy) == 5 + 300


@pytest.mark.theory
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fifo", [1, 2, 3, 4]),
        ("lifo", [4, 3, 2, 1]),
        ("work-stealing", [4, 3, 2, 1]),
        ("critical-path", [3, 1, 2, 4]),
        ("data-reuse", [1, 2, 3, 4]),
    ],
)
def test_order_on_one_core(policy: str, expected: list[int]) -> None:
    program = flat([10, 10, 11, 5])
    assert order(run(program, 1, policy=policy)) == expected


@pytest.mark.theory
@every_policy
def test_priorities_go_first(policy: str) -> None:
    program = flat([10, 10, 10, 10, 10], priority={1: -4, 3: 7, 4: 7})
    found = order(run(program, 1, policy=policy))
    assert found[2:] == [2 if found[2] == 2 else 5, 5 if found[2] == 2 else 2, 1]
    assert set(found[:2]) == {3, 4}


@pytest.mark.theory
def test_critical_path_first() -> None:
    """A chain of three beside six single instances, on two cores: 3 x 10 at best, which needs the chain to go first."""
    program = flat([10] * 6, [(4, 5), (5, 6)])
    assert makespan(program, 2, policy="critical-path") == 30
    assert makespan(program, 2, policy="fifo") == 40


@pytest.mark.theory
def test_critical_path_knows_what_the_parent_does_next() -> None:
    """Of 2 (20 long) and 3 (10), created by 1, which waits for the latter and then has 100 to do, 3 goes first: on two
    cores 1 + 10 + 100, and 2 beside it."""
    program = node_program(
        [[(_CREATE, 1), (_CREATE, 2), (_CREATE, 4), (_COMPUTE, 1), (_CREATE, 5), (_WAIT, 0)],
         [(_COMPUTE, 1), (_CREATE, 3), (Action.wait_instance, 3), (_COMPUTE, 100)],
         [(_COMPUTE, 20)], [(_COMPUTE, 10)], [(_COMPUTE, 20)], [(_COMPUTE, 20)]]
    )  # fmt: skip
    assert order(run(program, 1, policy="critical-path"))[1:4] == [1, 3, 1]


def of_types(program: NodeProgram, types: list[int]) -> NodeProgram:
    return replace(program, task_type=np.array([-1, *types], np.int32))


@pytest.mark.theory
def test_learned_times_of_types_find_the_long_one() -> None:
    """Instance 1 of a type takes 1, instance 2 of another 10; all others wait for both: ten of the first type, then one
    of the second. On two cores 10 + 10 at best, the long one beside the ten short ones. First in first out does the
    long one last: 10 + 5 + 10. What was learned of 1 and 2 is enough."""
    times = [1, 10, *[1] * 10, 10]
    edges = [(before, after) for before in (1, 2) for after in range(3, 14)]
    program = of_types(flat(times, edges), [0, 1, *[0] * 10, 1])
    assert makespan(program, 2, policy="fifo") == 25
    assert makespan(program, 2, policy="critical-path") == 20
    assert makespan(program, 2, policy="predicted-critical-path") == 20


@pytest.mark.theory
def test_what_waits_is_ordered_anew_by_what_was_learned() -> None:
    """On two cores: 1 takes 1 and 2 takes 10, of two types, while 3 to 12 of the first type and 13 of the second are
    ready from the beginning. When 1 has ended nothing is known of the other type, and 3 to 11 follow; when 2 has, at
    10, 12 and 13 are left, and the long one goes first whatever became ready first: 10 + 10."""
    program = of_types(flat([1, 10, *[1] * 10, 10]), [0, 1, *[0] * 10, 1])
    assert makespan(program, 2, policy="predicted-critical-path") == 20
    found = order(run(program, 1, policy="predicted-critical-path"))
    assert found[:3] == [1, 2, 13]  # both types are known then


@pytest.mark.theory
def test_times_that_are_learned_may_be_longer_than_all_that_were_traced() -> None:
    """A chain of two and one of four, of 10 each, on a core that takes ten times that: the longer one goes first. When
    its first has ended, 300 of it are left and 200 of the other, both more than the 60 that were traced."""
    program = of_types(flat([10] * 6, [(1, 2), (3, 4), (4, 5), (5, 6)]), [0] * 6)
    runtime = runtime_of(policy="predicted-critical-path")
    found = run_phases(program, 1, runtime, program.piece_ps, speed=np.array([0.1]), keep=True)
    assert order(found) == [3, 4, 1, 5, 2, 6]


@pytest.mark.theory
def test_sizes_are_known_beforehand() -> None:
    """Ten instances of size 1 and one of size 10, of one type: the large one goes first, 10 beside the others' 10."""
    program = flat([*[1] * 10, 10])
    runtime = runtime_of(policy="predicted-critical-path")
    for size, makespan_ps in ((None, 15), (np.array([0.0, *[1.0] * 10, 10.0]), 10)):
        assert run_phases(program, 2, runtime, program.piece_ps, size=size).makespan_ps.tolist() == [[makespan_ps]]
    with pytest.raises(ValueError, match="2 sizes of 12 instances"):
        run_phases(program, 2, runtime, program.piece_ps, size=np.ones(2))


@pytest.mark.theory
@every_policy
def test_cores_of_two_speeds(policy: str) -> None:
    """Four equal instances of 12 on a core of speed 1 and one of speed 1/2: three on the first, one, of 24, on the
    other: 36. Which is also the least: two and two would take 48."""
    found = run_phases(flat([12] * 4), 2, runtime_of(policy=policy), np.full(4, 12), speed=np.array([1.0, 0.5]))
    assert found.makespan_ps.tolist() == [[36]]
    assert found.busy_ps.tolist() == [36, 24]
    with pytest.raises(ValueError, match="3 speeds of 2 cores"):
        run_phases(flat([12]), 2, runtime_of(policy=policy), np.full(1, 12), speed=np.ones(3))


@pytest.mark.theory
@pytest.mark.parametrize("policy", ["critical-path", "predicted-critical-path"])
def test_a_slow_core_leaves_to_the_others_what_is_critical(policy: str) -> None:
    """Chains of three and of two, and a single instance, all of 10: the fast core begins the longest chain, the slow
    one the single instance, though the other chain became ready before it."""
    program = flat([10] * 6, [(1, 2), (2, 3), (4, 5)])
    speed = np.array([1.0, 0.5])
    found = run_phases(program, 2, runtime_of(policy=policy), program.piece_ps, speed=speed, keep=True)
    first = {row[4]: row[5] for row in sorted(found.stretches.tolist(), reverse=True)}
    assert first == {0: 1, 1: 6}


@pytest.mark.property
@every_policy
def test_every_instance_once_on_cores_of_many_speeds(policy: str) -> None:
    """Each takes its time by the speed of its core, from when its predecessors have ended."""
    random = np.random.default_rng(4)
    times = random.integers(1, 50, 200) * 8
    edges = sorted({(int(a) + 1, int(b) + 1) for a, b in np.sort(random.integers(0, 200, (300, 2))) if a < b})
    speed = np.array([1.0, 1.0, 0.5, 0.25, 0.5])
    program = flat(times.tolist(), edges)
    found = run_phases(program, 5, runtime_of(policy=policy), program.piece_ps, speed=speed, keep=True).stretches
    assert sorted(found["instance"].tolist()) == list(range(1, 201))
    assert np.array_equal(found["end_ps"] - found["start_ps"], times[found["instance"] - 1] / speed[found["core"]])
    begin, end = np.zeros((2, 201))
    begin[found["instance"]], end[found["instance"]] = found["start_ps"], found["end_ps"]
    assert all(end[before] <= begin[after] for before, after in edges)


@pytest.mark.theory
def test_data_reuse_keeps_chains_on_their_cores() -> None:
    """Four chains of different times: each stays where it began; first in first out mixes them."""
    times, edges = [], []
    for position in range(6):
        for chain in range(4):
            number = 4 * position + chain + 1
            times.append(10 + 3 * chain + 7 * (position * (chain + 1) % 3))
            if position:
                edges.append((number - 4, number))
    program = flat(times, edges)
    cores = cores_of(run(program, 4, policy="data-reuse"))
    for chain in range(4):
        assert len(set.union(*(cores[4 * position + chain + 1] for position in range(6)))) == 1


@pytest.mark.theory
def test_data_reuse_prefers_a_shared_cache() -> None:
    """Instance 1 ends on core 3 and frees two; the second goes to core 2, which shares its cache, not to core 0."""
    program = flat([10, 10, 10, 20, 5, 5], [(4, 5), (4, 6)])
    runtime = runtime_of(policy="data-reuse")
    group = np.array([0, 0, 1, 1])
    result = run_phases(program, 4, runtime, program.piece_ps, share_group=group, keep=True)
    cores = cores_of(result)
    assert cores[4] == {3}
    assert cores[5] == {3}
    assert cores[6] == {2}


@pytest.mark.theory
def test_work_stealing_is_drawn_by_the_seed() -> None:
    """Which core's instances are stolen; the same again for the same seed, others for others."""
    instances: list[Steps] = [[(_CREATE, 1), (_CREATE, 2), (_CREATE, 3)]]
    instances += [[*[(_CREATE, 4 + 20 * k + i) for i in range(20)], (_COMPUTE, 50)] for k in range(3)]
    instances += [[(_COMPUTE, 7 + number % 5)] for number in range(60)]
    program = node_program(instances)

    def stretches(seed: int) -> bytes:
        runtime = runtime_of(policy="work-stealing")
        return run_phases(program, 4, runtime, program.piece_ps, seed=seed, keep=True).stretches.tobytes()

    assert stretches(1) == stretches(1)
    assert len({stretches(seed) for seed in range(5)}) > 1


def drawn_program(seed: int, *, locks: bool = True) -> NodeProgram:
    """A program that ends: of everything a program may hold, up to about 60 instances."""
    draw = random.Random(seed)
    instances: list[list[tuple[Action, int]]] = [[]]
    edges: list[tuple[int, int]] = []
    loops: list[tuple[int, int]] = []
    flags: dict[int, int] = {}

    def fill(number: int, depth: int) -> None:
        steps = instances[number]
        children: list[int] = []
        opened = 0
        for _ in range(draw.randint(0, 7 if depth else 12)):
            what = draw.random()
            if what < 0.3:
                steps.append((_COMPUTE, draw.choice([0, 1, 1, 2, 3, 10, 17])))
            elif what < 0.65 and depth < 4 and len(instances) < 60:
                child = len(instances)
                instances.append([])
                flags[child] = draw.choice([0, 0, _UNTIED])
                if draw.random() < 0.1:
                    flags[child] = _PSEUDO
                edges.extend((before, child) for before in children if draw.random() < 0.3)
                steps.append((draw.choice([_CREATE, _CREATE, _CREATE, _CALL]), child))
                children.append(child)
                if flags[child] != _PSEUDO:
                    fill(child, depth + 1)
            elif what < 0.72:
                steps.append((_WAIT, 0))
            elif what < 0.78 and children:
                steps.append((Action.wait_instance, draw.choice(children)))
            elif what < 0.84:
                steps.append((Action.begin_group, 0))
                opened += 1
            elif what < 0.9 and opened:
                steps.append((Action.end_group, 0))
                opened -= 1
            elif what < 0.95 and locks:
                lock = draw.randint(0, 1)
                steps += [(Action.acquire, lock), (_COMPUTE, draw.randint(0, 9)), (Action.release, lock)]
            elif depth == 0:
                if draw.random() < 0.3:
                    steps.append((Action.barrier, 0))
                first = len(instances)
                instances.extend([(_COMPUTE, draw.randint(0, 9))] for _ in range(draw.randint(1, 6)))
                loops.append((first, len(instances)))
                steps.append((draw.choice([Action.loop, Action.loop_nowait]), len(loops) - 1))
        steps += [(Action.end_group, 0)] * opened

    fill(0, 0)
    return node_program(instances, edges, loops=loops, flags=flags, num_locks=2)


@pytest.mark.peer
@pytest.mark.parametrize("num_cores", [1, 2, 3, 7])
def test_equals_an_independent_scheduler(num_cores: int) -> None:
    for seed in range(60):
        program = drawn_program(seed)
        for costs in ({}, {"create": 2, "schedule": 3, "complete": 1}):
            expected = Peer(program, num_cores, runtime_of(**costs)).makespan()
            assert expected >= 0
            assert makespan(program, num_cores, **costs) == expected, seed


@pytest.mark.property
@every_policy
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 70), st.booleans())
def test_times_add_up(policy: str, seed: int, num_cores: int, costly: bool) -> None:
    """Each instance's stretches last as long as its pieces and costs; no core does two things at once."""
    program = drawn_program(seed)
    costs = {"create": 2, "schedule": 3, "complete": 1, "steal": 4} if costly else {}
    result = run(program, num_cores, policy=policy, **costs)
    total = int(result.makespan_ps[0, 0])
    assert result.busy_ps.sum() == program.piece_ps.sum()
    assert np.all(result.busy_ps + result.overhead_ps + result.idle_ps == total)
    assert np.all(result.idle_ps >= 0)
    assert max(total * num_cores, 0) >= program.piece_ps.sum()
    rows = result.stretches
    for core in range(num_cores):
        mine = rows[rows["core"] == core]
        assert np.all(mine["start_ps"][1:] >= mine["end_ps"][:-1])
    if not costly:
        lasted = np.bincount(rows["instance"], rows["end_ps"] - rows["start_ps"], program.num_instances)
        worked = np.bincount(program.piece_instance, program.piece_ps, program.num_instances)
        assert np.all(lasted >= worked)
    if num_cores == 1:
        assert total == program.piece_ps.sum() + result.overhead_ps.sum()


@pytest.mark.property
@every_policy
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 100), st.lists(st.integers(0, 40), max_size=3)), min_size=1, max_size=40),
    st.integers(1, 9),
)
def test_bounds_of_list_scheduling(policy: str, drawn: list[tuple[int, list[int]]], num_cores: int) -> None:
    """Graham, SIAM J. Appl. Math. 17(2), 1969: between max(T1 / N, Tinf) and T1 / N + Tinf (1 - 1 / N), whatever is
    taken first; and no successor begins before all its predecessors have ended."""
    times = [time for time, _ in drawn]
    edges = sorted({(before + 1, k + 1) for k, (_, said) in enumerate(drawn) for before in said if before < k})
    longest = [0] * (len(times) + 1)
    for k, time in enumerate(times, start=1):
        longest[k] = time + max((longest[before] for before, after in edges if after == k), default=0)
    result = run(flat(times, edges), num_cores, policy=policy)
    total = int(result.makespan_ps[0, 0])
    assert max(max(longest) * num_cores, sum(times)) <= total * num_cores
    assert total * num_cores <= sum(times) + max(longest) * (num_cores - 1)
    begin = {row[5]: row[0] for row in result.stretches.tolist()}
    end = {row[5]: row[1] for row in result.stretches.tolist()}
    assert all(end[before] <= begin[after] for before, after in edges)


@pytest.mark.property
def test_work_stealing_leaves_no_core_idle() -> None:
    """As many steals as needed: 65 cores, all instances made by one of them."""
    result = run(flat([100] * 650), 65, policy="work-stealing")
    assert result.busy_ps.tolist() == [1000] * 65


@pytest.mark.theory
def test_phases_are_independent() -> None:
    """Each from time 0 on; a part of them gives the same as all."""
    steps = [(_CREATE, 1), (_COMPUTE, 5), (_CREATE, 2), (_COMPUTE, 3), (_COMPUTE, 11), (_CREATE, 3)]
    program = node_program(
        [steps, [(_COMPUTE, 70)], [(_COMPUTE, 40)], [(_COMPUTE, 20)]], [(1, 2)], phases=[(4, 2), (1, 0), (1, 1)]
    )
    runtime = runtime_of()
    every = run_phases(program, 2, runtime, program.piece_ps)
    assert every.makespan_ps.tolist() == [[110, 11, 20]]
    for first in range(3):
        part = run_phases(program, 2, runtime, program.piece_ps, first, 3)
        assert part.makespan_ps.tolist() == [every.makespan_ps[0, first:].tolist()]
    assert len(every.stretches) == 0


@pytest.mark.theory
def test_jitter_has_mean_one_and_its_deviation() -> None:
    """Of 20,000 instances, 4 repetitions; the same whichever repetition is the first."""
    program = flat([1_000_000] * 20_000)
    runtime = runtime_of()

    def lasted(first: int, repetitions: int, jitter: float) -> np.ndarray:
        result = run_phases(
            program,
            1,
            runtime,
            program.piece_ps,
            first_repetition=first,
            repetitions=repetitions,
            jitter=jitter,
            keep=True,
        )
        return (result.stretches["end_ps"] - result.stretches["start_ps"]).reshape(repetitions, -1) / 1e6

    for jitter in (0.05, 0.3):
        drawn = lasted(0, 4, jitter)
        assert drawn.mean() == pytest.approx(1, abs=5 * jitter / np.sqrt(80_000))
        assert drawn.std() == pytest.approx(jitter, rel=0.03)
        assert np.array_equal(drawn[2:3], lasted(2, 1, jitter))
        assert abs(np.corrcoef(drawn)[0, 1]) < 0.03
    assert np.all(lasted(0, 2, 0) == 1)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (flat([5, 5], [(1, 2), (2, 1)]), "task instance 1 waits for ever for 1 of its predecessors"),
        (
            node_program([[(_WAIT, 0), (Action.wait_instance, 1)], [(_COMPUTE, 1)]]),
            "initial|instance 0 waits for ever at",
        ),
        (
            node_program([[(Action.acquire, 0), (Action.acquire, 0)]], num_locks=1),
            "task instance 0 waits for ever for lock 0",
        ),
        (node_program([[(_CREATE, 1)], [(Action.barrier, 0)]]), "task instance 1 waits for ever at barrier"),
    ],
)
def test_what_cannot_end_is_refused(program: NodeProgram, words: str) -> None:
    with pytest.raises(WorkloadError, match=words) as caught:
        run(program, 2)
    assert str(caught.value).startswith("rank 3, compute phase 0: ")
    assert "\n" not in str(caught.value)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_cores": 0}, "0 cores"),
        ({"first_phase": 1, "end_phase": 0}, "phases 1 to 0 of 1"),
        ({"end_phase": 2}, "phases 0 to 2 of 1"),
        ({"piece_ps": np.zeros(3, np.int64)}, "3 times for 2 pieces"),
        ({"jitter": -1.0}, "jitter of -1.0"),
        ({"share_group": np.zeros(3, np.int32)}, "share_group must give each of the 2 cores"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, object], words: str) -> None:
    program = flat([5, 5])
    given: dict[str, object] = {"num_cores": 2, "piece_ps": program.piece_ps, **arguments}
    with pytest.raises(ValueError, match=words):
        run_phases(program, runtime=runtime_of(), **given)  # type: ignore[arg-type]


@pytest.mark.contract
def test_mpi_inside_a_phase_is_for_the_replay() -> None:
    program = node_program([[(Action.operation, 0)]])
    with pytest.raises(ValueError, match="has to join the replay"):
        run(program, 2)


@pytest.mark.contract
def test_read_only_arrays() -> None:
    program = flat([5, 5])
    frozen = program.piece_ps.copy()
    frozen.flags.writeable = False
    assert run_phases(replace(program, piece_ps=frozen), 1, runtime_of(), frozen).makespan_ps.tolist() == [[10]]
