"""Some lines of pieces stand for all of them: what they find, and how much of it."""

from __future__ import annotations

import numpy as np
import pytest
from node_memory import DRAM, MEMORY, caches, node

from manyscale.models.machine import Node
from manyscale.models.node.shared.few_lines import arrays_of, few_lines, few_lines_from, opened_rows
from manyscale.models.node.shared.occupancy import COLUMNS, empty_caches
from manyscale.models.node.shared.occupancy_kernel import fill
from manyscale.models.node.shared.piece_lines import PieceLines

PIECES = 50


def loop(count: int, step: int = 1) -> PieceLines:
    """Each piece loads the same lines, ``step`` apart."""
    ends = count * np.arange(1, PIECES + 1)
    every = np.tile(np.arange(count, dtype=np.int32), PIECES)
    ones = np.ones(len(every), np.uint8)
    return PieceLines(64, ends - count, ends, every, ones, ones, step * np.arange(count))


def machine_of(num_lines: int) -> Node:
    """One core whose only cache holds so many lines."""
    return node(1, caches({"L1D": (64 * num_lines, 16, 1)}), memory=MEMORY | {"bandwidth": "inf B/s", "dram": DRAM})


def served(lines: PieceLines, num_lines: int) -> np.ndarray:
    """float64[columns] of the last piece, on one core."""
    occupancy = empty_caches(lines, machine_of(num_lines), 1)
    found = np.zeros(1 + COLUMNS)
    for piece in range(PIECES):
        fill(
            occupancy, np.array([piece]), np.zeros(1, np.int64), lines.first, lines.end, lines.line, lines.use,
            lines.visits, found, np.zeros(0, np.int8),
        )  # fmt: skip
    return found * lines.every


@pytest.mark.theory
@pytest.mark.parametrize(("num_lines", "hits"), [(8192, 1.0), (2048, 0.0)])
def test_a_loop_over_lines_hits_if_they_fit_and_else_never(num_lines: int, hits: float) -> None:
    few = few_lines(loop(4096))
    assert few.every == 4
    assert len(few.line) / (4096 * PIECES) == pytest.approx(1 / 4, rel=0.05)
    found = served(few, num_lines)
    assert found[:2] == pytest.approx([4096 * hits, 4096 * (1 - hits)], rel=0.05)


@pytest.mark.theory
def test_lines_in_equal_distances_are_sampled_as_any_others() -> None:
    """Columns of matrices: within five deviations of a draw of each line. A product with the golden ratio keeps a
    quarter of these where 748 lines lie between."""
    assert few_lines(loop(4096)).num_lines == 4096 / 4  # one of each four neighbours
    kept = [few_lines(loop(4096, step)).num_lines for step in (*range(1, 34), 748, 1024, 1053, 1496, 4096, 7037)]
    assert np.abs(np.array(kept) - 4096 / 4).max() < 5 * (4096 / 4 * 3 / 4) ** 0.5


@pytest.mark.theory
@pytest.mark.parametrize(("step", "share"), [(1, 1 / 16), (16 * 2 * 4, 1.0)])
def test_rows_of_memory_are_counted_over_all_lines(step: int, share: float) -> None:
    """DRAM has rows of 16 lines: one after the other, or each with a row of its own of one bank."""
    assert opened_rows(loop(4096, step), machine_of(2048)) == pytest.approx(np.full(PIECES, share))
    assert not opened_rows(loop(16), node(1, caches({"L1D": (4096, 16, 1)}))).any()


def test_few_uses_are_all_there() -> None:
    lines = loop(15)
    assert few_lines(lines) is lines
    assert few_lines_from(arrays_of(lines)) is None


def test_what_is_kept_is_read_back() -> None:
    lines = loop(4096)
    few = few_lines(lines)
    again = few_lines_from(lines.arrays() | arrays_of(few))
    assert again is not None
    assert all(np.array_equal(value, getattr(few, name)) for name, value in vars(again).items())
