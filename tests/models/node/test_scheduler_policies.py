"""Policies of the runtime system, and cores of several speeds: which instance goes where, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from node_programs import Steps, node_program
from scheduled_programs import (
    COMPUTE,
    CREATE,
    WAIT,
    cores_of,
    every_policy,
    flat,
    makespan,
    order,
    run,
    runtime_of,
)

from manyscale.models.node.burst import run_phases
from manyscale.models.node.program.node_program import Action, NodeProgram


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
        [[(CREATE, 1), (CREATE, 2), (CREATE, 4), (COMPUTE, 1), (CREATE, 5), (WAIT, 0)],
         [(COMPUTE, 1), (CREATE, 3), (Action.wait_instance, 3), (COMPUTE, 100)],
         [(COMPUTE, 20)], [(COMPUTE, 10)], [(COMPUTE, 20)], [(COMPUTE, 20)]]
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


def phases_of_types() -> NodeProgram:
    """One instance of 1 and one of 10, of two types; in the next phase ten of the first and then one of the other."""
    times = [1, 10, *[1] * 10, 10]
    steps: list[Steps] = [[(CREATE, 1), (CREATE, 2), *[(CREATE, number) for number in range(3, 14)]]]
    steps += [[(COMPUTE, time)] for time in times]
    return of_types(node_program(steps, [], phases=[(2, 2), (11, 11)]), [0, 1, *[0] * 10, 1])


@pytest.mark.theory
def test_a_phase_knows_what_the_one_before_taught() -> None:
    """On two cores 10 for the first phase, and 10 for the other, the long one first, beside the ten short ones; first
    in first out 5 + 10. Whichever phases are scheduled together, and however often."""
    program = phases_of_types()
    runtime = runtime_of(policy="predicted-critical-path")
    assert run_phases(program, 2, runtime_of(policy="fifo"), program.piece_ps).makespan_ps.tolist() == [[10, 15]]
    assert run_phases(program, 2, runtime, program.piece_ps, repetitions=2).makespan_ps.tolist() == [[10, 10]] * 2
    assert run_phases(program, 2, runtime, program.piece_ps, 1).makespan_ps.tolist() == [[10]]


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
    instances: list[Steps] = [[(CREATE, 1), (CREATE, 2), (CREATE, 3)]]
    instances += [[*[(CREATE, 4 + 20 * k + i) for i in range(20)], (COMPUTE, 50)] for k in range(3)]
    instances += [[(COMPUTE, 7 + number % 5)] for number in range(60)]
    program = node_program(instances)

    def stretches(seed: int) -> bytes:
        runtime = runtime_of(policy="work-stealing")
        return run_phases(program, 4, runtime, program.piece_ps, seed=seed, keep=True).stretches.tobytes()

    assert stretches(1) == stretches(1)
    assert len({stretches(seed) for seed in range(5)}) > 1
