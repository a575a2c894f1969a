"""An access to the caches of a node, with time.

An access takes effect on caches when it is called for, whatever its cycle; what it waits for is reserved from its cycle
on (``reservations``). What happens to lines is what ``memory.hierarchy`` says of such caches, in the same order: the
line is looked for from the nearest level outwards, filled in from the furthest inwards, and what each level had to
evict goes down before the next is filled.

When a load is complete, of an idle memory: ``latency`` cycles of the level that has the line after it was asked for; of
main memory see ``dram``. A modified line that another core holds comes after the latencies of the nearest level that
both share (of the last cache, if it is main memory) and of the cache that holds it, and what ``Numa`` says if that one
belongs to another socket. A store that has to take the line from others waits for the first level that they share.

What comes on top:

- A miss of the first level takes one of the core's line fill buffers until the line is there. It waits for one to be
  free: of those that are, it takes the one that was used latest, so a chain of misses far ahead in time holds one only.
- A line on its way is there when it arrives, for all who ask (but see ``cache_rows``).
- A line passes all levels from the one that has it inwards: it takes their bandwidth, the core's and the shared one.
  (The first level's bandwidth is the core's matter: ``loads_per_cycle``.) Lines written back take it, too, unless
  ``writes_back_aside``; DRAM's channels they always take.
- Prefetches (``memory.stream_prefetcher``) are asked for when the access is, take bandwidth but no line fill buffer,
  and are not counted.

There are no TLBs, and no queues in front of tags.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner, inner_inlined, read_soon, separate
from manyscale.models.node.memory.cache_rows import (
    DIRTY,
    EMPTY,
    FLAG_BITS,
    OUTERMOST,
    SHARED,
    comes_at,
    coming_place,
    find,
    find_deep,
    insert,
    level_of,
    remove,
    set_begin,
    to_front,
    wait_for,
)
from manyscale.models.node.memory.coherence import (
    NOBODY,
    ask_groups,
    ask_instances,
    common_level,
    take_from_others,
)
from manyscale.models.node.memory.directory import expect_dirty, home_of_entry
from manyscale.models.node.memory.dram import cross, read_memory
from manyscale.models.node.memory.evictions import evict, take_bandwidth
from manyscale.models.node.memory.prefetches import follow

SERVED, MISSED = np.int64(0), np.int64(1)
_HIT, _MISS = np.int64(0), np.int64(1)  # not plain ones, for each of which Numba compiles ``_serve`` once more


@inner_inlined
def _search(mem, core, to, line, is_store, cycle, row, served_row):  # type: ignore[no-untyped-def]
    """Look for a line beyond the level ``to``, and take it from others or let them share it: the level that has it,
    flags for it, and who had it modified. O(levels * ways), and see ``coherence``."""
    memory = mem.memory[0]
    flags, source, source_level = np.int64(0), NOBODY, NOBODY
    level = to + 1
    while True:
        if level == memory.private:
            if memory.groups > 1:
                flags, source, source_level = ask_groups(mem, core, line, is_store, cycle, row)
        elif level > memory.private and level_of(mem, core, level - 1).instances > 1:
            more, other, other_level = ask_instances(mem, level, core, line, is_store, cycle, row)
            flags |= more
            if other != NOBODY:
                source, source_level = other, other_level
        if level == memory.levels:
            break
        each = level_of(mem, core, level)
        begin = set_begin(each, mem.first_slot[core, level], line)
        if find_deep(mem.tag, begin, each.ways, line) < begin + np.uint64(each.ways):
            break
        mem.counts[served_row, level, MISSED] += 1
        level += 1
    return level, flags, source, source_level


@inner_inlined
def _read(mem, core, level, line, is_store, cycle, row):  # type: ignore[no-untyped-def]
    """The line is read from a cache: flags that it takes with it. O(ways)."""
    each = level_of(mem, core, level)
    begin = set_begin(each, mem.first_slot[core, level], line)
    place = find(mem.tag, begin, each.ways, line)
    if mem.tag[place] & SHARED and is_store:
        take_from_others(mem, core, line, cycle, row)
    to_front(mem.tag, begin, place)
    tag = mem.tag[begin]
    if each.exclusive:
        remove(mem.tag, begin, each.ways, begin, EMPTY)
        if tag & DIRTY and mem.memory[0].groups > 1:
            expect_dirty(mem.directory, line)
        return tag & (SHARED | DIRTY)
    return tag & SHARED


@inner_inlined
def _from_others(mem, core, source, source_level, start):  # type: ignore[no-untyped-def]
    """When a line that another core had modified is there. O(levels)."""
    memory = mem.memory[0]
    common = min(common_level(mem, core, source), memory.levels - 1)
    done = start + level_of(mem, core, common).latency + level_of(mem, source, source_level).latency
    if memory.has_numa and mem.core[core].socket != mem.core[source].socket:
        done = cross(mem, mem.core[source].socket, done)
    return done


@inner_inlined
def _fetch(mem, core, to, line, is_store, start, row, served_row):  # type: ignore[no-untyped-def]
    """Bring a line into the levels from ``to`` on that do not have it: when it is there, if it is asked for at
    ``start``, and which level had it. ``start`` < 0: no time passes. O(levels * ways), and see ``evictions`` and
    ``coherence``."""
    memory = mem.memory[0]
    level, flags, source, source_level = _search(mem, core, to, line, is_store, start, row, served_row)
    mem.counts[served_row, level, SERVED] += 1
    done, is_remote = start, source != NOBODY
    if level < memory.levels:
        flags |= _read(mem, core, level, line, is_store, start, row)
        if start >= 0.0:
            done = wait_for(mem.coming, line, start + level_of(mem, core, level).latency)
    elif not is_remote:
        done, is_remote = read_memory(mem, core, line, start)
    if source != NOBODY and start >= 0.0:
        done = _from_others(mem, core, source, source_level, start)
    mem.served[served_row] = memory.levels + 1 if is_remote else level
    mem.counts[served_row, memory.levels + 1, SERVED] += is_remote
    if start >= 0.0:
        for passed in range(level, to, -1):
            done = take_bandwidth(mem, passed, core, done)
        comes_at(mem.coming, line, done)
    for filled in range(level - 1, to - 1, -1):
        each = level_of(mem, core, filled)
        if each.exclusive:
            continue
        tag = line << FLAG_BITS | flags | (DIRTY if is_store and filled == 0 else 0)
        flags &= ~DIRTY
        begin = set_begin(each, mem.first_slot[core, filled], line)
        if filled == 0:
            insert(mem.ready, begin, each.ways, done)
        evict(mem, filled, core, insert(mem.tag, begin, each.ways, tag), done, row)
    return done, level


@inner_inlined
def _holds(mem, level, core, line):  # type: ignore[no-untyped-def]
    """Whether the core's instance of a level holds the line. O(ways)."""
    each = level_of(mem, core, level)
    begin = set_begin(each, mem.first_slot[core, level], line)
    return find(mem.tag, begin, each.ways, line) < begin + np.uint64(each.ways)


