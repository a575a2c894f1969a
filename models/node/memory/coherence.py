"""Coherence of the caches of a node: an invalidation protocol with the states of MESI, as in ``memory.coherence``.

Of private levels (those that the same cores share as the first one) a directory says which groups of cores hold a
line, and whether all know that others may (SHARED) and none has modified it; else they are asked. Caches further out
that only some cores share are looked at one by one, where a request passes them by.

A modified line that another core reads is written to the nearest level that both share, or to main memory.
``cycle`` < 0: no time passes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import inner_inlined, separate
from manyscale.models.node.memory.cache_rows import DIRTY, EMPTY, SHARED, find, level_of, set_begin
from manyscale.models.node.memory.directory import FREE, add_group, look_up, next_group, set_alone
from manyscale.models.node.memory.evictions import WRITTEN_BACK, take_away, write_down

INVALIDATED = np.int64(3)
NOBODY: Final = -1


@inner_inlined
def _first_of(mem, group):  # type: ignore[no-untyped-def]
    """The first core of a group. O(1)."""
    memory = mem.memory[0]
    return max(group * memory.group_cores - memory.first_core % memory.group_cores, 0)


@inner_inlined
def common_level(mem, core, other):  # type: ignore[no-untyped-def]
    """The nearest level that two cores share. O(levels)."""
    levels = mem.memory[0].levels
    for level in range(levels):
        if mem.first_slot[core, level] == mem.first_slot[other, level]:
            return level
    return levels


@inner_inlined
def _look_at(mem, level, other, line, takes, counted):  # type: ignore[no-untyped-def]
    """Take the copy away that a level of another core has, or let it be shared: its tag before, EMPTY if there was
    none. O(ways)."""
    if takes:
        tag = take_away(mem, level, other, line)
        if tag != EMPTY and counted:
            mem.counts[other, level, INVALIDATED] += 1
        return tag
    each = level_of(mem, other, level)
    begin = set_begin(each, mem.first_slot[other, level], line)
    place = find(mem.tag, begin, each.ways, line)
    if place == begin + np.uint64(each.ways):
        return np.int64(EMPTY)
    tag = mem.tag[place]
    mem.tag[place] = (tag | SHARED) & ~DIRTY
    return tag


@separate
def _ask_group(mem, core, group, line, takes, cycle, row):  # type: ignore[no-untyped-def]
    """All private levels of a group: the nearest that had the line modified, NOBODY if none. O(levels * ways)."""
    memory = mem.memory[0]
    other = _first_of(mem, group)
    dirty_level = NOBODY
    for level in range(memory.private):
        tag = _look_at(mem, level, other, line, takes, row < memory.cores)
        if tag != EMPTY and tag & DIRTY:
            mem.counts[row, level, WRITTEN_BACK] += 1
            if dirty_level == NOBODY:
                dirty_level = level
    if dirty_level != NOBODY:
        write_down(mem, common_level(mem, core, other), other, line, cycle, row)
    return dirty_level


@separate
def _ask_holders(mem, core, line, takes, cycle, row):  # type: ignore[no-untyped-def]
    """``ask_groups`` where the directory has an entry. O(groups + holders * levels * ways)."""
    directory, group = mem.directory, mem.core[core].group
    place = look_up(directory, line)
    source, source_level = NOBODY, NOBODY
    is_alone = True
    if takes or directory[place, 0] & 1 == 0:
        holder = next_group(directory, place, 0)
        while holder >= 0:
            if holder != group:
                is_alone = False
                dirty_level = _ask_group(mem, core, holder, line, takes, cycle, row)
                if dirty_level != NOBODY:
                    source, source_level = _first_of(mem, holder), dirty_level
                place = look_up(directory, line)  # what was written may have moved entries
            holder = next_group(directory, place, holder + 1)
    else:
        is_alone = False
    if takes or is_alone:
        set_alone(directory, place, line, group)
        return np.int64(0), source, source_level
    directory[place, 0] |= 1
    add_group(directory, place, group)
    return np.int64(SHARED), source, source_level


@inner_inlined
def ask_groups(mem, core, line, takes, cycle, row):  # type: ignore[no-untyped-def]
    """A request for a line that the core's private levels do not hold passes them: the core will hold it, alone if it
    ``takes`` the line. Flags for it, and who had it modified: a core and its level, or NOBODY. O(1) expected, where
    others hold it see ``_ask_holders``."""
    place = look_up(mem.directory, line)
    if mem.directory[place, 0] == FREE:
        set_alone(mem.directory, place, line, mem.core[core].group)
        return np.int64(0), NOBODY, NOBODY
    return _ask_holders(mem, core, line, takes, cycle, row)


@separate
def ask_instances(mem, level, core, line, takes, cycle, row):  # type: ignore[no-untyped-def]
    """Before a request enters ``level`` (which may be main memory) from a level that others do not share: look at what
    only they reach, beside private levels. Flags for the line, and who had it modified. O(cores * levels * ways)."""
    memory = mem.memory[0]
    flags, source, source_level = np.int64(0), NOBODY, NOBODY
    own = mem.first_slot[core, level - 1]
    for nearer in range(memory.private, level):
        before = np.int64(-1)
        for other in range(memory.cores):
            if mem.first_slot[other, nearer] == before or mem.first_slot[other, level - 1] == own:
                continue
            if level < memory.levels and mem.first_slot[other, level] != mem.first_slot[core, level]:
                continue
            before = mem.first_slot[other, nearer]
            tag = _look_at(mem, nearer, other, line, takes, row < memory.cores)
            if tag == EMPTY:
                continue
            flags |= SHARED
            if tag & DIRTY:
                source, source_level = other, nearer
                mem.counts[row, nearer, WRITTEN_BACK] += 1
                write_down(mem, level, other, line, cycle, row)
    return np.int64(0) if takes else flags, source, source_level


@separate
def take_from_others(mem, core, line, cycle, row):  # type: ignore[no-untyped-def]
    """A core stores to a line that it holds and others may: nobody else does any more. Some core that lost it, NOBODY
    if none. O(groups + holders * levels * ways)."""
    memory, directory = mem.memory[0], mem.directory
    lost = NOBODY
    group = mem.core[core].group
    place = look_up(directory, line)
    if directory[place, 0] != FREE:
        holder = next_group(directory, place, 0)
        while holder >= 0:
            if holder != group:
                _ask_group(mem, core, holder, line, True, cycle, row)
                lost = _first_of(mem, holder)
                place = look_up(directory, line)
            holder = next_group(directory, place, holder + 1)
        set_alone(directory, place, line, group)
    for level in range(memory.private, memory.levels):
        if level_of(mem, core, level).instances == 1:
            continue
        before = mem.first_slot[core, level]
        for other in range(memory.cores):
            first = mem.first_slot[other, level]
            if first == before or first == mem.first_slot[core, level]:
                continue
            before = first
            if _look_at(mem, level, other, line, True, row < memory.cores) != EMPTY:
                lost = other
    for level in range(memory.levels):
        each = level_of(mem, core, level)
        begin = set_begin(each, mem.first_slot[core, level], line)
        at = find(mem.tag, begin, each.ways, line)
        if at < begin + np.uint64(each.ways):
            mem.tag[at] &= ~SHARED
    return lost
