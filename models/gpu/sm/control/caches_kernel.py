"""Caches of instructions and of constants: of each scheduler, with a stream buffer, and of the SM.

A line is known by its number in the kernel's code, or among its constants; what stands there is when it has arrived.
What the stream buffer fetched and nobody used goes when the next stream begins. Cost: O(1) for a hit, O(lines of a set
in the whole kernel) for a miss, which is rare.
"""

from __future__ import annotations

from manyscale.models.gpu.sm.state import NEVER
from manyscale.models.kernels import inner, separate


@inner
def _take(lines, sets, ways, number, at, used):  # type: ignore[no-untyped-def]
    """Put a line into a cache, in place of the one that was not used for longest (one that waits for its first use only
    where there is no other)."""
    held = 0
    oldest = -1
    least = NEVER
    other = number % sets
    while other < lines.shape[0]:
        if lines[other].at < NEVER:
            held += 1
            last = lines[other].used if lines[other].used > 0 else NEVER - 1
            if last < least:
                least = last
                oldest = other
        other += sets
    if held >= ways:
        lines[oldest].at = NEVER
    lines[number].at = at
    lines[number].used = used


@inner
def _from_above(lines, limits, sets, ways, number, time):  # type: ignore[no-untyped-def]
    """When a line that a scheduler's cache asks for at ``time`` is there, by way of the SM's cache."""
    asked = time + limits.upper // 2
    if lines[number].at < NEVER:
        at = max(asked, lines[number].at)
        lines[number].used = max(at, 1)
    else:
        at = asked + limits.above
        _take(lines, sets, ways, number, at, at)
    return at + limits.upper - limits.upper // 2


@separate
def code_at(sm, limits, k, number, time):  # type: ignore[no-untyped-def]
    """When a scheduler that asks for a line of code at ``time`` has it."""
    own = sm.code[k]
    above = sm.code[limits.schedulers]
    scheduler = sm.scheduler[k]
    count = own.shape[0]
    now = max(time, 1)  # 0: not used yet
    if own[number].at < NEVER:
        here = max(time, own[number].at)
        goes_on = own[number].used == 0  # it is of the stream
        own[number].used = now  # what the stream brings takes another one's place
        if goes_on:
            last = min(number + limits.prefetched, count - 1)
            for i in range(scheduler.stream_end + 1, last + 1):
                if own[i].at == NEVER:
                    at = _from_above(above, limits, limits.l1_code_sets, limits.l1_code_ways, i, time)
                    _take(own, limits.l0_code_sets, limits.l0_code_ways, i, at, 0)
            scheduler.stream_end = max(scheduler.stream_end, last)
        return here
    for i in range(max(0, scheduler.stream_end - limits.prefetched + 1), min(count, scheduler.stream_end + 1)):
        if own[i].used == 0:
            own[i].at = NEVER
    at = _from_above(above, limits, limits.l1_code_sets, limits.l1_code_ways, number, time)
    _take(own, limits.l0_code_sets, limits.l0_code_ways, number, at, now)
    for i in range(number + 1, min(number + limits.prefetched, count - 1) + 1):
        if own[i].at == NEVER:
            later = _from_above(above, limits, limits.l1_code_sets, limits.l1_code_ways, i, time + i - number)
            _take(own, limits.l0_code_sets, limits.l0_code_ways, i, later, 0)
    scheduler.stream_end = number + limits.prefetched
    return at


@separate
def constant_at(sm, limits, cache, number, block, time):  # type: ignore[no-untyped-def]
    """The same for a line of constants: ``cache``, the scheduler for instructions of fixed latency, and behind all
    schedulers once more for loads. ``block``: its line in the SM's cache, which holds all that a kernel uses."""
    own = sm.constant[cache]
    if own[number].at < NEVER:
        own[number].used = time
        return max(time, own[number].at)
    at = _from_above(sm.constant[2 * limits.schedulers], limits, 1, own.shape[0] + 1, block, time)
    _take(own, limits.constant_sets, limits.constant_ways, number, at, time)
    return at
