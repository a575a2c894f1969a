"""Launches long enough for sampling inside them, made of the blocks of real ones.

A population is an order of blocks of traced launches, in rounds. Blocks are taken as they are; in a *shifted*
population each round has pages of its own (PAGE_BYTES; those that any of its launches touches, packed in ascending
order, round behind round), so that rounds share no data; in others addresses are what they were, and later rounds find
in L2 what earlier ones left there, as far as it holds it.

* regular: one launch, its blocks in the order of the grid, round after round.
* irregular: rounds that share data; several launches of a kernel one after the other in each round; launches in
  stretches of their own; blocks of all launches of a round in random order (numpy's default_rng(SEED)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload.launch_trace import LaunchTrace, StaticInstructions
from manyscale.runner.readers import accelsim

SEED: Final = 7
PAGE_BYTES: Final = 1 << 16
_PAGE_SECTORS: Final = PAGE_BYTES // 32


@dataclass(frozen=True)
class Population:
    """``launches`` of ``folder`` (launch_id), ``rounds`` of their blocks; ``order``: in_grid_order, shuffled or
    stretches; ``is_regular``, ``is_shifted`` as above."""

    name: str
    folder: str
    launches: tuple[int, ...]
    rounds: int
    order: str
    is_regular: bool
    is_shifted: bool = True

    def trace(self, data: Path) -> LaunchTrace:
        """The launch; ``data``: the folder with ``bfs`` and ``misc``. O(its instructions)."""
        parts = [_trace(data / self.folder, launch) for launch in self.launches]
        part, block, turn = _ORDERS[self.order](parts, self.rounds)
        return joined(parts, part, block, turn if self.is_shifted else None, self.name)


_KERNEL: Final = (1, 3, 5, 7, 9, 11, 13, 15)  # BFS's launches of Kernel
_VADD: Final = "misc/simple-trace-example"
_TREE: Final = "misc/rodinia-b+tree-128-1000"
_FFMA: Final = "misc/simtune-ffmakernel-4096-16"

AS_TRACED: Final = (
    Population("vectorAdd", _VADD, (1,), 1, "in_grid_order", True),
    Population("ffmakernel", _FFMA, (1,), 1, "in_grid_order", True),
    Population("b+tree", _TREE, (1,), 1, "in_grid_order", True),
    *(Population(f"bfs-{one}", "bfs", (one,), 1, "in_grid_order", True) for one in range(1, 17)),
)
REGULAR: Final = (
    Population("vectorAdd x300", _VADD, (1,), 300, "in_grid_order", True),
    Population("ffmakernel x40", _FFMA, (1,), 40, "in_grid_order", True),
    Population("b+tree x400", _TREE, (1, 2), 200, "in_grid_order", True),
    Population("bfs-9 x200", "bfs", (9,), 200, "in_grid_order", True),
    Population("bfs-7 x300", "bfs", (7,), 300, "in_grid_order", True),
    Population("bfs-10 x1000", "bfs", (10,), 1000, "in_grid_order", True),
)
IRREGULAR: Final = (
    Population("vectorAdd x300, same data", _VADD, (1,), 300, "in_grid_order", False, False),
    Population("b+tree x400, same data", _TREE, (1, 2), 200, "in_grid_order", False, False),
    Population("bfs Kernel, in turn x60", "bfs", _KERNEL, 60, "in_grid_order", False),
    Population("bfs Kernel, stretches x60", "bfs", _KERNEL, 60, "stretches", False),
    Population("bfs Kernel, shuffled x60", "bfs", _KERNEL, 60, "shuffled", False),
    Population("bfs 9 and 11, shuffled x100", "bfs", (9, 11), 100, "shuffled", False),
)


@cache
def _trace(path: Path, launch: int) -> LaunchTrace:
    streams = accelsim.read(path).gpu
    assert streams is not None
    return streams.trace(launch)


def real_launches(folder: Path) -> list[LaunchTrace]:
    """All launches of a folder, as traced."""
    streams = accelsim.read(folder).gpu
    assert streams is not None
    return [_trace(folder, launch) for launch in streams.launch_ids]


def _in_grid_order(parts: Sequence[LaunchTrace], rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(part, block of it, round), int64[blocks] each."""
    part = np.concatenate([np.full(one.num_blocks, index) for index, one in enumerate(parts)])
    block = np.concatenate([np.arange(one.num_blocks) for one in parts])
    return np.tile(part, rounds), np.tile(block, rounds), np.repeat(np.arange(rounds), len(part))


