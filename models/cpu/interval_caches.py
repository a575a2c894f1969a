"""Which cache serves the accesses of task instances, from their profiles: StatStack, with instances that run at once.

Source: Eklov and Hagersten, "StatStack: efficient modeling of LRU caches", ISPASS 2010 (memory/distances/statstack.py):
a reuse distance inside an instance becomes the stack distance expected from the distribution of the instance's own
reuses. For a cache that n cores share, the others bring in as many lines meanwhile, but for those that they share with
each other.

First uses of lines: the profile knows how many distinct lines lie between it and the earlier use in the traced run, or,
if caches are warm, in the same run before. Of G caches of a level, the earlier user ran behind this one with the
probability 1 / G (no scheduler is assumed to care), and the lines in between are spread over all. A line that is used
again and again, and not written, comes back as often as the time for which a cache keeps it allows. Beside, n - 1
instances are under way.

Caches are taken as fully associative LRU; what no instance used before is in no cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.models.machine.processor import Cache
from manyscale.models.node.instance_profile import GROUP_BANDS, InstanceProfiles, bin_edges


@dataclass(frozen=True)
class Served:
    """float64[instances, caches] each: accesses that cache k, and those before it, do not serve (``misses``); of these,
    loads that use their line for the first time in the instance (``first_loads``), and other loads
    (``reused_loads``). ``first_groups`` float64[instances, caches, sizes]: groups of the former by their length
    (GROUP_INSTRUCTIONS). ``written_back`` float64[instances]: lines that go back to memory."""

    misses: np.ndarray
    first_loads: np.ndarray
    reused_loads: np.ndarray
    first_groups: np.ndarray
    written_back: np.ndarray


def served_accesses(profiles: InstanceProfiles, caches: Sequence[Cache], num_cores: int, *, warm: bool) -> Served:
    """``warm``: the same instances ran just before. O((rows of the histograms) x caches)."""
    uses = profiles.earlier_warm if warm else profiles.earlier_cold
    edges = bin_edges()
    lines = profiles.num_lines.astype(np.float64)
    busy = lines[profiles.num_instructions > 0]
    mean_lines = float(busy[1:].mean()) if len(busy) > 1 else float(lines.sum())
    stack = np.zeros(len(profiles.reuse_bin))
    _stack_distances(
        profiles.first_reuse, profiles.reuse_bin, profiles.reuse_count, profiles.num_lines, profiles.num_accesses,
        edges, stack,
    )  # fmt: skip
    is_written = (uses.bin & 1).astype(bool)
    last = len(edges) - 2
    which = uses.bin >> 1
    earlier = 0.5 * (edges[which] + np.maximum(edges[which + 1] - 1, edges[which]))
    earlier[which == last] = np.inf
    loads = profiles.num_loads / np.maximum(profiles.num_accesses, 1)
    misses, groups, reuses = [], [], []
    instance = np.repeat(np.arange(profiles.num_instances), np.diff(uses.first))
    band = np.searchsorted(GROUP_BANDS, earlier, side="right") - 1
    cell = instance * len(GROUP_BANDS) + band
    size = profiles.num_instances * len(GROUP_BANDS)
    of_band = np.bincount(cell, uses.count, size)
    for cache in caches:
        users = min(num_cores, cache.shared_by_cores)
        num_caches = -(-num_cores // users)
        # those that run at once share what was used so recently
        private = np.bincount(
            instance,
            np.where(earlier >= max(users - 1, 1) * mean_lines, uses.count, 0), profiles.num_instances,
        )  # fmt: skip
        private_share = np.clip(private / np.maximum(lines, 1), 0, 1)
        stretch = 1 + (users - 1) * private_share
        rows = np.repeat(stretch, np.diff(profiles.first_reuse))
        missed = profiles.reuse_count * (stack * rows >= cache.num_lines)
        reused = profiles.sum_rows(profiles.first_reuse, missed.astype(np.float64))
        beside = (users - 1) * mean_lines * float(np.average(private_share, weights=lines + 1e-9))
        # what runs beside cannot bring in more lines than there are
        distance = np.where(
            np.isinf(earlier), earlier, np.minimum(earlier + beside, max(len(profiles.line_number) - 1, 0))
        )
        missed = 1.0 - _hit_ratio(distance, is_written, cache.num_lines, num_caches, mean_lines)
        first = profiles.sum_rows(uses.first, uses.count * missed)
        misses.append(reused + first)
        reuses.append(reused * loads)
        # the farther, the more pass: what a band passes more than the one before holds for all beyond it
        share = np.bincount(cell, uses.count * missed, size) / np.maximum(of_band, 1e-300)
        share = np.maximum.accumulate(share.reshape(-1, len(GROUP_BANDS)), axis=1)
        groups.append((np.diff(share, axis=1, prepend=0.0)[:, :, None] * uses.load_groups).sum(axis=1))
    fewest = [np.minimum.accumulate(np.stack(each, axis=1), axis=1) for each in (misses, reuses, groups)]
    written = np.clip(profiles.num_lines_written / np.maximum(lines, 1), 0, 1)
    return Served(fewest[0], fewest[2][:, :, 0], fewest[1], fewest[2], fewest[0][:, -1] * written)


def _hit_ratio(
    distance: np.ndarray, is_written: np.ndarray, num_lines: int, num_caches: int, mean_lines: float
) -> np.ndarray:
    """Of first uses whose earlier use lies ``distance`` lines back, in one of several caches of ``num_lines``, if
    instances use ``mean_lines``."""
    if num_caches == 1:
        return np.asarray(distance < num_lines, np.float64)
    # a line that comes back after so many lines is used by this share of the instances
    used = np.minimum(mean_lines / np.maximum(distance, 1.0), 1.0)
    again = np.where(used < 1.0, 1.0 - (1.0 - used) ** (num_lines / max(mean_lines, 1.0)), num_lines >= mean_lines)
    behind = (distance < num_lines * num_caches) / num_caches
    return np.asarray(np.where(is_written, behind, again))


@allocation_free
def _stack_distances(first, bins, counts, num_lines, num_accesses, edges, result):  # type: ignore[no-untyped-def]
    """Expected stack distances of the middles of the bins: the sum over all k below of P(reuse distance >= k), in each
    instance's own distribution; its lines' last uses are never used again. O(rows x bins)."""
    for instance in range(first.shape[0] - 1):
        total = num_accesses[instance]
        at_least = float(total)  # how many reuse at k or beyond, or never
        stack, before = 0.0, 0.0
        for row in range(first[instance], first[instance + 1]):
            begin, width = edges[bins[row]], edges[bins[row] + 1] - edges[bins[row]]
            stack += (begin - before) * at_least / total
            # the middle of the bin: distances begin, ..., begin + width - 1
            half = 0.5 * (width - 1)
            result[row] = stack + half * (at_least - 0.25 * counts[row]) / total
            stack += width * (at_least - 0.5 * counts[row] * (width - 1) / width) / total
            at_least -= counts[row]
            before = begin + width
