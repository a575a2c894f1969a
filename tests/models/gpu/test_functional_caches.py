"""Caches without time: replacement, sectors, pending hits, writes."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from manyscale.models.gpu.gpumech import functional_caches as caches
from manyscale.models.gpu.parameters import GpuCache
from manyscale.models.kernels import njit


def cache(**changes):
    base = {
        "size": "4 KiB", "ways": 4, "line": "128 B", "sector": "32 B", "latency": "10 cycles", "mshrs": 8, "merges": 4,
        "write": "through", "write_allocate": True,
    }  # fmt: skip
    return GpuCache.model_validate(base | changes)


def empty(given):
    rules = caches.cache_rules(given, given.size_bytes)
    return caches.caches(given, rules, 1), rules


@njit(cache=True)
def _read_each(held, rules, tags, masks, found):  # type: ignore[no-untyped-def]
    for i in range(len(tags)):
        held.turn[0] += 1
        at, missing, _, _, _ = caches.read(held, rules, 0, tags[i], masks[i], 0)
        found[i] = missing
        caches.fill(held, 0, at, missing, 0, 0, 1, i)


@njit(cache=True)
def _read_in_turn(held, rules, tags, masks, from_memory, found):  # type: ignore[no-untyped-def]
    for i in range(len(tags)):
        at, missing, pending, memory, blocked = caches.read(held, rules, 0, tags[i], masks[i], 0)
        found[i] = (missing, pending, memory, blocked)
        if missing:
            caches.fill(held, 0, at, missing, 0, from_memory[i], 1, i)


@njit(cache=True)
def _write_one(held, rules, tag, sectors, full):  # type: ignore[no-untyped-def]
    caches.write(held, rules, 0, tag, sectors, full)


def misses_of_lru(tags, sets, ways):
    """A list of the last ``ways`` lines of each set."""
    held = [OrderedDict() for _ in range(sets)]
    count = 0
    for tag in tags:
        own = held[tag % sets]
        if tag in own:
            own.move_to_end(tag)
            continue
        count += 1
        own[tag] = None
        if len(own) > ways:
            own.popitem(last=False)
    return count


@pytest.mark.property
@pytest.mark.parametrize(("ways", "lines"), [(1, 40), (4, 60), (32, 50), (4, 30)])
def test_least_recently_used_is_replaced(ways, lines):
    given = cache(ways=ways)
    held, rules = empty(given)
    tags = np.random.default_rng(1).zipf(1.3, 4000) % lines
    found = np.zeros(len(tags), np.int64)
    _read_each(held, rules, tags, np.full(len(tags), 1), found)
    assert np.count_nonzero(found) == misses_of_lru(tags.tolist(), 32 // ways, ways)


def reads(held, rules, *accesses, from_memory=()):
    """(missing, pending, from memory, blocked) of each of (line, sectors), all in one turn."""
    found = np.zeros((len(accesses), 4), np.int64)
    tags, masks = np.array(accesses).T
    memory = np.array([masks[i] if i in from_memory else 0 for i in range(len(accesses))])
    _read_in_turn(held, rules, tags, masks, memory, found)
    return [tuple(row) for row in found.tolist()]


def test_sectors_of_a_line_are_missed_by_themselves():
    held, rules = empty(cache())
    held.turn[0] = 1
    assert reads(held, rules, (5, 0b0011)) == [(0b0011, 0, 0, 0)]
    held.turn[0] = 2
    assert reads(held, rules, (5, 0b0111)) == [(0b0100, 0, 0, 0)]


def test_a_request_waits_for_a_miss_of_its_turn():
    held, rules = empty(cache())
    found = reads(held, rules, (5, 1), (5, 1), (6, 1), (6, 3), from_memory=(2,))
    assert found == [(1, 0, 0, 0), (0, 1, 0, 0), (1, 0, 0, 0), (2, 1, 1, 0)]
    held.turn[0] += 1
    assert reads(held, rules, (5, 1)) == [(0, 0, 0, 0)]


def test_too_many_wait():
    """Four requests find room, the miss itself and three more."""
    held, rules = empty(cache())
    found = reads(held, rules, *[(5, 0b10)] * 6)
    assert [blocked for _, _, _, blocked in found] == [0, 0, 0, 0, 0b10, 0b10]


def test_a_set_whose_lines_are_all_on_their_way_blocks():
    """Eight sets of four ways: the fifth line of a set."""
    held, rules = empty(cache())
    found = reads(held, rules, *[(8 * i, 1) for i in range(5)])
    assert [blocked for _, _, _, blocked in found] == [0, 0, 0, 0, 1]
    held.turn[0] += 1
    assert reads(held, rules, (40, 1))[0][3] == 0


@pytest.mark.parametrize(
    ("write", "allocate", "full", "missing"),
    [
        ("through", True, 1, 0), ("through", True, 0, 1), ("through", False, 1, 1), ("back", True, 1, 0),
        ("evict", False, 1, 1),
    ],
)  # fmt: skip
def test_what_a_store_leaves(write, allocate, full, missing):
    """A sector written whole can be read, if stores allocate; one written in part cannot."""
    held, rules = empty(cache(write=write, write_allocate=allocate))
    _write_one(held, rules, 5, 1, full)
    assert reads(held, rules, (5, 1))[0][0] == missing


def test_a_store_evicts_what_it_hits():
    held, rules = empty(cache(write="evict", write_allocate=False))
    reads(held, rules, (5, 0b11))
    _write_one(held, rules, 5, 0b01, 0b01)
    held.turn[0] += 1
    assert reads(held, rules, (5, 0b11))[0][0] == 0b01


def test_dirty_sectors_are_written_back():
    """Two sectors of one line, when four others of its set have come."""
    held, rules = empty(cache(write="back"))
    _write_one(held, rules, 0, 0b101, 0b101)
    for i in range(1, 5):
        held.turn[0] += 1
        reads(held, rules, (8 * i, 1))
    assert held.counts[caches.WRITTEN_BACK] == 2


def test_nothing_is_left():
    held, rules = empty(cache())
    reads(held, rules, (5, 1))
    caches.forget_all(held)
    held.turn[0] += 1
    assert reads(held, rules, (5, 1)) == [(1, 0, 0, 0)]
