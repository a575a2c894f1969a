"""Coherence of private caches: an invalidation protocol with the states of MESI.

A line's state follows from its slot: modified (dirty), shared (flag SHARED: others may hold it), else exclusive.
Source: Papamarcos, Patel, "A low-overhead coherence solution for multiprocessors with private cache memories", ISCA
1984; here a modified line that another core reads is first written to the nearest level that both share, or to
memory, from where the other takes it.

A request looks at the private caches of others where it passes from a level to one that more cores share: of those,
only that level's nearer caches can hold what it does not know of.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.models.memory.caches.counts import Counter
from manyscale.models.memory.caches.state import (
    CORE,
    CORES,
    DIRTY,
    FLAGS,
    LINE_SHIFT,
    NUM_CORES,
    REPLY_SHARED,
    SECTOR_SHIFT,
    SHARED,
    TAKEN,
    count,
    empty,
    find,
    push,
)

WRITE_BACK: Final = np.int64(2)  # a kind of request, of dirty sectors; the others stand in ``cache_kernel``
WRITE_BACKS, WRITTEN_BYTES = np.int64(Counter.write_backs), np.int64(Counter.written_bytes)
INVALIDATIONS, DIRTY_READS = np.int64(Counter.invalidations), np.int64(Counter.dirty_reads)


@allocation_free
def push_runs(state, level, line, mask, target):  # type: ignore[no-untyped-def]
    """Write runs of sectors of a level's line to the level ``target``. O(sectors)."""
    shift = state.geometry[level, SECTOR_SHIFT]
    grain = line << state.geometry[level, LINE_SHIFT]
    while mask:
        length = 0
        while mask & 1 == 0:
            mask >>= 1
            grain += 1 << shift
        while mask & 1:
            mask >>= 1
            length += 1 << shift
        push(state, WRITE_BACK, target, grain, length, 0, 0)
        grain += length


@allocation_free
def _bits(mask):  # type: ignore[no-untyped-def]
    """O(bits)."""
    number = 0
    while mask:
        number += mask & 1
        mask >>= 1
    return number


@allocation_free
def count_write_back(state, level, mask, grain_bytes):  # type: ignore[no-untyped-def]
    """O(sectors)."""
    count(state, level, WRITE_BACKS, 1)
    count(state, level, WRITTEN_BYTES, (_bits(mask) << state.geometry[level, SECTOR_SHIFT]) * grain_bytes)


@allocation_free
def _look_at(state, level, core, grain, num_grains, takes, target, grain_bytes):  # type: ignore[no-untyped-def]
    """Of the copies in one other instance: take them away (``takes``), or let them be shared. O(ways)."""
    shift = state.geometry[level, LINE_SHIFT]
    was_dirty = False
    for line in range(grain >> shift, ((grain + num_grains - 1) >> shift) + 1):
        place = find(state, level, core, line)
        if place < 0:
            continue
        if state.slot[DIRTY, place]:
            was_dirty = True
            count_write_back(state, level, state.slot[DIRTY, place], grain_bytes)
            push_runs(state, level, line, state.slot[DIRTY, place], target)
            state.slot[DIRTY, place] = 0
        if takes:
            empty(state, place, TAKEN)
            count(state, level, INVALIDATIONS, 1)
        else:
            state.slot[FLAGS, place] |= SHARED
            state.now[REPLY_SHARED] = SHARED
    return was_dirty


@allocation_free
def ask_others(state, level, grain, num_grains, takes, grain_bytes):  # type: ignore[no-untyped-def]
    """Before a request of the core enters ``level`` from the one before: look at the caches that only others reach, and
    that the request has not passed by yet. O(cores * levels * ways)."""
    core, num_cores = state.now[CORE], state.now[NUM_CORES]
    own = state.geometry[level - 1, CORES]
    around = state.geometry[level, CORES] if level < state.geometry.shape[0] else num_cores
    was_dirty = False
    for nearer in range(level):
        share = state.geometry[nearer, CORES]
        for other in range(core // around * around, min((core // around + 1) * around, num_cores), share):
            if other // own != core // own:
                was_dirty |= _look_at(state, nearer, other, grain, num_grains, takes, level, grain_bytes)
    if was_dirty and not takes:
        count(state, level - 1, DIRTY_READS, 1)


@allocation_free
def take_from_others(state, grain, num_grains, grain_bytes):  # type: ignore[no-untyped-def]
    """The core stores to a line that others may hold: nobody else does any more. O(cores * levels * ways)."""
    core, num_levels = state.now[CORE], state.geometry.shape[0]
    for level in range(num_levels):
        share = state.geometry[level, CORES]
        for other in range(0, state.now[NUM_CORES], share):
            if other // share != core // share:
                _look_at(state, level, other, grain, num_grains, True, num_levels, grain_bytes)
        shift = state.geometry[level, LINE_SHIFT]
        for line in range(grain >> shift, ((grain + num_grains - 1) >> shift) + 1):
            place = find(state, level, core, line)
            if place >= 0:
                state.slot[FLAGS, place] &= ~SHARED
    state.now[REPLY_SHARED] = 0
