"""The lines that each task instance uses, by their last use: what it leaves in caches, whatever these are.

What instance_profile.py says of lines, and no more, in one pass from the last access of an instance back to its first.
Assumptions are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from manyscale.models.kernels import read_only
from manyscale.models.memory.access_stream import Sites
from manyscale.models.node import instance_lines_kernel as kernel
from manyscale.models.node.instance_profile import twice_the_pages
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream, sums_of_pieces


@dataclass(frozen=True)
class InstanceLines:
    """Rows [first_line[i], first_line[i + 1]) (int64[instances + 1]) of ``line`` int32[] and ``line_written`` bool[]
    belong to instance i, in the order of their last use, the oldest first; ``line_number`` int64[lines]: address //
    ``line_bytes`` of each line."""

    line_bytes: int
    first_line: np.ndarray
    line: np.ndarray
    line_written: np.ndarray
    line_number: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """All as plain arrays; ``lines_from`` reads them back."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}


def lines_from(arrays: dict[str, np.ndarray]) -> InstanceLines:
    """What ``InstanceLines.arrays`` gave."""
    values = {field.name: arrays[field.name] for field in fields(InstanceLines)}
    return InstanceLines(int(values.pop("line_bytes")), **values)


def lines_of_instances(
    instance: np.ndarray, num_instances: int, stream: InstructionStream, pieces: PieceStream, sites: Sites,
    line_bytes: int = 64,
) -> InstanceLines:  # fmt: skip
    """``instance`` int[pieces]: which one each piece belongs to, whose pieces are taken one after the other.

    Raises ValueError for a line size that is no power of two, and where the stream is shorter than its blocks say.
    O(executions + accesses); beside the stream 32 B a line used by the application, and 5 B a line of each instance.
    """
    if line_bytes < 1 or line_bytes & (line_bytes - 1):
        raise ValueError(f"lines of {line_bytes} B are not of a power of two")
    rows = np.lexsort((pieces.first_execution, instance))
    rows = rows[pieces.end_execution[rows] > pieces.first_execution[rows]]
    accesses = sums_of_pieces(stream, pieces, np.diff(sites.offsets))[rows]
    piece = np.zeros(len(rows), kernel.PIECE)
    piece["first_execution"], piece["end_execution"] = pieces.first_execution[rows], pieces.end_execution[rows]
    piece["end_access"] = pieces.first_access[rows] + accesses
    if len(stream.addresses) < int(piece["end_access"].max(initial=0)):
        raise ValueError("the stream has fewer accesses than its blocks make")
    work = kernel.new_work(
        read_only(stream.block_ids, np.int32), read_only(stream.addresses, np.uint64), line_bytes.bit_length() - 1,
        piece, np.searchsorted(instance[rows], np.arange(num_instances + 1)),
        read_only(sites.offsets, np.int64), read_only(sites.is_store, np.bool_),
    )  # fmt: skip
    while (full := kernel.list_lines(work)) != kernel.DONE:
        if full == kernel.ROWS:
            work = work._replace(line=_longer(work.line), written=_longer(work.written))
        elif full == kernel.LINES:
            work = work._replace(of_line=_longer(work.of_line))
        else:
            keys, lines = twice_the_pages(work.page_keys, work.page_lines)
            work = work._replace(page_keys=keys, page_lines=lines)
    end = int(work.first_line[-1])
    return InstanceLines(
        line_bytes, work.first_line, work.line[:end].copy(), work.written[:end].copy(),
        work.of_line["number"][: work.done["lines"][0]].copy(),
    )  # fmt: skip


def _longer(column: np.ndarray) -> np.ndarray:
    """With as much room again, zeroed."""
    return np.concatenate((column, np.zeros_like(column)))
