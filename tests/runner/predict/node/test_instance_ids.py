"""Numbers of instances: one for each in the run, by which its rows in all tables join, and rows that do not overlap."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.runner.predict.node.cells.plan import Cell
from manyscale.runner.predict.node.instance_ids import (
    first_ids,
    first_ids_of_detail,
    ids_in_rank,
    in_run,
    rows_as_traced,
    traced_ids,
)
from manyscale.runner.predict.node.nested_rows import alone_on_cores


@pytest.mark.theory
def test_repetitions_get_numbers_behind_those_before_but_for_the_initial_task():
    """Rows 0 to 3: the initial task creates 1 and 3, 1 creates 2."""
    program = SimpleNamespace(num_instances=4, parent=np.array([-1, 0, 1, 0], np.int32))
    row, repetition = np.array([0, 1, 2, 3, 0, 1, 2]), np.array([0, 0, 0, 0, 2, 2, 2])
    number, creator = ids_in_rank(program, row, repetition)
    assert number.tolist() == [0, 1, 2, 3, 0, 9, 10]
    assert creator.tolist() == [-1, 0, 1, 0, -1, 0, 9]
    assert traced_ids(np.array([-1, 5, -1]), np.array([0, 1, 2])).tolist() == [0, 5, -1]


@pytest.mark.theory
def test_ranks_follow_each_other_and_a_detailed_trace_all_of_them():
    first = first_ids([{"num_ids": np.array([each])} for each in (4, 1, 12)])
    assert first.tolist() == [0, 4, 5, 17]
    assert in_run(5, np.array([-1, 0, 3])).tolist() == [-1, 5, 8]
    plan = [Cell(rank, iteration, 0, 0, 1) for rank, iteration in ((0, 1), (0, 2), (2, 1))]
    cells = [{"num_ids": np.array([each])} for each in (6, 6, 9)]
    assert first_ids_of_detail(plan, cells, 17) == {0: 17, 2: 23}


def program_of(phases, parent, task_type, flags=None):
    """``phases``: of each phase the instances, of ``parent`` and ``task_type``; without the initial task."""
    return SimpleNamespace(
        num_instances=1 + len(parent), phase_first_instance=np.cumsum([1, *phases]),
        parent=np.array([-1, *parent], np.int32), task_type=np.array([-1, *task_type], np.int32),
        instance_flags=np.array([0, *(flags or [0] * len(parent))], np.uint8),
    )  # fmt: skip


@pytest.mark.theory
def test_instances_of_a_detailed_trace_are_the_runs_where_they_are_the_same():
    """The run has phases of 2, 3 and 1 instances, the detailed trace the second one alone: its 1 to 3 are 3 to 5, of
    which the third was created by the second."""
    traced = program_of([2, 3, 1], [0, 0, 0, 0, 4, 0], [0, 0, 0, 1, 1, 0])
    detailed = program_of([3], [0, 0, 2], [0, 1, 1])
    found = rows_as_traced(detailed, (0, 1), detailed.task_type, traced, (1, 2))
    assert found.tolist() == [0, 3, 4, 5]
    for other in (
        program_of([4], [0, 0, 2, 0], [0, 1, 1, 0]),
        program_of([1, 2], [0, 0, 2], [0, 1, 1]),
        program_of([3], [0, 0, 1], [0, 1, 1]),
        program_of([3], [0, 0, 0], [0, 1, 1]),
        program_of([3], [0, 0, 2], [0, 1, 0]),
        program_of([3], [0, 0, 2], [0, 1, 1], [0, 1, 0]),
    ):
        phases = (0, len(other.phase_first_instance) - 1)
        assert rows_as_traced(other, phases, other.task_type, traced, (1, 2)) is None


def by_hand(rows):
    """Each ps of each core: of the rows that are open, the one that began last; of several, the shortest."""
    found = {}
    for core, start, end, number in sorted(rows, key=lambda row: (row[1], -row[2], row[3])):
        found |= {(core, time): number for time in range(start, end)}
    return found


@pytest.mark.property
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 8)), min_size=1, max_size=7))
def test_a_core_executes_what_began_last(drawn):
    rows = [(core, start, start + length, number) for number, (core, start, length) in enumerate(drawn)]
    core, start, end, number = (np.array(each) for each in zip(*rows, strict=True))
    found = alone_on_cores((0 * core, core, start, end, number))
    pieces = list(zip(*(each.tolist() for each in found[1:]), strict=True))
    seen = {}
    for place, begin, finish, owner in pieces:
        for time in range(begin, finish):
            assert (place, time) not in seen
            seen[place, time] = owner
    # (of several with one begin and end any may be taken, so these are compared as one)
    same = {row[3]: (row[1], row[2]) for row in rows}
    assert {at: same[each] for at, each in seen.items()} == {at: same[each] for at, each in by_hand(rows).items()}
    assert {each for *_, each in pieces} <= set(range(len(rows)))
