"""Which level answers each access of a launch: warps access the caches in turn, without time.

Source: GPUMech's input collector (Huang, dissertation, Georgia Institute of Technology, 2015, sec. 4.5): L1 of each SM
and the L2 of all are simulated over the warps that are resident together, round robin; an access counts by its slowest
request; what each instruction meets, over all its executions, is its distribution of miss events.

In a turn each warp makes the accesses of one of its segments (gpu/gpumech/segments.py), or, drawn by lot, none; behind
one that it waits for it stays for some turns. So warps drift apart, as they do on a GPU, and those that hit run ahead:
where more lines are read again and again than a set holds, warps that walk in step would find none of them. Inside a
turn the warps of an SM access one after the other, an instruction each. A request for what another one missed not
long before, in that L1 or in L2, waits for the same answer (``pending``; else it counts as a hit, as in the source).
Which of them is first, and which come when it is there, depends on time: each line says whose miss brought it
(``leader``), and the replay (gpu/gpumech/l1_queue.py) finds out. Where more wait than L1 has room for, or all of a set
are on their way, it does nothing until they are answered, and the line that was too many is marked. Blocks begin in
their order, as many on each SM as it holds, and then where one ends first, counted in turns. L1 of an SM on which no
block is left is emptied, as in the cycle-level model.

Cost: O(requests), and O(1) for each segment.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.gpumech.bystanders import BESIDE, go_along, go_before, go_behind
from manyscale.models.gpu.gpumech.functional_caches import (
    READS,
    WRITTEN_BACK,
    CacheRules,
    Caches,
    count_of,
    fill,
    forget,
    mark_dirty,
    read,
    write,
)  # fmt: skip
from manyscale.models.gpu.gpumech.leaders import last_leader, leader_of
from manyscale.models.gpu.gpumech.segments import IN_SHARED, LOADS, PASSES_L1, STORES
from manyscale.models.gpu.gpumech.touching import slice_of
from manyscale.models.kernels import allocation_free, by_reference, inlined, njit

FROM_L1, FROM_L2, FROM_DRAM = range(3)  # levels
(TO_L1, TO_L2, TO_DRAM, REQUESTS, SENT, FETCHED, NUM_EVENTS) = range(7)  # columns of what an instruction meets:
# executions by level, requests, those that leave the SM, those that memory answers

ANSWER: Final = np.dtype(  # what the caches say of an access
    [
        ("level", "u1"),  # that answers last
        ("sent", "u1"),  # requests that leave the SM
        ("waited", "u1"),  # requests that wait for a miss of another
        ("fetched", "u1"),  # requests that memory answers
        ("blocks", "u1"),  # whether L1 has to wait before one of its lines,
        ("follows", "u1"),  # and whether one of them was missed not long before
    ]
)
FOUND: Final = np.dtype(  # and of each of its lines
    [
        ("slice", "u2"),  # of L2
        ("sent", "u1"),  # requests that leave the SM
        ("fetched", "u1"),  # those that memory answers
        ("written_back", "u1"),  # sectors of the lines of L2 that make room
        ("waits", "u1"),  # for whom: see below
        ("leader", "i4"),  # the line whose miss it waits for: in L1, else in L2
    ]
)
WALKER: Final = np.dtype(  # a warp that walks
    [
        ("line", "i8"),  # next ones
        ("access", "i4"),
        ("segment", "i4"),
        ("end", "i4"),
        ("block", "i4"),
        ("turn", "i8"),  # from which on it moves
    ],
    align=True,
)
_LONG: Final = 1 << 40  # turns
RECENT: Final = 16  # turns by which warps of an SM may be out of step
L2_TURNS: Final = 4  # from a miss of L1 until L2 answers it,
DRAM_TURNS: Final = 6  # and what memory takes beyond
BLOCKS_L1: Final = 1  # too many wait in L1 already: it does nothing until what is on its way to it is there
WAITS_L1: Final = 4  # for a miss of another one of its SM,
WAITS_L2: Final = 8  # or for what another one has L2 fetch
LED_L1: Final = 16  # another one waits for it,
LED_L2: Final = 32  # or for what it has L2 fetch
COMES: Final = 64  # an SM that is not followed has had L2 fetch it, when ``leader`` was accessed
BEHIND_L1: Final = 128  # it gets the place in L1 of ``leader``, which was still on its way


class Walk(NamedTuple):
    """A launch that is walked (see gpu/gpumech/outline.py), and ``answer`` ANSWER[accesses] and ``found`` FOUND[lines],
    all 0, which are filled in."""

    segment: np.ndarray
    access: np.ndarray
    first_segment: np.ndarray
    first_access: np.ndarray
    block_warps: np.ndarray
    first_line: np.ndarray
    line: np.ndarray
    answer: np.ndarray
    found: np.ndarray


class _Stand(NamedTuple):
    """``walker`` WALKER[warps]; ``left`` int32[blocks], warps that walk; of each SM, ``running`` int32[SMs, warps],
    ``held`` int64[SMs], how many, ``room`` int64[SMs] for blocks, ``wake`` int64[SMs], the turn before which
    none moves; ``moving`` and ``moved`` int32[warps]: those of a turn; ``drawn`` int64[1]: a random number."""

    walker: np.ndarray
    left: np.ndarray
    running: np.ndarray
    held: np.ndarray
    room: np.ndarray
    wake: np.ndarray
    moving: np.ndarray
    moved: np.ndarray
    drawn: np.ndarray


class _Levels(NamedTuple):
    """Caches and CacheRules, each by reference; whether requests wait for a miss that is on its way; and L2's turn when
    the launch began."""

    l1: Caches
    l1_rules: CacheRules
    l2: Caches
    l2_rules: CacheRules
    pending: bool
    begin: int


@inlined
def _from_l2(own, found, number, levels, tag, sectors):  # type: ignore[no-untyped-def]
    """L2 is asked for sectors of line ``number``: its frame there, and the mask of those that memory answers."""
    l2, pending = levels.l2, levels.pending
    mine = found[number]
    which = slice_of(l2, tag)
    written_back = l2.counts[WRITTEN_BACK]
    at, missing, before, _, _ = read(l2, levels.l2_rules, 0, tag, sectors, which)
    if pending and not mine.waits & WAITS_L1:
        leader = leader_of(l2, 0, at, sectors & ~missing, levels.begin)
        if leader >= BESIDE:
            mine.waits |= COMES
            mine.leader = leader - BESIDE
        elif leader >= 0:
            mine.waits |= WAITS_L2
            mine.leader = leader
            found[leader].waits |= LED_L2
    count = count_of(sectors)
    l2.counts[READS] += count
    own.sent += count
    mine.slice = which
    mine.sent = count
    mine.written_back = l2.counts[WRITTEN_BACK] - written_back
    if missing:
        fill(l2, 0, at, missing, which, missing, DRAM_TURNS, number)
        mine.fetched = count_of(missing)
        own.fetched += count_of(missing)
    return at, missing | before if pending else missing


@inlined
def _through_l1(own, found, number, levels, s, tag, sectors):  # type: ignore[no-untyped-def]
    """Sectors of line ``number`` are loaded: the slowest level that answers."""
    l1, pending = levels.l1, levels.pending
    mine = found[number]
    at, missing, before, from_memory, blocked = read(l1, levels.l1_rules, s, tag, sectors, s)
    level = FROM_L1
    if pending:
        leader = leader_of(l1, s, at, sectors & ~missing, l1.turn[s] - RECENT)
        if leader >= 0:
            mine.waits |= WAITS_L1
            mine.leader = leader
            found[leader].waits |= LED_L1
            own.follows = 1
        if before:
            own.waited += count_of(before)
            level = FROM_DRAM if from_memory else FROM_L2
        if blocked:
            mine.waits |= BLOCKS_L1
            own.blocks = 1
            l1.turn[s] += L2_TURNS
    if missing:
        behind = last_leader(l1, s, at) if blocked and not before else np.int64(-1)
        _, memory = _from_l2(own, found, number, levels, tag, missing)
        if pending and behind >= 0:
            mine.waits = mine.waits & ~(WAITS_L2 | COMES) | BEHIND_L1
            mine.leader = behind
            found[behind].waits |= LED_L1
        fill(l1, s, at, missing, s, memory, L2_TURNS + DRAM_TURNS if memory else L2_TURNS, number)
        level = max(level, FROM_DRAM if memory else FROM_L2)
    return level


@inlined
def _store(answer, found, through_l1, levels, s, line, first, last):  # type: ignore[no-untyped-def]
    l2 = levels.l2
    for i in range(first, last):
        tag, sectors, full = line[i].tag, np.int64(line[i].sectors), np.int64(line[i].full)
        if through_l1:
            write(levels.l1, levels.l1_rules, s, tag, sectors, full)
        written_back = l2.counts[WRITTEN_BACK]
        write(l2, levels.l2_rules, 0, tag, sectors, full)
        count = count_of(sectors)
        answer.sent += count
        found[i].slice = slice_of(l2, tag)
        found[i].sent = count
        found[i].written_back = l2.counts[WRITTEN_BACK] - written_back
    answer.level = FROM_L2


@inlined
def _take(own, answer, levels, s, line, found, first):  # type: ignore[no-untyped-def]
    """Fill in the answer to an access whose lines begin at ``first``."""
    l2 = levels.l2
    answer.level = FROM_L1
    answer.sent = 0
    answer.waited = 0
    answer.fetched = 0
    answer.blocks = 0
    answer.follows = 0
    if own.kind == IN_SHARED:
        return
    last = first + own.lines
    if own.kind == LOADS:
        levels.l1.counts[READS] += own.requests
        level = FROM_L1
        for i in range(first, last):
            sectors = np.int64(line[i].sectors)
            below = _through_l1(answer, found, i, levels, s, line[i].tag, sectors)
            level = max(level, below)
        answer.level = level
    elif own.kind == PASSES_L1:
        answer.level = FROM_L2
        for i in range(first, last):
            at, memory = _from_l2(answer, found, i, levels, line[i].tag, np.int64(line[i].sectors))
            if memory:
                answer.level = FROM_DRAM
            mark_dirty(l2, levels.l2_rules, 0, at, np.int64(line[i].full))
    else:
        _store(answer, found, own.kind == STORES, levels, s, line, first, last)


@inlined
def _take_turn(launch, stand, levels, s, active):  # type: ignore[no-untyped-def]
    """The accesses of a segment of each of the ``active`` warps of an SM that move, one of each warp after the
    other."""
    walker, moving = stand.walker, stand.moving
    step = 0
    while active > 0:
        step += 1
        kept = 0
        for i in range(active):
            warp = moving[i]
            mine = walker[warp]
            own = launch.access[mine.access]
            _take(own, launch.answer[mine.access], levels, s, launch.line, launch.found, mine.line)
            level = np.int64(launch.answer[mine.access].level)
            if level and own.wait == mine.segment and own.kind != IN_SHARED:
                turns = L2_TURNS if level == FROM_L2 else L2_TURNS + DRAM_TURNS
                mine.turn = max(mine.turn, levels.l1.turn[s] + turns)
            mine.line += own.lines
            mine.access += 1
            if launch.segment[mine.segment].accesses > step:
                moving[kept] = warp
                kept += 1
            else:
                mine.segment += 1
        active = kept


@inlined
def _moves(stand):  # type: ignore[no-untyped-def]
    """Whether a warp moves in a turn: one of two does, drawn by a generator of Lehmer's."""
    drawn = stand.drawn[0] * 48271 % 2147483647
    stand.drawn[0] = drawn
    return drawn & 0x10000


