"""Threads' streams as one: the order by hand, and what sharing does to distances."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.memory.access_stream import Accesses
from manyscale.models.memory.distances.interleave import SharedAccesses, interleaved
from manyscale.models.memory.distances.stack_distance import StackDistances


def numbered(first: int, end: int, site: int = 0) -> Accesses:
    return Accesses(np.arange(first, end), np.full(end - first, site, np.int32))


def whole(streams: Sequence[Sequence[Accesses]], **options: object) -> SharedAccesses:
    batches = list(interleaved(streams, **options))  # type: ignore[arg-type]
    columns = [np.concatenate([getattr(b, name) for b in batches]) for name in ("unit", "site", "thread")]
    return SharedAccesses(*columns)


@pytest.mark.theory
def test_turns() -> None:
    streams = [[numbered(0, 5, 7)], [numbered(10, 13, 8)], [numbered(20, 22, 9)]]
    merged = whole(streams, quantum=2)
    assert merged.unit.tolist() == [0, 1, 10, 11, 20, 21, 2, 3, 12, 4]
    assert merged.site.tolist() == [7, 7, 8, 8, 9, 9, 7, 7, 8, 7]
    assert merged.thread.tolist() == [0, 0, 1, 1, 2, 2, 0, 0, 1, 0]


@pytest.mark.theory
def test_rates() -> None:
    """Three accesses of the first thread for one of the second."""
    merged = whole([[numbered(0, 9)], [numbered(10, 14)]], rates=[3, 1])
    assert merged.unit.tolist() == [0, 10, 1, 2, 3, 11, 4, 5, 6, 12, 7, 8, 13]


@pytest.mark.property
@settings(deadline=None, max_examples=60)
@given(data=st.data(), quantum=st.integers(1, 9))
def test_batches_do_not_matter(data: st.DataObject, quantum: int) -> None:
    sizes = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=4))
    rates = [data.draw(st.sampled_from([0.3, 1.0, 2.5])) for _ in sizes]
    whole_streams, cut_streams = [], []
    for thread, size in enumerate(sizes):
        cuts = [0, *sorted(data.draw(st.lists(st.integers(0, size), max_size=4))), size]
        first = 100 * thread
        whole_streams.append([numbered(first, first + size)])
        cut_streams.append([numbered(first + a, first + b) for a, b in pairwise(cuts)])
    if not sum(sizes):
        assert list(interleaved(cut_streams, rates, quantum)) == []
        return
    one, other = (whole(s, rates=rates, quantum=quantum) for s in (whole_streams, cut_streams))
    assert one.unit.tolist() == other.unit.tolist()
    assert one.thread.tolist() == other.thread.tolist()
    for thread, size in enumerate(sizes):
        assert one.unit[one.thread == thread].tolist() == list(range(100 * thread, 100 * thread + size))


@pytest.mark.theory
def test_concurrent_distances() -> None:
    """Two threads that cycle through 50 units: of their own each, distances double; of the same, they do not."""
    cycle = [Accesses(np.tile(np.arange(50), 20), np.zeros(1000, np.int32))]
    alone = StackDistances().feed(cycle[0].unit)[50:]
    apart = StackDistances().feed(whole([cycle, cycle], address_spaces=[0, 1]).unit)[100:]
    assert set(alone.tolist()) == {49}
    assert set(apart.tolist()) == {2 * 49 + 1}
    together = StackDistances().feed(whole([cycle, cycle]).unit)[100:]
    assert set(together.tolist()) == {0, 49}
    # in turns of 10 the other thread's 10 lie between, its own or the same
    turns = StackDistances().feed(whole([cycle, cycle], quantum=10).unit)[100:]
    assert set(turns.tolist()) == {9, 49}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rates": [1.0]}, "2 streams have 1 rates"),
        ({"rates": [1.0, 0.0]}, "not all positive"),
        ({"quantum": 0}, "quantum of 0"),
        ({"address_spaces": [0, 128]}, r"address spaces \[0, 128\]: not 1 or more"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        interleaved([[numbered(0, 1)], [numbered(0, 1)]], **options)  # type: ignore[arg-type]


@pytest.mark.contract
@pytest.mark.parametrize("unit", [1 << 56, -1])
def test_units_that_spaces_cannot_tell_apart_are_refused(unit: int) -> None:
    streams = [[Accesses(np.array([unit]), np.zeros(1, np.int32))], [numbered(0, 1)]]
    assert len(whole(streams, address_spaces=[0, 0]).unit) == 2
    with pytest.raises(ValueError, match="in several address spaces"):
        whole(streams, address_spaces=[0, 1])
