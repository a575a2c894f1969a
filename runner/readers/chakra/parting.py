"""Collectives of one process group on several streams.

Which of them a rank comes to first is a matter of its times: counted over all its streams, the k-th of one rank need
not be the k-th of another. NCCL's order on one stream is the same at all members.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manyscale.runner.readers.chakra.groups import Groups
from manyscale.runner.readers.chakra.operations import RankMade

_Key = tuple[int, int]  # the stream and the kind of a collective


def part_by_streams(made: Sequence[RankMade], groups: Groups) -> int:
    """Give each stream of a group a communicator of its own, where members have other orders of streams and the same
    collectives on each. How many groups are parted."""
    orders: list[dict[int, list[_Key]]] = []
    for each in made:
        own: dict[int, list[_Key]] = {}
        for communicator, row, node in each.collectives:
            assert node.collective is not None
            own.setdefault(communicator, []).append((int(each.rows.rows[row]["stream"]), int(node.collective)))
        orders.append(own)
    renamed: dict[tuple[int, int], int] = {}  # communicator and stream to the new one
    parted = 0
    for number in sorted({communicator for own in orders for communicator in own}):
        members = groups.members[number - 1].tolist() if number else range(len(made))
        every = [orders[rank].get(number, []) for rank in members]
        if all(own == every[0] for own in every) or any(sorted(own) != sorted(every[0]) for own in every):
            continue
        streams = dict.fromkeys(stream for stream, _ in every[0])
        if any(_of(own, stream) != _of(every[0], stream) for own in every for stream in streams):
            continue
        parted += 1
        told = groups.told[number - 1] if number else tuple(range(len(made)))
        for stream in list(streams)[1:]:
            renamed[number, stream] = groups.add(groups.names[number - 1] if number else "world", told)
    if renamed:
        for each in made:
            _rename(each, renamed)
    return parted


def _of(own: Sequence[_Key], stream: int) -> list[int]:
    """Kinds on a stream."""
    return [kind for each, kind in own if each == stream]


def _rename(made: RankMade, renamed: dict[tuple[int, int], int]) -> None:
    rows: np.ndarray = made.rows.rows
    for at, (communicator, row, node) in enumerate(made.collectives):
        new = renamed.get((communicator, int(rows[row]["stream"])), communicator)
        rows[row]["communicator"] = new
        made.collectives[at] = (new, row, node)
