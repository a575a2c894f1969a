"""One clock for ranks of several nodes: what meets ends at all its ranks together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from manyscale.models.workload.notes import Note, informs
from manyscale.runner.readers.kineto.groups import Meetings
from manyscale.runner.readers.kineto.messages import Member

ONE_CLOCK_PS: Final = 50_000_000  # by which ends of a collective differ at ranks of one node at most, with its noise


def clock_offsets(meetings: Meetings, ranks: Sequence[Member]) -> tuple[np.ndarray, int]:
    """int64[ranks]: how far the clock of each rank is ahead of that of the first one that it can be compared with, as
    the ends of collectives tell, else those of messages: the median over those that both took part in. And how many
    sets of ranks there are that cannot be compared."""
    offset = np.zeros(len(ranks), np.int64)
    reached = np.zeros(len(ranks), np.bool_)
    groups: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in ranks]  # (members, ends of each) by rank
    for group in meetings.groups:
        if len(group.members) > 1 and group.collectives.shape[1]:
            members = np.array(group.members)
            ends = np.array([ranks[at].end[own] for at, own in zip(group.members, group.collectives, strict=True)])
            for at in group.members:
                groups[at].append((members, ends))
    sets = 0
    for root in range(len(ranks)):
        if reached[root]:
            continue
        sets += 1
        reached[root], waiting = True, [root]
        while waiting:
            at = waiting.pop()
            for members, ends in groups[at]:
                new = np.flatnonzero(~reached[members])
                mine = ends[int(np.flatnonzero(members == at)[0])]
                offset[members[new]] = offset[at] + np.median(ends[new] - mine, axis=1).astype(np.int64)
                reached[members[new]] = True
                waiting += members[new].tolist()
            apart: dict[int, list[int]] = {}
            for own, (partner, theirs) in meetings.messages[at].items():
                if not reached[partner]:
                    apart.setdefault(partner, []).append(int(ranks[partner].end[theirs] - ranks[at].end[own]))
            for partner, each in apart.items():
                offset[partner] = offset[at] + int(np.median(each))
                reached[partner] = True
                waiting.append(partner)
    return offset, sets


def aligned(members: list[Member], offset: np.ndarray, notes: list[Note]) -> list[Member]:
    """With one clock, where the ends of what meets show that there are several."""
    if not len(offset) or int(np.ptp(offset)) <= ONE_CLOCK_PS:
        return members
    text = (
        f"clocks of ranks differ by up to {np.ptp(offset) / 1e9:.3g} ms: they are aligned on the ends of the "
        "collectives and messages that ranks have in common"
    )
    notes.append(informs("clocks-aligned", text, "", int(np.count_nonzero(offset))))
    return [
        replace(member, begin=member.begin - by, end=member.end - by)
        for member, by in zip(members, offset.tolist(), strict=True)
    ]
