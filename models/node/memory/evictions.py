"""What a line that leaves a cache of a node takes with it, and where it goes.

``core`` says which instance of each level is meant; what is counted goes to ``row``. ``cycle`` < 0: no time passes.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner_inlined, separate
from manyscale.models.node.memory.cache_rows import (
    DIRTY,
    EMPTY,
    FLAG_BITS,
    OUTERMOST,
    SHARED,
    find,
    insert,
    level_of,
    remove,
    set_begin,
    to_front,
)
from manyscale.models.node.memory.directory import FREE, look_up, next_group, remove_group
from manyscale.models.node.memory.dram import write_memory
from manyscale.models.node.memory.reservations import reserve

WRITTEN_BACK = np.int64(2)


@inner_inlined
def take_bandwidth(mem, level, core, cycle):  # type: ignore[no-untyped-def]
    """A line passes between a level and the one before: when, if not before ``cycle``. O(1)."""
    each = level_of(mem, core, level)
    if each.core_cycles > 0.0:
        cycle = reserve(mem.taken, each.core_resource + core, cycle, each.core_cycles)
    if each.shared_cycles > 0.0:
        instance = (mem.first_slot[core, level] - each.first) // each.slots
        cycle = reserve(mem.taken, each.shared_resource + instance, cycle, each.shared_cycles)
    return cycle


@inner_inlined
def take_away(mem, level, core, line):  # type: ignore[no-untyped-def]
    """The line leaves a core's instance of a level: its tag, EMPTY if it was not there. O(ways)."""
    each = level_of(mem, core, level)
    begin = set_begin(each, mem.first_slot[core, level], line)
    place = find(mem.tag, begin, each.ways, line)
    if place == begin + np.uint64(each.ways):
        return np.int64(EMPTY)
    tag = mem.tag[place]
    remove(mem.tag, begin, each.ways, place, EMPTY)
    if level == 0:
        remove(mem.ready, begin, each.ways, place, 0.0)
    return tag


@separate
def _empty_group(mem, levels, core, line):  # type: ignore[no-untyped-def]
    """The line leaves the first levels of a core: whether it was dirty there. O(levels * ways)."""
    dirty = np.int64(0)
    for level in range(levels):
        tag = take_away(mem, level, core, line)
        if tag != EMPTY:
            dirty |= tag & DIRTY
    return dirty


@separate
def _back_invalidate(mem, level, core, line):  # type: ignore[no-untyped-def]
    """An inclusive level evicts the line, so the levels before lose it: whether it was dirty there.
    O(holders * levels * ways)."""
    memory, each = mem.memory[0], level_of(mem, core, level)
    private = min(memory.private, level)
    if memory.groups == 1 or level < memory.private:
        return _empty_group(mem, level, core, line)
    dirty = np.int64(0)
    begin = max((memory.first_core + core) // each.cores * each.cores - memory.first_core, 0)
    end = min(((memory.first_core + core) // each.cores + 1) * each.cores - memory.first_core, memory.cores)
    place = look_up(mem.directory, line)
    if mem.directory[place, 0] != FREE:
        group = next_group(mem.directory, place, mem.core[begin].group)
        while group >= 0 and group <= mem.core[end - 1].group:
            first = max(group * memory.group_cores - memory.first_core % memory.group_cores, 0)
            dirty |= _empty_group(mem, private, first, line)
            remove_group(mem.directory, line, group)
            place = look_up(mem.directory, line)
            if mem.directory[place, 0] == FREE:
                break
            group = next_group(mem.directory, place, group + 1)
    for nearer in range(private, level):
        before = np.int64(-1)
        for other in range(begin, end):
            if mem.first_slot[other, nearer] != before:
                before = mem.first_slot[other, nearer]
                tag = take_away(mem, nearer, other, line)
                if tag != EMPTY:
                    dirty |= tag & DIRTY
    return dirty


@inner_inlined
def _leaves_group(mem, level, core, line):  # type: ignore[no-untyped-def]
    """The outermost private level that had the line has it no more: the next one that has is now outermost, or the
    directory forgets the group. O(levels * ways)."""
    for nearer in range(level - 1, -1, -1):
        each = level_of(mem, core, nearer)
        begin = set_begin(each, mem.first_slot[core, nearer], line)
        place = find(mem.tag, begin, each.ways, line)
        if place < begin + np.uint64(each.ways):
            mem.tag[place] |= OUTERMOST
            return
    remove_group(mem.directory, line, mem.core[core].group)


@inner_inlined
def evict(mem, level, core, tag, cycle, row):  # type: ignore[no-untyped-def]
    """A line has left a level to make room, and goes down: dirty ones, and all to an exclusive level. What it pushes
    out there follows. O(levels * ways), of inclusive levels see ``_back_invalidate``."""
    memory = mem.memory[0]
    while tag != EMPTY:
        line, dirty = tag >> FLAG_BITS, tag & DIRTY
        if level_of(mem, core, level).inclusive:
            dirty |= _back_invalidate(mem, level, core, line)
        flags = dirty
        if memory.groups > 1 and level < memory.private and (level + 1 == memory.private or tag & OUTERMOST):
            if dirty and level + 1 < memory.private:
                flags |= OUTERMOST if level + 2 < memory.private else 0
            else:
                _leaves_group(mem, level, core, line)
        if dirty:
            mem.counts[row, level, WRITTEN_BACK] += 1
        level += 1
        if level == memory.levels:
            if dirty and cycle >= 0.0:
                write_memory(mem, core, line, cycle)
            return
        if level_of(mem, core, level).exclusive:
            flags |= tag & SHARED
        elif not dirty:
            return
        tag = put(mem, level, core, line, flags, cycle)


@inner_inlined
def put(mem, level, core, line, flags, cycle):  # type: ignore[no-untyped-def]
    """A line comes down to a cache: the tag of what it pushes out, or EMPTY. O(ways)."""
    each = level_of(mem, core, level)
    if cycle >= 0.0 and not mem.memory[0].writes_aside:
        take_bandwidth(mem, level, core, cycle)
    begin = set_begin(each, mem.first_slot[core, level], line)
    place = find(mem.tag, begin, each.ways, line)
    if place < begin + np.uint64(each.ways):
        to_front(mem.tag, begin, place)
        mem.tag[begin] |= flags & (DIRTY | SHARED)
        return np.int64(EMPTY)
    return insert(mem.tag, begin, each.ways, line << FLAG_BITS | flags)


@separate
def write_down(mem, level, core, line, cycle, row):  # type: ignore[no-untyped-def]
    """A dirty line is written to a level, which may be main memory; exclusive ones that do not hold it pass it on. As
    ``evict``."""
    levels = mem.memory[0].levels
    while level < levels and level_of(mem, core, level).exclusive:
        each = level_of(mem, core, level)
        begin = set_begin(each, mem.first_slot[core, level], line)
        if find(mem.tag, begin, each.ways, line) < begin + np.uint64(each.ways):
            break
        level += 1
    if level == levels:
        if cycle >= 0.0:
            write_memory(mem, core, line, cycle)
        return
    evict(mem, level, core, put(mem, level, core, line, np.int64(DIRTY), cycle), cycle, row)