@inlined
def _begin_block(number, block_warps, running, count, s):  # type: ignore[no-untyped-def]
    for warp in range(block_warps[number], block_warps[number + 1]):
        running[s, count[s]] = warp
        count[s] += 1


@allocation_free
def _walk(launch, l1, l1_rules, l2, l2_rules, pending, stand, given, slots, others):  # type: ignore[no-untyped-def]
    """From the first ``given`` blocks on, which run."""
    others = by_reference(others)
    launch, stand, l1, l2 = by_reference(launch), by_reference(stand), by_reference(l1), by_reference(l2)
    levels = by_reference(_Levels(l1, by_reference(l1_rules), l2, by_reference(l2_rules), pending, l2.turn[0]))
    segment, block_warps = launch.segment, launch.block_warps
    walker, left, running, moving = stand.walker, stand.left, stand.running, stand.moving
    count, room, wake = stand.held, stand.room, stand.wake
    num_blocks, num_sms = len(block_warps) - 1, len(room)
    resident, in_part, lot = given, len(others.own) > 0, 0
    while resident > 0:
        for which in range(len(l2.turn)):
            l2.turn[which] += 1
        first = lot % num_sms  # the SM that begins a turn
        for place in range(first, first + num_sms):
            s = place if place < num_sms else place - num_sms
            l1.turn[s] += 1
            now = l1.turn[s]
            if now < wake[s]:
                continue
            active, ended, nearest = 0, False, now + _LONG
            for i in range(count[s]):
                mine = walker[running[s, i]]
                at = mine.segment
                while at < mine.end and segment[at].accesses == 0:
                    at += 1
                mine.segment = at
                if at >= mine.end:
                    ended = True
                elif mine.turn > now:
                    nearest = min(nearest, mine.turn)
                else:
                    nearest = now + 1
                    if _moves(stand):
                        moving[active] = running[s, i]
                        active += 1
            wake[s] = nearest
            if active == 0 and not ended:
                continue
            if in_part:
                _moves(stand)
                lot = stand.drawn[0]
                go_before(others, launch, l2, l2_rules, stand, active, lot)
            _take_turn(launch, stand, levels, s, active)
            if in_part:
                go_behind(others, launch, l2, l2_rules, stand, active, lot)
            kept = 0
            for i in range(count[s]):
                mine = walker[running[s, i]]
                if mine.segment < mine.end:
                    running[s, kept] = running[s, i]
                    kept += 1
                    continue
                if in_part:
                    warp = running[s, i]
                    for before in (True, False):
                        go_along(others, launch, l2, l2_rules, mine.block, warp, mine.line, lot, before)
                left[mine.block] -= 1
                if left[mine.block] == 0:
                    room[s] += 1
                    resident -= 1
                    if room[s] == slots:
                        forget(l1, s)
            count[s] = kept
        for s in range(num_sms):
            while room[s] > 0 and given < num_blocks:
                _begin_block(given, block_warps, running, count, s)
                wake[s] = 0
                if block_warps[given] < block_warps[given + 1]:
                    room[s] -= 1
                    resident += 1
                given += 1


