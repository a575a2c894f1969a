"""Dependence edges between sibling task instances, from the dependences that the program declared.

The rules are those of the ``depend`` clause (OpenMP specification 5.1, section 2.19.11): of two siblings that name the
same storage location, the one created later waits for the earlier one unless both say ``in``, both ``mutexinoutset``
(they exclude each other, in any order) or both ``inoutset``. So the siblings that name a location form groups in order
of creation: a writer alone, or neighbours that say the same of those three; every member of a group waits for every
member of the group before. Edges that follow from these are left out, and each pair is an edge once, however many
locations it shares. A task that names a location in different ways takes part in none of the groups: it is a writer.

Assumptions: locations are the same if their addresses are, as runtimes have it. Dependences on ``omp_all_memory`` and
of ``doacross`` loops are not among the kinds.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner_inlined
from manyscale.models.kernels.hash_table import find_or_add, new_table
from manyscale.models.workload.task_tables import DependenceKind

_OUT, _INOUT = int(DependenceKind.depend_out), int(DependenceKind.depend_inout)


def dependence_edges(
    parent: np.ndarray, task: np.ndarray, kind: np.ndarray, address: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(predecessor, successor), int64 each, sorted by successor.

    ``parent``: of each task instance its parent, -1 for none; an instance is its index there, in order of creation.
    ``task``, ``kind`` (DependenceKind) and ``address``: one entry per declared dependence, sorted by task. Several
    ranks at once: let the ids of each go on where those of the rank before end.

    Raises ValueError for arrays that do not fit. Expected O(tasks + dependences + edges), an edge counting once per
    location that its tasks share.
    """
    parent, task, address = (np.ascontiguousarray(each, np.int64) for each in (parent, task, address))
    kind = np.ascontiguousarray(kind, np.int8)
    if not len(task) == len(kind) == len(address):
        raise ValueError(f"{len(task)} tasks, {len(kind)} kinds and {len(address)} addresses of dependences")
    if np.any(parent >= np.arange(len(parent))) or np.any(parent < -1):
        row = int(np.flatnonzero((parent >= np.arange(len(parent))) | (parent < -1))[0])
        raise ValueError(f"task instance {row}: its parent {parent[row]} is none created before it")
    if len(task) and (task[0] < 0 or task[-1] >= len(parent) or np.any(np.diff(task) < 0)):
        raise ValueError(f"dependences must be sorted by their tasks, from 0 to {len(parent) - 1}")
    if np.any((kind < 0) | (kind >= len(DependenceKind))):
        row = int(np.flatnonzero((kind < 0) | (kind >= len(DependenceKind)))[0])
        raise ValueError(f"task instance {task[row]}: there is no dependence kind {kind[row]}")
    declared, (keys, slots) = _Declared(parent, task, kind, address), new_table(len(task))
    edges = np.empty((2 * len(task), 2), np.int64)  # room for all, unless several groups of one location are large
    while True:
        locations, entries = np.empty(len(task), _LOCATION), np.empty(len(task), _ENTRY)
        count = _find_edges(declared, keys, slots, locations, entries, np.full(len(parent), -1), edges)
        if count <= len(edges):
            return edges[:count, 0].copy(), edges[:count, 1].copy()
        edges = np.empty((count, 2), np.int64)
        slots[:] = -1


class _Declared(NamedTuple):
    """See dependence_edges."""

    parent: np.ndarray
    task: np.ndarray
    kind: np.ndarray
    address: np.ndarray


# ``named_by``: the task that named it last, and how; ``kind`` of its last group, of which, and of the one before, the
# ``last`` members are known, -1 for none
_LOCATION: Final = np.dtype(
    [("named_by", "i8"), ("named_as", "i4"), ("kind", "i4"), ("last", "i8"), ("last_before", "i8")]
)
# Of each dependence: its location, and the member of the same group before it
_ENTRY: Final = np.dtype([("location", "i8"), ("member_before", "i8")])
_TAKEN: Final = -1  # instead of a kind: the task is in the location's last group


@allocation_free
def _find_edges(declared, keys, slots, locations, entries, led_to, edges):  # type: ignore[no-untyped-def]
    """How many edges there are; as many as have room there, (predecessor, successor), are put in ``edges``.

    ``led_to`` int64[tasks], -1: the task to which the latest edge from each leads. Cost: see dependence_edges.
    """
    declared = by_reference(declared)
    count = declared.task.shape[0]
    num_locations = 0
    num_edges = 0
    end = 0
    while end < count:
        start = end
        now = declared.task[start]
        while end < count and declared.task[end] == now:
            number = find_or_add(keys, slots, declared.parent[now], declared.address[end], num_locations)
            _name(locations[number], now, declared.kind[end], number == num_locations)
            num_locations += number == num_locations
            entries[end].location = number
            end += 1
        for i in range(start, end):
            location = locations[entries[i].location]
            if location.named_as == _TAKEN:
                continue
            if location.named_as == _INOUT or location.named_as != location.kind:
                location.last_before = location.last
                location.last = -1
                location.kind = location.named_as
            location.named_as = _TAKEN
            entries[i].member_before = location.last
            location.last = i
            member = location.last_before
            while member >= 0:
                before = declared.task[member]
                member = entries[member].member_before
                if led_to[before] == now:
                    continue
                led_to[before] = now
                if num_edges < edges.shape[0]:
                    edges[num_edges, 0] = before
                    edges[num_edges, 1] = now
                num_edges += 1
    return num_edges


@inner_inlined
def _name(location, task, kind, is_new):  # type: ignore[no-untyped-def]
    """A task names a location, maybe for the first time, maybe again in another way."""
    if kind == _OUT:
        kind = np.int64(_INOUT)
    if is_new:
        location.kind = -1
        location.last = -1
        location.last_before = -1
    if is_new or location.named_by != task:
        location.named_by = task
        location.named_as = kind
    elif location.named_as != kind:
        location.named_as = _INOUT
