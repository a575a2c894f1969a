"""The caches of a machine that hit rates are predicted for, and the miss-ratio curve, which knows no machine."""

from __future__ import annotations

import numpy as np

from manyscale.models.cpu import domains
from manyscale.models.machine import Machine
from manyscale.models.machine.processor import Cache, data_caches
from manyscale.models.memory.amm.sdcm import Geometry, geometry_of
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.models.workload.notes import Note
from manyscale.runner.errors import UserError


def caches_of(machine: Machine) -> dict[str, Cache]:
    """The machine's data caches, the nearest first. Raises UserError where there is none, where a line size or
    associativity is missing, or where lines are not of one size."""
    caches = data_caches(machine.node.caches)
    if not caches:
        raise UserError(f"{machine.name}: node.caches names no data cache; add L1D, L2, ... with size, line and ways")
    if len({geometry.line_bytes for geometry in geometries(machine, caches).values()}) > 1:
        raise UserError(f"{machine.name}: the caches have lines of different sizes; a profile counts lines of one size")
    return caches


def geometries(machine: Machine, caches: dict[str, Cache]) -> dict[str, Geometry]:
    """What SDCM reads of each level. Raises UserError."""
    try:
        return {name: geometry_of(cache, f"node.caches.{name}") for name, cache in caches.items()}
    except ValueError as error:
        raise UserError(f"{machine.name}: {error}") from None


def line_bytes(machine: Machine) -> int:
    """Size of the lines of its data caches. Raises UserError as ``caches_of``."""
    return next(iter(geometries(machine, caches_of(machine)).values())).line_bytes


def thread_notes(machine: Machine) -> list[Note]:
    """What is assumed of threads that share the machine's cores, and so its caches."""
    core = machine.node.core
    if core is None or core.hardware_threads == 1:
        return []
    return [domains.EQUAL_THREADS.note("hardware-threads", machine.name)]


def prefetch_notes(machine: Machine, where: str) -> list[Note]:
    """What is left out of caches that are simulated with their prefetchers."""
    prefetchers = [cache.prefetcher for cache in data_caches(machine.node.caches).values()]
    if not any(each is not None and each.interrupted_page_bytes is not None for each in prefetchers):
        return []
    return [domains.UNINTERRUPTED.note("interrupted-prefetchers", where)]


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
