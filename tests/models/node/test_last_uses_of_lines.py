"""What lasts of a run of pieces in caches: against its definition, and against all of the run."""

from __future__ import annotations

import numpy as np
import pytest
from node_memory import caches, node

from manyscale.models.node.shared.last_uses import last_uses
from manyscale.models.node.shared.occupancy import COLUMNS, empty_caches
from manyscale.models.node.shared.occupancy_kernel import fill
from manyscale.models.node.shared.piece_lines import PieceLines

STORED = 2


def some_lines(seed: int, pieces: int, lines: int) -> PieceLines:
    random = np.random.default_rng(seed)
    each = [random.permutation(lines)[: random.integers(0, 9)] for _ in range(pieces)]
    ends = np.cumsum([len(one) for one in each])
    line = np.concatenate(each).astype(np.int32)
    use = random.integers(0, 4, len(line)).astype(np.uint8)
    return PieceLines(
        64, np.concatenate(([0], ends[:-1])), ends, line, use, np.ones(len(line), np.uint8), np.arange(lines)
    )


@pytest.mark.theory
def test_last_stores_and_what_was_used_since_last() -> None:
    lines, cores = some_lines(1, 200, 50), 70
    piece = np.random.default_rng(2).permutation(200)
    core = np.random.default_rng(3).integers(0, cores, 200)
    rows = [(k, row) for k, p in enumerate(piece) for row in range(lines.first[p], lines.end[p])]
    kept = set()
    for line in range(50):
        mine = [(k, row) for k, row in rows if lines.line[row] == line]
        stores = [place for place, (_, row) in enumerate(mine) if lines.use[row] & STORED]
        since = mine[stores[-1] :] if stores else mine
        kept |= {since[0]} if stores else set()
        kept |= set({int(core[k]): (k, row) for k, row in since}.values())  # the last of each core
    found = last_uses(lines, piece, core)
    assert len(found.line) == len(kept) < len(rows)
    for k in range(200):
        expected = [(lines.line[row], lines.use[row]) for at, row in rows if at == k and (at, row) in kept]
        assert (
            list(zip(found.line[found.first[k] : found.end[k]], found.use[found.first[k] : found.end[k]], strict=True))
            == expected
        )


@pytest.mark.theory
def test_they_leave_what_all_of_the_run_leaves() -> None:
    """On one core, in caches of its own that hold some of the lines: what serves the same run again."""
    lines = some_lines(4, 300, 600)
    machine, order, core = (
        node(1, caches({"L1D": (64 * 64, 8, 1), "L2": (256 * 64, 8, 1)})),
        np.arange(300),
        np.zeros(300, np.int64),
    )
    level_of = []
    for rows in ((lines.first, lines.end, lines.line, lines.use, lines.visits), last_uses(lines, order, core)):
        occupancy, found = empty_caches(lines, machine, 1), np.zeros(len(lines.line), np.int8)
        levels = int(occupancy.control["levels"][0])
        fill(occupancy, order, core, *rows, np.zeros(levels + COLUMNS), np.zeros(0, np.int8))
        fill(
            occupancy, order, core, lines.first, lines.end, lines.line, lines.use, lines.visits,
            np.zeros(levels + COLUMNS), found,
        )  # fmt: skip
        level_of.append(found)
    assert set(level_of[0]) == {0, 1, 2}
    assert np.mean(level_of[0] != level_of[1]) < 0.01  # to an epoch of the stacks
