"""The detailed level of a workload: which basic blocks were executed, and where they accessed memory.

Of chosen ranks and iterations only (Grass, UPC 2017, section 6.3.2). What every execution of a block has in common
stands once, in the static tables: its instructions and its accesses. What differs, the sequence of blocks and the
addresses, is a stream, too large for memory: a ``Detail`` reads it segment by segment.

A function call ends a block, as AMM asks (section 3.1): what follows the call is a block of its own. So each execution
of block b makes exactly the accesses of ``block_accesses`` for b, in their order.

Tables
------
``blocks``
    One row per basic block (``block_id`` is the row index).
``instructions``
    Machine instructions of each block in order, sorted by block. Blocks of formats that show no instructions have none.
``block_accesses``
    Memory accesses of each block in order, sorted by block. ``instruction`` is the instruction's index in its block, or
    -1.
``unseen_accesses``
    Of instructions, what they access in memory that the stream does not show, and so has no address: what the compiler
    keeps on the stack for want of registers, constants. Sorted by block; nothing where a format shows all accesses.
``segments``
    Pieces of the stream, in the order in which the run executed them (``segment_id`` is the row index), each of one
    task instance between two neighbours of the rank's sequence of operations and events. A task's later pieces follow
    those of the children it created or waited for.
``task_stacks``
    Where the traced thread's stack holds what belongs to one task instance alone: addresses from ``first_address`` to
    below ``end_address`` are of frames of the instance and of what it calls. Of an implicit task: of its parallel
    region's. Sorted by rank and instance; instances of which nothing is known have no row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

import numpy as np
import pyarrow as pa


class InstructionClass(IntEnum):
    """What an instruction asks of a core's execution units. One that also accesses memory says so in
    ``block_accesses``."""

    other = 0
    move = 1  # register to register, loads and stores without arithmetic, address arithmetic apart
    int_alu = 2
    int_mul = 3
    int_div = 4
    fp_add = 5
    fp_mul = 6
    fp_fma = 7
    fp_div = 8
    fp_sqrt = 9
    fp_other = 10  # conversions, comparisons
    simd_int = 11
    branch = 12
    call = 13
    call_return = 14
    nop = 15
    atomic = 16  # reads and writes memory as one, whatever it makes of it


BLOCKS_SCHEMA: Final = pa.schema(
    [
        pa.field("function", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int32(), nullable=False),  # 0 where unknown
        pa.field("module", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),  # address of its first instruction in the module's file
        pa.field("is_entry", pa.bool_(), nullable=False),  # first block of a function
        pa.field("num_instructions", pa.int32(), nullable=False),  # -1 where the format does not say
    ]
)
INSTRUCTIONS_SCHEMA: Final = pa.schema(
    [
        pa.field("block_id", pa.int32(), nullable=False),
        pa.field("instruction_class", pa.int8(), nullable=False),  # InstructionClass
        pa.field("lanes", pa.int8(), nullable=False),  # elements of a vector instruction, else 1
        # register numbers, one per architectural register (a sub-register counts as the whole)
        pa.field("sources", pa.list_(pa.int16()), nullable=False),
        pa.field("destinations", pa.list_(pa.int16()), nullable=False),
    ]
)
BLOCK_ACCESSES_SCHEMA: Final = pa.schema(
    [
        pa.field("block_id", pa.int32(), nullable=False),
        pa.field("instruction", pa.int32(), nullable=False),
        pa.field("is_store", pa.bool_(), nullable=False),
        pa.field("bytes", pa.int16(), nullable=False),
    ]
)
SEGMENTS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("thread", pa.int32(), nullable=False),
        pa.field("operation_id", pa.int32(), nullable=False),  # that follows; -1 where only a function was recorded
        pa.field("event_id", pa.int32(), nullable=False),  # of the rank, that follows; -1 if no event follows
        pa.field("task_instance_id", pa.int32(), nullable=False),  # -1 where the trace knows no tasks
        pa.field("num_blocks", pa.int64(), nullable=False),
        pa.field("num_accesses", pa.int64(), nullable=False),
        pa.field("num_instructions", pa.int64(), nullable=False),  # -1 where the format does not say
    ]
)

TASK_STACKS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("task_instance_id", pa.int32(), nullable=False),
        pa.field("first_address", pa.int64(), nullable=False),
        pa.field("end_address", pa.int64(), nullable=False),
    ]
)

SCHEMAS: Final = {
    "blocks": BLOCKS_SCHEMA,
    "instructions": INSTRUCTIONS_SCHEMA,
    "block_accesses": BLOCK_ACCESSES_SCHEMA,
    "unseen_accesses": BLOCK_ACCESSES_SCHEMA,
    "segments": SEGMENTS_SCHEMA,
    "task_stacks": TASK_STACKS_SCHEMA,
}


@dataclass(frozen=True)
class DetailBatch:
    """Consecutive segments [``first_segment``, ``first_segment`` + len(block_offsets) - 1) of a stream.

    ``block_ids`` int32[]: blocks executed, of segment i those at [block_offsets[i], block_offsets[i + 1]).
    ``addresses`` uint64[]: bytes' addresses accessed, of segment i those at [access_offsets[i], access_offsets[i + 1]);
    which block execution an access belongs to follows from the number of accesses of each block.
    """

    first_segment: int
    block_offsets: np.ndarray
    access_offsets: np.ndarray
    block_ids: np.ndarray
    addresses: np.ndarray


class Detail(Protocol):
    """A stream of block executions and accesses, on disk."""

    @property
    def digest(self) -> str:
        """Hexadecimal content hash: equal for equal streams."""
        ...

    def read(self, first_segment: int, end_segment: int) -> DetailBatch:
        """Segments [first_segment, end_segment), at a cost proportional to what they hold."""
        ...

    def execution_bounds(self) -> np.ndarray:
        """int64[], ascending, from 0 to the number of block executions: places where ``read_executions`` best begins
        and ends, at most a million executions and a million accesses apart."""
        ...

    def read_executions(self, first: int, end: int) -> DetailBatch:
        """Block executions [first, end) of the stream; segments that lie partly outside are cut. One segment may be
        larger than memory: this reads any part of it."""
        ...

    def batches(self, max_accesses: int) -> Iterator[DetailBatch]:
        """The whole stream in order. A batch holds at most ``max_accesses`` accesses, or one segment."""
        ...