@separate
def _hide(mem, level, core, line):  # type: ignore[no-untyped-def]
    """A private level holds the line again, so nearer levels do not hold it as the outermost. O(levels * ways)."""
    for nearer in range(level):
        each = level_of(mem, core, nearer)
        begin = set_begin(each, mem.first_slot[core, nearer], line)
        place = find(mem.tag, begin, each.ways, line)
        if place < begin + np.uint64(each.ways):
            mem.tag[place] &= ~OUTERMOST


@inner_inlined
def _find_buffer(buffer_free, core, cycle):  # type: ignore[no-untyped-def]
    """The line fill buffer for a request: of those that are free the latest used, else the first to become free. A
    core's buffers are in the order in which they become free. O(buffers in use)."""
    place = buffer_free.shape[1] - 1
    while place > 0 and buffer_free[core, place] > cycle:
        place -= 1
    return place


@inner_inlined
def _use_buffer(buffer_free, core, place, done):  # type: ignore[no-untyped-def]
    """The buffer is in use until ``done``. O(buffers in use)."""
    last = buffer_free.shape[1] - 1
    while place < last and buffer_free[core, place + 1] < done:
        buffer_free[core, place] = buffer_free[core, place + 1]
        place += 1
    buffer_free[core, place] = done


@inner_inlined
def read_sets_soon(mem, core, line):  # type: ignore[no-untyped-def]
    """The core will ask for the line next, or does: what a miss reads lies in the host's far caches or memory, and one
    after the other would take long. Changes nothing but the host's caches. O(levels * ways)."""
    memory = mem.memory[0]
    for level in range(1, memory.levels):
        each = level_of(mem, core, level)
        begin = set_begin(each, mem.first_slot[core, level], line)
        for place in range(begin, begin + np.uint64(each.ways), np.uint64(8)):
            read_soon(mem.tag, place)
    read_soon(mem.coming, coming_place(line))
    if memory.groups > 1:
        read_soon(mem.directory, home_of_entry(mem.directory, line))


@inner_inlined
def _read_victim_soon(mem, core, line):  # type: ignore[no-untyped-def]
    """As ``read_sets_soon``, for the directory's entry of the line that has to leave the private levels; reads that
    line's tag. O(1)."""
    memory = mem.memory[0]
    if memory.groups > 1:
        each = level_of(mem, core, memory.private - 1)
        begin = set_begin(each, mem.first_slot[core, memory.private - 1], line)
        tag = mem.tag[begin + np.uint64(each.ways - 1)]
        read_soon(mem.directory, home_of_entry(mem.directory, tag >> FLAG_BITS))


