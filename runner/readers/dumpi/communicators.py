"""Members of the communicators of a DUMPI trace, from the calls of all ranks that made them.

Each rank numbers its communicators and groups by itself, and a number is used again. The k-th call on a communicator
that makes another is the same on all its members, since MPI demands it of collective calls: so all ranks are followed
together, each up to a call that others have not reached yet. Groups are followed on each rank alone.

Taken for granted: topologies keep the order of ranks (MPI_Cart_create with reorder; checked against MPI_Comm_rank by
the reader). Not recorded: the members of communicators between programs or groups (MPI_Intercomm_create, ...).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from manyscale.runner.readers.dumpi.layouts import LAYOUTS
from manyscale.runner.readers.dumpi.records import Calls
from manyscale.runner.readers.dumpi.types import Versions

WORLD, SELF = 0, 1  # of a rank's communicators
UNKNOWN: Final = -1
_NULL, _WORLD_ID, _SELF_ID = 1, 2, 3  # numbers in the trace
_EMPTY_GROUP: Final = 2

_COLLECTIVE: Final = ("MPI_Comm_dup", "MPI_Comm_create", "MPI_Comm_split", "MPI_Cart_create", "MPI_Cart_sub",
                      "MPI_Graph_create")  # fmt: skip
_UNRECORDED: Final = ("MPI_Intercomm_create", "MPI_Intercomm_merge", "MPI_Comm_accept", "MPI_Comm_connect",
                      "MPI_Comm_join", "MPI_Comm_spawn", "MPI_Comm_spawn_multiple", "MPI_Comm_get_parent")  # fmt: skip
_GROUPS: Final = ("MPI_Comm_group", "MPI_Group_incl", "MPI_Group_excl", "MPI_Group_range_incl", "MPI_Group_range_excl",
                  "MPI_Group_union", "MPI_Group_intersection", "MPI_Group_difference", "MPI_Comm_remote_group",
                  "MPI_Win_get_group", "MPI_File_get_group")  # fmt: skip


@dataclass(frozen=True)
class Event:
    """A call that makes a communicator or a group. ``old``, ``new``: the rank's communicators, by their order of
    making (UNKNOWN: none was recorded; ``new`` also where the rank is not in it)."""

    name: str
    old: int
    new: int
    fields: Mapping[str, object]


@dataclass(frozen=True)
class Local:
    """What one rank says: its ``events``, the number of its ``communicators`` and by which call each was ``made``."""

    events: list[Event]
    versions: Versions
    made: list[str]

    def at(self, calls: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """int64: the rank's communicator that each number stands for at its call, UNKNOWN for none."""
        start = np.select([ids == _WORLD_ID, ids == _SELF_ID], [WORLD, SELF], UNKNOWN)
        return self.versions.at(calls, ids, start)


def local_communicators(calls: Calls) -> Local:
    """The calls of a rank that make communicators and groups. O(such calls), one after another."""
    names = (*_COLLECTIVE, *_UNRECORDED, *_GROUPS)
    rows = np.sort(np.concatenate([calls.rows(name) for name in names]))
    now = {_WORLD_ID: WORLD, _SELF_ID: SELF}
    events, changes, made = [], [], ["MPI_COMM_WORLD", "MPI_COMM_SELF"]
    for row in rows.tolist():
        name, fields = LAYOUTS[calls.function[row]].name, calls.fields(row)
        is_group = name in _GROUPS
        old_id = _integer(fields.get("comm", fields.get("oldcomm", UNKNOWN)))
        new_id = _integer(fields.get("parent" if name == "MPI_Comm_get_parent" else "newcomm", _NULL))
        if name == "MPI_Comm_join":
            old_id, new_id = UNKNOWN, old_id
        new = UNKNOWN
        if not is_group and new_id != _NULL:
            new = len(made)
            made.append(name)
            changes.append((row, new_id, new))
        events.append(Event(name, now.get(old_id, UNKNOWN), new, fields))
        if new != UNKNOWN:
            now[new_id] = new
    table = np.array(changes, np.int64).reshape(-1, 3)
    return Local(events, Versions(table[:, 0], table[:, 1], table[:, 2]), made)


@dataclass(frozen=True)
class Communicators:
    """``members``: world ranks of each communicator; the first is the world. ``of_rank``: per rank, which of these each
    of its own is, UNKNOWN where its members are not known."""

    members: list[np.ndarray]
    of_rank: list[np.ndarray]


def resolve(ranks: Sequence[Local]) -> Communicators:
    """The communicators of all ranks. O(events + members)."""
    return _Resolver(ranks).resolve()


