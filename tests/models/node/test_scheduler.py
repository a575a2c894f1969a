"""The runtime system inside a node: closed forms, bounds, an independent scheduler, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node_programs import Peer, Steps, node_program
from scheduled_programs import (
    CALL,
    COMPUTE,
    CREATE,
    PSEUDO,
    UNTIED,
    WAIT,
    cores_of,
    drawn_program,
    every_policy,
    flat,
    makespan,
    order,
    run,
    runtime_of,
)

from manyscale.models.node.burst import run_phases
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.workload import WorkloadError


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
    program = node_program([[(COMPUTE, 60), (CREATE, 1), (COMPUTE, 30), (WAIT, 0), (COMPUTE, 90)], [(COMPUTE, 8)]])
    assert makespan(program, 2, create=12) == 60 + 12 + 30 + 90
    assert makespan(program, 2, create=12, creator_speedup=3) == 20 + 4 + 10 + 30
    assert makespan(program, 2, create=12, creator_speedup=6) == 10 + 2 + 8 + 15


@pytest.mark.theory
@every_policy
def test_steals_cost(policy: str) -> None:
    """Instances of the creating core, taken by another: two at once, then two more."""
    expected = {"work-stealing": 1000 + 7}.get(policy, 1000)
    program = node_program([[(CREATE, 1), (COMPUTE, 1000)], [(COMPUTE, 1000)]])
    assert makespan(program, 2, policy=policy, steal=7) == expected


@pytest.mark.theory
def test_nested_creation() -> None:
    """A binary tree: leaves of 100 at depth 3, each parent waits for both; 8 cores do one level at a time."""
    instances: list[list[tuple[Action, int]]] = [[(CREATE, 1), (WAIT, 0)]]
    for number in range(1, 16):
        children = [(CREATE, 2 * number), (CREATE, 2 * number + 1), (WAIT, 0)] if number < 8 else []
        instances.append([(COMPUTE, 100), *children, (COMPUTE, 10)])
    program = node_program(instances)
    assert makespan(program, 8) == 4 * 110
    assert makespan(program, 1) == 15 * 110


@pytest.mark.theory
@pytest.mark.parametrize(
    ("wait", "after"),
    [
        ([(WAIT, 0)], 100),  # for the child only, which has created another and ended
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
        [[*begin, (CREATE, 1), *wait, (COMPUTE, 1000)], [(COMPUTE, 100), (CREATE, 2)], [(COMPUTE, 500)]]
    )
    assert makespan(program, 3) == after + 1000


@pytest.mark.theory
def test_groups_nest_and_leave_earlier_instances_alone() -> None:
    """Instance 1 (900) is older than the outer group of 2 (300), and the inner one of 3 (50)."""
    steps = [
        (CREATE, 1), (Action.begin_group, 0), (CREATE, 2), (Action.begin_group, 0), (CREATE, 3),
        (Action.end_group, 0), (COMPUTE, 5), (Action.end_group, 0), (COMPUTE, 1),
    ]  # fmt: skip
    result = run(node_program([steps, [(COMPUTE, 900)], [(COMPUTE, 300)], [(COMPUTE, 50)]]), 4)
    assert result.makespan_ps[0, 0] == 900
    assert [row[:2] for row in result.stretches.tolist() if row[5] == 0] == [(50, 55), (300, 301)]


@pytest.mark.theory
def test_group_over_two_phases() -> None:
    """A group that an MPI operation lies in: its end waits for what this phase created."""
    steps = [(Action.begin_group, 0), (COMPUTE, 5), (CREATE, 1), (Action.end_group, 0), (COMPUTE, 3)]
    program = node_program([steps, [(COMPUTE, 70)]], phases=[(2, 0), (3, 1)])
    assert run(program, 2).makespan_ps.tolist() == [[5, 73]]


@pytest.mark.theory
def test_called_instance_runs_inside_its_caller() -> None:
    """At once, before what is ready longer, and the caller goes on at once when it has ended."""
    program = node_program([[(CREATE, 1), (CALL, 2), (COMPUTE, 7)], [(COMPUTE, 100)], [(COMPUTE, 20)]])
    result = run(program, 1, schedule=1000, create=1)
    assert order(result) == [0, 2, 0, 1]
    assert result.makespan_ps[0, 0] == 1 + 1 + 20 + 7 + 1000 + 100


@pytest.mark.theory
def test_called_instance_waits_for_its_predecessors() -> None:
    """On its caller's core, which executes something else meanwhile."""
    program = node_program(
        [[(CREATE, 1), (CREATE, 2), (CALL, 3), (COMPUTE, 7)], [(COMPUTE, 90)], [(COMPUTE, 60)], [(COMPUTE, 20)]],
        [(1, 3)],
    )
    result = run(program, 2)
    assert result.makespan_ps[0, 0] == 90 + 20 + 7
    assert cores_of(result)[3] == {0}


@pytest.mark.theory
def test_wait_with_dependences() -> None:
    """A pseudo instance takes no time and no core, and costs nothing."""
    instances = [[(CREATE, 1), (CREATE, 2), (CREATE, 3), (Action.wait_instance, 3), (COMPUTE, 7)]]
    instances += [[(COMPUTE, 90)], [(COMPUTE, 400)], []]
    program = node_program(instances, [(1, 3)], flags={3: PSEUDO})
    result = run(program, 3, create=1)
    assert [row[:2] for row in result.stretches.tolist() if row[5] == 0] == [(0, 2), (91, 98)]


