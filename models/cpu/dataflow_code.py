"""Static tables of the dataflow model: what each instruction of a workload's blocks asks of a core.

Of an instruction that loads and computes, the general registers that it does not also write make the address; where
that leaves none, all general ones do. The vector registers it reads are data. Pushes, pops, calls and returns change
the stack pointer in the front end, so nothing waits for their accesses through it. An integer operation right before a
branch that reads what it wrote is one with it. Register numbers are those of the readers: below
``FIRST_VECTOR_REGISTER`` general registers and flags, among them ``STACK_POINTER``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.cpu import dataflow_tables as tables
from manyscale.models.machine.processor import Core
from manyscale.models.memory.access_stream import Sites
from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import InstructionClass as Kind

FIRST_VECTOR_REGISTER: Final = 32
STACK_POINTER: Final = 4
_BRANCHES: Final = (Kind.branch, Kind.call, Kind.call_return)


class _Registers:
    """The registers that instructions read or write: ``instruction`` and ``register``, int64[all], in order."""

    def __init__(self, workload: Workload, column: str) -> None:
        offsets, registers = workload.lists("instructions", column)
        self.num_instructions = len(offsets) - 1
        self.instruction = np.repeat(np.arange(self.num_instructions), np.diff(offsets))
        self.register = registers.astype(np.int64)

    @property
    def is_vector(self) -> np.ndarray:
        return self.register >= FIRST_VECTOR_REGISTER

    def count(self, which: np.ndarray) -> np.ndarray:
        """int64[instructions]: how many of its registers are among ``which`` (bool[all])."""
        return np.bincount(self.instruction[which], minlength=self.num_instructions)

    def keys(self, shift: int = 0) -> np.ndarray:
        """int64[all]: one number per instruction, counted ``shift`` on, and register."""
        return (self.instruction + shift) * tables.NUM_REGISTERS + self.register

    def keep(self, which: np.ndarray) -> None:
        self.instruction, self.register = self.instruction[which], self.register[which]


def code_of(workload: Workload, sites: Sites, core: Core) -> tuple[tables.Code, np.ndarray]:
    """Tables for the kernel, and bool[blocks]: which blocks end in a branch. O(n log n) in the static instructions.

    Raises ValueError where blocks show no instructions, or accesses do not say whose they are.
    """
    num_blocks = workload.tables["blocks"].num_rows
    if not workload.tables["instructions"].num_rows:
        raise ValueError("the workload's blocks show no instructions; trace the program by --route qemu")
    block = workload.column("instructions", "block_id").astype(np.int64)
    kind = workload.column("instructions", "instruction_class").astype(np.int64)
    reads, writes = _Registers(workload, "sources"), _Registers(workload, "destinations")
    block_offsets = _offsets(np.bincount(block, minlength=num_blocks))
    within = workload.column("block_accesses", "instruction").astype(np.int64)
    if (within < 0).any():
        raise ValueError("accesses that belong to no instruction; the dataflow model needs to know which makes which")
    owner = block_offsets[sites.block] + within
    num_accesses = np.bincount(owner, minlength=len(kind))
    num_loads = np.bincount(owner[~sites.is_store], minlength=len(kind))

    only_moves = np.isin(kind, [Kind.move, Kind.call, Kind.call_return])
    stack = only_moves & (num_accesses > 0) & (reads.count(reads.register == STACK_POINTER) > 0)
    writes.keep(~(stack[writes.instruction] & (writes.register == STACK_POINTER)))
    address = _address_sources(reads, writes, only_moves, num_loads > 0)
    traits = _traits(block, kind, reads, writes, num_accesses, core)
    traits[only_moves & (num_accesses > 0)] |= tables.ADDRESSES
    traits[(num_loads > 0) & (num_accesses > num_loads)] |= tables.UPDATES

    unit = np.array([tables.FIRST_CLASS_UNIT + core.units()[each] for each in Kind])
    cost = [core.instructions[each.name] for each in Kind]
    costs = np.array([(each.latency_cycles, each.reciprocal_throughput_cycles) for each in cost])[kind]
    first_registers, first_data, first_destinations, registers = _registers(reads, writes, address)
    columns = (traits, unit[kind], first_registers, first_data, first_destinations, _offsets(num_accesses))
    code = tables.Code(
        _blocks(workload, block_offsets, kind, num_accesses, core),
        np.stack([np.resize(column, len(kind) + 1) for column in columns], axis=1),
        costs,
        registers,
        np.stack([sites.is_store, sites.bytes], axis=1).astype(np.int64),
    )
    return code, ends_in_branch(workload)


def ends_in_branch(workload: Workload) -> np.ndarray:
    """bool[blocks]: whether the last instruction of each is a branch, a call or a return."""
    num_blocks = workload.tables["blocks"].num_rows
    kind = workload.column("instructions", "instruction_class")
    if not len(kind):
        return np.zeros(num_blocks, np.bool_)
    offsets = _offsets(np.bincount(workload.column("instructions", "block_id"), minlength=num_blocks))
    return np.asarray((np.diff(offsets) > 0) & np.isin(kind[np.maximum(offsets[1:] - 1, 0)], _BRANCHES))


def fused_instructions(workload: Workload) -> np.ndarray:
    """int64[blocks]: of the instructions of each block, how many are one with the branch behind them in cores that fuse
    them, and so take no place of their own there. O(n log n) in the static instructions."""
    block = workload.column("instructions", "block_id").astype(np.int64)
    kind = workload.column("instructions", "instruction_class").astype(np.int64)
    reads, writes = _Registers(workload, "sources"), _Registers(workload, "destinations")
    fused = _is_fused(block, kind, reads, writes)
    return np.bincount(block[fused], minlength=workload.tables["blocks"].num_rows)


def _registers(
    reads: _Registers, writes: _Registers, address: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(first of all, of the data, of the destinations of each instruction, registers in this order)."""
    kinds = np.concatenate([np.where(address, 0, 1), np.full(len(writes.register), 2)])
    owners = np.concatenate([reads.instruction, writes.instruction])
    order = np.lexsort((kinds, owners))
    first = _offsets(np.bincount(owners, minlength=reads.num_instructions))
    data = first[:-1] + reads.count(address)
    destinations = first[1:] - np.bincount(writes.instruction, minlength=reads.num_instructions)
    return first, data, destinations, np.concatenate([reads.register, writes.register])[order]


