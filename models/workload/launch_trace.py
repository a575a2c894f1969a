"""The instructions of one kernel launch, as traced: what every GPU model reads. Nothing here depends on the target.

Warps stand block by block in the order of the grid (x fastest), inside a block by their index; instructions of a warp
in the order in which it executed them. A static instruction is what stands at one address of the kernel (twice, if it
accessed different spaces).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from manyscale.models.workload.instruction_details import InstructionDetails

MAX_OPERANDS: Final = 12  # registers of a static instruction that are read, or written
NO_REGISTER: Final = -1


class UnitClass(enum.IntEnum):
    """Which unit executes an instruction, or what else it does. The first eight are the keys of ``Gpu.units``."""

    int = 0
    fp32 = 1
    fp64 = 2
    sfu = 3
    tensor = 4
    branch = 5
    uniform = 6
    texture = 7
    load_store = 8
    barrier = 9  # of the block: bar.sync
    memory_barrier = 10  # waits for the warp's own stores
    exit = 11
    copy_group = 12  # ends a group of asynchronous copies to shared memory (LDGDEPBAR)
    copy_wait = 13  # waits for all but the last ``immediate`` groups (DEPBAR.LE)


class Space(enum.IntEnum):
    """Which memory an instruction accesses."""

    none = 0
    global_ = 1
    local = 2
    shared = 3
    constant = 4
    cluster = 5  # shared memory of another block of its cluster


class Access(enum.IntEnum):
    """How an instruction accesses memory. ``copy``: from global to shared memory, without waiting (LDGSTS)."""

    none = 0
    load = 1
    store = 2
    atomic = 3  # returns a value
    reduction = 4  # returns none
    copy = 5


@dataclass(frozen=True)
class StaticInstructions:
    """Rows of int64 ``pc``; ``opcode`` int32 into ``opcodes``; ``unit`` uint8 (UnitClass); ``space`` uint8 (Space);
    ``access`` uint8 (Access); ``immediate`` int32 (v5 and later, else 0); ``bypasses_l1`` bool; ``destinations`` and
    ``sources`` int16[rows, MAX_OPERANDS], filled with NO_REGISTER (general registers from 0, uniform ones from 256;
    those that hold zero are left out; all registers of wide operands are listed). ``details``: control bits,
    texts and lines of source, of launches that manyscale's own tracer recorded."""

    opcodes: tuple[str, ...]
    pc: np.ndarray
    opcode: np.ndarray
    unit: np.ndarray
    space: np.ndarray
    access: np.ndarray
    immediate: np.ndarray
    bypasses_l1: np.ndarray
    destinations: np.ndarray
    sources: np.ndarray
    details: InstructionDetails | None = None


@dataclass(frozen=True)
class LaunchTrace:
    """One launch.

    ``block_warps`` int64[blocks + 1]: warps of block b are [block_warps[b], block_warps[b + 1]);
    ``warp_instructions`` int64[warps + 1] and ``warp_accesses`` int64[warps + 1] likewise.
    ``instruction`` int32[instructions]: row of ``static``. ``active`` uint8[instructions]: threads that execute it (0
    where all are masked out). ``accesses`` uint8[instructions]: for global and local memory, the requests of its
    coalesced threads, one per 32-byte sector (atomics: one for each thread that meets another's address, and so on);
    for shared memory, also that of other blocks, the words that the busiest of 32 banks of 4 bytes gives.
    ``sector`` int64[accesses]: byte address / 32, ascending inside an instruction. ``written`` uint32[accesses]: bit k
    for byte k of the sector that a store writes (all ones for atomics; 0 for loads).
    Where the trace has them: ``warp_words`` int64[warps + 1] and ``words`` int64[words], asynchronous operations
    (models/workload/asynchronous.py); ``cluster``: blocks of a cluster along each dimension.
    """

    launch_id: int
    kernel_name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    registers: int
    binary_version: int
    static: StaticInstructions
    block_warps: np.ndarray
    warp_instructions: np.ndarray
    warp_accesses: np.ndarray
    instruction: np.ndarray
    active: np.ndarray
    accesses: np.ndarray
    sector: np.ndarray
    written: np.ndarray
    warp_words: np.ndarray | None = None
    words: np.ndarray | None = None
    cluster: tuple[int, int, int] = (1, 1, 1)

    @property
    def num_blocks(self) -> int:
        return len(self.block_warps) - 1

    @property
    def num_warps(self) -> int:
        return len(self.warp_instructions) - 1

    @property
    def num_instructions(self) -> int:
        """Warp instructions."""
        return len(self.instruction)

    @cached_property
    def num_thread_instructions(self) -> int:
        return int(self.active.sum(dtype=np.int64))

    @property
    def warps_per_block(self) -> int:
        """Slots that each block takes, whether or not a warp executed anything."""
        x, y, z = self.block
        return -(-x * y * z // 32)
