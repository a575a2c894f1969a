"""Dependence edges: worked examples, the definition as an oracle, and refusals."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyscale.models.node.program.task_graph import dependence_edges
from manyscale.models.workload.task_tables import DependenceKind

_IN, _OUT, _INOUT, _MUTEX, _SET = (
    DependenceKind.depend_in,
    DependenceKind.depend_out,
    DependenceKind.depend_inout,
    DependenceKind.depend_mutexinoutset,
    DependenceKind.depend_inoutset,
)
_Tasks = list[tuple[int, list[tuple[int, int]]]]  # (parent, [(kind, address)]), of instance 1 on


def edges(tasks: _Tasks) -> list[tuple[int, int]]:
    """Edges of task instances 1, 2, ...; instance 0 is everybody's ancestor."""
    declared = [(task, kind, address) for task, (_, said) in enumerate(tasks, start=1) for kind, address in said]
    columns = np.array(declared, np.int64).reshape(-1, 3).T
    parent = np.array([-1, *(parent for parent, _ in tasks)], np.int64)
    return list(zip(*(side.tolist() for side in dependence_edges(parent, *columns)), strict=True))


def must_wait(earlier: list[tuple[int, int]], later: list[tuple[int, int]]) -> bool:
    """OpenMP 5.1, section 2.19.11, one pair at a time: the tasks share a location, and do not both just read it, both
    exclude each other there, or both belong to a set."""
    for address in {address for _, address in earlier} & {address for _, address in later}:
        kinds = {kind for kind, each in (*earlier, *later) if each == address}
        if len(kinds) > 1 or kinds & {_OUT, _INOUT}:
            return True
    return False


def ancestors(pairs: list[tuple[int, int]], count: int) -> list[set[int]]:
    """Per task those that must be complete before it."""
    found: list[set[int]] = [set() for _ in range(count)]
    for before, after in sorted(pairs, key=lambda pair: pair[1]):
        found[after] |= found[before] | {before}
    return found


@pytest.mark.theory
@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([_OUT, _IN, _IN, _INOUT], [(1, 2), (1, 3), (2, 4), (3, 4)]),
        ([_IN, _IN], []),
        ([_OUT, _OUT], [(1, 2)]),
        ([_INOUT, _MUTEX, _MUTEX, _IN], [(1, 2), (1, 3), (2, 4), (3, 4)]),
        ([_IN, _MUTEX, _MUTEX, _OUT], [(1, 2), (1, 3), (2, 4), (3, 4)]),
        ([_SET, _SET, _IN, _SET], [(1, 3), (2, 3), (3, 4)]),
        ([_SET, _MUTEX], [(1, 2)]),
    ],
)
def test_kinds_at_one_location(kinds: list[DependenceKind], expected: list[tuple[int, int]]) -> None:
    assert sorted(edges([(0, [(kind, 64)]) for kind in kinds])) == expected


@pytest.mark.theory
def test_groups_of_many_members_wait_for_each_other() -> None:
    """More edges than there was room for at first."""
    tasks: _Tasks = [(0, [(kind, 64)]) for kind in [_SET] * 9 + [_MUTEX] * 8]
    assert sorted(edges(tasks)) == [(before, after) for before in range(1, 10) for after in range(10, 18)]


@pytest.mark.theory
def test_pair_that_shares_locations_is_one_edge() -> None:
    assert edges([(0, [(_OUT, 1), (_OUT, 2), (_OUT, 3)]), (0, [(_IN, 3), (_IN, 1), (_INOUT, 2)])]) == [(1, 2)]


@pytest.mark.theory
def test_location_named_twice_is_written() -> None:
    assert edges([(0, [(_IN, 1)]), (0, [(_IN, 1), (_OUT, 1)]), (0, [(_IN, 1)])]) == [(1, 2), (2, 3)]


@pytest.mark.theory
def test_only_siblings_depend_on_each_other() -> None:
    assert edges([(0, [(_OUT, 1)]), (1, [(_OUT, 1)]), (0, [(_OUT, 1)]), (1, [(_IN, 1)])]) == [(1, 3), (2, 4)]


