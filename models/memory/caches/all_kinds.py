"""Caches of every kind: accesses in their order.

What most of them come to is done at once (``first_level``), all else request by request (``kernel``).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free, njit
from manyscale.models.memory.caches.counts import Reference
from manyscale.models.memory.caches.first_level import (
    comes_from_second,
    first_level,
    has_plain_second,
    hits_at_once,
    simply_hits,
)
from manyscale.models.memory.caches.from_afar import comes_from_afar, has_plain_third
from manyscale.models.memory.caches.kernel import LOAD, OBSERVED, STORE, access
from manyscale.models.memory.caches.lru_kernel import AHEAD
from manyscale.models.memory.caches.page_frames import framed_unit
from manyscale.models.memory.caches.state import (
    BYTES,
    CORE,
    LABEL,
    LINE_SHIFT,
    NUM_CORES,
    NUM_STREAMS,
    QUEUED,
    SECTOR_SHIFT,
    SLOTS,
    TAG,
    WAYS,
    WRITE_THROUGH,
    sectors,
    set_of,
)
from manyscale.models.memory.caches.stream_prefetcher import observe

STRADDLING, EXTRA_LINES = int(Reference.straddling), int(Reference.extra_lines)
EXTRA_MISSES: Final = int(Reference.extra_misses)


@allocation_free
def _look_ahead(state, address, core, first, pages, grain_shift):  # type: ignore[no-untyped-def]
    """Read the sets of the last level that the next accesses may need, see ``lru_kernel``. O(AHEAD)."""
    level, total = state.geometry.shape[0] - 1, 0
    ways = state.geometry[level, WAYS]
    for i in range(first, min(first + AHEAD, address.shape[0])):
        of_core = np.int64(core[i]) if core.shape[0] else 0
        grain = framed_unit(np.int64(address[i] >> np.uint64(grain_shift)), pages)
        line = grain >> state.geometry[level, LINE_SHIFT]
        base = state.geometry[level, SLOTS] + set_of(state, level, of_core, line) * ways
        for row in range(TAG + 1):  # all but TREE
            total += state.slot[row, base] + state.slot[row, base + ways - 1]
    return total


@njit(cache=True, nogil=True)
def run_all_kinds(accesses, by_site, core, pages, grain_shift, state, references):  # type: ignore[no-untyped-def]
    """Make ``accesses`` (Requests) in order; sizes and stores are given ``by_site``, or by access; ``core`` is empty
    where all are core 0's. O(accesses * levels * ways) and what ``coherence`` and ``_evict`` say."""
    address, site, num_bytes, is_store = accesses
    num_sites = state.counts.shape[2] // state.now[NUM_CORES]
    line_grains = 1 << state.geometry[0, LINE_SHIFT]
    grain_bytes = 1 << grain_shift
    observes, passes_on = state.geometry[0, NUM_STREAMS] > 0, state.geometry[0, WRITE_THROUGH] == 1
    why = np.int64(OBSERVED if observes else 0)
    first, line_shift = first_level(state), state.geometry[0, LINE_SHIFT]
    whole_lines = line_shift == state.geometry[0, SECTOR_SHIFT]
    second = has_plain_second(state)
    third = second and has_plain_third(state)
    at_once = first[-1] and (not observes or state.now[NUM_CORES] == 1)
    num_missed = 0  # of the last AHEAD accesses
    num_farther = 0  # that the second level did not answer: if they are many, it is not asked for a while
    looked_at = np.empty(1, np.int64)  # not used: what counts is that the sets were read
    for i in range(address.shape[0]):
        if i % AHEAD == 0:
            if num_missed > AHEAD // 4:
                looked_at[0] = _look_ahead(state, address, core, i, pages, grain_shift)
            num_missed = 0
            if i % (AHEAD * AHEAD) == 0:
                num_farther = 0
        at = site[i] if by_site else i
        state.now[CORE] = np.int64(core[i]) if core.shape[0] else 0
        label = state.now[CORE] * num_sites + site[i]
        state.now[LABEL] = label
        kind = STORE if is_store[at] else LOAD
        left = np.int64(max(num_bytes[at], 1))
        grain = np.int64(address[i] >> np.uint64(grain_shift))
        end = np.int64((address[i] + np.uint64(left - 1)) >> np.uint64(grain_shift)) + 1
        begin = np.int64(address[i] & np.uint64(line_grains * grain_bytes - 1))  # in its line
        lines = misses = 0
        while grain < end:
            size = min(end, (grain | (line_grains - 1)) + 1) - grain
            own = framed_unit(grain, pages)
            state.now[BYTES] = min(left, line_grains * grain_bytes - begin)
            left -= state.now[BYTES]
            begin = np.int64(0)
            line, found = own >> line_shift, 0
            if at_once and not (passes_on and kind == STORE):
                mask = np.int64(1) if whole_lines else sectors(state, 0, own, size)
                found = hits_at_once(state, first, state.now[CORE], line, mask, kind == STORE, label)
                if found > 0:
                    lines += 1
                    grain += size
                    continue
            if observes:
                observe(state, np.int64(0), state.now[CORE], line)
            is_done = False
            if found == 0:
                is_done = not (passes_on and kind == STORE) and simply_hits(state, kind == STORE, own, size)
            elif second and num_farther <= AHEAD // 4:
                is_done = comes_from_second(state, line, kind == STORE, label, grain_bytes)
                if not is_done and third:
                    is_done = comes_from_afar(state, line, kind == STORE, grain_bytes)
                num_farther += not is_done
                misses += is_done
            if not is_done or state.now[QUEUED] > 0:
                misses += access(state, kind, own, size, why, is_done, grain_bytes)
            lines += 1
            grain += size
        num_missed += misses
        if lines > 1:
            references[STRADDLING, label] += 1
            references[EXTRA_LINES, label] += lines - 1
            references[EXTRA_MISSES, label] += max(misses - 1, 0)
