"""Static code of a program's blocks, and sampled windows of what it executes: pieces of the sequence of blocks, some
times a reorder buffer long, which tell of a profile (node/instance_profile.py) what depends on what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.models.memory.access_stream import Sites
from manyscale.models.workload import Workload
from manyscale.models.workload.detail_tables import InstructionClass as Kind

STACK_POINTER: Final = 4
FIRST_VECTOR_REGISTER: Final = 32
_MOVES: Final = (Kind.move, Kind.call, Kind.call_return)


@dataclass(frozen=True)
class BlockCode:
    """Static code. ``first_instruction`` int64[blocks + 1]; ``kind`` int8[instructions] (InstructionClass);
    ``num_loads``, ``num_stores`` int16[instructions]; ``is_fused`` bool[instructions]: integer operations right before
    a branch that reads what they wrote, which is one with them on many cores; registers int16[], of instruction i from
    ``first_source[i]`` on those that the address of its load waits for, from ``first_data[i]`` on those that the
    rest waits for, from ``first_destination[i]`` on those that it writes, up to ``first_source[i + 1]``
    (int64[instructions + 1])."""

    first_instruction: np.ndarray
    kind: np.ndarray
    num_loads: np.ndarray
    num_stores: np.ndarray
    is_fused: np.ndarray
    first_source: np.ndarray
    first_data: np.ndarray
    first_destination: np.ndarray
    register: np.ndarray

    @property
    def block_instructions(self) -> np.ndarray:
        """int64[blocks]"""
        return np.diff(self.first_instruction)

    def unit_counts(self) -> np.ndarray:
        """int64[blocks, classes]: instructions that use a unit of their class; neither nops, nor those that do nothing
        but access memory."""
        only_access = np.isin(self.kind, _MOVES) & (self.num_loads + self.num_stores > 0)
        counted = ~only_access & (self.kind != Kind.nop)
        block = np.repeat(np.arange(len(self.first_instruction) - 1), self.block_instructions)
        key = block * len(Kind) + self.kind
        size = (len(self.first_instruction) - 1) * len(Kind)
        return np.bincount(key[counted], minlength=size).reshape(-1, len(Kind))


def block_code(workload: Workload, sites: Sites) -> tuple[BlockCode, np.ndarray]:
    """Code of a workload's blocks, and int64[sites]: the instruction within its block that makes each access.

    Blocks that show no instructions have as many of no class as the table says (or as they have accesses), the
    accesses spread over them. O(n log n) in the static instructions.
    """
    num_blocks = workload.tables["blocks"].num_rows
    block = workload.column("instructions", "block_id").astype(np.int64)
    shown = np.bincount(block, minlength=num_blocks)
    said = workload.column("blocks", "num_instructions").astype(np.int64)
    accesses = np.diff(sites.offsets)
    size = np.where(shown > 0, shown, np.maximum(np.maximum(said, accesses), 1))
    first = np.concatenate(([0], np.cumsum(size)))
    total = int(first[-1])
    row = first[block] + np.arange(len(block)) - np.concatenate(([0], np.cumsum(shown)))[block]
    kind = np.zeros(total, np.int8)
    kind[row] = workload.column("instructions", "instruction_class")
    within = workload.column("block_accesses", "instruction").astype(np.int64)
    order = np.arange(len(sites)) - sites.offsets[sites.block]
    spread = order * size[sites.block] // np.maximum(accesses[sites.block], 1)
    within = np.where((within >= 0) & (within < size[sites.block]), within, spread)
    owner = first[sites.block] + within
    num_loads = np.bincount(owner[~sites.is_store], minlength=total)
    num_stores = np.bincount(owner[sites.is_store], minlength=total)

    columns = []
    for name in ("sources", "destinations"):
        offsets, registers = workload.lists("instructions", name)
        owners = np.repeat(row, np.diff(offsets))
        kept = registers != STACK_POINTER
        columns.append((owners[kept], registers[kept].astype(np.int64)))
    (reader, read), (writer, wrote) = columns
    only_moves = np.isin(kind, _MOVES)
    general = (read < FIRST_VECTOR_REGISTER) & (num_loads[reader] > 0)
    # what an instruction reads and writes is data, unless nothing is left to make the address
    updated = np.isin(reader * 512 + read, writer * 512 + wrote) & ~only_moves[reader]
    address = general & ~updated
    without = np.bincount(reader[address], minlength=total) == 0
    address |= general & without[reader]
    owners = np.concatenate((reader, writer))
    role = np.concatenate((np.where(address, 0, 1), np.full(len(writer), 2)))
    sorted_rows = np.lexsort((role, owners))
    starts = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=total))))
    data = starts[:-1] + np.bincount(reader[address], minlength=total)
    destinations = starts[1:] - np.bincount(writer, minlength=total)
    feeds = np.bincount(writer[np.isin((writer + 1) * 512 + wrote, reader * 512 + read)], minlength=total) > 0
    is_fused = feeds & (kind == Kind.int_alu)
    is_fused[:-1] &= kind[1:] == Kind.branch
    is_fused[first[1:] - 1] = False
    code = BlockCode(
        first, kind, num_loads.astype(np.int16), num_stores.astype(np.int16), is_fused, starts,
        np.append(data, starts[-1]), np.append(destinations, starts[-1]),
        np.concatenate((read, wrote))[sorted_rows].astype(np.int16),
    )  # fmt: skip
    return code, within


@dataclass(frozen=True)
class BlockWindows:
    """Sampled windows: ``block`` int32[windows], ascending, whose execution each begins with; ``executed`` int32[]:
    blocks in order, those of window w from ``first[w]`` on (int64[windows + 1])."""

    block: np.ndarray
    first: np.ndarray
    executed: np.ndarray


def windows_at(
    block_ids: np.ndarray, start: np.ndarray, end: np.ndarray, block_instructions: np.ndarray, most_instructions: int
) -> BlockWindows:
    """Windows from executions ``start`` (int64[windows]) on, before ``end``, of about ``most_instructions``.
    O(executions in windows)."""
    order = np.argsort(block_ids[start], kind="stable")
    start, end = start[order], end[order].copy()
    _cut(block_ids, start, end, block_instructions, most_instructions)
    first = np.concatenate(([0], np.cumsum(end - start)))
    rows = np.repeat(start - first[:-1], end - start) + np.arange(first[-1])
    return BlockWindows(block_ids[start].astype(np.int32), first, np.array(block_ids[rows], np.int32))


@allocation_free
def _cut(block_ids, start, end, block_instructions, most):  # type: ignore[no-untyped-def]
    """O(executions in windows)."""
    for window in range(start.shape[0]):
        at, instructions = start[window], 0
        while at < end[window] and instructions < most:
            instructions += block_instructions[block_ids[at]]
            at += 1
        end[window] = at
