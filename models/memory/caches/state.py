"""State of caches of every kind, and their sets: where a line is, which one leaves.

All levels' slots lie in one array, level by level, instance by instance, set by set. Lines have fixed places, as
tree-PLRU and random replacement need.

Requests are counted in *grains*, the smallest sector of any level: a level's line is ``grain >> line_shift``. Sectors
that are valid or dirty are the bits of a mask.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import inlined
from manyscale.models.memory.draws import mixed

# columns of ``geometry``, one row per level
SLOTS: Final = 0  # first slot
SETS: Final = 1
WAYS: Final = 2
MASK: Final = 3  # SETS - 1 if that is a power of two, else -1
LINE_SHIFT: Final = 4  # log2 of a line's grains
SECTOR_SHIFT: Final = 5  # log2 of a sector's grains
REPLACEMENT: Final = 6
EXCLUSIVE: Final = 7
INCLUSIVE: Final = 8
WRITE_THROUGH: Final = 9
ALLOCATE: Final = 10
CORES: Final = 11  # that share an instance
STREAMS: Final = 12  # first stream of the prefetcher
NUM_STREAMS: Final = 13  # 0 without a prefetcher
CONFIRM: Final = 14
DEGREE: Final = 15
DISTANCE: Final = 16
PAGE_SHIFT: Final = 17  # log2 of the lines in a page of the prefetcher
COLUMNS: Final = 18


class Replacement(IntEnum):
    lru = 0
    tree_plru = 1
    random = 2


LRU, TREE_PLRU = int(Replacement.lru), int(Replacement.tree_plru)

# rows of ``slot``
VALID: Final = 0  # sectors
DIRTY: Final = 1  # sectors
USED: Final = 2  # when last used (by LRU), NEVER if nothing is valid, so that ``victim`` need not look at VALID
FLAGS: Final = 3
TAG: Final = 4  # line, -1 if none
TREE: Final = 5  # of a set's first slot: its bits of tree-PLRU
SLOT: Final = 6
NEVER: Final = -1
PREFETCHED: Final = 1  # and not yet used
SHARED: Final = 2  # other cores may hold it, too
TAKEN: Final = 4  # not valid since another core stored

# entries of ``now``
CLOCK: Final = 0
DEPTH: Final = 1  # of the stack
CORE: Final = 2
LABEL: Final = 3  # of what is counted: core and site
REPLY_VALID: Final = 4  # what an exclusive level handed over, for the next fill
REPLY_DIRTY: Final = 5
REPLY_SHARED: Final = 6
NUM_CORES: Final = 7
SEED: Final = 8
QUEUED: Final = 9  # prefetches
BYTES: Final = 10  # of the access, in its line
HINTS: Final = 11  # where streams of pages were found last, see ``hint_of``
NUM_HINTS: Final = 8
NOW: Final = HINTS + NUM_HINTS


class CacheState(NamedTuple):
    """``geometry`` int64[levels, COLUMNS]; ``slot`` int64[SLOT, slots]; ``stream`` int64[streams, 5]: of prefetchers;
    ``stack`` int64[depth, 6]: requests to be dealt with, and prefetches for later from its end; ``now`` int64[NOW];
    ``counts`` int64[levels + 1, Counter, labels]; ``latest`` int64[sets of the first level's instances]: the slot in
    which an access found its line last."""

    geometry: np.ndarray
    slot: np.ndarray
    stream: np.ndarray
    stack: np.ndarray
    now: np.ndarray
    counts: np.ndarray
    latest: np.ndarray


@inlined
def set_of(state, level, core, line):  # type: ignore[no-untyped-def]
    """Number of the line's set in the level's instance of a core. O(1)."""
    mask, sets = state.geometry[level, MASK], state.geometry[level, SETS]
    place = line & mask if mask >= 0 else line % sets
    return core // state.geometry[level, CORES] * sets + place if core else place


@inlined
def hint_of(page):  # type: ignore[no-untyped-def]
    """The entry of ``now`` for a page of a prefetcher: arrays that lie a power of two apart have others. O(1)."""
    return HINTS + ((page * 2654435761 >> 29) & (NUM_HINTS - 1))


@inlined
def find(state, level, core, line):  # type: ignore[no-untyped-def]
    """The slot of a line, -1 if it is not there. O(ways)."""
    ways = state.geometry[level, WAYS]
    first = state.geometry[level, SLOTS] + set_of(state, level, core, line) * ways
    for place in range(np.uint64(first), np.uint64(first + ways)):  # unsigned: see lru_kernel
        if state.slot[TAG, place] == line:
            return np.int64(place) if state.slot[VALID, place] else -1
    return -1


@inlined
def find_first(state, core, line):  # type: ignore[no-untyped-def]
    """``find`` in the first level. O(ways), O(1) for a line that its set used last: of slots with one tag, the first
    alone is valid."""
    place = set_of(state, 0, core, line)
    slot = state.latest[place]
    if state.slot[TAG, slot] != line or state.slot[VALID, slot] == 0:
        slot = find(state, 0, core, line)
        if slot >= 0:
            state.latest[place] = slot
    return slot


@inlined
def touch(state, level, place):  # type: ignore[no-untyped-def]
    """A slot has been used. O(1), tree-PLRU O(log ways)."""
    policy = state.geometry[level, REPLACEMENT]
    if policy == LRU:
        state.now[CLOCK] += 1
        state.slot[USED, place] = state.now[CLOCK]
    elif policy == TREE_PLRU:
        ways = state.geometry[level, WAYS]
        way = (place - state.geometry[level, SLOTS]) & (ways - 1)
        node = ways + way  # a leaf; node k has children 2k and 2k + 1
        tree = state.slot[TREE, place - way]
        while node > 1:
            parent = node >> 1
            tree = tree | 1 << parent if node & 1 == 0 else tree & ~(1 << parent)  # a bit points away: 1 to the right
            node = parent
        state.slot[TREE, place - way] = tree


@inlined
def empty(state, place, flags):  # type: ignore[no-untyped-def]
    """Nothing in a slot is valid any more. O(1)."""
    state.slot[VALID, place] = 0
    state.slot[DIRTY, place] = 0
    state.slot[USED, place] = NEVER
    state.slot[FLAGS, place] = flags


@inlined
def victim(state, level, core, line):  # type: ignore[no-untyped-def]
    """The slot that a line shall take: an empty one if there is one, else by the replacement policy. O(ways)."""
    ways = state.geometry[level, WAYS]
    first = state.geometry[level, SLOTS] + set_of(state, level, core, line) * ways
    oldest = np.uint64(first)
    for place in range(np.uint64(first), np.uint64(first + ways)):
        if state.slot[USED, place] < state.slot[USED, oldest]:
            oldest = np.uint64(place)
    policy = state.geometry[level, REPLACEMENT]
    if policy == LRU or state.slot[USED, oldest] == NEVER:
        return np.int64(oldest)
    if policy == TREE_PLRU:
        tree = state.slot[TREE, first]
        node = 1
        while node < ways:
            node = 2 * node + (tree >> node & 1)
        return first + node - ways
    state.now[CLOCK] += 1
    return first + np.int64(mixed(state.now[SEED], level, state.now[CLOCK]) % np.uint64(ways))


@inlined
def sectors(state, level, grain, num_grains):  # type: ignore[no-untyped-def]
    """Mask of the sectors that hold the grains [grain, grain + num_grains) of one line. O(1)."""
    shift = state.geometry[level, SECTOR_SHIFT]
    in_line = (1 << state.geometry[level, LINE_SHIFT]) - 1
    first = (grain & in_line) >> shift
    last = ((grain + num_grains - 1) & in_line) >> shift
    return ((1 << (last - first + 1)) - 1) << first


@inlined
def push(state, kind, level, grain, num_grains, a, b):  # type: ignore[no-untyped-def]
    """Put a request on the stack: it is dealt with before those that lie there. O(1)."""
    top = state.now[DEPTH]
    state.stack[top, 0] = kind
    state.stack[top, 1] = level
    state.stack[top, 2] = grain
    state.stack[top, 3] = num_grains
    state.stack[top, 4] = a
    state.stack[top, 5] = b
    state.now[DEPTH] += 1


@inlined
def count(state, level, counter, amount):  # type: ignore[no-untyped-def]
    """O(1)."""
    state.counts[level, counter, state.now[LABEL]] += amount