@pytest.mark.theory
def test_no_tasks() -> None:
    assert edges([]) == []
    none = np.empty(0, np.int64)
    assert [len(side) for side in dependence_edges(none, none, none, none)] == [0, 0]


@pytest.mark.golden
def test_cholesky_of_four_blocks() -> None:
    """20 instances, 40 dependences, 30 edges: each panel's factor, then its triangular solves, then the updates."""
    tasks: _Tasks = []
    for k in range(4):
        tasks.append((0, [(_INOUT, 4 * k + k)]))
        tasks += [(0, [(_IN, 4 * k + k), (_INOUT, 4 * i + k)]) for i in range(k + 1, 4)]
        for i in range(k + 1, 4):
            tasks.append((0, [(_IN, 4 * i + k), (_INOUT, 4 * i + i)]))
            tasks += [(0, [(_IN, 4 * i + k), (_IN, 4 * j + k), (_INOUT, 4 * i + j)]) for j in range(k + 1, i)]
    assert len(tasks) == 20
    assert sum(len(said) for _, said in tasks) == 40
    assert len(edges(tasks)) == 30


_DEPENDENCE = st.tuples(st.sampled_from(list(DependenceKind)), st.integers(0, 3))


@pytest.mark.property
@given(st.lists(st.tuples(st.integers(0, 30), st.lists(_DEPENDENCE, max_size=4)), max_size=25))
def test_order_is_that_of_the_definition(drawn: _Tasks) -> None:
    """What the edges order, directly or not, is what the definition's pairs order; and every edge is such a pair."""
    tasks = [(parent % (number + 1), said) for number, (parent, said) in enumerate(drawn)]
    found = edges(tasks)
    assert len(set(found)) == len(found)
    assert [after for _, after in found] == sorted(after for _, after in found)
    pairs = [
        (before, after)
        for after in range(1, len(tasks) + 1)
        for before in range(1, after)
        if tasks[before - 1][0] == tasks[after - 1][0] and must_wait(tasks[before - 1][1], tasks[after - 1][1])
    ]
    assert set(found) <= set(pairs)
    assert ancestors(found, len(tasks) + 1) == ancestors(pairs, len(tasks) + 1)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("parent", "task", "kind", "message"),
    [
        ([-1, 1], [1], [0], "parent 1"),
        ([-1, -2], [1], [0], "parent -2"),
        ([-1, 0], [2], [0], "sorted by their tasks"),
        ([-1, 0], [1, 0], [0, 0], "sorted by their tasks"),
        ([-1, 0], [1], [5], "no dependence kind 5"),
        ([-1, 0], [1, 1], [0], "2 tasks, 1 kinds"),
    ],
)
def test_refusals(parent: list[int], task: list[int], kind: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dependence_edges(np.array(parent), np.array(task), np.array(kind), np.zeros(len(task), np.int64))


_DATA = os.environ.get("MANYSCALE_DATA")
_NAMES = ("cholesky-4", "cholesky-24", "msort-32768", "spmv-256x8", "hist-2048", "stencil-16x16x8", "nbody-48")


@pytest.mark.peer
@pytest.mark.skipif(_DATA is None, reason="needs MANYSCALE_DATA")
@pytest.mark.parametrize("name", _NAMES)
def test_edges_of_another_tracers_traces(name: str) -> None:
    """Against counts by another program, from the records that another tracer took of the same runtime."""
    folder = Path(str(_DATA)) / "tasks"
    truth = json.loads((folder / "truth.json").read_text())[name]
    _, arrays = runpy.run_path(str(folder / "read_trace.py"))["load"](str(folder / f"{name}.omt.xz"))
    kind, number = arrays["ev_kind"], arrays["ev_c"].astype(np.int64)
    created = number[kind == 2]
    creators = number[kind == 102]
    parent = np.full(int(created.max()) + 1, -1, np.int64)
    parent[created] = creators
    is_dependence = kind == 3
    said = np.where(arrays["ev_a"][is_dependence] == 1, int(_IN), int(_INOUT))
    found = dependence_edges(parent, number[is_dependence], said, arrays["ev_x"][is_dependence].astype(np.int64))
    assert np.count_nonzero(is_dependence) == truth["dep_records"]
    assert len(found[0]) == truth["dependence_edges"]
