"""Messages between ranks: who the partner of each is, and which sends and receives belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers.kineto.collectives import MESSAGES, UNKNOWN, Told

_K: Final = OperationKind
_SIZED_ALIKE: Final = (_K.allreduce, _K.bcast, _K.reduce, _K.allgather, _K.reduce_scatter, _K.alltoall)
Keys = dict[tuple[object, ...], dict[int, list[int]]]  # what belongs together: by rank, which of its own


@dataclass(frozen=True)
class Member:
    """A rank of the traces: its ``place`` (file), its number in the ``world`` of the job, and what is told of each of
    its collectives and messages, with their ``stream``, ``begin`` and ``end``; whether they were given before the
    trace began (``is_early``)."""

    place: str
    number: int
    told: tuple[Told, ...]
    stream: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    is_early: np.ndarray
    groups: tuple[tuple[str, str, tuple[int, ...]], ...]  # name, purpose, world ranks


class Partners:
    """The ranks of groups whose members nobody tells, as far as their own use of them shows it: nothing where some of
    the job's ``world`` ranks were not traced, as their places are not known then."""

    def __init__(self, ranks: Sequence[Member], world: int) -> None:
        users: dict[str, set[int]] = {}
        places: dict[str, dict[int, set[int]]] = {}
        for rank in ranks:
            for told in rank.told:
                users.setdefault(told.group, set()).add(rank.number)
                if told.kind in MESSAGES:
                    places.setdefault(told.group, {}).setdefault(rank.number, set()).add(told.place)
        self._users = users
        self._members: dict[str, tuple[int, ...]] = {}
        self._numbered_anew = {
            self.name(told.group) for rank in ranks for told in rank.told if told.own not in (UNKNOWN, rank.number)
        }
        if len(ranks) < world:
            return
        for group, own in users.items():
            listed = tuple(sorted(own))
            asked = [places.get(group, {}).get(each, set()) for each in listed]
            if len(listed) == len(ranks) or (len(listed) == 2 and asked == [{1}, {0}]):
                self._members[group] = listed
        private = [each for rank in ranks for each in {told.group for told in rank.told} if len(users[each]) == 1]
        if len(private) <= len(ranks) == len({number for each in private for number in users[each]}):
            self._members |= dict.fromkeys(private, tuple(sorted(rank.number for rank in ranks)))

    def name(self, group: str) -> str:
        """A group's name, as others know it: old traces have addresses, which are a process's own."""
        return group if len(self._users[group]) > 1 else ""

    def members(self, group: str) -> tuple[int, ...]:
        """Of a group that all ranks use, of one of two that name each other, or of the only one that each rank has;
        () of others."""
        return self._members.get(group, ())

    def has_own_numbers(self, group: str) -> bool:
        """Whether a rank has another number in the group than in the world, or in one that has the same name."""
        return self.name(group) in self._numbered_anew


def partner_of(told: Told, rank: Member, members: Sequence[int], partners: Partners) -> int:
    """The partner of a message as a world rank, -1 unknown: what is told, or who has the partner's place in the group
    (``members``, () untold)."""
    if told.peer >= 0 or told.place < 0:
        return told.peer
    if rank.number in members:
        return members[told.place] if told.place < len(members) else -1
    if told.own >= 0:  # by a mark, of the world's group if all ranks have their own numbers there
        return -1 if partners.has_own_numbers(told.group) else told.place
    listed = partners.members(told.group)
    return listed[told.place] if told.place < len(listed) else -1


def messages_of(
    ranks: Sequence[Member], index: dict[int, int], sent: Keys, alone: list[list[int]]
) -> list[dict[int, tuple[int, int]]]:
    """The k-th message from one rank to another is the k-th that this one receives of it."""
    found: list[dict[int, tuple[int, int]]] = [{} for _ in ranks]
    for (source, destination, _), of in sent.items():
        one, other = index.get(source, -1), index.get(destination, -1)  # type: ignore[call-overload]
        if one < 0 or other < 0 or one == other:
            for rank, own in of.items():
                alone[rank] += own
            continue
        sends, receives = of.get(one, []), of.get(other, [])
        leave_early(ranks, {one: sends, other: receives}, alone)
        if len(sends) != len(receives):
            raise UserError(
                f"{ranks[one].place}: rank {source} sends {len(sends)} messages to rank {destination}, which receives "
                f"{len(receives)} of it; give traces of the same steps of all ranks"
            )
        for a, b in zip(sends, receives, strict=True):
            if not alike(replace(ranks[one].told[a], kind=_K.bcast), replace(ranks[other].told[b], kind=_K.bcast)):
                raise UserError(
                    f"{ranks[one].place}: message {sends.index(a) + 1} of rank {source} to rank {destination} is "
                    f"{said(ranks[one].told[a])}, and {said(ranks[other].told[b])} there; are the traces of one step?"
                )
            found[one][a], found[other][b] = (other, b), (one, a)
    return found


def leave_early(ranks: Sequence[Member], of: dict[int, list[int]], alone: list[list[int]]) -> None:
    """Without the first collectives of ranks that were given before the trace began and that others do not have."""
    least = min(map(len, of.values()))
    for rank, own in of.items():
        while len(own) > least and ranks[rank].is_early[own[0]]:
            alone[rank].append(own.pop(0))


def alike(one: Told, other: Told) -> bool:
    if one.kind is not None and other.kind is not None and one.kind != other.kind:
        return False
    if one.kind in _SIZED_ALIKE and one.is_sized and other.is_sized and not (one.sends or other.sends):
        return one.bytes == other.bytes or one.kind == _K.alltoall
    return True


def said(told: Told) -> str:
    kind = "SendRecv" if told.kind is None else told.kind.name
    return f"{kind} of {told.bytes} bytes" if told.is_sized else kind
