"""What collectives are to the table of operations: kinds, and bytes as MPI counts them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from manyscale.models.workload import NO_RANK, OperationKind
from manyscale.models.workload.notes import Note, changes
from manyscale.runner.readers.kineto.collectives import Told
from manyscale.runner.readers.kineto.groups import Group, Member, true_times

_K: Final = OperationKind
_ROOTED: Final = (_K.bcast, _K.reduce, _K.gather, _K.scatter)


@dataclass(frozen=True)
class Said:
    """What a row communicates: ``kind``, ``bytes`` and lists as the table of operations has them."""

    kind: OperationKind
    bytes: int = 0
    receive_bytes: int = 0
    communicator: int = 0
    root: int = NO_RANK
    send_counts: tuple[int, ...] | None = None
    receive_counts: tuple[int, ...] | None = None
    duration_ps: int = -1


def said_of(
    rows: Sequence[np.ndarray], ranks: Sequence[Member], groups: Sequence[Group], notes: list[Note]
) -> list[dict[int, Said]]:
    """What the rows of each rank communicate, by row. ``rows`` int64[collectives] of each rank: their rows."""
    found: list[dict[int, Said]] = [{} for _ in ranks]
    unsized = uneven = 0
    for communicator, group in enumerate(groups, 1):
        least = true_times(group, ranks)
        for k in range(group.collectives.shape[1]):
            own = group.collectives[:, k].tolist()
            every = [ranks[rank].told[each] for rank, each in zip(group.members, own, strict=True)]
            described, is_sized, is_even = _described(group, every)
            unsized += not is_sized
            uneven += not is_even
            for rank, each, said in zip(group.members, own, described, strict=True):
                said = replace(said, communicator=communicator, duration_ps=int(least[k]))
                found[rank][int(rows[rank][each])] = said
    if unsized:
        text = (
            f"the traces do not tell the sizes of {unsized} collectives: they can take the times that they took alone; "
            "give host execution traces of the same window, or traces by PyTorch 2.2 or later"
        )
        notes.append(changes("collective-sizes-unknown", text, "", unsized))
    if uneven:
        text = f"the traces do not tell how {uneven} all-to-alls are split: their parts are taken to be equal"
        notes.append(changes("collective-splits-unknown", text, "", uneven))
    return found


def _described(group: Group, every: Sequence[Told]) -> tuple[list[Said], bool, bool]:
    """What a collective is at each member; whether sizes are known, and splits."""
    kind = next((each.kind for each in every if each.kind is not None), None) or _K.alltoall
    is_sized = all(each.is_sized for each in every)
    if kind in (_K.alltoall, _K.isend, _K.irecv):
        return _exchange(group, every, is_sized)
    found = []
    for each in every:
        sent = each.sent * each.element_bytes if is_sized else 0
        if kind == _K.reduce_scatter:
            parts = (sent // max(group.size, 1),) * len(group.members)
            found.append(Said(kind, max(each.element_bytes, 0), receive_counts=parts))
        elif kind == _K.allgather:
            found.append(Said(kind, sent, sent))
        else:
            found.append(Said(kind, sent, root=0 if kind in _ROOTED else NO_RANK))
    return found, is_sized, True


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
    # all members send equal parts, or what each has of them is not known
    sent = [each.sent * each.element_bytes for each in every]
    is_even = len(set(sent)) == 1 and sent[0] % size == 0
    part = max(sent) // size
    return [Said(_K.alltoall, part, part)] * here, True, is_even
