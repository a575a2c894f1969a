"""What each task instance does, whatever the machine: for classes of basic-block vectors (Grass, UPC 2017, section
5.3.2), and for the lines that warm fast-forwarding touches instead of simulating.

Computed once per application, line size aside, which all machines of a study mostly share. What the analytical model
reads of instances is its own: models/node/shared.

Assumptions: an access is one of the line of its first byte; an instance's pieces are taken one after the other, what it
created in between is not seen from inside.

Cost: O(executions + accesses). Memory beside the stream: 4 B an access, and 24 B a line used by the application; of
each instance what ``InstanceProfiles`` holds: 32 B, 12 B a block of its vector, 5 B a line.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from manyscale.models.kernels import read_only
from manyscale.models.memory.access_stream import Sites
from manyscale.models.node import instance_profile_kernel as kernel
from manyscale.models.node.instruction_stream import InstructionStream, PieceStream
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.workload import Workload


@dataclass(frozen=True)
class InstanceProfiles:
    """Rows [first_x[i], first_x[i + 1]) of a column belong to instance i (``first_x`` int64[instances + 1]).

    ``num_instructions`` int64[instances]; ``order`` int64[instances]: rank of each in the order in which the traced run
    began them, those without instructions last.

    Basic-block vectors: ``vector_block`` int32[], ``vector_instructions`` int64[], from ``first_vector``.
    Lines: ``line`` int32[], ``line_written`` bool[], from ``first_line``: in the order of their last use, the oldest
    first; ``line_number`` int64[lines]: address // ``line_bytes`` of each line.
    """

    line_bytes: int
    num_instructions: np.ndarray
    order: np.ndarray
    first_vector: np.ndarray
    vector_block: np.ndarray
    vector_instructions: np.ndarray
    first_line: np.ndarray
    line: np.ndarray
    line_written: np.ndarray
    line_number: np.ndarray

    @property
    def num_instances(self) -> int:
        return len(self.num_instructions)

    def arrays(self) -> dict[str, np.ndarray]:
        """All as plain arrays, for ``numpy.savez``; ``profiles_from`` reads them back."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}


def profiles_from(arrays: dict[str, np.ndarray]) -> InstanceProfiles:
    """The profiles that ``InstanceProfiles.arrays`` gave."""
    values = {field.name: arrays[field.name] for field in fields(InstanceProfiles)}
    return InstanceProfiles(int(values.pop("line_bytes")), **values)


def instructions_of_blocks(workload: Workload, sites: Sites) -> np.ndarray:
    """int64[blocks]: those that a trace shows, else as many as it says, or as many as access memory, or one."""
    said = workload.column("blocks", "num_instructions").astype(np.int64)
    shown = np.bincount(workload.column("instructions", "block_id"), minlength=len(said))
    return np.where(shown > 0, shown, np.maximum(np.maximum(said, np.diff(sites.offsets)), 1))


def profile_instances(
    program: NodeProgram,
    stream: InstructionStream,
    pieces: PieceStream,
    sites: Sites,
    block_instructions: np.ndarray,
    *,
    line_bytes: int = 64,
) -> InstanceProfiles:
    """The profile of every instance of a program, whose blocks have ``block_instructions``
    (``instructions_of_blocks``).

    Raises ValueError for a line size that is no power of two, and where the stream is shorter than its blocks say.
    """
    if line_bytes < 1 or line_bytes & (line_bytes - 1):
        raise ValueError(f"lines of {line_bytes} B are not of a power of two")
    rows = np.lexsort((pieces.first_execution, program.piece_instance))
    rows = rows[pieces.end_execution[rows] > pieces.first_execution[rows]]
    piece = _records(kernel.PIECE, pieces.first_execution[rows], pieces.end_execution[rows], pieces.first_access[rows])
    first_piece = np.searchsorted(program.piece_instance[rows], np.arange(program.num_instances + 1))
    line_ids, line_number = _lines(stream.addresses, line_bytes.bit_length() - 1)
    if len(rows) and len(line_ids) < int(piece["first_access"].max()):
        raise ValueError("the stream has fewer accesses than its blocks make")
    block = _records(kernel.BLOCK, sites.offsets, np.append(block_instructions, 0))
    own = kernel.new_own_profile(
        read_only(stream.block_ids, np.int32), line_ids, len(line_number), piece, first_piece, block, sites.is_store
    )
    while not kernel.profile_by_instance(own):
        own = own._replace(columns=kernel.OwnColumns(*map(_longer, own.columns)))
    first_vector, first_line = own.first["vector"].copy(), own.first["line"].copy()
    vector_block, vector_instructions = (each[: first_vector[-1]].copy() for each in own.columns[:2])
    line, line_written = (each[: first_line[-1]].copy() for each in own.columns[2:])
    return InstanceProfiles(
        line_bytes, own.num_instructions, _begin_order(piece, first_piece), first_vector, vector_block,
        vector_instructions, first_line, line, line_written, line_number,
    )  # fmt: skip


def _records(dtype: np.dtype, *columns: np.ndarray) -> np.ndarray:
    records = np.zeros(len(columns[0]), dtype)
    for name, column in zip(dtype.names or (), columns, strict=True):
        records[name] = column
    return records


def _longer(column: np.ndarray) -> np.ndarray:
    """With as much room again."""
    return np.concatenate((column, np.empty_like(column)))


def twice_the_pages(keys: np.ndarray, lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The table of pages with room for as many more."""
    more = np.full(2 * len(keys), -1, np.int64), np.full((2 * len(keys), lines.shape[1]), -1, np.int32)
    kernel.move_pages(keys, lines, *more)
    return more


def _lines(addresses: np.ndarray, line_shift: int) -> tuple[np.ndarray, np.ndarray]:
    """(number of each access's line int32[accesses], what lines these are int64[lines])."""
    numbers = kernel.no_line_numbers(len(addresses))
    done = numbers.done[0]
    while True:
        kernel.number_lines(numbers, read_only(addresses, np.uint64), line_shift)
        if done["accesses"] == len(addresses):
            return numbers.line_ids, numbers.line_number[: done["lines"]].copy()
        if done["lines"] == len(numbers.line_number):
            numbers = numbers._replace(line_number=_longer(numbers.line_number))
        else:
            keys, lines = twice_the_pages(numbers.page_keys, numbers.page_lines)
            numbers = numbers._replace(page_keys=keys, page_lines=lines)


def _begin_order(piece: np.ndarray, first_piece: np.ndarray) -> np.ndarray:
    """int64[instances]: rank of each by when the traced run began it, those that did nothing last."""
    begins = np.full(len(first_piece) - 1, np.iinfo(np.int64).max)
    there = first_piece[1:] > first_piece[:-1]
    begins[there] = piece["first_execution"][first_piece[:-1][there]]
    rank = np.empty(len(begins), np.int64)
    rank[np.argsort(begins, kind="stable")] = np.arange(len(begins))
    return rank
