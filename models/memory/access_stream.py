"""From a detailed trace to the accesses that memory models count.

A *site* is one static memory access of a basic block: a row of the workload's table ``block_accesses``. An execution of
a block accesses its sites once each, in order, so the site of every address of a stream follows from the sequence of
blocks.

A *unit* is what distances are counted in: ``address // granularity``. At fine granularities (below 16 bytes: byte and
word) an access is the unit of its first byte, as in AMM, whose distances count addresses. At line granularity an access
that straddles a line is one access to each of its lines, as hardware splits it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.workload import Workload

SPLITS_FROM_BYTES: Final = 16  # the finest granularity at which an access may be several


@dataclass(frozen=True)
class Sites:
    """Static accesses. ``block`` int32[sites], ``is_store`` bool[sites], ``bytes`` int32[sites]; those of block b are
    rows [offsets[b], offsets[b + 1]) (int64[blocks + 1])."""

    block: np.ndarray
    is_store: np.ndarray
    bytes: np.ndarray
    offsets: np.ndarray

    @property
    def num_blocks(self) -> int:
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return len(self.block)


@dataclass(frozen=True)
class Accesses:
    """Consecutive accesses of one stream. ``unit`` int64[n], ``site`` int32[n]."""

    unit: np.ndarray
    site: np.ndarray


def sites_of(workload: Workload) -> Sites:
    """The sites of a workload's detailed level. O(sites + blocks)."""
    # all columns are copies: kernels are compiled once more for arrays that may not be written to
    block = workload.column("block_accesses", "block_id").astype(np.int32)
    counts = np.bincount(block, minlength=workload.tables["blocks"].num_rows)
    return Sites(
        block,
        workload.column("block_accesses", "is_store").astype(bool),
        workload.column("block_accesses", "bytes").astype(np.int32),
        np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
    )


def executions_per_block(batches: Iterable[np.ndarray], num_blocks: int) -> np.ndarray:
    """int64[blocks]: executions in all the batches of ``block_ids``. O(executions)."""
    counts = np.zeros(num_blocks, np.int64)
    for block_ids in batches:
        counts += np.bincount(block_ids, minlength=num_blocks)
    return counts


def access_sites(block_ids: np.ndarray, sites: Sites) -> np.ndarray:
    """int32[accesses]: the site of every access that executions of ``block_ids`` make. O(executions + accesses)."""
    counts = np.diff(sites.offsets)
    result = np.empty(int(counts[block_ids].sum()), np.int32)
    _fill_sites(block_ids, sites.offsets, result)
    return result


def accesses(block_ids: np.ndarray, addresses: np.ndarray, sites: Sites, granularity_bytes: int) -> Accesses:
    """The accesses of consecutive block executions, at a granularity that is a power of two.

    ``block_ids`` int32[executions], ``addresses`` uint64[] of all their accesses. Raises ValueError where the two do
    not fit together, for an access beyond the last address, and for another granularity. O(executions + accesses).
    """
    if granularity_bytes < 1 or granularity_bytes & (granularity_bytes - 1):
        raise ValueError(f"a granularity of {granularity_bytes} B is not a power of two")
    site = access_sites(block_ids, sites)
    if len(site) != len(addresses):
        raise ValueError(f"blocks make {len(site)} accesses, but {len(addresses)} addresses are given")
    shift = granularity_bytes.bit_length() - 1
    if granularity_bytes < SPLITS_FROM_BYTES:
        return Accesses((addresses >> np.uint64(shift)).astype(np.int64), site)
    num_units = _count_units(addresses, site, sites.bytes, shift)
    if num_units < 0:
        raise ValueError("an access goes beyond the last address, 2^64 - 1")
    unit, unit_site = np.empty(num_units, np.int64), np.empty(num_units, np.int32)
    _fill_units(addresses, site, sites.bytes, shift, unit, unit_site)
    return Accesses(unit, unit_site)


@njit(cache=True, nogil=True)
def _fill_sites(block_ids, offsets, result):  # type: ignore[no-untyped-def]
    """O(accesses)."""
    at = 0
    for i in range(block_ids.shape[0]):
        for site in range(offsets[block_ids[i]], offsets[block_ids[i] + 1]):
            result[at] = site
            at += 1


@njit(cache=True, nogil=True)
def _count_units(addresses, site, num_bytes, shift):  # type: ignore[no-untyped-def]
    """-1 for an access beyond the last address. O(accesses)."""
    total = np.int64(addresses.shape[0])
    for i in range(addresses.shape[0]):
        first = addresses[i] >> np.uint64(shift)
        last = (addresses[i] + np.uint64(max(num_bytes[site[i]], 1) - 1)) >> np.uint64(shift)
        if last < first:
            return np.int64(-1)
        total += np.int64(last - first)
    return total


@njit(cache=True, nogil=True)
def _fill_units(addresses, site, num_bytes, shift, unit, unit_site):  # type: ignore[no-untyped-def]
    """O(units)."""
    at = 0
    for i in range(addresses.shape[0]):
        first = addresses[i] >> np.uint64(shift)
        last = (addresses[i] + np.uint64(max(num_bytes[site[i]], 1) - 1)) >> np.uint64(shift)
        for k in range(1 + np.int64(last - first)):
            unit[at] = np.int64(first) + k
            unit_site[at] = site[i]
            at += 1
