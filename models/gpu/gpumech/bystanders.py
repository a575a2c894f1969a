"""What SMs that are not followed (gpu/gpumech/part.py) ask L2 for, while the others walk.

Blocks that are not followed go with the nearest one that is: when a warp of that has made a part of its accesses, the
warps of the same place in these have made as large a part of theirs, some, drawn by lot, before it, and the others
behind it, so that as many of the lines that SMs share are missed by those that are followed as is their part. Of each
SM a table of lines that it had not long before stands for its L1: each line has one place there.

Cost: O(requests), and O(blocks that go with it) for each segment.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.gpumech.functional_caches import (
    FULL,
    READ_MISSES,
    count_of,
    fill,
    find,
    place,
    use,
    write,
)  # fmt: skip
from manyscale.models.gpu.gpumech.touching import slice_of
from manyscale.models.kernels import inlined

BESIDE: Final = 1 << 40  # and a line: was missed when that line was accessed
LEHMER: Final = 2147483647  # above all numbers of his generator
_TURNS: Final = 6  # until memory answers


class Bystanders(NamedTuple):
    """Of a launch that is followed in part: blocks [``first``[i], ``first``[i + 1]) go with the i-th that is followed,
    whose number is ``own``[i], int64; both are empty where all are. ``block_warps``, ``warp_accesses``, ``sector`` and
    ``written`` as in LaunchTrace, of all blocks; ``at`` int64[warps], their next accesses. ``recent`` int64[SMs,
    lines], a power of two of these: a line and its sectors, which L1 may have. ``shift`` from a sector to its line."""

    first: np.ndarray
    own: np.ndarray
    block_warps: np.ndarray
    warp_accesses: np.ndarray
    sector: np.ndarray
    written: np.ndarray
    at: np.ndarray
    recent: np.ndarray
    shift: int


def bystanders(
    own: np.ndarray, num_sms: int, arrays: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], lines: int, shift: int
) -> Bystanders:
    """Of the blocks ``own`` that are followed; ``arrays`` from ``block_warps`` on, as there; ``lines`` of L1."""
    first = np.zeros(len(own) + 1 if len(own) else 0, np.int64)
    if len(own):
        first[1:-1] = (own[1:] + own[:-1] + 1) // 2
        first[-1] = len(arrays[0]) - 1
    entries = 1 << max(0, lines.bit_length() - 1)
    recent = np.full((num_sms if len(own) else 0, entries), -1, np.int64)
    return Bystanders(first, own, *arrays, arrays[1][:-1].copy(), recent, shift)


@inlined
def _is_recent(recent, tag, sectors):  # type: ignore[no-untyped-def]
    """Whether an SM had sectors of a line not long before; it has them from now on."""
    at = tag & (len(recent) - 1)
    known = recent[at]
    if known >> 8 == tag:
        recent[at] = known | sectors
        return known & sectors == sectors
    recent[at] = tag << 8 | sectors
    return False


@inlined
def _ask(l2, l2_rules, tag, sectors, beside):  # type: ignore[no-untyped-def]
    """L2 is asked for sectors of a line."""
    which = slice_of(l2, tag)
    at = find(l2, 0, tag)
    if at < 0:
        at, _ = place(l2, l2_rules, 0, tag, l2.turn[which])
    else:
        use(l2, l2_rules, 0, at)
    missing = sectors & ~np.int64(l2.line[0, at].valid)
    if missing:
        l2.counts[READ_MISSES] += count_of(missing)
        fill(l2, 0, at, missing, which, missing, _TURNS, BESIDE + beside)


@inlined
def _access(others, l2, l2_rules, recent, first, end, beside):  # type: ignore[no-untyped-def]
    """Accesses [first, end) of a warp."""
    i = first
    while i < end:
        tag = others.sector[i] >> others.shift
        writes = others.written[i] != 0
        sectors, full = np.int64(0), np.int64(0)
        while i < end and others.sector[i] >> others.shift == tag and (others.written[i] != 0) == writes:
            bit = np.int64(1) << (others.sector[i] - (tag << others.shift))
            sectors |= bit
            if others.written[i] == FULL:
                full |= bit
            i += 1
        if writes:
            write(l2, l2_rules, 0, tag, sectors, full)
        elif not _is_recent(recent, tag, sectors):
            _ask(l2, l2_rules, tag, sectors, beside)


@inlined
def go_along(others, launch, l2, l2_rules, block, warp, line, lot, before):  # type: ignore[no-untyped-def]
    """Warps of the blocks that go with followed block ``block`` make as large a part of their accesses as ``warp`` of
    that has made when all lines before ``line`` were accessed: those that do ``before`` it, or the others, of which
    ``lot``, a number of Lehmer's generator, decides."""
    begin, size = others.first[block], others.first[block + 1] - others.first[block]
    middle = size * lot // LEHMER
    first, end = (np.int64(0), middle) if before else (middle, size - 1)
    own = launch.first_line[warp]
    of, done = launch.first_line[warp + 1] - own, line - own
    beside = max(own, line - 1)
    for i in range(first, end):
        number = begin + i
        if number >= others.own[block]:
            number += 1
        which = others.block_warps[number] + warp - launch.block_warps[block]
        if which >= others.block_warps[number + 1]:
            continue
        at, ends = others.at[which], others.warp_accesses[which + 1]
        if done < of:
            begins = others.warp_accesses[which]
            ends = begins + (ends - begins) * done // of
        if ends > at:
            _access(others, l2, l2_rules, others.recent[number % len(others.recent)], at, ends, beside)
            others.at[which] = ends


@inlined
def go_before(others, launch, l2, l2_rules, stand, active, lot):  # type: ignore[no-untyped-def]
    """Before the ``active`` warps of an SM that move in a turn, each by the accesses of a segment."""
    for i in range(active):
        warp = stand.moved[i] = stand.moving[i]
        own, line = stand.walker[warp], stand.walker[warp].line
        for number in range(own.access, own.access + launch.segment[own.segment].accesses):
            line += launch.access[number].lines
        go_along(others, launch, l2, l2_rules, own.block, warp, line, lot, True)


@inlined
def go_behind(others, launch, l2, l2_rules, stand, active, lot):  # type: ignore[no-untyped-def]
    """Behind them."""
    for i in range(active):
        warp = stand.moved[i]
        own = stand.walker[warp]
        go_along(others, launch, l2, l2_rules, own.block, warp, own.line, lot, False)
