"""Sets of LRU caches as rows of slots in order of use, the latest first, empty ones last.

A slot is a tag (line << FLAG_BITS | flags) and ``ready``: no load of the line is complete before that cycle. Most
accesses find their line in the first slot; a miss shifts all.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import inlined

SLOT: Final = np.dtype([("tag", "i8"), ("ready", "f8")])
FLAG_BITS: Final = 3
DIRTY: Final = 1
SHARED: Final = 2  # others may hold the line, too
OUTERMOST: Final = 4  # of the group's private levels none further out holds the line, though one is there
EMPTY: Final = -1


@inlined
def set_begin(level, first, line):  # type: ignore[no-untyped-def]
    """First slot of the line's set in the instance whose slots begin at ``first``. O(1)."""
    mask = level.mask
    return np.uint64(first + (line & mask if mask >= 0 else line % level.sets) * level.ways)


@inlined
def find(slot, begin, ways, line):  # type: ignore[no-untyped-def]
    """Place of the line in its set, ``begin`` + ``ways`` if it is not there. O(ways)."""
    end = begin + np.uint64(ways)  # unsigned: a signed index may count from the end, which is looked at each time
    place = begin
    while place < end and slot[place].tag >> FLAG_BITS != line:
        place += np.uint64(1)
    return place


@inlined
def to_front(slot, begin, place):  # type: ignore[no-untyped-def]
    """A slot was used. O(place)."""
    one = np.uint64(1)
    tag, ready = slot[place].tag, slot[place].ready
    while place > begin:
        slot[place].tag = slot[place - one].tag
        slot[place].ready = slot[place - one].ready
        place -= one
    slot[begin].tag = tag
    slot[begin].ready = ready


@inlined
def insert(slot, begin, ways, tag, ready):  # type: ignore[no-untyped-def]
    """A line enters as the latest: tag and ready time of what leaves, EMPTY if nothing does. O(ways)."""
    one = np.uint64(1)
    place = begin + np.uint64(ways - 1)
    left_tag, left_ready = slot[place].tag, slot[place].ready
    while place > begin:
        slot[place].tag = slot[place - one].tag
        slot[place].ready = slot[place - one].ready
        place -= one
    slot[begin].tag = tag
    slot[begin].ready = ready
    return left_tag, left_ready


@inlined
def remove(slot, begin, ways, place):  # type: ignore[no-untyped-def]
    """A line leaves; its slot becomes the last. O(ways)."""
    one = np.uint64(1)
    last = begin + np.uint64(ways - 1)
    while place < last:
        slot[place].tag = slot[place + one].tag
        slot[place].ready = slot[place + one].ready
        place += one
    slot[last].tag = EMPTY
    slot[last].ready = 0.0
