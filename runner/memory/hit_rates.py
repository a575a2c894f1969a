"""Hit rates of a machine's caches from reuse profiles: by level, and by basic block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.models.memory.sdcm import hit_probability
from manyscale.models.processor import Cache, data_caches, needed
from manyscale.runner.errors import UserError


@dataclass(frozen=True)
class Level:
    """A cache that data pass, with all that SDCM needs."""

    name: str
    cache: Cache
    ways: int
    num_lines: int


def levels_of(machine: Machine) -> list[Level]:
    """The machine's data caches, the nearest first. Raises UserError where a line size or associativity is missing, or
    lines are not of one size."""
    found = []
    try:
        for name, cache in data_caches(machine.node.caches).items():
            place = f"node.caches.{name}."
            needed(cache.line_bytes, "line", place)
            found.append(Level(name, cache, needed(cache.ways, "ways", place), cache.num_lines))
    except ValueError as error:
        raise UserError(f"{machine.name}: {error}") from None
    if not found:
        raise UserError(f"{machine.name}: node.caches names no data cache; add L1D, L2, ... with size, line and ways")
    if len({level.cache.line_bytes for level in found}) > 1:
        raise UserError(f"{machine.name}: the caches have lines of different sizes; a profile counts lines of one size")
    return found


def line_bytes(levels: list[Level]) -> int:
    """Size of the levels' lines."""
    return needed(levels[0].cache.line_bytes, "line")


def hits_by_label(profile: ReuseProfile, levels: list[Level], num_labels: int) -> np.ndarray:
    """float64[levels, labels]: expected hits of the accesses of each label (the profile's ``site``), were each level
    alone, by SDCM (AMM, eq. 5 and 6)."""
    distances, place = np.unique(profile.distance, return_inverse=True)
    found = np.empty((len(levels), num_labels))
    for row, level in enumerate(levels):
        probability = hit_probability(distances, level.ways, level.num_lines)
        found[row] = np.bincount(profile.site, profile.count * probability[place], num_labels)
    return found


def conditional(hit_ratio: np.ndarray) -> np.ndarray:
    """Of global hit ratios by level, the share that a level hits of what the nearer ones miss: with 0.90 and 0.95
    globally, the second hits half of what reaches it. 1 where nothing does."""
    before = np.concatenate(([0.0], np.maximum.accumulate(hit_ratio)[:-1]))
    reaching = 1.0 - before
    return np.where(reaching > 0, np.clip((hit_ratio - before) / np.where(reaching > 0, reaching, 1.0), 0, 1), 1.0)


def miss_ratio_curve(profile: ReuseProfile, steps_per_doubling: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """(capacities in units, ascending int64[], miss ratio float64[]) of fully associative LRU caches of every size, up
    to the one that holds all; exact where the profile is."""
    whole = profile.whole()
    is_cold = whole.distance == COLD
    distance, count = whole.distance[~is_cold], whole.count[~is_cold]
    largest = int(distance.max(initial=0)) + 1
    exponents = np.arange(steps_per_doubling * (largest.bit_length() + 1) + 1) / steps_per_doubling
    capacity = np.unique(np.round(2.0**exponents).astype(np.int64))
    capacity = capacity[: int(np.searchsorted(capacity, largest)) + 1]
    hits = np.concatenate(([0.0], np.cumsum(count)))[np.searchsorted(distance, capacity, "left")]
    return capacity, 1.0 - hits / max(profile.num_accesses, 1e-300)