@pytest.mark.theory
@pytest.mark.parametrize("untied", [False, True])
def test_tied_instances_wait_for_their_core(untied: bool) -> None:
    """Instance 1, on core 0, waits for its child 2 of 100 on core 1; core 0 has begun instance 3 of 500 meanwhile."""
    steps = [(CREATE, 2), (COMPUTE, 1), (CREATE, 3), (Action.wait_instance, 2), (COMPUTE, 10)]
    instances: list[Steps] = [[(CREATE, 1), (WAIT, 0)], steps, [(COMPUTE, 100)], [(COMPUTE, 500)]]
    program = node_program(instances, flags={1: UNTIED if untied else 0})
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
    instances: list[Steps] = [[(action, 0), (COMPUTE, 100)]]
    instances += [[(COMPUTE, time)] for time in (10, 10, 10, 20)]
    program = node_program(instances, loops=[(1, 5)])
    result = run(program, 2)
    assert [row[:1] for row in result.stretches.tolist() if row[5] == 0] == [(main_after,)]
    assert result.makespan_ps[0, 0] == main_after + 100


@pytest.mark.theory
@pytest.mark.parametrize("num_cores", [1, 2, 5])
def test_chunks_are_handed_out_in_order(num_cores: int) -> None:
    times = [7, 30, 4, 4, 4, 9, 1, 22]
    instances: list[Steps] = [[(Action.loop, 0)]] + [[(COMPUTE, time)] for time in times]
    free = [0] * num_cores
    for time in times:
        free[free.index(min(free))] += time
    assert makespan(node_program(instances, loops=[(1, 9)]), num_cores) == max(free)


@pytest.mark.theory
def test_two_loops_and_none() -> None:
    """One after another, with a task between, and a loop without chunks."""
    instances: list[Steps] = [[(Action.loop_nowait, 0), (CREATE, 3), (Action.loop, 2), (Action.loop, 1)]]
    instances += [[(COMPUTE, 10)]] * 5
    program = node_program(instances, loops=[(1, 3), (4, 6), (6, 6)])
    assert makespan(program, 1) == 50
    assert makespan(program, 5) == 20


@pytest.mark.theory
@every_policy
def test_locks_serialise(policy: str) -> None:
    """Each instance: 5 alone, 100 under the lock."""
    locked = [(COMPUTE, 5), (Action.acquire, 0), (COMPUTE, 100), (Action.release, 0)]
    program = node_program([[(CREATE, k) for k in range(1, 7)], *[locked] * 6], num_locks=1)
    assert makespan(program, 6, policy=policy) == 5 + 600
    assert makespan(program, 1, policy=policy) == 6 * 105
    other = [*locked[:1], (Action.acquire, 1), *locked[2:3], (Action.release, 1)]
    program = node_program([[(CREATE, k) for k in range(1, 7)], *[locked, other] * 3], num_locks=2)
    assert makespan(program, 6, policy=policy) == 5 + 300


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
    steps = [(CREATE, 1), (COMPUTE, 5), (CREATE, 2), (COMPUTE, 3), (COMPUTE, 11), (CREATE, 3)]
    program = node_program(
        [steps, [(COMPUTE, 70)], [(COMPUTE, 40)], [(COMPUTE, 20)]], [(1, 2)], phases=[(4, 2), (1, 0), (1, 1)]
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
            node_program([[(WAIT, 0), (Action.wait_instance, 1)], [(COMPUTE, 1)]]),
            "initial|instance 0 waits for ever at",
        ),
        (
            node_program([[(Action.acquire, 0), (Action.acquire, 0)]], num_locks=1),
            "task instance 0 waits for ever for lock 0",
        ),
        (node_program([[(CREATE, 1)], [(Action.barrier, 0)]]), "task instance 1 waits for ever at barrier"),
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


@pytest.mark.theory
def test_when_instances_were_created_and_ready() -> None:
    """On two cores, a creation costs 3: the initial task works 10, creates A (20) at 13, works 5, creates B, which
    needs A, at 21, and waits; A ends at 33, and B may begin. Then, at 40, a loop of three chunks of 4 begins."""
    steps = [
        [(COMPUTE, 10), (CREATE, 1), (COMPUTE, 5), (CREATE, 2), (WAIT, 0), (Action.loop, 0)],
        [(COMPUTE, 20)], [(COMPUTE, 7)], *[[(COMPUTE, 4)]] * 3,
    ]  # fmt: skip
    program = node_program(steps, [(1, 2)], loops=[(3, 6)])
    found = run_phases(program, 2, runtime_of(create=3), program.piece_ps, keep=True).stretches
    first = {row["instance"]: row for row in found[::-1]}
    times = ("created_ps", "ready_ps", "start_ps", "end_ps")
    assert [tuple(first[k][name].item() for name in times) for k in range(1, 6)] == [
        (13, 13, 13, 33), (21, 33, 33, 40), (40, 40, 40, 44), (40, 40, 40, 44), (40, 40, 44, 48),
    ]  # fmt: skip
    assert (first[0]["created_ps"], first[0]["ready_ps"]) == (0, 0)
