"""Collectives of ranks as those of process groups: which belong together, how long they took, and whether ranks agree.

The k-th collective of a group at one rank is the k-th at all others. NCCL's kernel of a rank that comes early spins
until the last rank has come, and all end together: the true time of a collective is the least over its ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers.kineto.collectives import MESSAGES, Told
from manyscale.runner.readers.kineto.messages import (
    Keys,
    Member,
    Partners,
    alike,
    leave_early,
    messages_of,
    partner_of,
    said,
)

_K: Final = OperationKind


@dataclass(frozen=True)
class Group:
    """``members``: indices of ranks, in the group's order; ``collectives`` of each member: which of its own, k-th by
    k-th. ``size``: of all ranks of the group, traced or not, and ``everyone``: these, by their numbers in the job,
    as far as they are known; ``name``: what it is for, or what it is called."""

    name: str
    members: tuple[int, ...]
    collectives: np.ndarray  # int64[members, k]
    size: int
    everyone: tuple[int, ...]
    is_assumed: bool


@dataclass(frozen=True)
class Meetings:
    """``groups``, and of each rank ``messages``: of each of its own its partner (a rank here), and that one's own;
    ``alone``: those that meet no other rank's."""

    groups: list[Group]
    messages: list[dict[int, tuple[int, int]]]
    alone: list[list[int]]


def meetings_of(ranks: Sequence[Member], world: int) -> Meetings:
    """Which collectives and messages belong together; groups by their first rank and first collective. Raises UserError
    where ranks do not agree."""
    index = {rank.number: at for at, rank in enumerate(ranks)}
    every = tuple(range(len(ranks)))
    found: Keys = {}
    described: dict[tuple[object, ...], tuple[str, tuple[int, ...], int, bool]] = {}
    sent: Keys = {}
    partners = Partners(ranks, world)
    alone: list[list[int]] = [[] for _ in ranks]
    for at, rank in enumerate(ranks):
        configured = {name: (purpose, members) for name, purpose, members in rank.groups}
        unnamed: dict[object, int] = {}
        for number, told in enumerate(rank.told):
            if told.kind is None:
                alone[at].append(number)
                continue
            purpose, members = told.purpose, told.members
            if told.group in configured:
                purpose = purpose or configured[told.group][0]
                members = members or configured[told.group][1]
            if told.kind in MESSAGES:
                peer = partner_of(told, rank, members, partners)
                ends = (rank.number, peer) if told.kind == _K.isend else (peer, rank.number)
                sent.setdefault((*ends, partners.name(told.group)), {}).setdefault(at, []).append(number)
                continue
            if rank.number in members:
                key: tuple[object, ...] = ("ranks", members, told.group)
                known = described.get(key)
                mine = known[1] if known else tuple(index[each] for each in members if each in index)
                described[key] = purpose or told.group, mine, len(members), False
            else:  # which of the rank's groups it is: by its name and size, or by the order of the groups' first use
                own = told.group or int(rank.stream[number])
                place = unnamed.setdefault(own, len(unnamed))
                key = ("named", told.group, told.size) if told.group and told.size else ("order", place)
                described[key] = purpose or (f"group {place}" if place else "world"), every, told.size, True
            found.setdefault(key, {}).setdefault(at, []).append(number)
    groups = []
    for key, of in found.items():
        name, members, size, assumed = described[key]
        if assumed:
            if size != len(ranks) and (len(described) > 1 or key[0] == "named"):
                members = tuple(each for each in members if each in of)
            size = max(size or (world if world > len(ranks) else len(members)), len(members))
            assumed = key[0] != "named" or size != len(members)
        for each in members:
            of.setdefault(each, [])
        leave_early(ranks, of, alone)
        _check_numbers(name, ranks, members, of)
        if of[members[0]]:
            everyone = tuple(ranks[each].number for each in members)
            if key[0] == "ranks":
                everyone = key[1]  # type: ignore[assignment]
            elif size == world:
                everyone = tuple(range(world))
            collectives = np.array([of[each] for each in members], np.int64)
            groups.append(Group(name, members, collectives, size, everyone, assumed))
    groups.sort(key=lambda each: (each.members, int(each.collectives[0, 0])))
    for group in groups:
        _check(group, ranks)
    return Meetings(groups, messages_of(ranks, index, sent, alone), [sorted(each) for each in alone])


def _check_numbers(name: str, ranks: Sequence[Member], members: Sequence[int], of: dict[int, list[int]]) -> None:
    counts = {each: len(of[each]) for each in members}
    if len(set(counts.values())) <= 1:
        return
    fewest, most = min(counts, key=lambda each: counts[each]), max(counts, key=lambda each: counts[each])
    few, many = ([ranks[each].told[k] for k in of[each]] for each in (fewest, most))
    differs = next((k for k, (a, b) in enumerate(zip(few, many, strict=False)) if not alike(a, b)), len(few))
    at = f"rank {ranks[most].number}'s is {said(many[differs])}" if differs < len(many) else "there"
    one = f"rank {ranks[fewest].number}'s {said(few[differs])}" if differs < len(few) else "the other has none"
    raise UserError(
        f"{ranks[fewest].place}: group {name!r}: rank {ranks[fewest].number} has {counts[fewest]} collectives, rank "
        f"{ranks[most].number} {counts[most]}; they differ first at number {differs + 1}: {at}, {one}; give traces of "
        "the same steps of all ranks"
    )


def _check(group: Group, ranks: Sequence[Member]) -> None:
    """Ranks agree on kinds and sizes, and what one sends to another is what that one receives of it."""
    first = ranks[group.members[0]]
    for k in range(group.collectives.shape[1]):
        every = [ranks[rank].told[group.collectives[at, k]] for at, rank in enumerate(group.members)]
        for rank, told in zip(group.members, every, strict=True):
            if not alike(every[0], told):
                raise UserError(
                    f"{ranks[rank].place}: group {group.name!r}: collective {k + 1} is {said(told)} at rank "
                    f"{ranks[rank].number} and {said(every[0])} at rank {first.number}; are the traces of one job?"
                )
        _check_splits(group, ranks, k, every)


def _check_splits(group: Group, ranks: Sequence[Member], k: int, every: Sequence[Told]) -> None:
    if len(group.members) != group.size or any(
        len(each.sends) != group.size or len(each.receives) != group.size for each in every
    ):
        return
    sends = np.array([each.sends for each in every], np.int64)
    receives = np.array([each.receives for each in every], np.int64)
    wrong = np.argwhere(sends != receives.T)
    if len(wrong):
        a, b = wrong[0].tolist()
        one, other = ranks[group.members[a]], ranks[group.members[b]]
        raise UserError(
            f"{one.place}: group {group.name!r}: collective {k + 1}: rank {one.number} sends {sends[a, b]} elements to "
            f"rank {other.number}, which receives {receives[b, a]}; are the traces of one step?"
        )


def true_times(group: Group, ranks: Sequence[Member]) -> np.ndarray:
    """int64[k]: the least time of each collective over the members that were traced."""
    return np.min(
        [
            ranks[rank].end[own] - ranks[rank].begin[own]
            for rank, own in zip(group.members, group.collectives, strict=True)
        ],
        axis=0,
    )
