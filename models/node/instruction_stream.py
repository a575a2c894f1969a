"""The instructions of pieces: which part of a decoded stream of block executions and accesses each piece executes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.kernels import allocation_free, read_only
from manyscale.models.memory.access_stream import Sites
from manyscale.models.node.program.node_program import NodeProgram
from manyscale.models.workload.detail_tables import Detail


@dataclass(frozen=True)
class InstructionStream:
    """Consecutive segments [``first_segment``, ``first_segment`` + len(segment_execution) - 1), decoded: ``block_ids``
    int32[executions], ``addresses`` uint64[accesses], in memory or mapped from a file; those of segment s from
    ``segment_execution[s - first_segment]`` and ``segment_access[...]`` (int64[segments + 1]) on."""

    first_segment: int
    block_ids: np.ndarray
    addresses: np.ndarray
    segment_execution: np.ndarray
    segment_access: np.ndarray


@dataclass(frozen=True)
class PieceStream:
    """Of each piece, int64[pieces]: block executions [``first_execution``, ``end_execution``) of the stream, its
    accesses from ``first_access`` on, and ``num_instructions``. Pieces without segments in the stream have none.
    ``stack`` int64[pieces, 2]: addresses of which each core has its own (private_stacks.py); None: there are none."""

    first_execution: np.ndarray
    end_execution: np.ndarray
    first_access: np.ndarray
    num_instructions: np.ndarray
    stack: np.ndarray | None = None


def decode(detail: Detail, first_segment: int, end_segment: int) -> InstructionStream:
    """The segments in memory: 4 B an execution and 8 B an access."""
    batch = detail.read(first_segment, end_segment)
    return InstructionStream(
        first_segment, batch.block_ids, batch.addresses, batch.block_offsets.astype(np.int64),
        batch.access_offsets.astype(np.int64),
    )  # fmt: skip


def pieces_of_stream(
    program: NodeProgram, stream: InstructionStream, sites: Sites, block_instructions: np.ndarray,
    stack: np.ndarray | None = None,
) -> PieceStream:  # fmt: skip
    """Where the pieces of a program lie in a stream. ``block_instructions`` int[blocks]; ``stack``: of the result.
    Where a piece is one of several parts, these end between two executions. O(executions + pieces)."""
    count = program.num_pieces
    last = stream.first_segment + len(stream.segment_execution) - 1
    there = (program.first_segment >= stream.first_segment) & (program.end_segment <= last)
    there &= program.first_segment < program.end_segment
    first = np.where(there, program.first_segment - stream.first_segment, 0)
    end = np.where(there, program.end_segment - stream.first_segment, 0)
    begin_execution, end_execution = stream.segment_execution[first], stream.segment_execution[end]
    length = end_execution - begin_execution
    first_execution = begin_execution + length * program.part // program.num_parts
    last_execution = begin_execution + length * (program.part + 1) // program.num_parts
    first_access = stream.segment_access[first].copy()
    instructions = np.zeros(count, np.int64)
    _count(
        read_only(stream.block_ids, np.int32), np.diff(sites.offsets), np.asarray(block_instructions, np.int64),
        begin_execution, first_execution, last_execution, first_access, instructions,
    )  # fmt: skip
    return PieceStream(first_execution, last_execution, first_access, instructions, stack)


def sums_of_pieces(stream: InstructionStream, pieces: PieceStream, block_value: np.ndarray) -> np.ndarray:
    """int64[pieces]: of ``block_value`` int64[blocks], over the executions of each piece. O(executions + pieces)."""
    result = np.zeros(len(pieces.first_execution), np.int64)
    values = np.ascontiguousarray(block_value, np.int64)
    _sum(read_only(stream.block_ids, np.int32), values, pieces.first_execution, pieces.end_execution, result)
    return result


@allocation_free
def _sum(block_ids, block_value, first, end, result):  # type: ignore[no-untyped-def]
    for piece in range(first.shape[0]):
        for i in range(first[piece], end[piece]):
            result[piece] += block_value[block_ids[i]]


@allocation_free
def _count(  # type: ignore[no-untyped-def]
    block_ids, block_accesses, block_instructions, begin, first, end, first_access, instructions
):
    """Move ``first_access`` over what the parts before execute, and count instructions. O(executions), those of pieces
    of several parts once per part."""
    for piece in range(first.shape[0]):
        for i in range(begin[piece], first[piece]):
            first_access[piece] += block_accesses[block_ids[i]]
        for i in range(first[piece], end[piece]):
            instructions[piece] += block_instructions[block_ids[i]]