@njit(cache=True, nogil=True)
def walk(launch, l1, l1_rules, l2, l2_rules, num_sms, slots, pending, others):  # type: ignore[no-untyped-def]
    """Fill in the answers: what the caches say of each access."""
    block_warps = launch.block_warps
    num_blocks = len(block_warps) - 1
    l2.turn[:] = l2.turn.max() + DRAM_TURNS  # nothing of a launch before is on its way
    walker = np.empty(len(launch.first_segment) - 1, WALKER)
    left = np.empty(num_blocks, np.int32)
    most = 0
    for block in range(num_blocks):
        left[block] = block_warps[block + 1] - block_warps[block]
        most = max(most, block_warps[block + 1] - block_warps[block])
        for warp in range(block_warps[block], block_warps[block + 1]):
            mine = walker[warp]
            mine.line = launch.first_line[warp]
            mine.access = launch.first_access[warp]
            mine.segment = launch.first_segment[warp]
            mine.end = launch.first_segment[warp + 1]
            mine.block = block
            mine.turn = 0
    running = np.empty((num_sms, slots * most), np.int32)
    moving, moved = np.empty(slots * most, np.int32), np.empty(slots * most, np.int32)
    count = np.zeros(num_sms, np.int64)
    room = np.full(num_sms, slots)
    given = 0
    while given < min(num_blocks, num_sms * slots):
        s = given % num_sms
        _begin_block(given, block_warps, running, count, s)
        room[s] -= 1
        given += 1
    wake = np.zeros(num_sms, np.int64)
    stand = _Stand(walker, left, running, count, room, wake, moving, moved, np.ones(1, np.int64))
    _walk(launch, l1, l1_rules, l2, l2_rules, pending, stand, given, slots, others)
    l2.base[0] += len(launch.line)
