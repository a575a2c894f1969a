"""Which groups of cores hold a line in their private caches: a hash table with a bit mask per line.

An entry is (line << 1 | whether several hold it and none has modified it, mask of groups in words of 63 bits). Entries
of four neighbouring lines lie side by side. Open addressing; what follows a deleted entry moves up, so there are no
traces of former ones. The table has at least twice as many places as all private caches have lines, and an entry is
deleted with its last holder.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import inner, inner_inlined, separate

WORD_BITS: Final = 63  # masks stay positive
FREE: Final = -1


def new_directory(num_lines: int, num_groups: int) -> np.ndarray:
    """int64[places, 1 + words], empty, with room for ``num_lines`` different lines."""
    places = 1 << max(4, (2 * num_lines - 1).bit_length())
    return np.full((places, 1 + -(-num_groups // WORD_BITS)), FREE, np.int64)


@inner_inlined
def home_of_entry(directory, line):  # type: ignore[no-untyped-def]
    """Where an entry belongs. O(1)."""
    mixed = np.uint64(line >> 2) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    return (np.int64(mixed << np.uint64(2)) | (line & 3)) & (directory.shape[0] - 1)


@inner_inlined
def look_up(directory, line):  # type: ignore[no-untyped-def]
    """Place of the line's entry, or of the free one where it belongs. Expected O(1)."""
    place = home_of_entry(directory, line)
    while True:
        key = directory[np.uint64(place), 0]
        if key >> 1 == line or key == FREE:
            return np.uint64(place)
        place = (place + 1) & (directory.shape[0] - 1)


@inner_inlined
def set_alone(directory, place, line, group):  # type: ignore[no-untyped-def]
    """Write the entry of a line that one group holds, and no other. O(words)."""
    directory[place, 0] = line << 1
    for word in range(1, directory.shape[1]):
        directory[place, word] = 0
    directory[place, 1 + group // WORD_BITS] = 1 << (group % WORD_BITS)


@inner_inlined
def add_group(directory, place, group):  # type: ignore[no-untyped-def]
    """O(1)."""
    directory[place, 1 + group // WORD_BITS] |= 1 << (group % WORD_BITS)


@inner_inlined
def expect_dirty(directory, line):  # type: ignore[no-untyped-def]
    """A group gets the line modified though others hold it, too. Expected O(1)."""
    place = look_up(directory, line)
    if directory[place, 0] != FREE:
        directory[place, 0] &= ~1


@separate
def next_group(directory, place, group):  # type: ignore[no-untyped-def]
    """The first group from ``group`` on that holds the line, -1 if there is none. O(groups)."""
    word, bit = group // WORD_BITS, group % WORD_BITS
    while word < directory.shape[1] - 1:
        mask = directory[place, 1 + word] >> bit
        while mask:
            if mask & 0xFF:
                while mask & 1 == 0:
                    mask >>= 1
                    bit += 1
                return word * WORD_BITS + bit
            mask >>= 8
            bit += 8
        word += 1
        bit = 0
    return -1


@separate
def _delete(directory, place):  # type: ignore[no-untyped-def]
    """Free an entry, and move those behind it up that belong before. Expected O(1)."""
    last = directory.shape[0] - 1
    hole = place
    here = (place + 1) & last
    while directory[here, 0] != FREE:
        home = home_of_entry(directory, directory[here, 0] >> 1)
        if (here - home) & last >= (here - hole) & last:
            for word in range(directory.shape[1]):
                directory[hole, word] = directory[here, word]
            hole = here
        here = (here + 1) & last
    directory[hole, 0] = FREE


@inner
def remove_group(directory, line, group):  # type: ignore[no-untyped-def]
    """The group does not hold the line any more. Expected O(1)."""
    place = look_up(directory, line)
    if directory[place, 0] == FREE:
        return
    directory[place, 1 + group // WORD_BITS] &= ~(1 << (group % WORD_BITS))
    for word in range(1, directory.shape[1]):
        if directory[place, word]:
            return
    _delete(directory, np.int64(place))