def _stretches(parts: Sequence[LaunchTrace], rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = [_in_grid_order([one], rounds) for one in parts]
    part = np.concatenate([np.full(len(one[0]), index) for index, one in enumerate(found)])
    return part, np.concatenate([one[1] for one in found]), np.concatenate([one[2] for one in found])


def _shuffled(parts: Sequence[LaunchTrace], rounds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    part, block, turn = _in_grid_order(parts, rounds)
    random = np.random.default_rng(SEED).random(len(part))
    order = np.lexsort((random, turn))
    return part[order], block[order], turn[order]


_ORDERS: Final = {"in_grid_order": _in_grid_order, "stretches": _stretches, "shuffled": _shuffled}


def scaled_bfs(data: Path, rounds: int) -> list[LaunchTrace]:
    """BFS's 16 launches, each of its blocks so often; launches share the pages of a round as they share data."""
    parts = [_trace(data / "bfs", one) for one in range(1, 17)]
    result = []
    for index, trace in enumerate(parts):
        _, block, turn = _in_grid_order([trace], rounds)
        whole = joined(parts, np.full(len(block), index), block, turn, trace.kernel_name)
        result.append(replace(whole, launch_id=trace.launch_id, block=trace.block, registers=trace.registers))
    return result


def joined(
    parts: Sequence[LaunchTrace], part: np.ndarray, block: np.ndarray, turn: np.ndarray | None, name: str
) -> LaunchTrace:
    """One launch of blocks ``block`` of ``parts[part]``, int64[blocks], in that order; with pages of each ``turn``
    (None: as they are). O(its instructions)."""
    touched, count = [one.sector for one in parts], 0
    if turn is not None:
        touched, count = packed(touched)
    static, first_row = _joined_static([one.static for one in parts])
    pieces = [(one, *_bounds(one)) for one in parts]
    turns = np.zeros_like(part) if turn is None else turn
    chosen = list(zip(part.tolist(), block.tolist(), turns.tolist(), strict=True))
    instruction, active, accesses, sector, written = [], [], [], [], []
    warps, instructions, sectors = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
    for index, one, shift in chosen:
        trace, first_instruction, first_sector = pieces[index]
        begin, end = first_instruction[one], first_instruction[one + 1]
        instruction.append(trace.instruction[begin:end] + first_row[index])
        active.append(trace.active[begin:end])
        accesses.append(trace.accesses[begin:end])
        sector.append(touched[index][first_sector[one] : first_sector[one + 1]] + shift * count)
        written.append(trace.written[first_sector[one] : first_sector[one + 1]])
        warp, last = trace.block_warps[one], trace.block_warps[one + 1]
        warps.append(np.array([last - warp]))
        instructions.append(np.diff(trace.warp_instructions[warp : last + 1]))
        sectors.append(np.diff(trace.warp_accesses[warp : last + 1]))
    return replace(
        parts[0],
        kernel_name=name,
        grid=(len(chosen), 1, 1),
        static=static,
        block_warps=np.cumsum(np.concatenate(warps)),
        warp_instructions=np.cumsum(np.concatenate(instructions)),
        warp_accesses=np.cumsum(np.concatenate(sectors)),
        instruction=np.concatenate(instruction),
        active=np.concatenate(active),
        accesses=np.concatenate(accesses),
        sector=np.concatenate(sector),
        written=np.concatenate(written),
    )


def _bounds(trace: LaunchTrace) -> tuple[np.ndarray, np.ndarray]:
    """First instruction and first access of each block, int64[blocks + 1]."""
    return trace.warp_instructions[trace.block_warps], trace.warp_accesses[trace.block_warps]


def packed(sectors: Sequence[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """The sectors in pages without gaps between them, and how many sectors these have."""
    pages = np.unique(np.concatenate(sectors) // _PAGE_SECTORS)
    packed = [np.searchsorted(pages, one // _PAGE_SECTORS) * _PAGE_SECTORS + one % _PAGE_SECTORS for one in sectors]
    return packed, len(pages) * _PAGE_SECTORS


def _joined_static(parts: Sequence[StaticInstructions]) -> tuple[StaticInstructions, list[int]]:
    """All rows of all parts, and where those of each begin."""
    opcodes = tuple(dict.fromkeys(name for one in parts for name in one.opcodes))
    place = {name: index for index, name in enumerate(opcodes)}
    columns = {
        name: np.concatenate([getattr(one, name) for one in parts])
        for name in (
            "pc", "unit", "space", "access", "immediate", "bypasses_l1", "destinations", "sources",
        )
    }  # fmt: skip
    opcode = np.concatenate([np.array([place[name] for name in one.opcodes], np.int32)[one.opcode] for one in parts])
    begins = np.concatenate(([0], np.cumsum([len(one.pc) for one in parts])[:-1]))
    return StaticInstructions(opcodes=opcodes, opcode=opcode, **columns), begins.tolist()
