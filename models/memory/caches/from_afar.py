"""Misses of the second of three levels, of which the last is exclusive: what ``kernel`` makes of them in a dozen
requests is done at once where no nearer level has to give a line away for it.

In their order: the third level hands the line over if it has it, the second takes it and hands down what gives way,
which the third takes, and the first takes the line. Only the order of uses within a set counts, so that what the
request stack does in between need not be repeated.
"""

from __future__ import annotations

from manyscale.models.kernels import allocation_free, inlined
from manyscale.models.memory.caches.coherence import count_write_back
from manyscale.models.memory.caches.counts import Counter
from manyscale.models.memory.caches.state import (
    ALLOCATE,
    DIRTY,
    EXCLUSIVE,
    INCLUSIVE,
    LINE_SHIFT,
    LRU,
    NUM_STREAMS,
    REPLACEMENT,
    SECTOR_SHIFT,
    TAG,
    VALID,
    WRITE_THROUGH,
    count,
    empty,
    find,
    set_of,
    touch,
    victim,
)

LOAD_HITS, STORE_HITS, VICTIM_HITS = int(Counter.load_hits), int(Counter.store_hits), int(Counter.victim_hits)
EVICTIONS, FETCHED_BYTES = int(Counter.evictions), int(Counter.fetched_bytes)
MISSES = 1  # to be added to hits


@inlined
def has_plain_third(state):  # type: ignore[no-untyped-def]
    """Whether ``comes_from_afar`` can tell, where ``first_level.has_plain_second``: levels of whole lines of one size,
    LRU, the second written back and allocated, and the last, the third, exclusive. O(1)."""
    geometry = state.geometry
    if geometry.shape[0] != 3:
        return False
    same = True
    for level in (1, 2):
        same &= geometry[level, REPLACEMENT] == LRU
        same &= geometry[level, LINE_SHIFT] == geometry[0, LINE_SHIFT]
        same &= geometry[level, SECTOR_SHIFT] == geometry[0, LINE_SHIFT]
        same &= geometry[level, NUM_STREAMS] == 0
    plain = geometry[1, ALLOCATE] == 1 and geometry[1, WRITE_THROUGH] == 0 and geometry[2, WRITE_THROUGH] == 0
    return same and plain and geometry[2, EXCLUSIVE] == 1


@allocation_free
def comes_from_afar(state, line, is_store, grain_bytes):  # type: ignore[no-untyped-def]
    """Whether a line that neither the first nor the second level holds has been brought: not where the first would have
    to write back what it replaces, or the second to take from the first what it replaces. O(ways)."""
    core, size = 0, 1 << state.geometry[0, LINE_SHIFT]
    if find(state, 1, core, line) >= 0:
        return False
    near = victim(state, 0, core, line)
    if state.slot[VALID, near] and state.slot[DIRTY, near]:
        return False
    middle = victim(state, 1, core, line)
    is_taken = state.slot[VALID, middle] != 0
    replaced = state.slot[TAG, middle]
    if is_taken and state.geometry[1, INCLUSIVE] and find(state, 0, core, replaced) >= 0:
        return False
    count(state, 0, (STORE_HITS if is_store else LOAD_HITS) + MISSES, 1)
    count(state, 0, FETCHED_BYTES, size * grain_bytes)
    count(state, 1, LOAD_HITS + MISSES, 1)
    count(state, 1, FETCHED_BYTES, size * grain_bytes)
    far, dirty = find(state, 2, core, line), 0
    if far >= 0:
        count(state, 2, LOAD_HITS, 1)
        dirty = state.slot[DIRTY, far]
        empty(state, far, 0)
    else:
        count(state, 2, LOAD_HITS + MISSES, 1)
        count(state, 3, LOAD_HITS, 1)
    handed_down = state.slot[DIRTY, middle]
    if is_taken:
        count(state, 1, EVICTIONS, 1)
        if handed_down:
            count_write_back(state, 1, handed_down, grain_bytes)
    _put(state, 1, middle, line, dirty)
    if is_taken:
        _hand_down(state, replaced, handed_down, grain_bytes)
    count(state, 0, EVICTIONS, 1 if state.slot[VALID, near] else 0)
    _put(state, 0, near, line, 1 if is_store else 0)
    state.latest[set_of(state, 0, core, line)] = near
    return True


@inlined
def _put(state, level, slot, line, dirty):  # type: ignore[no-untyped-def]
    """A line comes into a slot. O(1)."""
    empty(state, slot, 0)
    state.slot[TAG, slot] = line
    state.slot[VALID, slot] = 1
    state.slot[DIRTY, slot] = dirty
    touch(state, level, slot)


@inlined
def _hand_down(state, line, dirty, grain_bytes):  # type: ignore[no-untyped-def]
    """The third level takes what the second evicted. O(ways)."""
    slot = find(state, 2, 0, line)
    count(state, 2, VICTIM_HITS if slot >= 0 else VICTIM_HITS + MISSES, 1)
    if slot >= 0:
        state.slot[DIRTY, slot] |= dirty
        touch(state, 2, slot)
        return
    slot = victim(state, 2, 0, line)
    if state.slot[VALID, slot]:
        count(state, 2, EVICTIONS, 1)
        if state.slot[DIRTY, slot]:
            count_write_back(state, 2, state.slot[DIRTY, slot], grain_bytes)
            count(state, 3, VICTIM_HITS, 1)
    _put(state, 2, slot, line, dirty)
