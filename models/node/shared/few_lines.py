"""Some of the lines of pieces, which stand for all of them where pieces use many.

One line in ``every`` (2, 4 or 8) is followed in caches of so much less: SHARDS (Waldspurger et al., "Efficient MRC
construction with SHARDS", FAST 2015). Of each ``every`` neighbours it is one, by a hash of their place: of arrays as
many are there as should be, and of lines in any equal distances about as many. What is counted of them counts ``every``
times. How many are left of a piece whose lines lie anywhere varies, by a quarter where 16 are, which evens out over
pieces.

What hangs on the lines beside one that is followed is not known of it. How often DRAM's rows are opened is counted once
for a memory, over all lines of each piece (``opened_rows``).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.models.kernels.hashing import mix
from manyscale.models.machine import Node
from manyscale.models.node.shared.occupancy_kernel import bank_and_row
from manyscale.models.node.shared.piece_lines import COLUMNS, PieceLines

_ENOUGH: Final = 16  # lines of a piece, in the mean: see above
_LEAST: Final = 30_000  # uses of lines by all pieces: some milliseconds, of which nothing is to be gained
_MOST_SHIFT: Final = 3  # one in 8: of a cache of 512 lines (32 KiB), one is left for each epoch of each class of sets


def few_lines(lines: PieceLines) -> PieceLines:
    """Those of ``lines`` that are enough: maybe all. O(rows)."""
    uses, works = len(lines.line), int(np.count_nonzero(lines.end > lines.first))
    most = max(min(uses / max(works, 1) / _ENOUGH, uses / _LEAST), 1.0)
    every = 1 << min(int(np.log2(most)), _MOST_SHIFT)
    if every == 1:
        return lines
    group, place = np.divmod(lines.line_number.astype(np.uint64), np.uint64(every))
    is_kept = mix.py_func(group, np.uint64(1)) % np.uint64(every) == place
    there = is_kept[lines.line]
    place, before = np.cumsum(is_kept) - 1, np.concatenate(([0], np.cumsum(there)))
    kept = np.flatnonzero(is_kept)
    return PieceLines(
        lines.line_bytes, before[lines.first], before[lines.end], place[lines.line[there]].astype(np.int32),
        lines.use[there], lines.visits[there], lines.line_number[kept], every, kept, lines.line_number,
    )  # fmt: skip


def arrays_of(few: PieceLines) -> dict[str, np.ndarray]:
    """What is not in the arrays of all lines; ``few_lines_from`` reads both back."""
    if few.every == 1:
        return {}
    return {f"few_{name}": np.asarray(getattr(few, name)) for name in (*COLUMNS, "every", "kept")}


def few_lines_from(arrays: dict[str, np.ndarray]) -> PieceLines | None:
    """What ``arrays_of`` was given, if these were not all lines."""
    if "few_every" not in arrays:
        return None
    values = {name: arrays[f"few_{name}"] for name in COLUMNS}
    values |= {"kept": arrays["few_kept"], "all_numbers": arrays["lines_line_number"]}
    numbers = {name: int(arrays[f"few_{name}"]) for name in ("line_bytes", "every")}
    return PieceLines(**(values | numbers))  # type: ignore[arg-type]


def opened_rows(lines: PieceLines, node: Node) -> np.ndarray:
    """float64[pieces]: the share of all lines of each that find another row of DRAM open in their bank, if all are from
    main memory, piece after piece; 0 without rows. O(rows)."""
    result = np.zeros(len(lines.first))
    dram = None if node.main_memory is None else node.main_memory.dram
    if dram is not None:
        shift = max(dram.row_bytes // lines.line_bytes, 1).bit_length() - 1
        open_row = np.full(dram.channels * dram.banks, -1, np.int64)
        _count(
            lines.first, lines.end, lines.line, lines.line_number, dram.channels, dram.banks, shift, open_row, result
        )
    return result


@allocation_free
def _count(first, end, line, line_number, channels, banks, shift, open_row, result):  # type: ignore[no-untyped-def]
    """``open_row`` int64[banks of all channels]."""
    for piece in range(first.shape[0]):
        opened = 0.0
        for k in range(first[piece], end[piece]):
            bank, row = bank_and_row(line_number[line[k]], channels, banks, shift)
            if open_row[bank] != row:
                open_row[bank] = row
                opened += 1.0
        result[piece] = opened / max(end[piece] - first[piece], 1)