@separate
def _serve(mem, core, line, is_store, cycle, row, is_miss):  # type: ignore[no-untyped-def]
    """An access has missed the first level, or hit it where that has a prefetcher: when a line that missed is there.
    Prefetches follow. ``cycle`` < 0: no time passes. O(levels * ways), in sum, and see ``access``."""
    memory = mem.memory[0]
    level, reached, remaining, step = np.int64(-1), np.int64(0), np.int64(0), np.int64(0)
    start = done = cycle
    target, takes, fetches, counted = line, is_store, is_miss == _MISS, row
    buffer = 0
    if fetches:
        if mem.served[row] == 0:  # else the caller has looked ahead, when the access before missed
            read_sets_soon(mem, core, line)
        _read_victim_soon(mem, core, line)
        mem.counts[row, 0, MISSED] += 1
        if cycle >= 0.0:
            buffer = _find_buffer(mem.buffer_free, core, cycle)
            start = max(cycle, mem.buffer_free[core, buffer])
    while True:  # once for the line, then for each that is prefetched
        if fetches:
            arrives, found = _fetch(mem, core, max(level, 0), target, takes, start, row, counted)
            if level < 0:
                done, reached = arrives, min(found, memory.levels - 1)
                if cycle >= 0.0:
                    _use_buffer(mem.buffer_free, core, buffer, done)
            elif level > 0 and level < memory.private and memory.groups > 1:
                _hide(mem, level, core, target)
        while remaining == 0 and level < reached:
            level += 1
            if level_of(mem, core, level).streams:
                remaining, target, step = follow(
                    mem.stream, level_of(mem, core, level), mem.first_slot[core, level], line
                )
        if remaining <= 0:
            return done
        remaining -= 1
        target += step
        start, takes, counted = cycle, False, memory.cores
        fetches = not _holds(mem, level, core, target)


@separate
def _upgrade(mem, core, line, cycle, row):  # type: ignore[no-untyped-def]
    """A store to a line that others may hold: when the core owns it. See ``coherence``."""
    lost = take_from_others(mem, core, line, cycle, row)
    if cycle < 0.0 or lost == NOBODY:
        return cycle
    memory = mem.memory[0]
    mem.served[row] = memory.levels + 1
    mem.counts[row, memory.levels + 1, SERVED] += 1
    cycle += level_of(mem, core, min(common_level(mem, core, lost), memory.levels - 1)).latency
    if memory.has_numa and mem.core[core].socket != mem.core[lost].socket:
        cycle += memory.numa_latency
    return cycle


@inner_inlined
def access(mem, core, line, is_store, cycle):  # type: ignore[no-untyped-def]
    """A core asks at ``cycle`` >= 0 for a line: the cycle at which it has the data or, of a store, owns the line.
    ``mem.served[core]`` says from where. O(1) for the line that its set used last, else O(levels * ways), and see
    ``evictions``, ``coherence``."""
    first = level_of(mem, core, 0)
    begin = set_begin(first, mem.first_slot[core, 0], line)
    place = begin
    tag = mem.tag[begin]
    if tag >> FLAG_BITS != line:
        place = find(mem.tag, begin, first.ways, line)
        if place == begin + np.uint64(first.ways):
            return _serve(mem, core, line, is_store, cycle, core, _MISS)
        to_front(mem.tag, begin, place)
        to_front(mem.ready, begin, place)
        tag = mem.tag[begin]
    mem.counts[core, 0, SERVED] += 1
    mem.served[core] = 0
    done = max(cycle + first.latency, mem.ready[begin])
    if is_store:
        mem.tag[begin] = tag | DIRTY
        if tag & SHARED:
            done = _upgrade(mem, core, line, done, core)
    if first.streams and mem.stream[first.first_stream + mem.core[core].group * first.streams].line != line:
        _serve(mem, core, line, is_store, cycle, core, _HIT)
    return done


@inner_inlined
def is_own(mem, core, line, is_store):  # type: ignore[no-untyped-def]
    """Whether an access of the core changes nothing that others see, nor waits for anything of theirs: its first cache
    holds the line and, of a store, nobody else does; and no prefetcher follows. O(ways)."""
    first = level_of(mem, core, 0)
    begin = set_begin(first, mem.first_slot[core, 0], line)
    place = find(mem.tag, begin, first.ways, line)
    if place == begin + np.uint64(first.ways) or first.streams:
        return False
    return not (is_store and mem.tag[place] & SHARED)


@inner
def touch(mem, core, line, is_store):  # type: ignore[no-untyped-def]
    """An access without time, and not counted. As ``access``."""
    first = level_of(mem, core, 0)
    nobody = mem.memory[0].cores
    begin = set_begin(first, mem.first_slot[core, 0], line)
    place = find(mem.tag, begin, first.ways, line)
    if place == begin + np.uint64(first.ways):
        _serve(mem, core, line, is_store, -1.0, nobody, _MISS)
        return
    to_front(mem.tag, begin, place)
    to_front(mem.ready, begin, place)
    if is_store:
        tag = mem.tag[begin]
        mem.tag[begin] = tag | DIRTY
        if tag & SHARED:
            _upgrade(mem, core, line, -1.0, nobody)
    if first.streams:
        _serve(mem, core, line, is_store, -1.0, nobody, _HIT)


@inner_inlined
def look_ahead(mem, core, line):  # type: ignore[no-untyped-def]
    """The core will ask for the line after a few other accesses: changes nothing but the host's caches. Saves time
    where most accesses miss, takes some where they hit. O(levels * ways)."""
    read_sets_soon(mem, core, line)
    _read_victim_soon(mem, core, line)
