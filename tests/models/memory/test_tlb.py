"""Translation of pages."""

from __future__ import annotations

import numpy as np
import pytest
from cache_traces import cache, tlb

from manyscale.models.machine.processor import Tlb
from manyscale.models.memory.caches.counts import HierarchyCounts
from manyscale.models.memory.caches.hierarchy import CacheHierarchy
from manyscale.models.memory.distances.stack_distance import StackDistances

CACHES = {"L1D": cache(32768, 8)}


def translated(
    tlbs: dict[str, Tlb], address: np.ndarray, size: int = 8, core: np.ndarray | None = None
) -> HierarchyCounts:
    num_cores = 1 if core is None else int(core.max()) + 1
    hierarchy = CacheHierarchy(CACHES, tlbs, num_cores=num_cores)
    address = address.astype(np.uint64)
    hierarchy.feed(address, np.full(len(address), size, np.int32), np.zeros(len(address), bool), core=core)
    return hierarchy.counts()


@pytest.mark.theory
def test_a_sequential_stream_walks_once_per_page() -> None:
    counts = translated({"L1": tlb(64, 64)}, np.arange(0, 1 << 20, 64))
    assert counts.tlb_values[0, :, 0, 0].tolist() == [16384 - 256, 256]
    assert counts.page_walks.tolist() == [256]


@pytest.mark.theory
def test_a_cyclic_sweep_over_one_page_too_many() -> None:
    sweep = np.tile(np.arange(65) * 4096, 4)
    counts = translated({"L1": tlb(64, 64), "L2": tlb(1024, 8)}, sweep)
    assert counts.tlb_values[:, :, 0, 0].tolist() == [[0, 260], [195, 65]]
    assert counts.page_walks.tolist() == [65]
    assert translated({"L1": tlb(65, 65)}, sweep).page_walks.tolist() == [65]


@pytest.mark.theory
def test_larger_pages_in_the_second_level() -> None:
    """512 pages of 4 KiB lie in one of 2 MiB."""
    counts = translated({"L1": tlb(16, 4), "L2": tlb(16, 4, 1 << 21)}, np.arange(1024) * 4096)
    assert counts.tlb_values[:, :, 0, 0].tolist() == [[0, 1024], [1022, 2]]


@pytest.mark.theory
def test_fully_associative_is_stack_distance() -> None:
    page = np.random.default_rng(1).integers(0, 100, 5000)
    distance = StackDistances().feed(page)
    counts = translated({"L1": tlb(40, 40)}, page * 4096)
    assert counts.tlb_values[0, 0].sum() == ((distance >= 0) & (distance < 40)).sum()


def test_straddling_and_several_cores() -> None:
    """An access to two pages translates both; each core translates for itself."""
    assert translated({"L1": tlb(4, 4)}, np.array([4092])).page_walks.tolist() == [2]
    core = np.array([0, 1, 0, 1], np.int32)
    counts = translated({"L1": tlb(4, 4), "L2": tlb(16, 4)}, np.zeros(4), core=core)
    assert counts.tlb_values[:, :, :, 0].tolist() == [[[1, 1], [1, 1]], [[0, 0], [1, 1]]]


def test_none_and_what_is_refused() -> None:
    assert translated({}, np.zeros(3)).page_walks.tolist() == [0]
    with pytest.raises(ValueError, match="tlbs: pages get smaller"):
        CacheHierarchy(CACHES, {"L1": tlb(4, 4, 1 << 21), "L2": tlb(16, 4)})