def _blocks(
    workload: Workload, block_offsets: np.ndarray, kind: np.ndarray, num_accesses: np.ndarray, core: Core
) -> np.ndarray:
    """The kernel's table of blocks."""
    next_block, sizes = _next_blocks(workload), np.diff(block_offsets)
    first = np.minimum(block_offsets[:-1], len(kind) - 1)
    windows = _windows(workload, next_block, sizes, core)
    repeats = (sizes == 1) & (num_accesses[first] > 0) & ~np.isin(kind[first], _BRANCHES)
    columns = (block_offsets, next_block, *windows, repeats)
    return np.stack([np.resize(column, len(block_offsets)) for column in columns], axis=1).astype(np.int64)


def _offsets(counts: np.ndarray) -> np.ndarray:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def _address_sources(reads: _Registers, writes: _Registers, only_moves: np.ndarray, loads: np.ndarray) -> np.ndarray:
    """bool[all reads]: registers that a load's address waits for."""
    general = ~reads.is_vector & loads[reads.instruction]
    also_written = np.isin(reads.keys(), writes.keys())
    address = general & (only_moves[reads.instruction] | ~also_written)
    without = reads.count(address) == 0
    return address | (general & without[reads.instruction])


def _traits(
    block: np.ndarray, kind: np.ndarray, reads: _Registers, writes: _Registers, num_accesses: np.ndarray, core: Core
) -> np.ndarray:
    """int64[instructions]: FUSED, RENAMED, VECTOR, ENDS_BLOCK."""
    vector_reads, vector_writes = reads.count(reads.is_vector) > 0, writes.count(writes.is_vector) > 0
    general_reads, general_writes = reads.count(~reads.is_vector) > 0, writes.count(~writes.is_vector) > 0
    crosses = (vector_reads & general_writes) | (general_reads & vector_writes)
    renamed = kind == Kind.nop
    if core.eliminates_moves:
        renamed |= (kind == Kind.move) & (num_accesses == 0) & ~crosses
    traits = np.where(renamed, tables.RENAMED, 0)
    traits[vector_reads | vector_writes] |= tables.VECTOR
    traits[vector_writes] |= tables.WRITES_VECTOR
    traits[np.isin(kind, _BRANCHES)] |= tables.ENDS_BLOCK
    if core.fuses_branches:
        traits[_is_fused(block, kind, reads, writes)] |= tables.FUSED
    return traits.astype(np.int64)


def _is_fused(block: np.ndarray, kind: np.ndarray, reads: _Registers, writes: _Registers) -> np.ndarray:
    """bool[instructions]: integer operations right before a branch that reads what they write."""
    fused = np.zeros(len(kind), bool)
    read_by_next = np.isin(writes.keys(shift=1), reads.keys())
    before_branch = (kind[1:] == Kind.branch) & (block[:-1] == block[1:])
    fused[:-1] = ((writes.count(read_by_next) > 0) & (kind == Kind.int_alu))[:-1] & before_branch
    return fused


def _next_blocks(workload: Workload) -> np.ndarray:
    """int64[blocks]: the block that follows in the code, -1 for none. O(blocks log blocks)."""
    modules = workload.tables["blocks"].column("module").combine_chunks().dictionary_encode().indices.to_numpy()
    offset = workload.column("blocks", "offset")
    order = np.lexsort((offset, modules))
    result = np.full(len(order), -1, np.int64)
    same = modules[order[1:]] == modules[order[:-1]]
    result[order[:-1][same]] = order[1:][same]
    return result


def _windows(
    workload: Workload, next_block: np.ndarray, num_instructions: np.ndarray, core: Core
) -> tuple[np.ndarray, np.ndarray]:
    """(first, last) aligned windows of the code, int64[blocks], that a block lies in: all 0 where the core names none.

    A block ends where the next one begins; where that is not known, its instructions take four bytes each.
    """
    offset = workload.column("blocks", "offset").astype(np.int64)
    if core.fetch_bytes is None:
        return np.zeros_like(offset), np.zeros_like(offset)
    size = np.where(next_block >= 0, offset[next_block] - offset, 0)
    known = (size >= num_instructions) & (size <= 15 * num_instructions)
    size = np.maximum(np.where(known, size, 4 * num_instructions), 1)
    return offset // core.fetch_bytes, (offset + size - 1) // core.fetch_bytes
