"""What collectives are to the table of operations: kinds, and bytes as MPI counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from manyscale.models.workload import NO_RANK, NO_REQUEST, OperationKind
from manyscale.models.workload.notes import Note, changes, informs
from manyscale.runner.readers.kineto.collectives import ROOTED, Told
from manyscale.runner.readers.kineto.groups import Group, Meetings, true_times
from manyscale.runner.readers.kineto.messages import Member

_K: Final = OperationKind


@dataclass(frozen=True)
class Said:
    """What a row communicates: ``kind``, ``bytes``, requests and lists as the table of operations has them; ``peer``:
    of a message, or the root of a collective."""

    kind: OperationKind
    bytes: int = 0
    receive_bytes: int = 0
    communicator: int = 0
    peer: int = NO_RANK
    request: int = NO_REQUEST
    completes: int = NO_REQUEST
    send_counts: tuple[int, ...] | None = None
    receive_counts: tuple[int, ...] | None = None
    duration_ps: int = -1


def said_of(
    rows: Sequence[np.ndarray], ranks: Sequence[Member], meetings: Meetings, notes: list[Note]
) -> list[dict[int, Said]]:
    """What the rows of each rank communicate, by row. ``rows`` int64[collectives] of each rank: their rows."""
    found: list[dict[int, Said]] = [{} for _ in ranks]
    unsized = uneven = rootless = 0
    for communicator, group in enumerate(meetings.groups, 1):
        least = true_times(group, ranks)
        for k in range(group.collectives.shape[1]):
            own = group.collectives[:, k].tolist()
            every = [ranks[rank].told[each] for rank, each in zip(group.members, own, strict=True)]
            described, is_sized, is_even = _described(group, every)
            unsized += not is_sized
            uneven += not is_even
            root, is_told = NO_RANK, True
            if described[0].kind in ROOTED:
                root, is_told = _root(group, every, ranks)
            rootless += not is_told
            for rank, each, said in zip(group.members, own, described, strict=True):
                said = replace(said, communicator=communicator, peer=root, duration_ps=int(least[k]))
                found[rank][int(rows[rank][each])] = said
    for number, messages in enumerate(meetings.messages):
        for request, (own, (partner, theirs)) in enumerate(sorted(messages.items())):
            told = ranks[number].told[own]
            times = [ranks[of].end[each] - ranks[of].begin[each] for of, each in ((number, own), (partner, theirs))]
            sized = next((each for each in (told, ranks[partner].told[theirs]) if each.is_sized), None)
            size = sized.bytes if sized is not None else 0
            unsized += sized is None
            row = int(rows[number][own])
            assert told.kind is not None
            sizes = (size, 0) if told.kind == _K.isend else (0, size)
            found[number][row] = Said(told.kind, *sizes, peer=partner, request=request, duration_ps=int(min(times)))
            found[number][row + 1] = Said(_K.waitall, completes=request)
    if unsized:
        text = (
            f"the traces do not tell the sizes of {unsized} collectives: they can take the times that they took alone; "
            "give host execution traces of the same window, or traces by PyTorch 2.2 or later"
        )
        notes.append(changes("collective-sizes-unknown", text, "", unsized))
    if rootless:
        text = f"the traces do not tell the roots of {rootless} collectives: each is the first member"
        notes.append(informs("roots-assumed", text, "", rootless))
    if uneven:
        text = f"the traces do not tell how {uneven} all-to-alls are split: their parts are taken to be equal"
        notes.append(changes("collective-splits-unknown", text, "", uneven))
    return found


def _described(group: Group, every: Sequence[Told]) -> tuple[list[Said], bool, bool]:
    """What a collective is at each member; whether sizes are known, and splits."""
    kind = next((each.kind for each in every if each.kind is not None), None) or _K.alltoall
    is_sized = all(each.is_sized for each in every)
    if kind == _K.alltoall:
        return _exchange(group, every, is_sized)
    found = []
    for each in every:
        sent = each.sent * each.element_bytes if is_sized else 0
        if kind == _K.reduce_scatter:
            is_whole = each.sent >= 0 or not is_sized
            part = sent // max(group.size, 1) if is_whole else each.received * each.element_bytes
            parts = (part,) * len(group.members)
            found.append(Said(kind, max(each.element_bytes, 0), receive_counts=parts))
        elif kind == _K.allgather:
            found.append(Said(kind, sent, sent))
        else:
            found.append(Said(kind, sent))
    return found, is_sized, True


def _root(group: Group, every: Sequence[Told], ranks: Sequence[Member]) -> tuple[int, bool]:
    """The place of a collective's root among the members that were traced, and whether all tell the same one of them
    all; the first one where they do not, or where it was not traced."""
    told = {each.root for each in every}
    place = told.pop() if len(told) == 1 else -1
    is_known = 0 <= place < len(group.everyone) == group.size
    world = group.everyone[place] if is_known else -1
    here = [ranks[each].number for each in group.members]
    return (here.index(world) if world in here else 0), is_known


def _exchange(group: Group, every: Sequence[Told], is_sized: bool) -> tuple[list[Said], bool, bool]:
    """An all-to-all, with the bytes to and from each member where all members tell them."""
    size, here = max(group.size, 1), len(group.members)
    if is_sized and size == here and all(len(each.sends) == len(each.receives) == size for each in every):
        found = []
        for each in every:
            sends, receives = (tuple(each.element_bytes * n for n in part) for part in (each.sends, each.receives))
            found.append(Said(_K.alltoallv, sum(sends), sum(receives), send_counts=sends, receive_counts=receives))
        return found, True, True
    if not is_sized:
        return [Said(_K.alltoall)] * here, False, True
    # all members send and receive as much, in equal parts, or what each has of them is not known
    sent = [each.sent * each.element_bytes for each in every]
    is_even = len(set(sent)) == 1 and sent[0] % size == 0 and all(each.received == each.sent for each in every)
    part = max(sent) // size
    return [Said(_K.alltoall, part, part)] * here, True, is_even
