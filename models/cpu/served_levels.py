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

from manyscale.models.cpu.dataflow_tables import SEEN_SHIFT, TRANSLATION_SHIFT
from manyscale.models.kernels import allocation_free, by_reference, inner, inner_inlined, read_only
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


class _Path(NamedTuple):
    """``caches``, and levels of translation buffers; of each access's site ``sequence`` int64[sites, 3]: last line,
    step, times in a row that it was the same. ``control``: one record."""

    caches: _Lru
    translation: _Lru
    sequence: np.ndarray
    control: np.ndarray


# ``prefetching``: the level that prefetches; ``page_lines``: lines of a page that its prefetcher stays in
_CONTROL: Final = np.dtype(
    [
        ("line_shift", "i8"), ("page_shift", "i8"), ("last_page", "i8"), ("prefetching", "i8"), ("confirm", "i8"),
        ("page_lines", "i8"),
    ]
)  # fmt: skip


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
        tlbs = list(node.tlbs.values())
        if len(caches) > 7 or len(tlbs) > 3:
            raise ValueError("node: the dataflow model knows up to 7 data caches and 3 TLBs")
        control = np.zeros(1, _CONTROL)
        line_shift = needed(first.line_bytes, "line").bit_length() - 1
        control["line_shift"], control["last_page"] = line_shift, _NOTHING
        control["page_shift"] = min((tlb.page_bytes for tlb in tlbs), default=4096).bit_length() - 1
        fetching = [(k, cache.prefetcher) for k, cache in enumerate(caches.values()) if cache.prefetcher]
        control["prefetching"], prefetcher = fetching[0] if fetching else (len(caches), None)
        control["confirm"] = prefetcher.confirm if prefetcher else 0
        control["page_lines"] = (prefetcher.page_bytes >> line_shift) if prefetcher else 1
        self._path = _Path(
            _levels([cache.num_sets for cache in caches.values()], [cache.ways or 0 for cache in caches.values()]),
            _levels([tlb.entries // tlb.ways for tlb in tlbs], [tlb.ways for tlb in tlbs]),
            np.zeros((num_sites, 3), np.int64),
            control,
        )

    def feed(self, addresses: np.ndarray, num_bytes: np.ndarray, site: np.ndarray) -> np.ndarray:
        """uint8[n]: codes of accesses by sites ``site`` (int32[n]) to ``num_bytes`` (int32[n]) from ``addresses``
        (uint64[n]) on. O(n x ways)."""
        result = np.empty(len(addresses), np.uint8)
        columns = (addresses, np.uint64), (num_bytes, np.int32), (site, np.int32)
        _look_up(self._path, *(read_only(column, dtype) for column, dtype in columns), result)
        return result


@inner_inlined
def _foreseen(path, site, line):  # type: ignore[no-untyped-def]
    """How many times in a row the lines of ``site`` have gone on by the same step inside their page. O(1)."""
    sequence, page_lines = path.sequence, path.control[0].page_lines
    step = line - sequence[site, 0]
    if step != 0:
        same = step == sequence[site, 1] and line // page_lines == sequence[site, 0] // page_lines
        sequence[site, 2] = sequence[site, 2] + 1 if same else 0
        sequence[site, 0] = line
        sequence[site, 1] = step
    return sequence[site, 2]


@inner
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


@allocation_free
def _look_up(path, addresses, num_bytes, site, result):  # type: ignore[no-untyped-def]
    """O(accesses x ways)."""
    path = by_reference(path)
    control, caches = path.control[0], path.caches
    shift = np.uint64(control.line_shift)
    for i in range(addresses.shape[0]):
        line = np.int64(addresses[i] >> shift)
        last = np.int64((addresses[i] + np.uint64(max(num_bytes[i], 1) - 1)) >> shift)
        page = np.int64(addresses[i] >> np.uint64(control.page_shift))
        code = 0
        while line <= last:
            latest = (line % caches.sets[0]) * caches.ways[0]
            served = 0 if caches.tags[latest] == line else _find(caches, line)
            foreseen = _foreseen(path, site[i], line) >= control.confirm
            if served > 0:
                seen = control.prefetching if foreseen and control.prefetching < served else served
                code = max(code, served | (seen << SEEN_SHIFT))
            line += 1
        if page != control.last_page:
            code |= _find(path.translation, page) << TRANSLATION_SHIFT
            control.last_page = page
        result[i] = code
