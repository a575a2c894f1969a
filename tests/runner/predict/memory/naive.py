"""Caches and stack distances by the plainest code that there is, for the tests of the memory commands, and their input:
texts of lackey, a machine with small caches."""

from __future__ import annotations

import lzma
import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

DETAIL = Path(__file__).parents[3] / "data" / "detail"
COLD = -1

Access = tuple[int, int, bool]  # address, bytes, whether it stores


def lackey_accesses(path: Path) -> list[Access]:
    """The accesses of a lackey trace; one that modifies is a load and a store."""
    found = []
    for row in lzma.decompress(path.read_bytes()).decode().splitlines():
        kind, _, place = row.strip().partition(" ")
        if kind in ("L", "S", "M"):
            address, _, size = place.strip().partition(",")
            stores = {"L": [False], "S": [True], "M": [False, True]}[kind]
            found += [(int(address, 16), int(size), is_store) for is_store in stores]
    return found


def lines_of(accesses: Iterable[Access], line_bytes: int = 64) -> list[int]:
    """The lines accessed; an access that straddles lines is one of each."""
    return [line for line, _ in line_accesses(accesses, line_bytes)]


def line_accesses(accesses: Iterable[Access], line_bytes: int = 64) -> list[tuple[int, bool]]:
    """The lines accessed, and whether the access stores."""
    return [
        (line, is_store)
        for address, size, is_store in accesses
        for line in range(address // line_bytes, (address + size - 1) // line_bytes + 1)
    ]


def stack_distances(units: Sequence[int]) -> Counter[int]:
    """How often each stack distance occurs, by a list whose front is the unit used last."""
    stack: list[int] = []
    found: Counter[int] = Counter()
    for unit in units:
        if unit in stack:
            place = stack.index(unit)
            del stack[place]
        else:
            place = COLD
        found[place] += 1
        stack.insert(0, unit)
    return found


class LruCache:
    """A cache of ``num_sets`` sets of ``ways`` lines, each clean or dirty."""

    def __init__(self, num_sets: int, ways: int) -> None:
        self.ways = ways
        self.sets: list[OrderedDict[int, bool]] = [OrderedDict() for _ in range(num_sets)]

    def holds(self, line: int) -> bool:
        return line in self.sets[line % len(self.sets)]

    def use(self, line: int, is_dirty: bool) -> int | None:
        """Make a line the last used one; the dirty line that had to leave for it."""
        mine = self.sets[line % len(self.sets)]
        mine[line] = mine.get(line, False) or is_dirty
        mine.move_to_end(line)
        if len(mine) <= self.ways:
            return None
        left, is_dirty = mine.popitem(last=False)
        return left if is_dirty else None


def misses(accesses: Iterable[tuple[int, bool]], *geometries: tuple[int, int]) -> list[int]:
    """Misses of caches of (sets, ways), one behind the other, of accesses (line, whether it stores). A line that one
    misses is fetched from the next; then what is dirty and had to leave is written to the next."""
    caches = [LruCache(*geometry) for geometry in geometries]
    found = [0] * len(caches)

    def fetch(level: int, line: int, is_store: bool) -> None:
        if level == len(caches):
            return
        if not caches[level].holds(line):
            found[level] += 1
            fetch(level + 1, line, False)
        write_back(level + 1, caches[level].use(line, is_store))

    def write_back(level: int, line: int | None) -> None:
        if line is not None and level < len(caches):
            write_back(level + 1, caches[level].use(line, True))

    for line, is_store in accesses:
        fetch(0, line, is_store)
    return found


def sdcm_hit_ratio(distances: Counter[int], num_lines: int, ways: int) -> float:
    """Eq. 5 and 6 of AMM."""
    chance = ways / num_lines
    hits = 0.0
    for distance, count in distances.items():
        if distance != COLD:
            terms = (
                math.comb(distance, a) * chance**a * (1 - chance) ** (distance - a)
                for a in range(min(ways, distance + 1))
            )
            hits += count * sum(terms)
    return hits / distances.total()


MACHINE = """
schema: 1
name: small
description: made up
nodes: 1
node:
  sockets: 1
  cores_per_socket: 2
  frequency: 1 GHz
  memory: 1 GiB
  caches: {caches}
network:
  latency: 1 us
  bandwidth: 1 GB/s
  envelope: 0 B
  eager_threshold: 4 KiB
  transfer_start: eager
  collectives: mpich
  intra_node: {{latency: 1 us, bandwidth: 1 GB/s}}
  self: {{latency: 1 us, bandwidth: 1 GB/s}}
  topology: {{kind: crossbar}}
sources: {{nodes: by definition, node: by definition, network: by definition}}
"""
SMALL = "{L1: {size: 2 KiB, line: 64 B, ways: 2}, L2: {size: 8 KiB, line: 64 B, ways: 4}}"
SMALL_GEOMETRIES = ((16, 2), (32, 4))  # sets and ways of these


def write_target(folder: Path, caches: str = SMALL) -> Path:
    """A machine of two cores with ``caches``, as YAML has them."""
    path = folder / "small.yaml"
    path.write_text(MACHINE.format(caches=caches))
    return path
