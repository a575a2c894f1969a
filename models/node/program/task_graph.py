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

import numpy as np

from manyscale.models.kernels import njit
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
    keys, slots = new_table(len(task))
    edges = _edges(parent, task, kind, address, keys, slots)
    return edges[:, 0].copy(), edges[:, 1].copy()


@njit(cache=True, nogil=True)
def _edges(parent, task, kind, address, keys, slots):  # type: ignore[no-untyped-def]
    """Rows (predecessor, successor). See dependence_edges for the cost.

    Per location (slot): the task that named it last and how (``named_by``, ``named_as``), the kind of its last group,
    and that group and the one before as lists of members (-1 ends a list).
    """
    count = task.shape[0]
    slot_of = np.empty(count, np.int64)
    named_by = np.full(count, -1, np.int64)
    named_as = np.empty(count, np.int8)
    group_kind = np.full(count, -1, np.int8)
    last_group = np.full(count, -1, np.int64)
    group_before = np.full(count, -1, np.int64)
    next_member = np.empty(count, np.int64)
    successor_of = np.full(parent.shape[0], -1, np.int64)  # the task that an edge from this one was given last
    edges = np.empty((max(count, 16), 2), np.int64)
    num_slots = 0
    num_edges = 0
    start = 0
    while start < count:
        now = task[start]
        end = start
        while end < count and task[end] == now:
            slot = find_or_add(keys, slots, parent[now], address[end], num_slots)
            num_slots += slot == num_slots
            said = kind[end] if kind[end] != _OUT else np.int8(_INOUT)
            if named_by[slot] != now:
                named_by[slot] = now
                named_as[slot] = said
            elif named_as[slot] != said:
                named_as[slot] = _INOUT
            slot_of[end] = slot
            end += 1
        for i in range(start, end):
            slot = slot_of[i]
            said = named_as[slot]
            if said < 0:
                continue  # this task named the location before
            named_as[slot] = -1
            if said == _INOUT or said != group_kind[slot]:
                group_before[slot] = last_group[slot]
                last_group[slot] = -1
                group_kind[slot] = said
            next_member[i] = last_group[slot]
            last_group[slot] = i
            member = group_before[slot]
            while member >= 0:
                before = task[member]
                if successor_of[before] != now:
                    successor_of[before] = now
                    if num_edges == edges.shape[0]:
                        grown = np.empty((2 * num_edges, 2), np.int64)
                        grown[:num_edges] = edges
                        edges = grown
                    edges[num_edges, 0] = before
                    edges[num_edges, 1] = now
                    num_edges += 1
                member = next_member[member]
        start = end
    return edges[:num_edges]
