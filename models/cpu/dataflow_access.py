"""Kernels of the dataflow model: units and places that are taken, lines and stores on their way."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.cpu.dataflow_tables import (
    ACCESSES,
    BANDWIDTH,
    DEPENDENCY,
    FILLS,
    FIRST_LEVEL,
    FIRST_TRANSFER,
    FORWARD,
    FORWARDS,
    LATENCY,
    LEVEL_MASK,
    LINE_TAG,
    LINE_TIME,
    SEEN_SHIFT,
    STORE_FILE,
    STORE_NUMBER,
    STORE_TAG,
    STORE_TIME,
    STORE_UPDATES,
    STORED,
    TABLE,
    TRANSFER,
    TRANSLATION,
    TRANSLATION_SHIFT,
)
from manyscale.models.kernels import inner, inner_inlined

_GRANULE_SHIFT: Final = 3


@inner_inlined
def claim(free, unit, now, occupancy):  # type: ignore[no-untyped-def]
    """When a unit is free for an instruction that enters ``now``; it is kept for ``occupancy``."""
    begin = max(free[unit], now)
    free[unit] = begin + occupancy
    return begin


@inner_inlined
def room_in(core, ring):  # type: ignore[no-untyped-def]
    """When the next one finds a place in a ring."""
    limits, state = core.limits, core.state
    places = limits.rings[ring]
    return state.rings[ring, state.counts[ring] % places] if places > 0 else 0.0


@inner_inlined
def keep_place(core, ring, end):  # type: ignore[no-untyped-def]
    """A place of a ring is taken until ``end``."""
    limits, state = core.limits, core.state
    if limits.rings[ring] > 0:
        state.rings[ring, state.counts[ring] % limits.rings[ring]] = end
    state.counts[ring] += 1


@inner
def line_of(core, now, start, address, level, is_store):  # type: ignore[no-untyped-def]
    """(time at which an access that entered ``now`` and starts at ``start`` has its line, part that it waits for).
    O(1)."""
    limits, state = core.limits, core.state
    served, seen = level & LEVEL_MASK, level >> SEEN_SHIFT & LEVEL_MASK
    translation = limits.translation[level >> TRANSLATION_SHIFT]
    start += translation
    line = np.int64(address >> np.uint64(limits.line_shift))
    place = line & (TABLE - 1)
    ready, part = start + limits.levels[0, LATENCY], TRANSLATION if translation > 0 else DEPENDENCY
    if served > 0:
        transfer = limits.levels[served, TRANSFER]
        ahead = limits.prefetch_lines * transfer if seen < served else 0.0
        # what is written goes back later
        occupancy = transfer * (1 + limits.write_back) if is_store else transfer
        begin = claim(state.unit_free, FIRST_TRANSFER + served, now - ahead, occupancy)
        if seen > 0:
            start = max(start, room_in(core, FILLS))
            ready, part = start + limits.levels[seen, LATENCY], FIRST_LEVEL + seen - 1
        late = begin + transfer if seen < served else begin + limits.levels[seen, LATENCY]
        if late > ready:
            ready, part = late, BANDWIDTH
        if seen > 0:
            keep_place(core, FILLS, ready)
        state.tags[place, LINE_TAG] = line
        state.times[place, LINE_TIME] = ready
    elif state.tags[place, LINE_TAG] == line and state.times[place, LINE_TIME] > ready:
        ready, part = state.times[place, LINE_TIME], BANDWIDTH
    return ready, part


@inner
def forwarded_at(core, address, num_bytes, vector, now):  # type: ignore[no-untyped-def]
    """When the bytes of a store that may still be on its way reach a load of the same address; 0 if there is none.
    However many stores answer, a load is forwarded to once. If one is an update, the load has come before the data,
    and is tried again.
    O(bytes / 8)."""
    limits, state = core.limits, core.state
    ready, on_the_way, updates = 0.0, -1.0, 0
    last = np.int64((address + np.uint64(max(num_bytes, 1) - 1)) >> np.uint64(_GRANULE_SHIFT))
    granule = np.int64(address >> np.uint64(_GRANULE_SHIFT))
    while granule <= last:
        place = granule & (TABLE - 1)
        if state.tags[place, STORE_TAG] == granule:
            after = limits.files[max(vector, state.tags[place, STORE_FILE]), FORWARD]
            ready = max(ready, state.times[place, STORE_TIME] + after)
            if state.counts[STORED] - state.tags[place, STORE_NUMBER] <= limits.stores_on_the_way:
                on_the_way = max(on_the_way, after)
                updates = max(updates, state.tags[place, STORE_UPDATES])
        granule += 1
    if on_the_way >= 0:
        ready = max(ready, claim(state.unit_free, FORWARDS, now, limits.forward) + on_the_way)
        if updates:
            claim(state.unit_free, ACCESSES, now, limits.repeat)
    return ready


@inner
def remember_store(state, address, num_bytes, vector, updates, time):  # type: ignore[no-untyped-def]
    """Stores to the same bytes complete in order. O(bytes / 8)."""
    last = np.int64((address + np.uint64(max(num_bytes, 1) - 1)) >> np.uint64(_GRANULE_SHIFT))
    granule = np.int64(address >> np.uint64(_GRANULE_SHIFT))
    while granule <= last:
        place = granule & (TABLE - 1)
        same = state.tags[place, STORE_TAG] == granule
        state.tags[place, STORE_TAG] = granule
        state.times[place, STORE_TIME] = max(time, state.times[place, STORE_TIME]) if same else time
        state.tags[place, STORE_FILE] = vector
        state.tags[place, STORE_UPDATES] = updates
        state.tags[place, STORE_NUMBER] = state.counts[STORED]
        granule += 1
