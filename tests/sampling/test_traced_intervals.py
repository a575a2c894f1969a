"""Intervals cut from a stream of blocks: counted by hand, and the same however the stream is fed."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.sampling.phases.traced_intervals import IntervalCutter, TracedIntervals

SIZES = np.array([3, 5, 20])


def cut(stream: list[int], every: int, pieces: int = 1) -> TracedIntervals:
    cutter = IntervalCutter(SIZES, every)
    for piece in np.array_split(np.array(stream, np.int32), pieces):
        cutter.feed(piece)
    return cutter.intervals()


def rows(found: TracedIntervals) -> list[dict[int, float]]:
    vectors = found.vectors
    return [
        dict(zip(vectors.column[first:end].tolist(), vectors.value[first:end].tolist(), strict=True))
        for first, end in zip(vectors.first[:-1], vectors.first[1:], strict=True)
    ]


def test_by_hand() -> None:
    """Of 10 instructions: 3 + 5 + 3 = 11 pass 10; with 5 + 5 they are 21 and pass 20; with the 20 of a large block they
    pass 30 and 40 at once, so there is one interval for both; 3 are the rest."""
    found = cut([0, 1, 0, 1, 1, 2, 0], 10)
    assert found.bounds.tolist() == [0, 3, 5, 6, 7]
    assert found.instructions.tolist() == [11, 10, 20, 3]
    assert rows(found) == [{0: 6.0, 1: 5.0}, {1: 10.0}, {2: 20.0}, {0: 3.0}]


def test_a_stream_that_ends_with_an_interval_has_no_rest() -> None:
    assert cut([1, 1, 1, 1], 10).instructions.tolist() == [10, 10]


def test_nothing_was_executed() -> None:
    assert len(cut([], 10)) == 0


@pytest.mark.property
@pytest.mark.parametrize("every", [1, 7, 100, 10**9])
@pytest.mark.parametrize("pieces", [1, 2, 13, 400])
def test_pieces_give_the_same_and_nothing_is_lost(every: int, pieces: int) -> None:
    stream = np.random.default_rng(3).integers(0, 3, 300).tolist()
    whole, found = cut(stream, every), cut(stream, every, pieces)
    assert found.bounds.tolist() == whole.bounds.tolist()
    assert rows(found) == rows(whole)
    begins = np.append(0, np.cumsum(SIZES[stream]))
    assert found.instructions.tolist() == np.diff(begins[found.bounds]).tolist()
    assert found.instructions.sum() == begins[-1]
    assert np.array_equal(found.vectors.sums(), found.instructions)
    ends = begins[found.bounds[1:-1]]
    assert np.all(ends // every > begins[found.bounds[1:-1] - 1] // every)  # each holds the execution that passes


@pytest.mark.parametrize(("sizes", "every", "what"), [
    ([3, -1], 10, "does not say how many instructions"), ([3], 0, "at least one is needed"),
])  # fmt: skip
def test_what_is_refused(sizes: list[int], every: int, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        IntervalCutter(np.array(sizes), every)
