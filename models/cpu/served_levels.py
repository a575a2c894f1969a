"""Which level of the hierarchy serves each access, as the dataflow model asks: least recently used lines in sets, each
level filled on its miss, lines of a sequence foreseen by the nearest prefetcher.

Simplifications: every level allocates on loads and stores; nothing is invalidated from outside; addresses are used as
they are (no page frames); an access that straddles lines counts as the farther of its lines, and its first page is
translated. A prefetcher is said to foresee a line if the same static access has come to it, inside a page, by the same
step as to the ``confirm`` lines before; as many sequences are followed as there are static accesses.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.cpu.dataflow_kernel import SEEN_SHIFT, TRANSLATION_SHIFT
from manyscale.models.kernels import njit
from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches, needed

_NOTHING: Final = -1


class _Lru(NamedTuple):
    """Levels of least recently used entries: ``sets``, ``ways`` int64[levels]; ``tags`` int64[], of each set the latest
    first, those of level i from ``offsets[i]`` on."""

    sets: np.ndarray
    ways: np.ndarray
    offsets: np.ndarray
    tags: np.ndarray


def _levels(sets: list[int], ways: list[int]) -> _Lru:
    sizes = np.array(sets, np.int64) * np.array(ways, np.int64)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    return _Lru(np.array(sets, np.int64), np.array(ways, np.int64), offsets, np.full(offsets[-1], _NOTHING, np.int64))


class ServedLevels:
    """The caches of one core, to be fed a stream in pieces. Raises ValueError where the node lacks a geometry."""

    def __init__(self, node: Node, num_sites: int) -> None:
        caches = data_caches(node.caches)
        if not caches:
            raise ValueError("node.caches is not given; add it to the machine")
        for name, cache in caches.items():
            needed(cache.line_bytes, "line", f"node.caches.{name}.")
            needed(cache.ways, "ways", f"node.caches.{name}.")
        first = next(iter(caches.values()))
        if any(cache.line_bytes != first.line_bytes for cache in caches.values()):
            raise ValueError("node.caches: the dataflow model needs lines of one size")
        self._caches = _levels(
            [cache.num_sets for cache in caches.values()], [cache.ways or 0 for cache in caches.values()]
        )
        tlbs = list(node.tlbs.values())
        if len(caches) > 7 or len(tlbs) > 3:
            raise ValueError("node: the dataflow model knows up to 7 data caches and 3 TLBs")
        self._page_shift = min((tlb.page_bytes for tlb in tlbs), default=4096).bit_length() - 1
        self._translation = _levels([tlb.entries // tlb.ways for tlb in tlbs], [tlb.ways for tlb in tlbs])
        self._last_page = np.full(1, _NOTHING, np.int64)
        self._line_shift = needed(first.line_bytes, "line").bit_length() - 1
        fetching = [(k, cache.prefetcher) for k, cache in enumerate(caches.values()) if cache.prefetcher]
        self._prefetching_level, prefetcher = fetching[0] if fetching else (len(caches), None)
        self._confirm = prefetcher.confirm if prefetcher else 0
        self._page_lines = (prefetcher.page_bytes >> self._line_shift) if prefetcher else 1
        # last line, step, times in a row that it was the same
        self._sequences = np.zeros((num_sites, 3), np.int64)

    def feed(self, addresses: np.ndarray, num_bytes: np.ndarray, site: np.ndarray) -> np.ndarray:
        """uint8[n]: codes of accesses by sites ``site`` (int32[n]) to ``num_bytes`` (int32[n]) from ``addresses``
        (uint64[n]) on. O(n x ways)."""
        result = np.empty(len(addresses), np.uint8)
        _look_up(
            addresses,
            num_bytes,
            site,
            self._caches,
            (self._translation, self._page_shift, self._last_page),
            (self._sequences, self._prefetching_level, self._confirm, self._page_lines),
            self._line_shift,
            result,
        )
        return result


@njit(cache=True, nogil=True)
def _foreseen(sequences, page_lines, site, line):  # type: ignore[no-untyped-def]
    """How many times in a row the lines of ``site`` have gone on by the same step inside their page. O(1)."""
    step = line - sequences[site, 0]
    if step != 0:
        same = step == sequences[site, 1] and line // page_lines == sequences[site, 0] // page_lines
        sequences[site, 2] = sequences[site, 2] + 1 if same else 0
        sequences[site, 0], sequences[site, 1] = line, step
    return sequences[site, 2]


@njit(cache=True, nogil=True)
def _find(levels, unit):  # type: ignore[no-untyped-def]
    """The first level that holds ``unit``, or how many there are; it is the latest of all up to there. O(ways)."""
    served = 0
    while served < levels.sets.shape[0]:
        base = levels.offsets[served] + (unit % levels.sets[served]) * levels.ways[served]
        place = 0
        while place < levels.ways[served] and levels.tags[base + place] != unit:
            place += 1
        hit = place < levels.ways[served]
        place = min(place, levels.ways[served] - 1)
        while place > 0:
            levels.tags[base + place] = levels.tags[base + place - 1]
            place -= 1
        levels.tags[base] = unit
        if hit:
            break
        served += 1
    return served


@njit(cache=True, nogil=True)
def _look_up(addresses, num_bytes, site, caches, translation, prefetcher, line_shift, result):  # type: ignore[no-untyped-def]
    """O(accesses x ways)."""
    tlbs, page_shift, last_page = translation
    sequences, prefetching_level, confirm, page_lines = prefetcher
    shift = np.uint64(line_shift)
    for i in range(addresses.shape[0]):
        line = np.int64(addresses[i] >> shift)
        last = np.int64((addresses[i] + np.uint64(max(num_bytes[i], 1) - 1)) >> shift)
        page = np.int64(addresses[i] >> np.uint64(page_shift))
        code = 0
        while line <= last:
            latest = (line % caches.sets[0]) * caches.ways[0]
            served = 0 if caches.tags[latest] == line else _find(caches, line)
            foreseen = _foreseen(sequences, page_lines, site[i], line) >= confirm
            if served > 0:
                seen = prefetching_level if foreseen and prefetching_level < served else served
                code = max(code, served | (seen << SEEN_SHIFT))
            line += 1
        if page != last_page[0]:
            code |= _find(tlbs, page) << TRANSLATION_SHIFT
            last_page[0] = page
        result[i] = code
