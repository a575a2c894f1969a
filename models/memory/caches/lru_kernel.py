"""Caches as they mostly are: LRU, write-back and write-allocate, one core, lines of one size, nothing promised about
what levels share. And TLBs, which are such caches of pages. (``set_sampling`` has the same sets, of loads alone.)

A set is a row of tags in order of use, the latest first. A hit moves its tag to the front, so most are found at once; a
miss shifts all, and the last falls out. A tag is twice the line plus whether it is dirty. (For up to 16 ways this is
faster than to search for many tags at once in fixed places, and to keep their order beside.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, inlined, njit
from manyscale.models.memory.caches.counts import Counter, Reference
from manyscale.models.memory.caches.page_frames import framed_unit

EMPTY: Final = -1
HIT: Final = -2
AHEAD: Final = 16

# columns of the geometry: where tags begin, sets, ways, sets - 1 if a power of two else -1, log2 of a line's bytes
OFFSET, SETS, WAYS, MASK, SHIFT = 0, 1, 2, 3, 4
# Counter and Reference, as plain integers; stores' hits and misses come two after loads'
LOAD_HITS, LOAD_MISSES = int(Counter.load_hits), int(Counter.load_misses)
VICTIM_HITS, VICTIM_MISSES = int(Counter.victim_hits), int(Counter.victim_misses)
EVICTIONS, WRITE_BACKS = int(Counter.evictions), int(Counter.write_backs)
STRADDLING, EXTRA_LINES = int(Reference.straddling), int(Reference.extra_lines)
EXTRA_MISSES: Final = int(Reference.extra_misses)


class Requests(NamedTuple):
    """What is accessed, in order: ``address`` uint64[n], ``site`` int32[n]; ``num_bytes`` int32[] and ``is_store``
    bool[] by site, or by access."""

    address: np.ndarray
    site: np.ndarray
    num_bytes: np.ndarray
    is_store: np.ndarray


def empty_sets(sets_ways_unit: Sequence[tuple[int, int, int]], num_copies: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Geometry of levels of so many sets of so many ways, of units of so many bytes (a power of two), and the tags of
    their empty sets, ``num_copies`` (cores) times."""
    offset, rows = 0, []
    for sets, ways, unit_bytes in sets_ways_unit:
        mask = sets - 1 if sets & (sets - 1) == 0 else -1
        rows.append((offset, sets, ways, mask, unit_bytes.bit_length() - 1))
        offset += sets * ways
    return np.array(rows, np.int64), np.full(offset * num_copies, EMPTY, np.int64)


@inlined
def _set_of(geometry, level, line):  # type: ignore[no-untyped-def]
    """O(1)."""
    mask = geometry[level, MASK]
    return line & mask if mask >= 0 else line % geometry[level, SETS]


@inlined
def _move_to_front(tag, base, ways, line, is_dirty):  # type: ignore[no-untyped-def]
    """HIT, or what fell out: a tag or EMPTY. O(ways), of a hit O(its place)."""
    first = np.uint64(base)  # unsigned: a signed index may count from the end, which is looked at each time
    carried = tag[first]
    if carried >> 1 == line:
        tag[first] = carried | is_dirty
        return HIT
    for place in range(first + np.uint64(1), first + np.uint64(ways)):
        here = tag[place]
        tag[place] = carried
        if here >> 1 == line:
            tag[first] = here | is_dirty
            return HIT
        carried = here
    tag[first] = line << 1 | is_dirty
    return carried


@inlined
def use(geometry, tag, level, line, is_dirty):  # type: ignore[no-untyped-def]
    """``_move_to_front`` in the line's set of a level: HIT, or what fell out. O(ways), of a hit O(its place)."""
    ways = geometry[level, WAYS]
    base = geometry[level, OFFSET] + _set_of(geometry, level, line) * ways
    return _move_to_front(tag, base, ways, line, is_dirty)


@allocation_free
def _write_back(geometry, tag, counts, site, level, line):  # type: ignore[no-untyped-def]
    """A dirty line leaves a level, and may push others out on its way. O(levels * ways)."""
    num_levels = geometry.shape[0]
    while True:
        counts[level, WRITE_BACKS, site] += 1
        level += 1
        if level == num_levels:
            counts[level, VICTIM_HITS, site] += 1
            return
        left = use(geometry, tag, level, line, 1)
        if left == HIT:
            counts[level, VICTIM_HITS, site] += 1
            return
        counts[level, VICTIM_MISSES, site] += 1
        if left == EMPTY:
            return
        counts[level, EVICTIONS, site] += 1
        if left & 1 == 0:
            return
        line = left >> 1


