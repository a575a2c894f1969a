"""The lines that each piece of a task instance uses, once each: what it asks of caches that other pieces use, too.

Machine-independent but for the line size. Rows stand in the order of first uses; lines on the stack of which each core
has its own (node/private_stacks.py) have none, since nobody else uses them.

Cost: O(executions + accesses). Memory: 6 B a row and 8 B a line, and while it is made 4 B more a line and some 4 B a
line for the numbers of lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import read_only
from manyscale.models.memory.access_stream import Sites
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream
from manyscale.models.node.shared import piece_lines_kernel as kernel

COLUMNS: Final = ("line_bytes", "first", "end", "line", "use", "visits", "line_number")


@dataclass(frozen=True)
class PieceLines:
    """Rows [first[p], end[p]) belong to piece p (int64[pieces] each): ``line`` int32[], number of the line, and
    ``use`` uint8[]: 1 where the first use is a load, plus 2 where the piece stores to it; ``visits`` uint8[]: how often
    it comes to the line, with VISIT accesses or more to others between (255 for more). ``line_number`` int64[lines]:
    address // ``line_bytes``.

    Of few_lines.py one line in ``every`` is there, ``kept`` int64[lines] of the ``all_numbers`` int64[] of all."""

    line_bytes: int
    first: np.ndarray
    end: np.ndarray
    line: np.ndarray
    use: np.ndarray
    visits: np.ndarray
    line_number: np.ndarray
    every: int = 1
    kept: np.ndarray | None = None
    all_numbers: np.ndarray | None = None

    @property
    def num_lines(self) -> int:
        return len(self.line_number)

    def arrays(self) -> dict[str, np.ndarray]:
        """All as plain arrays, for ``numpy.savez``; ``piece_lines_from`` reads them back."""
        return {f"lines_{name}": np.asarray(getattr(self, name)) for name in COLUMNS}


def piece_lines_from(arrays: dict[str, np.ndarray]) -> PieceLines:
    """What ``PieceLines.arrays`` gave."""
    values = {name: arrays[f"lines_{name}"] for name in COLUMNS}
    return PieceLines(**(values | {"line_bytes": int(arrays["lines_line_bytes"])}))  # type: ignore[arg-type]


def lines_of_pieces(stream: InstructionStream, pieces: PieceStream, sites: Sites, line_bytes: int = 64) -> PieceLines:
    """Raises ValueError for a line size that is no power of two."""
    if line_bytes < 1 or line_bytes & (line_bytes - 1):
        raise ValueError(f"lines of {line_bytes} B are not of a power of two")
    count = len(pieces.first_execution)
    stack = np.zeros((count, 2), np.int64) if pieces.stack is None else pieces.stack
    state = kernel.new_state(len(stream.addresses), count)
    while not kernel.collect(
        state, read_only(stream.block_ids, np.int32), read_only(stream.addresses, np.uint64),
        np.ascontiguousarray(sites.offsets, np.int64), np.ascontiguousarray(sites.is_store, np.bool_),
        np.maximum(sites.bytes.astype(np.int64), 1) - 1,
        np.stack([pieces.first_execution, pieces.end_execution, pieces.first_access], axis=1),
        np.ascontiguousarray(stack, np.int64), line_bytes.bit_length() - 1,
    ):  # fmt: skip
        state = kernel.with_more_pages(state)
    rows, lines = int(state.done["rows"][0]), int(state.done["lines"][0])
    return PieceLines(
        line_bytes, state.first, state.end, state.line[:rows].copy(), state.use[:rows].copy(),
        state.visits[:rows].copy(), state.line_number[:lines].copy(),
    )  # fmt: skip
