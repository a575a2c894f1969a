"""Sets of LRU caches as rows of tags in order of use, the latest first, empty ones last.

A tag is line << FLAG_BITS | flags. Most accesses find their line in the first place; a miss shifts all. Beside the tags
of first levels stands ``ready``: no load of the line is complete before that cycle. Of other levels' lines a table
tells that (``wait_for``): it has one place for many lines, so of two that are on their way at once and share one, the
earlier asked for is taken to be there. Times beside all tags would take twice the room in the host's caches.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import inner_inlined

FLAG_BITS: Final = 3
DIRTY: Final = 1
SHARED: Final = 2  # others may hold the line, too
OUTERMOST: Final = 4  # of the group's private levels none further out holds the line, though one is there
EMPTY: Final = -1

COMING: Final = np.dtype([("line", "i8"), ("ready", "f8")])
NUM_COMING: Final = 1 << 14  # places: far more than line fill buffers and prefetches of many cores
_ONE: Final = np.uint64(1)  # unsigned: a signed index may count from the end, which is looked at each time


@inner_inlined
def level_of(mem, core, level):  # type: ignore[no-untyped-def]
    """What a level is to a core: private ones of other kinds of cores are others. O(1)."""
    return mem.level[mem.core[core].first_level + level]


@inner_inlined
def set_begin(level, first, line):  # type: ignore[no-untyped-def]
    """First place of the line's set in the instance whose places begin at ``first``. O(1)."""
    mask = level.mask
    return np.uint64(first + (line & mask if mask >= 0 else line % level.sets) * level.ways)


@inner_inlined
def find(tags, begin, ways, line):  # type: ignore[no-untyped-def]
    """Place of the line in its set, ``begin`` + ``ways`` if it is not there. O(ways)."""
    end = begin + np.uint64(ways)
    place = begin
    while place < end and tags[place] >> FLAG_BITS != line:
        place += _ONE
    return place


@inner_inlined
def find_deep(tags, begin, ways, line):  # type: ignore[no-untyped-def]
    """As ``find``, for sets that are seldom hit at their front: all tags are looked at, several at once. O(ways)."""
    found = np.uint64(0)
    for way in range(np.uint64(ways)):
        found += (way + _ONE) * np.uint64(tags[begin + way] >> FLAG_BITS == line)
    return begin + (found - _ONE if found else np.uint64(ways))


@inner_inlined
def to_front(tags, begin, place):  # type: ignore[no-untyped-def]
    """What stands at a place (a tag, or beside it) was used. O(place)."""
    used = tags[place]
    while place > begin:
        tags[place] = tags[place - _ONE]
        place -= _ONE
    tags[begin] = used


@inner_inlined
def insert(tags, begin, ways, tag):  # type: ignore[no-untyped-def]
    """A line (or what stands beside its tag) enters as the latest: what leaves, EMPTY if nothing does. O(ways)."""
    place = begin + np.uint64(ways - 1)
    left = tags[place]
    while place > begin:
        tags[place] = tags[place - _ONE]
        place -= _ONE
    tags[begin] = tag
    return left


@inner_inlined
def remove(tags, begin, ways, place, nothing):  # type: ignore[no-untyped-def]
    """A line leaves; its place, with ``nothing``, becomes the last. O(ways)."""
    last = begin + np.uint64(ways - 1)
    while place < last:
        tags[place] = tags[place + _ONE]
        place += _ONE
    tags[last] = nothing


@inner_inlined
def coming_place(line):  # type: ignore[no-untyped-def]
    """Where ``coming`` tells of a line. O(1)."""
    return np.uint64(line & (NUM_COMING - 1))


@inner_inlined
def comes_at(coming, line, ready):  # type: ignore[no-untyped-def]
    """A line will be there at ``ready``. O(1)."""
    place = coming[coming_place(line)]
    place.line = line
    place.ready = ready


@inner_inlined
def wait_for(coming, line, cycle):  # type: ignore[no-untyped-def]
    """When a line is there, if not before ``cycle``. O(1)."""
    place = coming[coming_place(line)]
    return max(cycle, place.ready) if place.line == line else cycle
