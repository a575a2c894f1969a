"""The policy data-reuse where the data of task instances are known: what caches hold, and who takes what, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scheduled_programs import cores_of, flat, order, runtime_of

from manyscale.models.machine import Node
from manyscale.models.node.burst import ScheduledPhases, run_phases
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.node.scheduler import held_data
from manyscale.models.node.scheduler.held_data import new_held
from manyscale.models.node.scheduler.task_data import TaskData, task_data

LINE = 64
Use = tuple[int, bool]  # line, whether it is written


def node(cores: int, private: int, shared: int, sharers: int | None = None) -> Node:
    """Caches of so many lines."""
    sharers = cores if sharers is None else sharers
    return Node.model_validate(
        {
            "sockets": cores // sharers, "cores_per_socket": sharers, "frequency": "1 GHz",
            "caches": {
                "L1D": {"size": f"{private * LINE} B", "line": f"{LINE} B", "latency": "1 cycles"},
                "L3": {
                    "size": f"{shared * LINE} B", "line": f"{LINE} B", "latency": "10 cycles",
                    "shared_by_cores": sharers,
                },
            },
            "main_memory": {"latency": "100 ns", "bandwidth": "1 GB/s"},
        }
    )  # fmt: skip


def data_of(uses: Sequence[Sequence[Use]]) -> TaskData:
    """Of instances 1, 2, ..."""
    rows = [(number + 1, line, write) for number, mine in enumerate(uses) for line, write in mine]
    instance, line, write = (np.array(column) for column in zip(*rows, strict=True))
    return task_data(len(uses) + 1, instance, line, write.astype(bool), LINE)


def run(program: NodeProgram, machine: Node, uses: Sequence[Sequence[Use]]) -> ScheduledPhases:
    cores = machine.num_cores
    held = new_held(data_of(uses), machine, cores)
    group = np.arange(cores) // machine.cores_per_socket
    runtime = runtime_of(policy="data-reuse")
    return run_phases(program, cores, runtime, program.piece_ps, share_group=group, held=held, keep=True)


def reads(*lines: int) -> list[Use]:
    return [(line, False) for line in lines]


def writes(*lines: int) -> list[Use]:
    return [(line, True) for line in lines]


@pytest.mark.theory
def test_lines_of_the_same_users_are_one_group():
    """Lines 5 and 6 are read by both, 7 read by one and written by the other, 8 used by one; its stack is its own, and
    the initial task's use counts for nothing."""
    instance = np.array([0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2])
    line = np.array([5, 8, 6, 7, 5, 8, 9, 6, 5, 7, 9])
    write = np.array([1, 1, 0, 0, 0, 0, 1, 0, 0, 1, 1], bool)
    own = np.arange(10) == 9
    found = task_data(3, instance, line, write, LINE, own)
    assert sorted(found.size_bytes.tolist()) == [LINE, LINE, 2 * LINE]
    assert np.diff(found.first).tolist() == [0, 3, 2]
    both, changed, alone = found.group[[4 - 1, 4, 2]].tolist()
    assert [found.size_bytes[each] for each in (both, changed, alone)] == [2 * LINE, LINE, LINE]
    assert found.group.tolist() == [changed, both, alone, both, changed]  # by their last use
    assert found.is_written.tolist() == [False, False, False, False, True]


@pytest.mark.theory
def test_what_a_cache_still_holds_goes_first():
    """Instances of four lines each on a core that holds four of them, 8 with the shared cache: 1 and 2 use A and B;
    of 3 (C), 4 (A), and 5 (B), the core does 5 before 4: both lie in the caches, A only in the shared one."""
    a, b, c = reads(0, 1, 2, 3), reads(4, 5, 6, 7), reads(8, 9, 10, 11)
    program = flat([10] * 5, [(1, 2), (2, 3), (2, 4), (2, 5)])
    assert order(run(program, node(1, 4, 4, 1), [a, b, c, a, b]))[:3] == [1, 2, 5]
    machine = node(2, 4, 8)
    program = flat([10, 10, 10, 10, 10, 100], [(1, 2), (2, 3), (2, 4), (2, 5)])  # the other core has 6 to do
    found = run(program, machine, [a, b, c, a, b, []])
    assert [each for each in order(found) if each != 6] == [1, 2, 5, 4, 3]


@pytest.mark.theory
@pytest.mark.parametrize(("lines", "first"), [(4, 3), (5, 4)])
def test_a_cache_holds_what_was_used_last(lines: int, first: int):
    """2 uses ``lines`` lines after 1 used A, of one line: a cache of five has A still after four, not after five, and
    then 3, which uses A, is no better than 4, which uses one line of 2's."""
    other = reads(*range(10, 10 + lines))
    uses = [reads(0), other, reads(0, 1), other[:1], []]
    program = flat([10, 10, 10, 10, 1000], [(1, 2), (2, 4), (2, 3)])  # the other core has 5 to do
    found = run(program, node(2, 5, 5), uses)
    assert next(each for each in order(found) if each in (3, 4)) == first


@pytest.mark.theory
def test_what_another_core_wrote_is_held_no_more():
    """Cores with a cache of their own each, and none in common. Core 0 does 1 and 3, core 1 does 2, which is longer.
    2 writes A, which 1 read before, so what 4 reads of it core 0 does not hold: it does 5 first, which uses B."""
    a, b = reads(0, 1), reads(2)
    program = flat([10, 20, 30, 5, 5, 100], [(3, 4), (3, 5)])
    machine = node(2, 8, 8, 1)
    quiet = run(program, machine, [a, reads(9), b, a, b, []])
    written = run(program, machine, [a, writes(0, 1), b, a, b, []])
    assert cores_of(quiet)[3] == cores_of(written)[3] == {0}
    assert [each for each in order(quiet) if each in (4, 5)] == [4, 5]
    assert [each for each in order(written) if each in (4, 5)] == [5, 4]


@pytest.mark.property
def test_of_many_groups_some_are_followed_in_smaller_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 lines with a user each and three caches, with room for 600 entries: a fifth of the lines, give or take four
    standard deviations of 13, in caches of that part of their size."""
    monkeypatch.setattr(held_data, "_MOST_ENTRIES", 600)
    held = new_held(data_of([reads(number) for number in range(1000)]), node(2, 10, 800), 2)
    kept = len(held.size_bytes)
    assert abs(kept - 200) < 4 * 13
    assert len(held.group) == held.first[-1] == kept == held.entry.shape[1]
    assert sorted(held.group.tolist()) == list(range(kept))
    assert held.cache["size"].tolist() == [round(lines * LINE * kept / 1000) for lines in (10, 10, 800)]


@pytest.mark.property
def test_without_data_in_common_it_goes_by_predecessors():
    random = np.random.default_rng(3)
    times = random.integers(1, 50, 60).tolist()
    edges = sorted({(int(a) + 1, int(b) + 1) for a, b in np.sort(random.integers(0, 60, (80, 2))) if a < b})
    program = flat(times, edges)
    group = np.array([0, 0, 1, 1])
    plain = run_phases(
        program, 4, runtime_of(policy="data-reuse"), program.piece_ps, share_group=group, keep=True
    ).stretches
    found = run(program, node(4, 4, 8, 2), [reads(number) for number in range(60)]).stretches
    assert np.array_equal(found, plain)
