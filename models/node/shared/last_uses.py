"""What is left of a run of pieces in caches that forget what was used least lately: of each line its last store, and
each core's last use since. The run's other uses change nothing that lasts, so that these stand for all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.models.node.shared.piece_lines import PieceLines
from manyscale.models.node.shared.piece_lines_kernel import STORED


class LastUses(NamedTuple):
    """Rows [``first[k]``, ``end[k]``) of ``line``, ``use`` and ``visits``, as PieceLines has them, of the k-th piece
    that ran."""

    first: np.ndarray
    end: np.ndarray
    line: np.ndarray
    use: np.ndarray
    visits: np.ndarray


def last_uses(lines: PieceLines, piece: np.ndarray, core: np.ndarray) -> LastUses:
    """Pieces ``piece`` int64[] ran on ``core`` int64[], in this order. O(rows)."""
    room = int((lines.end - lines.first)[piece].sum())
    bound = np.zeros((len(piece), 2), np.int64)
    line, use = np.empty(room, np.int32), np.empty(room, np.uint8)
    words = int(core.max(initial=0)) // 64 + 1
    since = np.zeros((lines.num_lines, words), np.uint64)
    begin = _find(
        lines.first, lines.end, lines.line, lines.use, piece, core, since, np.zeros(lines.num_lines, np.bool_), bound,
        line, use,
    )  # fmt: skip
    line, use, bound = line[begin:], use[begin:], bound - begin
    first, end = np.ascontiguousarray(bound[:, 0]), np.ascontiguousarray(bound[:, 1])
    return LastUses(first, end, line, use, np.ones(len(line), np.uint8))


@allocation_free
def _find(first, end, line, use, piece, core, since, is_closed, bound, kept_line, kept_use):  # type: ignore[no-untyped-def]
    """From the last piece back. ``since`` uint64[lines, words]: cores that use each later; ``is_closed`` bool[lines]:
    a later store is known, so that nothing of what was before lasts. Where the first row that is kept stands."""
    at = np.int64(kept_line.shape[0])
    for k in range(piece.shape[0] - 1, -1, -1):
        p = piece[k]
        bound[k, 1] = at
        word, bit = core[k] >> 6, np.uint64(1) << np.uint64(core[k] & 63)
        for row in range(end[p] - 1, first[p] - 1, -1):
            number = line[row]
            if is_closed[number]:
                continue
            stores = (use[row] & STORED) != 0
            if stores or since[number, word] & bit == 0:
                since[number, word] |= bit
                is_closed[number] = stores
                at -= 1
                kept_line[at], kept_use[at] = number, use[row]
        bound[k, 0] = at
    return at
