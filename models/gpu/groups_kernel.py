"""Groups of SMs and of memory channels side by side, each run by one shard, in windows.

A window is no longer than the shortest time from a request's leaving an SM to its reply, so a shard needs nothing of
the others inside it, and no latency is assumed. Between windows, with a barrier after each step:

1. each shard runs its SMs to the window's end, and shows what left them and how its SMs stand;
2. each takes the requests of all, passes them through the crossbar, and shows when something happens next in its
   channels, or a reply is due;
3. each serves its channels up to what the next window may see, and shows the replies; then takes those for its SMs.

Which blocks an SM gets next is decided when a window begins, from how all SMs stand, by each shard in the same way:
free slots first, block by block in the order of SMs, then a reserve for as many blocks as can end there in a window,
block by block, SMs first whose oldest block began first. What an SM did not begin is given out again.

Nothing depends on which shard runs what, so any number of groups gives the same bytes. Against strict order only the
choice of blocks differs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu import launch_kernel, memory_kernel
from manyscale.models.gpu.l2.exchange_kernel import collect, deliver, enter_all, is_ring_short
from manyscale.models.gpu.sm import kernel as sm_kernel
from manyscale.models.gpu.sm.kernel import BLOCK_ENDED, advance, start_block
from manyscale.models.gpu.sm.state import NEVER
from manyscale.models.gpu.windows_kernel import room_after
from manyscale.models.kernels import allocation_free, by_reference, merged
from manyscale.models.kernels.shared_words import wait_for_all

FINISHED: Final = launch_kernel.FINISHED
NEEDS_ROOM: Final = launch_kernel.NEEDS_ROOM
STUCK: Final = launch_kernel.STUCK
ABORTED: Final = 5
_sm_next: Final = sm_kernel.next_event
_memory_next: Final = memory_kernel.next_event
_serve: Final = memory_kernel.serve
_is_room_short: Final = memory_kernel.is_room_short

# columns of Board.word
BEGIN: Final = 0  # of the next window
NEXT: Final = 1  # block that was never given out
BARRIERS: Final = 2  # passed so far
LEFT: Final = 3  # blocks that are left
LOWEST: Final = 4  # no block below is left, or in a reserve
EXPECTED: Final = 5  # the most blocks that can end in an SM in a window
WINDOW: Final = 6  # cycles
ME: Final = 7  # number of the shard
REPLIES: Final = 8  # the most that an SM is given between two windows
NUM_WORDS: Final = 9
# columns of Shared.sm
FREE_SLOTS: Final = 0
RESIDENT: Final = 1
OLDEST: Final = 2  # begin of the oldest resident block
ENDED: Final = 3  # blocks in the last window
USED: Final = 4  # of the reserve of the last window
ROOM_AT: Final = 5  # cycle from which it can take a block
GIVEN_AT: Final = 6  # when it took the last one
SM_COLUMNS: Final = 7
# columns of Shared.shard
SM_EVENT: Final = 0  # when something happens next
MEMORY_EVENT: Final = 1
SHORT: Final = 2  # 1: room for requests or replies is short
SHARD_COLUMNS: Final = 3


class Shared(NamedTuple):
    """What all shards see: ``barrier`` int64[WORDS]; ``sm`` int64[SMs, SM_COLUMNS] and ``shard`` int64[shards,
    SHARD_COLUMNS], each row written by one shard. A row of each shard, too: ``request`` REQUEST[shards, R], what left
    its SMs, ``sender`` int32[shards, R], which of them, ``requests`` int64[shards, 1], how many; ``reply``
    REPLY_TO_SM[shards, A] of its channels, ``replies`` int64[shards, 1], how many."""

    barrier: np.ndarray
    sm: np.ndarray
    shard: np.ndarray
    request: np.ndarray
    sender: np.ndarray
    requests: np.ndarray
    reply: np.ndarray
    replies: np.ndarray


class Board(NamedTuple):
    """What a shard knows by itself, the same in all but for ME: ``word`` int64[NUM_WORDS]; blocks of each SM s for the
    next window, ``reserve`` int64[] from ``first[s]`` to ``first[s + 1]``; ``is_left`` bool[blocks]: whether one was
    given out, not begun, and stands in no reserve. Scratch: ``dealt`` and ``order`` int64[SMs]."""

    word: np.ndarray
    reserve: np.ndarray
    first: np.ndarray
    is_left: np.ndarray
    dealt: np.ndarray
    order: np.ndarray


def shared_for(room_at: np.ndarray, num_shards: int, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """``sm`` and ``shard`` of Shared before the first window; ``room_at`` int64[SM]: when each takes a block first."""
    sm = np.zeros((len(room_at), SM_COLUMNS), np.int64)
    sm[:, ROOM_AT] = room_at
    sm[:, GIVEN_AT] = -NEVER
    sm[:, FREE_SLOTS] = slots
    sm[:, OLDEST] = NEVER
    return sm, np.zeros((num_shards, SHARD_COLUMNS), np.int64)


def board_for(num_blocks: int, num_sms: int, slots: int, window: int, shortest: int) -> Board:
    """Before the first window. ``shortest``: instructions of the longest warp of the shortest block."""
    expected = min(slots * (1 + window // max(1, shortest)), slots + window)
    most = num_sms * (2 * slots + expected + window + 1)
    word = np.zeros(NUM_WORDS, np.int64)
    word[EXPECTED], word[WINDOW] = expected, window
    return Board(
        word=word,
        reserve=np.zeros(most, np.int64),
        first=np.zeros(num_sms + 1, np.int64),
        is_left=np.zeros(num_blocks, np.bool_),
        dealt=np.zeros(num_sms, np.int64),
        order=np.zeros(num_sms, np.int64),
    )


@allocation_free
def deal(board, sm, num_blocks):  # type: ignore[no-untyped-def]
    """Reserves of the next window. O(SMs^2 + SMs x the longest reserve) (SMs are sorted by insertion), and a look at
    each block from the lowest left one to the next one."""
    num_sms = sm.shape[0]
    left = board.word[LEFT]
    for s in range(num_sms):
        for i in range(board.first[s] + sm[s, USED], board.first[s + 1]):
            board.is_left[board.reserve[i]] = True
            left += 1
    for s in range(num_sms):
        at = s
        while at > 0 and sm[board.order[at - 1], OLDEST] > sm[s, OLDEST]:
            board.order[at] = board.order[at - 1]
            at -= 1
        board.order[at] = s
    # how many each gets
    pool = left + num_blocks - board.word[NEXT]
    for s in range(num_sms):
        board.dealt[s] = 0
    given = 1
    slot = 0
    while given and pool > 0:
        given = 0
        for s in range(num_sms):
            if slot < sm[s, FREE_SLOTS] and pool > 0:
                board.dealt[s] += 1
                pool -= 1
                given += 1
        slot += 1
    given = 1
    turn = 0
    while given and pool > 0:
        given = 0
        for i in range(num_sms):
            s = board.order[i]
            if turn < max(board.word[EXPECTED], sm[s, ENDED]) and pool > 0:
                board.dealt[s] += 1
                pool -= 1
                given += 1
        turn += 1
    board.first[0] = 0
    most = 0
    for s in range(num_sms):
        board.first[s + 1] = board.first[s] + board.dealt[s]
        most = max(most, board.dealt[s])
    # which: block by block in the order of SMs
    at = board.word[LOWEST]
    lowest = -1
    for turn in range(most):
        for s in range(num_sms):
            if turn < board.dealt[s]:
                if left > 0:
                    while not board.is_left[at]:
                        at += 1
                    block = at
                    board.is_left[block] = False
                    left -= 1
                else:
                    block = board.word[NEXT]
                    board.word[NEXT] += 1
                if lowest < 0:
                    lowest = block
                board.reserve[board.first[s] + turn] = block
    board.word[LEFT] = left
    if lowest >= 0:
        board.word[LOWEST] = lowest


@merged
def _run_sms(group, program, limits, board, sm, begin, until):  # type: ignore[no-untyped-def]
    """A window of the SMs of a shard, with their reserves."""
    first_sm = limits.first_sm
    for s in range(group.core.shape[0]):
        own = sm[first_sm + s]
        before = group.core[s].blocks
        used = 0
        at = board.first[first_sm + s]
        end = board.first[first_sm + s + 1]
        room_at = max(own[ROOM_AT], begin - 1) if begin > 0 else own[ROOM_AT]
        if own[FREE_SLOTS] == 0:
            room_at = NEVER
        while True:
            has_next = room_at < until and at + used < end
            if has_next and not (limits.paced and group.core[s].time <= room_at):
                start_block(group, s, program, limits, board.reserve[at + used], room_at)
                used += 1
                own[GIVEN_AT] = room_at
                room_at = room_at + limits.block_pace if group.core[s].blocks < limits.slots else NEVER
                continue
            if advance(group, s, program, limits, room_at + 1 if has_next else until) != BLOCK_ENDED:
                if has_next:
                    continue
                break
            room_at = min(room_at, room_after(limits, own[GIVEN_AT], group.core[s].time - 1))
        blocks = group.core[s].blocks
        own[USED] = used
        own[ENDED] = before + used - blocks
        own[RESIDENT] = blocks
        own[FREE_SLOTS] = limits.slots - blocks
        own[ROOM_AT] = 0 if room_at == NEVER else room_at
        own[OLDEST] = NEVER
        for slot in range(limits.slots):
            if group.block[s, slot].number >= 0:
                own[OLDEST] = min(own[OLDEST], group.block[s, slot].begin)


@allocation_free
def run_shard(group, program, limits, mem, mem_limits, waiting, shared, board):  # type: ignore[no-untyped-def]
    """A shard's part of a launch: its SMs and channels, replies that wait for its SMs.

    Returns why it stopped; all shards stop for the same reason.
    """
    group, program, limits, board = (
        by_reference(group),
        by_reference(program),
        by_reference(limits),
        by_reference(board),
    )
    mem, mem_limits, waiting = by_reference(mem), by_reference(mem_limits), by_reference(waiting)
    shared = by_reference(shared)
    word = board.word
    me, count, window = word[ME], shared.shard.shape[0], word[WINDOW]
    own = shared.shard[me]
    while True:
        begin = word[BEGIN]
        until = begin + window
        _run_sms(group, program, limits, board, shared.sm, begin, until)
        collect(group, limits, until, shared, me)
        earliest = NEVER
        for s in range(group.core.shape[0]):
            earliest = min(earliest, _sm_next(group, s))
        own[SM_EVENT] = earliest
        if not wait_for_all(shared.barrier, count, word[BARRIERS]):
            return ABORTED
        word[BARRIERS] += 1

        resident = 0
        for s in range(shared.sm.shape[0]):
            resident += shared.sm[s, RESIDENT]
        deal(board, shared.sm, board.is_left.shape[0])
        over = resident == 0 and board.first[shared.sm.shape[0]] == 0
        mem.replies[0] = 0
        enter_all(mem, mem_limits, shared, until)
        earliest = _memory_next(mem, mem_limits)
        for i in range(waiting.rows[0]):
            earliest = min(earliest, waiting.reply[i].time)
        own[MEMORY_EVENT] = earliest
        most = shared.sm.shape[0] * (window + 1) * mem_limits.port
        short = _is_room_short(mem, mem_limits, 2 * most, 2 * window) or is_ring_short(group, 2 * word[REPLIES])
        own[SHORT] = short or waiting.reply.shape[0] < waiting.rows[0] + count * mem.reply.shape[0]
        if not wait_for_all(shared.barrier, count, word[BARRIERS]):
            return ABORTED
        word[BARRIERS] += 1
        if over:
            return FINISHED

        earliest = NEVER
        is_short = 0
        for g in range(count):
            earliest = min(earliest, shared.shard[g, SM_EVENT], shared.shard[g, MEMORY_EVENT])
            is_short += shared.shard[g, SHORT]
        if board.first[shared.sm.shape[0]] > 0:
            for s in range(shared.sm.shape[0]):  # one with room and a block begins at once
                if shared.sm[s, FREE_SLOTS] > 0 and board.first[s + 1] > board.first[s]:
                    earliest = min(earliest, until)
        if earliest == NEVER:
            return STUCK
        begin = max(until, earliest)
        word[BEGIN] = begin
        _serve(mem, mem_limits, begin + window - 3)
        if not wait_for_all(shared.barrier, count, word[BARRIERS]):
            return ABORTED
        word[BARRIERS] += 1
        for g in range(count):
            last = begin + window - 2 if g == count - 1 else begin  # deliver only once all have been put in
            deliver(group, limits, waiting, shared.reply[g], shared.replies[g, 0], begin, last)
        if is_short:
            return NEEDS_ROOM
