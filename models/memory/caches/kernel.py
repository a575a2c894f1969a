"""Caches of every kind: what happens to an access, request by request.

An access is a load or store request at the first level. Dealing with a request changes one level and may ask for
more, put on a stack so that the order is that of hardware that does one thing after the other: a line is fetched
(through all levels further out), then it is filled in, then what it replaced goes down, then prefetches are done.
The order is that of Dinero IV (Edler, Hill, 1997), so its counts can be compared. What most accesses come to is done at
once beforehand (``all_kinds``).

Kinds and counters are NumPy's integers: Numba compiles a function once more for each plain one it is called with.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free, inlined
from manyscale.models.memory.caches.coherence import (
    WRITE_BACK,
    ask_others,
    count_write_back,
    push_runs,
    take_from_others,
)
from manyscale.models.memory.caches.counts import Counter
from manyscale.models.memory.caches.state import (
    ALLOCATE,
    BYTES,
    CORE,
    CORES,
    DEPTH,
    DIRTY,
    EXCLUSIVE,
    FLAGS,
    INCLUSIVE,
    LABEL,
    LINE_SHIFT,
    NUM_CORES,
    NUM_STREAMS,
    PREFETCHED,
    QUEUED,
    REPLY_DIRTY,
    REPLY_SHARED,
    REPLY_VALID,
    SECTOR_SHIFT,
    SHARED,
    SLOTS,
    TAG,
    TAKEN,
    USED,
    VALID,
    WAYS,
    WRITE_THROUGH,
    count,
    empty,
    find,
    push,
    sectors,
    set_of,
    touch,
    victim,
)
from manyscale.models.memory.caches.stream_prefetcher import observe

# kinds of requests: [kind, level, first grain, grains, a, b]
LOAD: Final = np.int64(0)  # a: for whom (bits below)
STORE: Final = np.int64(1)  # a: as of loads
VICTIM: Final = np.int64(3)  # a line evicted into an exclusive level; a: valid sectors, flags above; b: dirty sectors
FILL: Final = np.int64(4)  # a: flags; b: dirty sectors
PREFETCH: Final = np.int64(5)
# bits of a of loads and stores; ASKED: other cores have been asked; OBSERVED: the level's prefetcher has seen it
FOR_STORE, FOR_PREFETCH, ASKED, OBSERVED = 1, 2, 4, 8

LOAD_HITS, STORE_HITS = np.int64(Counter.load_hits), np.int64(Counter.store_hits)
VICTIM_HITS, PREFETCH_HITS = np.int64(Counter.victim_hits), np.int64(Counter.prefetch_hits)
MISSES: Final = np.int64(1)  # to be added to these
SECTOR_MISSES, COHERENCE_MISSES = np.int64(Counter.sector_misses), np.int64(Counter.coherence_misses)
EVICTIONS, BACK_INVALIDATIONS = np.int64(Counter.evictions), np.int64(Counter.back_invalidations)
PREFETCHES, USEFUL = np.int64(Counter.prefetches), np.int64(Counter.useful_prefetches)
FETCHED_BYTES, WRITTEN_BYTES = np.int64(Counter.fetched_bytes), np.int64(Counter.written_bytes)
FLAGS_SHIFT: Final = 40  # of a victim's flags above its sectors


@allocation_free
def _was_taken(state, level, line):  # type: ignore[no-untyped-def]
    """Whether the line is not here because another core stored. O(ways)."""
    ways = state.geometry[level, WAYS]
    first = state.geometry[level, SLOTS] + set_of(state, level, state.now[CORE], line) * ways
    for place in range(first, first + ways):
        if state.slot[TAG, place] == line and state.slot[VALID, place] == 0 and state.slot[FLAGS, place] & TAKEN:
            state.slot[FLAGS, place] = 0
            return True
    return False


@allocation_free
def _back_invalidate(state, level, line):  # type: ignore[no-untyped-def]
    """An inclusive level evicts a line of the core's instance: nearer levels lose it. The mask of its sectors that were
    dirty there. O(cores * levels * ways)."""
    geometry = state.geometry
    dirty = 0
    around = geometry[level, CORES]
    begin = state.now[CORE] // around * around
    first_grain = line << geometry[level, LINE_SHIFT]
    for nearer in range(level):
        shift = geometry[nearer, LINE_SHIFT]
        for core in range(begin, min(begin + around, state.now[NUM_CORES]), geometry[nearer, CORES]):
            for near in range(first_grain >> shift, (first_grain + (1 << geometry[level, LINE_SHIFT])) >> shift):
                place = find(state, nearer, core, near)
                if place < 0:
                    continue
                count(state, nearer, BACK_INVALIDATIONS, 1)
                mask = state.slot[DIRTY, place]
                step = 1 << geometry[nearer, SECTOR_SHIFT]
                grain = near << shift
                while mask:
                    if mask & 1:
                        dirty |= sectors(state, level, grain, step)
                    mask >>= 1
                    grain += step
                empty(state, place, 0)
    return dirty


@allocation_free
def _evict(state, level, place, grain_bytes):  # type: ignore[no-untyped-def]
    """What is in a slot leaves. O(ways + sectors), of an inclusive level O(cores * levels * ways)."""
    geometry = state.geometry
    line = state.slot[TAG, place]
    count(state, level, EVICTIONS, 1)
    dirty = state.slot[DIRTY, place]
    if geometry[level, INCLUSIVE]:
        dirty |= _back_invalidate(state, level, line)
    if dirty:
        count_write_back(state, level, dirty, grain_bytes)
    if level + 1 < geometry.shape[0] and geometry[level + 1, EXCLUSIVE]:
        grain, size = line << geometry[level, LINE_SHIFT], 1 << geometry[level, LINE_SHIFT]
        held = state.slot[VALID, place] | (state.slot[FLAGS, place] & SHARED) << FLAGS_SHIFT
        push(state, VICTIM, level + 1, grain, size, held, dirty)
    elif dirty:
        push_runs(state, level, line, dirty, level + 1)


@inlined
def _install(state, level, line, place, valid, dirty, flags, grain_bytes):  # type: ignore[no-untyped-def]
    """Sectors of a line come in, into its slot or, if ``place`` is -1, instead of another line. O(ways), of inclusive
    levels see ``_evict``."""
    if place < 0:
        place = victim(state, level, state.now[CORE], line)
        if state.slot[VALID, place]:
            _evict(state, level, place, grain_bytes)
        state.slot[TAG, place] = line
        empty(state, place, 0)
        state.slot[USED, place] = 0
    state.slot[VALID, place] |= valid
    state.slot[DIRTY, place] |= dirty
    state.slot[FLAGS, place] |= flags
    touch(state, level, place)


@inlined
def _fetch(state, level, grain, size, why, flags, dirty, grain_bytes):  # type: ignore[no-untyped-def]
    """Ask the next level for whole sectors, and fill them in afterwards; an exclusive level just passes the request on.
    O(1)."""
    if state.geometry[level, EXCLUSIVE]:
        push(state, LOAD, level + 1, grain, size, why & ~(ASKED | OBSERVED), 0)
        return
    sector = 1 << state.geometry[level, SECTOR_SHIFT]
    begin = grain & -sector
    size = ((grain + size + sector - 1) & -sector) - begin
    count(state, level, FETCHED_BYTES, size * grain_bytes)
    push(state, FILL, level, begin, size, flags, dirty)
    push(state, LOAD, level + 1, begin, size, why & ~(ASKED | OBSERVED), 0)


@inlined
def _enter(state, kind, level, grain, size, why, counter, grain_bytes):  # type: ignore[no-untyped-def]
    """A load or store reaches a level: the slot it hits, -1 if it misses, -2 if it has to wait for what other cores
    hold. O(ways), where others are asked O(cores * levels * ways)."""
    if level and state.now[NUM_CORES] > 1 and why & ASKED == 0:
        push(state, kind, level, grain, size, why | ASKED, 0)
        ask_others(state, level, grain, size, kind == STORE or why & FOR_STORE, grain_bytes)
        return -2
    if level == state.geometry.shape[0]:
        count(state, level, counter, 1)
        return -2
    line = grain >> state.geometry[level, LINE_SHIFT]
    place = find(state, level, state.now[CORE], line)
    need = sectors(state, level, grain, size)
    if state.geometry[level, NUM_STREAMS] and why & (FOR_PREFETCH | OBSERVED) == 0:
        observe(state, level, state.now[CORE], line)
    if place >= 0 and state.slot[VALID, place] & need == need:
        count(state, level, counter, 1)
        if state.slot[FLAGS, place]:
            if state.slot[FLAGS, place] & PREFETCHED and why & FOR_PREFETCH == 0:
                count(state, level, USEFUL, 1)
                state.slot[FLAGS, place] &= ~PREFETCHED
            if state.slot[FLAGS, place] & SHARED:
                if kind == STORE or why & FOR_STORE:
                    take_from_others(state, grain, size, grain_bytes)
                else:
                    state.now[REPLY_SHARED] = SHARED
        touch(state, level, place)
        return place
    count(state, level, counter + MISSES, 1)
    if place >= 0:
        count(state, level, SECTOR_MISSES, 1)
    elif state.now[NUM_CORES] > 1 and _was_taken(state, level, line):
        count(state, level, COHERENCE_MISSES, 1)
    return -1


@inlined
def _load(state, level, grain, size, why, grain_bytes):  # type: ignore[no-untyped-def]
    """O(ways), see ``_enter``."""
    place = _enter(
        state, LOAD, level, grain, size, why, PREFETCH_HITS if why & FOR_PREFETCH else LOAD_HITS, grain_bytes
    )
    if place == -1:
        _fetch(state, level, grain, size, why, 0, 0, grain_bytes)
    elif place >= 0 and state.geometry[level, EXCLUSIVE]:
        state.now[REPLY_VALID] = state.slot[VALID, place]  # hands the line over
        state.now[REPLY_DIRTY] = state.slot[DIRTY, place]
        empty(state, place, 0)


@inlined
def _store(state, level, grain, size, why, grain_bytes):  # type: ignore[no-untyped-def]
    """O(ways), see ``_enter``."""
    place = _enter(state, STORE, level, grain, size, why, STORE_HITS, grain_bytes)
    if place == -2:
        return
    allocates = place == -1 and state.geometry[level, ALLOCATE] and not state.geometry[level, EXCLUSIVE]
    mask = sectors(state, level, grain, size)
    if state.geometry[level, WRITE_THROUGH] or (place == -1 and not allocates):
        count(state, level, WRITTEN_BYTES, state.now[BYTES])
        push(state, STORE, level + 1, grain, size, 0, 0)
        mask = 0
    if place >= 0:
        state.slot[DIRTY, place] |= mask
    elif allocates:
        _fetch(state, level, grain, size, FOR_STORE, 0, mask, grain_bytes)


@allocation_free
def _written_back(state, level, grain, size, grain_bytes):  # type: ignore[no-untyped-def]
    """Dirty sectors of a nearer level arrive. Those that fill whole sectors need not be fetched. O(ways)."""
    if level == state.geometry.shape[0]:
        count(state, level, VICTIM_HITS, 1)
        return
    line, mask = grain >> state.geometry[level, LINE_SHIFT], sectors(state, level, grain, size)
    place = find(state, level, state.now[CORE], line)
    hits = place >= 0 and state.slot[VALID, place] & mask == mask
    count(state, level, VICTIM_HITS if hits else VICTIM_HITS + MISSES, 1)
    allocates = not hits and state.geometry[level, ALLOCATE] and not state.geometry[level, EXCLUSIVE]
    dirty = mask
    if state.geometry[level, WRITE_THROUGH] or not (hits or allocates):
        count(state, level, WRITTEN_BYTES, size * grain_bytes)
        push(state, WRITE_BACK, level + 1, grain, size, 0, 0)
        dirty = 0
    if hits:
        state.slot[DIRTY, place] |= dirty
        touch(state, level, place)
    elif allocates:
        if (grain | size) & ((1 << state.geometry[level, SECTOR_SHIFT]) - 1):
            _fetch(state, level, grain, size, FOR_STORE | ASKED, 0, dirty, grain_bytes)
        else:
            push(state, FILL, level, grain, size, 0, dirty)


@inlined
def _other(state, kind, level, grain, size, a, b, grain_bytes):  # type: ignore[no-untyped-def]
    """A fill, a victim or a prefetch. O(ways), see ``_install``."""
    line = grain >> state.geometry[level, LINE_SHIFT]
    place = find(state, level, state.now[CORE], line)
    if kind == PREFETCH:
        if place < 0:
            count(state, level, PREFETCHES, 1)
            state.now[REPLY_SHARED] = 0
            _fetch(state, level, grain, size, FOR_PREFETCH, PREFETCHED, 0, grain_bytes)
        return
    if kind == VICTIM:
        count(state, level, VICTIM_HITS if place >= 0 else VICTIM_HITS + MISSES, 1)
        valid, flags = a & ((1 << FLAGS_SHIFT) - 1), a >> FLAGS_SHIFT
    else:
        valid, flags = sectors(state, level, grain, size) | state.now[REPLY_VALID], a | state.now[REPLY_SHARED]
        b |= state.now[REPLY_DIRTY]
        state.now[REPLY_VALID] = 0
        state.now[REPLY_DIRTY] = 0
    _install(state, level, line, place, valid, b, flags, grain_bytes)


@inlined
def _deal_with(state, top, grain_bytes):  # type: ignore[no-untyped-def]
    """The request at a place of the stack. O(ways), see the kinds."""
    kind, level, grain = state.stack[top, 0], state.stack[top, 1], state.stack[top, 2]
    size, a, b = state.stack[top, 3], state.stack[top, 4], state.stack[top, 5]
    if kind == LOAD:
        _load(state, level, grain, size, a, grain_bytes)
    elif kind == STORE:
        _store(state, level, grain, size, a, grain_bytes)
    elif kind == WRITE_BACK:
        _written_back(state, level, grain, size, grain_bytes)
    else:
        _other(state, kind, level, grain, size, a, b, grain_bytes)


@inlined
def access(state, kind, grain, size, why, is_done, grain_bytes):  # type: ignore[no-untyped-def]
    """One access of one line, and all that follows; if it ``is_done``, the prefetches alone. Whether it misses the
    first level. O(levels * ways), in sum."""
    state.now[REPLY_SHARED] = 0
    hits = LOAD_HITS if kind == LOAD else STORE_HITS
    before = state.counts[0, hits, state.now[LABEL]]
    if not is_done:
        push(state, kind, 0, grain, size, why, 0)
    num_prefetched = 0
    while True:
        if state.now[DEPTH] == 0:
            if num_prefetched == state.now[QUEUED]:
                break
            num_prefetched += 1
            level = state.stack[-num_prefetched, 0]
            push(state, PREFETCH, level, state.stack[-num_prefetched, 1], 1 << state.geometry[level, LINE_SHIFT], 0, 0)
        state.now[DEPTH] -= 1
        _deal_with(state, state.now[DEPTH], grain_bytes)
    state.now[QUEUED] = 0
    return not is_done and state.counts[0, hits, state.now[LABEL]] == before
