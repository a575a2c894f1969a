"""What most accesses are: hits of the first level that change nothing else, and misses of one core that the second
level answers, for which a clean line gives way. What ``kernel`` makes of them step by step is done at once.

What the geometry says is read once for all accesses (``first_level``), since what is written in between could change
it as far as the compiler knows.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inlined
from manyscale.models.memory.caches.counts import Counter
from manyscale.models.memory.caches.state import (
    ALLOCATE,
    CLOCK,
    CORE,
    CORES,
    DIRTY,
    EXCLUSIVE,
    FLAGS,
    LABEL,
    LINE_SHIFT,
    LRU,
    MASK,
    NUM_CORES,
    NUM_STREAMS,
    PAGE_SHIFT,
    PREFETCHED,
    REPLACEMENT,
    SECTOR_SHIFT,
    SETS,
    TAG,
    USED,
    VALID,
    WAYS,
    WRITE_THROUGH,
    find,
    find_first,
    hint_of,
    sectors,
    set_of,
    touch,
    victim,
)
from manyscale.models.memory.caches.stream_prefetcher import AHEAD, LINE, PAGE, STEP, TIME

LOAD_HITS, STORE_HITS = int(Counter.load_hits), int(Counter.store_hits)
EVICTIONS, FETCHED_BYTES = int(Counter.evictions), int(Counter.fetched_bytes)
USEFUL = int(Counter.useful_prefetches)


@inlined
def first_level(state):  # type: ignore[no-untyped-def]
    """(sets, sets - 1 if a power of two else -1, ways, cores that share an instance, log2 of the lines of its
    prefetcher's pages, its streams, which are the first ones; whether lines give way by LRU, so that ``hits_at_once``
    can tell)."""
    geometry = state.geometry
    return (
        geometry[0, SETS], geometry[0, MASK], geometry[0, WAYS], geometry[0, CORES], geometry[0, PAGE_SHIFT],
        geometry[0, NUM_STREAMS], geometry[0, REPLACEMENT] == LRU,
    )  # fmt: skip


@inlined
def hits_at_once(state, first, core, line, mask, is_store, label):  # type: ignore[no-untyped-def]
    """1 where sectors ``mask`` of a line hit, and its prefetcher, if it has one, asks for nothing: it has seen this
    line last of its page, or one that is no neighbour. The access is then done. -1 where the line has no slot, else 0.
    O(ways), O(1) for the line that its set used last."""
    sets, set_mask, ways, cores, page_shift, num_streams, _ = first
    place = line & set_mask if set_mask >= 0 else line % sets
    if core:
        place += core // cores * sets
    slot = np.uint64(state.latest[np.uint64(place)])
    if state.slot[TAG, slot] != line:
        slot = np.uint64(place * ways)
        end = slot + np.uint64(ways)
        while slot < end and state.slot[TAG, slot] != line:
            slot += np.uint64(1)
        if slot == end:
            return -1
    if state.slot[VALID, slot] & mask != mask or state.slot[FLAGS, slot]:
        return 0
    if num_streams:
        page = line >> page_shift
        stream = np.uint64(state.now[hint_of(page)])
        if stream >= np.uint64(num_streams):  # another level's
            return 0
        step = line - state.stream[stream, LINE]
        if state.stream[stream, PAGE] != page or step == 1 or step == -1:
            return 0
        state.now[CLOCK] += 1
        state.stream[stream, TIME] = state.now[CLOCK]
        if step:
            state.stream[stream, LINE] = line
            state.stream[stream, STEP] = 0
            state.stream[stream, AHEAD] = line
    if is_store:
        state.slot[DIRTY, slot] |= mask
        state.counts[0, STORE_HITS, label] += 1
    else:
        state.counts[0, LOAD_HITS, label] += 1
    state.now[CLOCK] += 1
    state.slot[USED, slot] = state.now[CLOCK]
    state.latest[np.uint64(place)] = slot
    return 1


@inlined
def simply_hits(state, is_store, grain, size):  # type: ignore[no-untyped-def]
    """Whether an access hits the first level, of which no other core knows; it is then done, but for prefetches that
    the level's prefetcher asked for. O(ways)."""
    place = find_first(state, state.now[CORE], grain >> state.geometry[0, LINE_SHIFT])
    if place < 0 or state.slot[FLAGS, place] & ~PREFETCHED:
        return False
    mask = sectors(state, 0, grain, size)
    if state.slot[VALID, place] & mask != mask:
        return False
    if state.slot[FLAGS, place]:
        state.counts[0, USEFUL, state.now[LABEL]] += 1
        state.slot[FLAGS, place] = 0
    if is_store:
        state.slot[DIRTY, place] |= mask
    state.counts[0, STORE_HITS if is_store else LOAD_HITS, state.now[LABEL]] += 1
    touch(state, 0, place)
    return True


@inlined
def has_plain_second(state):  # type: ignore[no-untyped-def]
    """Whether ``comes_from_second`` can tell: one core, a first level of whole lines, LRU, written back and allocated,
    and a second that neither takes what the first evicts nor prefetches."""
    geometry = state.geometry
    return (
        geometry.shape[0] > 1
        and state.now[NUM_CORES] == 1
        and geometry[0, REPLACEMENT] == LRU
        and geometry[0, LINE_SHIFT] == geometry[0, SECTOR_SHIFT]
        and geometry[0, ALLOCATE] == 1
        and geometry[0, WRITE_THROUGH] == 0
        and geometry[1, EXCLUSIVE] == 0
        and geometry[1, NUM_STREAMS] == 0
    )


@inlined
def comes_from_second(state, line, is_store, label, grain_bytes):  # type: ignore[no-untyped-def]
    """Whether a line that the first level does not hold, of which the access may be done, is in the second, and what it
    replaces need not go there; the access is then done. O(ways)."""
    core, shift = np.int64(0), state.geometry[0, LINE_SHIFT]
    grain, size = line << shift, np.int64(1) << shift
    need = sectors(state, 1, grain, size)
    second = find(state, 1, core, grain >> state.geometry[1, LINE_SHIFT])
    if second < 0 or state.slot[VALID, second] & need != need or state.slot[FLAGS, second]:
        return False
    slot = victim(state, 0, core, line)
    is_taken = state.slot[VALID, slot] != 0
    if is_taken and state.slot[DIRTY, slot]:
        return False
    state.counts[0, (STORE_HITS if is_store else LOAD_HITS) + 1, label] += 1
    state.counts[0, FETCHED_BYTES, label] += size * grain_bytes
    state.counts[1, LOAD_HITS, label] += 1
    state.counts[0, EVICTIONS, label] += is_taken
    touch(state, 1, second)
    state.slot[TAG, slot] = line
    state.slot[VALID, slot] = 1
    state.slot[DIRTY, slot] = 1 if is_store else 0
    state.slot[FLAGS, slot] = 0
    touch(state, 0, slot)
    state.latest[set_of(state, 0, core, line)] = slot
    return True