@inlined
def _fetch(geometry, tag, counts, victims, site, line):  # type: ignore[no-untyped-def]
    """A line that the first level has made room for comes from the others; then what they evicted goes, that of the
    furthest first. O(levels * ways)."""
    num_levels = geometry.shape[0]
    level = 1
    while level < num_levels:
        left = use(geometry, tag, level, line, 0)
        if left == HIT:
            break
        counts[level, LOAD_MISSES, site] += 1
        victims[level] = left
        level += 1
    counts[level, LOAD_HITS, site] += 1
    for nearer in range(level - 1, -1, -1):
        left = victims[nearer]
        if left != EMPTY:
            counts[nearer, EVICTIONS, site] += 1
            if left & 1:
                _write_back(geometry, tag, counts, site, nearer, left >> 1)


@allocation_free
def _look_ahead(address, first, shift, pages, geometry, tag):  # type: ignore[no-untyped-def]
    """Read the sets of the last level that the next accesses may need: reads that wait for nothing are done side by
    side, while an access that finds its set in the host's far caches or memory holds up all that follow. O(AHEAD)."""
    level, total = geometry.shape[0] - 1, 0
    ways = geometry[level, WAYS]
    for i in range(first, min(first + AHEAD, address.shape[0])):
        line = framed_unit(np.int64(address[i] >> shift), pages)
        base = geometry[level, OFFSET] + _set_of(geometry, level, line) * ways
        total += tag[base] + tag[base + ways - 1]
    return total


@njit(cache=True, nogil=True)
def run_caches(accesses, by_site, pages, geometry, tag, counts, references):  # type: ignore[no-untyped-def]
    """Make ``accesses`` (Requests) in order; sizes and stores are given ``by_site``, or by access. O(accesses * levels
    * ways), O(1) for a line that its set used last."""
    address, site, num_bytes, is_store = accesses
    victims = np.empty(geometry.shape[0] + 1, np.int64)  # and a place for what nobody needs
    is_framed = pages[0] != 0
    num_missed = 0  # of the last AHEAD accesses
    sets, ways, mask, shift = geometry[0, SETS], geometry[0, WAYS], geometry[0, MASK], np.uint64(geometry[0, SHIFT])
    for first in range(0, address.shape[0], AHEAD):
        if num_missed > AHEAD // 4:
            victims[-1] = _look_ahead(address, first, shift, pages, geometry, tag)
        num_missed = 0
        for i in range(first, min(first + AHEAD, address.shape[0])):
            which = np.uint64(site[i])
            at = which if by_site else np.uint64(i)
            is_dirty = np.int64(is_store[at])
            line = np.int64(address[i] >> shift)
            last = np.int64((address[i] + np.uint64(max(num_bytes[at], 1) - 1)) >> shift)
            if last != line:
                references[STRADDLING, which] += 1
                references[EXTRA_LINES, which] += last - line
            misses = 0
            while line <= last:
                own = framed_unit(line, pages) if is_framed else line
                line += 1
                base = (own & mask if mask >= 0 else own % sets) * ways
                latest = tag[np.uint64(base)]
                if latest >> 1 == own:
                    if is_dirty > latest & 1:
                        tag[np.uint64(base)] = latest | 1
                    counts[0, 2 * is_dirty, which] += 1
                    continue
                left = _move_to_front(tag, base, ways, own, is_dirty)
                if left == HIT:
                    counts[0, 2 * is_dirty, which] += 1
                    continue
                counts[0, 2 * is_dirty + 1, which] += 1
                misses += 1
                victims[0] = left
                _fetch(geometry, tag, counts, victims, which, own)
            num_missed += misses
            if misses > 1:
                references[EXTRA_MISSES, which] += misses - 1


@njit(cache=True, nogil=True)
def run_tlbs(accesses, by_site, core, num_sites, geometry, tag, counts):  # type: ignore[no-untyped-def]
    """Translate each page of each access; the TLBs of a core follow those of the core before. ``core`` is empty where
    all accesses are core 0's. O(accesses * tlbs * ways), O(1) for a page that its set used last."""
    address, site, num_bytes, _ = accesses
    num_levels = geometry.shape[0]
    slots_per_core = geometry[num_levels - 1, OFFSET] + geometry[num_levels - 1, SETS] * geometry[num_levels - 1, WAYS]
    shift = geometry[0, SHIFT]
    for i in range(address.shape[0]):
        of_core = np.int64(core[i]) if core.shape[0] else 0
        label = of_core * num_sites + site[i]
        size = num_bytes[site[i] if by_site else i]
        page = np.int64(address[i] >> np.uint64(shift))
        last = np.int64((address[i] + np.uint64(max(size, 1) - 1)) >> np.uint64(shift))
        while page <= last:
            for level in range(num_levels):
                own = page << shift >> geometry[level, SHIFT]
                ways = geometry[level, WAYS]
                base = of_core * slots_per_core + geometry[level, OFFSET] + _set_of(geometry, level, own) * ways
                if _move_to_front(tag, base, ways, own, 0) == HIT:
                    counts[level, 0, label] += 1
                    break
                counts[level, 1, label] += 1
            page += 1