@dataclass
class _Resolver:
    ranks: Sequence[Local]
    members: list[np.ndarray] = field(default_factory=list)
    dimensions: dict[int, list[int]] = field(default_factory=dict)  # of those with a Cartesian topology
    waiting: dict[int, dict[int, Event]] = field(default_factory=dict)  # per communicator: ranks at their next call

    def resolve(self) -> Communicators:
        self.members.append(np.arange(len(self.ranks), dtype=np.int32))
        self.of_rank = [np.full(len(local.made), UNKNOWN, np.int64) for local in self.ranks]
        self.groups: list[dict[int, list[int] | None]] = [{_EMPTY_GROUP: []} for _ in self.ranks]
        for rank, mine in enumerate(self.of_rank):
            mine[WORLD] = 0
            mine[SELF] = self._add(np.array([rank], np.int32))
        self.next = [0] * len(self.ranks)
        ready = deque(range(len(self.ranks)))
        while ready:
            ready.extend(self._advance(ready.popleft()))
        return Communicators(self.members, self.of_rank)

    def _add(self, members: np.ndarray) -> int:
        self.members.append(members)
        return len(self.members) - 1

    def _advance(self, rank: int) -> list[int]:
        """Follow a rank up to a call that not all members have reached; returns the ranks that may go on."""
        events = self.ranks[rank].events
        while self.next[rank] < len(events):
            event = events[self.next[rank]]
            self.next[rank] += 1
            old = int(self.of_rank[rank][event.old]) if event.old != UNKNOWN else UNKNOWN
            if event.name in _GROUPS:
                self.groups[rank][_integer(event.fields.get("newgroup", event.fields.get("group")))] = self._group(
                    rank, old, event
                )
            elif event.name in _COLLECTIVE and old != UNKNOWN:
                present = self.waiting.setdefault(old, {})
                present[rank] = event
                if len(present) < len(self.members[old]):
                    return []
                del self.waiting[old]
                self._make(old, present)
                return list(present)
        return []

    def _group(self, rank: int, communicator: int, event: Event) -> list[int] | None:
        """World ranks of the group that a call makes; None if the trace does not say."""
        groups, fields = self.groups[rank], event.fields
        if event.name == "MPI_Comm_group":
            return self.members[communicator].tolist() if communicator != UNKNOWN else None
        if "group1" in fields:
            first, second = (groups.get(_integer(fields[name])) for name in ("group1", "group2"))
            if first is None or second is None:
                return None
            if event.name == "MPI_Group_union":
                return first + [member for member in second if member not in set(first)]
            keep = event.name == "MPI_Group_intersection"
            return [member for member in first if (member in set(second)) == keep]
        old = groups.get(_integer(fields.get("group"))) if "newgroup" in fields else None
        if old is None:
            return None
        if "ranges" in fields:
            listed = [place for row in _rows(fields["ranges"]) for place in _range(row)]
        else:
            listed = _list(fields["ranks"])
        if any(not 0 <= place < len(old) for place in listed):
            return None
        if event.name.endswith("incl"):
            return [old[place] for place in listed]
        return [member for place, member in enumerate(old) if place not in set(listed)]

    def _make(self, old: int, present: Mapping[int, Event]) -> None:
        """All members of ``old`` have made their call: number the communicators that come of it."""
        if len({event.name for event in present.values()}) > 1:
            return  # a trace with gaps
        parent = self.members[old]
        name = next(iter(present.values())).name
        made: dict[object, list[int]] = {}  # members by what those of one communicator have in common
        for place, rank in enumerate(parent.tolist()):
            event = present[rank]
            if event.new == UNKNOWN:
                continue
            made.setdefault(self._common(name, old, place, rank, event), []).append(rank)
        for common, ranks in made.items():
            if common is None:
                continue
            ordered = ranks
            if name == "MPI_Comm_split":
                ordered = sorted(ranks, key=lambda rank: _integer(present[rank].fields["key"]))
            elif name == "MPI_Comm_create":
                assert isinstance(common, tuple)
                ordered = list(common)
            new = self._add(np.array(ordered, np.int32))
            self._note_dimensions(name, old, new, present[ranks[0]])
            for rank in ranks:
                self.of_rank[rank][present[rank].new] = new

    def _common(self, name: str, old: int, place: int, rank: int, event: Event) -> object:
        if name == "MPI_Comm_split":
            return event.fields["color"]
        if name == "MPI_Comm_create":
            group = self.groups[rank].get(_integer(event.fields["group"]))
            return None if group is None else tuple(group)
        if name == "MPI_Cart_sub":
            if old not in self.dimensions:
                return None
            coordinates = np.unravel_index(place, self.dimensions[old])
            keep = _list(event.fields["remain_dims"])
            return tuple(int(at) for at, kept in zip(coordinates, keep, strict=True) if not kept)
        return ()

    def _note_dimensions(self, name: str, old: int, new: int, event: Event) -> None:
        if name == "MPI_Cart_create":
            self.dimensions[new] = _list(event.fields["dims"])
        elif name == "MPI_Cart_sub":
            keep = _list(event.fields["remain_dims"])
            self.dimensions[new] = [size for size, kept in zip(self.dimensions[old], keep, strict=True) if kept]
        elif name == "MPI_Comm_dup" and old in self.dimensions:
            self.dimensions[new] = self.dimensions[old]


def _integer(value: object) -> int:
    assert isinstance(value, int)
    return value


def _list(value: object) -> list[int]:
    assert isinstance(value, list)
    return value


def _rows(value: object) -> list[list[int]]:
    assert isinstance(value, list)
    return value


def _range(row: list[int]) -> range:
    first, last, stride = row
    return range(first, last + (1 if stride > 0 else -1), stride)
