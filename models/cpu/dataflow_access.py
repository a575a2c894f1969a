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
    IN_ORDER,
    LAST_LINE,
    LATENCY,
    LEVEL_MASK,
    LINE_TAG,
    LINE_TIME,
    NUMBER,
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
    UNKNOWN,
)
from manyscale.models.kernels import inner, inner_inlined

_GRANULE_SHIFT: Final = 3
_LATEST: Final = 32  # lines over which the share of those in order is taken
_UNINTERRUPTED: Final = 0.4  # of them: one other line between two of a sequence does not stop it, two do


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


@inner_inlined
def _followed(core, access, line, foreseen, start):  # type: ignore[no-untyped-def]
    """(the number of ``line`` since the sequence of static access ``access`` was known, 0 if it is not, -1 if all comes
    in time; when it was asked for at the earliest). O(1)."""
    limits, state = core.limits.prefetch, core.state
    clock, followed = state.clock, state.followed
    clock[IN_ORDER] += ((1.0 if foreseen else 0.0) - clock[IN_ORDER]) / _LATEST
    crossed = line >> limits.page_shift != followed[access, LAST_LINE] >> limits.page_shift
    number = followed[access, NUMBER]
    followed[access, LAST_LINE] = line
    if not foreseen:
        number = 0
    elif crossed and clock[IN_ORDER] < _UNINTERRUPTED:
        number = 0
        followed[access, UNKNOWN] = limits.confirm - 1
    elif followed[access, UNKNOWN] > 0:
        number = 0
        followed[access, UNKNOWN] -= 1
    elif crossed or number < 0:
        number = -1
    else:
        number += 1
    followed[access, NUMBER] = number
    asked = start
    if number > 0:
        asker = max((number + limits.degree - 1) // limits.degree - 1, number - limits.distance)
        asked = min(start, state.asked[access, asker % limits.distance])
    if number >= 0:
        state.asked[access, number % limits.distance] = start
    return number, asked


@inner
def line_of(core, access, now, start, address, level, is_store):  # type: ignore[no-untyped-def]
    """(time at which an access that entered ``now`` and starts at ``start`` has its line, part that it waits for).
    ``access``: the static one whose sequence it goes on with, -1 where all its lines come in time. O(1)."""
    limits, state = core.limits, core.state
    served, seen = level & LEVEL_MASK, level >> SEEN_SHIFT & LEVEL_MASK
    translation = limits.translation[level >> TRANSLATION_SHIFT]
    start += translation
    line = np.int64(address >> np.uint64(limits.line_shift))
    place = line & (TABLE - 1)
    ready, part = start + limits.levels[0, LATENCY], TRANSLATION if translation > 0 else DEPENDENCY
    if served > 0:
        transfer = limits.levels[served, TRANSFER]
        number, asked = -1, start
        if limits.prefetch.distance > 0 and access >= 0:
            number, asked = _followed(core, access, line, seen < served, start)
            if number == 0:
                seen = served
        ahead = limits.prefetch_lines * transfer if seen < served else 0.0
        # what is written goes back later
        occupancy = transfer * (1 + limits.write_back) if is_store else transfer
        begin = claim(state.unit_free, FIRST_TRANSFER + served, now - ahead, occupancy)
        if seen > 0:
            start = max(start, room_in(core, FILLS))
            ready, part = start + limits.levels[seen, LATENCY], FIRST_LEVEL + seen - 1
        late = begin + transfer if seen < served else begin + limits.levels[seen, LATENCY]
        if number > 0 and asked + limits.levels[served, LATENCY] > ready:
            ready, part = asked + limits.levels[served, LATENCY], FIRST_LEVEL + served - 1
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
