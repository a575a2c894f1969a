"""Empty caches are filled with lines as cores that used them before would have left them."""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import inner
from manyscale.models.node.memory.cache_rows import (
    DIRTY,
    EMPTY,
    FLAG_BITS,
    SHARED,
    find_deep,
    insert,
    level_of,
    set_begin,
)
from manyscale.models.node.memory.directory import FREE, add_group, look_up, set_alone
from manyscale.models.node.memory.evictions import evict

_UNTIMED = -1.0


@inner
def put_used(mem, core, line, is_first, is_shared, is_dirty):  # type: ignore[no-untyped-def]
    """The core has used a line: it is the latest in the core's last private level and in those further out that did not
    hold it. ``is_first``: it was not put anywhere yet. ``is_shared``: other cores have it, too, so if it was modified,
    that was written to the last level. Lines come in the order in which they were used; those that a core stored to
    last are given for that core alone.

    Nearer levels stay empty, as they are small and soon full. O(levels * ways), see ``evictions``.
    """
    memory = mem.memory[0]
    nobody = memory.cores
    nearest, last = memory.private - 1, memory.levels - 1
    for level in range(last, nearest - 1, -1):
        each = level_of(mem, core, level)
        begin = set_begin(each, mem.first_slot[core, level], line)
        if level > nearest:
            if each.exclusive or (each.instances == 1 and not is_first):
                continue
            if each.instances > 1 and find_deep(mem.tag, begin, each.ways, line) < begin + np.uint64(each.ways):
                continue
        tag = line << FLAG_BITS
        if is_shared:
            tag |= SHARED
        if is_dirty and (level == last and level > nearest if is_shared else level == nearest):
            tag |= DIRTY
        left = insert(mem.tag, begin, each.ways, tag)
        if level == 0:
            insert(mem.ready, begin, each.ways, 0.0)
        if level == nearest and memory.groups > 1:
            place = look_up(mem.directory, line)
            if mem.directory[place, 0] == FREE:
                set_alone(mem.directory, place, line, mem.core[core].group)
            else:
                add_group(mem.directory, place, mem.core[core].group)
            if is_shared:
                mem.directory[place, 0] |= 1
        if left != EMPTY:
            evict(mem, level, core, left, _UNTIMED, nobody)
