"""Kernels of the exact stack-distance engine: an LRU stack as live slots of time, counted by a tree above bits.

Every access takes the next slot, and a unit lives in the slot of its last use: a stack distance is the number of live
slots behind that one (Bennett and Kruskal, IBM J. Res. Dev. 19(4), 1975, who count them with a binary tree). Here a bit
says whether a slot is live, and levels of counts, each of FANOUT below, stand above the words of 64 bits. Nothing lives
behind now, so of each level only the rest of one group is summed, and a short distance never leaves the bits. When the
slots run out, the live ones get new numbers (``renumber``), so their number follows the distinct units.

``table`` (``unit_table``) knows the slot of each unit. ``position`` int64[3]: next slot, distinct units, last unit.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.memory.distances.unit_table import find, group_shift, home, popcount

NOW, DISTINCT, LAST = range(3)
_FANOUT_BITS: Final = 5
FANOUT: Final = 1 << _FANOUT_BITS  # words per fine count, counts per count of the next level
FINE, MIDDLE, COARSE = (6 + level * _FANOUT_BITS for level in (1, 2, 3))  # log2 of the slots per count
AHEAD: Final = 256  # accesses whose places in a table are read ahead


class Slots(NamedTuple):
    """``words`` uint64[]: the bits; ``fine``, ``middle``, ``coarse`` int32[]: live slots of each 2^11, 2^16, 2^21."""

    words: np.ndarray
    fine: np.ndarray
    middle: np.ndarray
    coarse: np.ndarray


@njit(cache=True, nogil=True)
def feed(unit, table, slots, position, max_distinct, distance):  # type: ignore[no-untyped-def]
    """Distances of accesses, -1 for first uses, until units or slots run out. Returns how many were done.

    O(accesses log(slots)).
    """
    words, fine, middle, coarse = slots
    shift = group_shift(table)
    homes = np.empty(AHEAD, np.int64)
    is_home = np.empty(AHEAD, np.bool_)  # not used: what counts is that the table was read
    now, num_distinct, last = position[NOW], position[DISTINCT], position[LAST]
    end_slot = words.shape[0] << 6
    done, is_full = 0, False
    while done < unit.shape[0] and not is_full:
        num_ahead = min(AHEAD, unit.shape[0] - done)
        for k in range(num_ahead):
            homes[k] = home(unit[done + k], shift)
        for k in range(num_ahead):
            is_home[k] = table[homes[k], 0] == unit[done + k]
        for k in range(num_ahead):
            this = unit[done + k]
            if this == last and num_distinct > 0:
                distance[done + k] = 0
                continue
            if now == end_slot or num_distinct == max_distinct:
                num_ahead, is_full = k, True
                break
            place = find(table, this, homes[k])
            before = table[place, 1]
            if before < 0:
                distance[done + k] = -1
                table[place, 0] = this
                num_distinct += 1
            else:
                distance[done + k] = _num_live_behind(before, now, words, fine, middle, coarse)
                words[before >> 6] &= ~(np.uint64(1) << np.uint64(before & 63))
                fine[before >> FINE] -= 1
                middle[before >> MIDDLE] -= 1
                coarse[before >> COARSE] -= 1
            table[place, 1] = now
            words[now >> 6] |= np.uint64(1) << np.uint64(now & 63)
            fine[now >> FINE] += 1
            middle[now >> MIDDLE] += 1
            coarse[now >> COARSE] += 1
            last = this
            now += 1
        done += num_ahead
    position[NOW], position[DISTINCT], position[LAST] = now, num_distinct, last
    return done


@njit(cache=True, nogil=True, inline="always")
def _num_live_behind(slot, now, words, fine, middle, coarse):  # type: ignore[no-untyped-def]
    """Live slots in (slot, now). O(FANOUT log(slots)), and O((now - slot) / 64) where that is less."""
    word, now_word = slot >> 6, now >> 6
    total = popcount((words[word] >> np.uint64(slot & 63)) >> np.uint64(1))
    end = min(word | (FANOUT - 1), now_word)
    for i in range(word + 1, end + 1):
        total += popcount(words[i])
    if end == now_word:
        return total
    total += _rest_of_group(fine, slot >> FINE, now >> FINE)
    if slot >> MIDDLE == now >> MIDDLE:
        return total
    total += _rest_of_group(middle, slot >> MIDDLE, now >> MIDDLE)
    for i in range((slot >> COARSE) + 1, (now >> COARSE) + 1):
        total += coarse[i]
    return total


@njit(cache=True, nogil=True, inline="always")
def _rest_of_group(counts, first, last):  # type: ignore[no-untyped-def]
    """Sum of the counts behind ``first`` in its group, none of them behind ``last``. O(FANOUT)."""
    total = 0
    for i in range(first + 1, min(first | (FANOUT - 1), last) + 1):
        total += counts[i]
    return total


@njit(cache=True, nogil=True)
def renumber(table, words):  # type: ignore[no-untyped-def]
    """Numbers the live slots in the table from 0, in their order. O(capacity + slots / 64)."""
    num_before = np.empty(words.shape[0], np.int64)
    total = 0
    for i in range(words.shape[0]):
        num_before[i] = total
        total += popcount(words[i])
    for i in range(table.shape[0]):
        slot = table[i, 1]
        if slot >= 0:
            below = (np.uint64(1) << np.uint64(slot & 63)) - np.uint64(1)
            table[i, 1] = num_before[slot >> 6] + popcount(words[slot >> 6] & below)
