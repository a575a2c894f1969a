"""Launches of instructions with control bits, and a GPU for them whose scheduler's caches cost nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from gpu_small import gpu

from manyscale.models.gpu import detailed
from manyscale.models.workload.instruction_details import COLUMNS, LISTS, NONE, InstructionDetails
from manyscale.models.workload.launch_trace import (
    MAX_OPERANDS,
    NO_REGISTER,
    Access,
    LaunchTrace,
    Space,
    StaticInstructions,
    UnitClass,
)

FREE = {"upper_latency": "0 cycles", "memory_latency": "0 cycles"}
UNITS = {
    "int": {"latency": "2 cycles", "interval": "2 cycles"},
    "fp32": {"latency": "2 cycles", "interval": "1 cycle"},
}


@dataclass(frozen=True)
class Sass:
    """An instruction as ``cuobjdump`` prints it, with its control bits. ``at``: its address / 16, by default behind the
    one before; ``sectors`` that it accesses, ``words`` of the busiest bank of shared memory."""

    text: str
    stall: int = 1
    yields: bool = False
    sets: int = NONE
    reads: int = NONE
    waits: int = 0
    unit: UnitClass = UnitClass.fp32
    space: Space = Space.none
    access: Access = Access.none
    sectors: tuple[int, ...] = ()
    words: int = 0
    at: int | None = None
    writes: bool = True
    immediate: int = 0


def core(**changes):
    """A GPU of one SM, of an L1 of 30 and a shared memory of 21 cycles."""
    return gpu(
        **{
            "pipeline": "2 cycles", "units": UNITS, "l1": {"latency": "30 cycles"},
            "shared_memory": {"latency": "21 cycles"}, "core": FREE, **changes,
        }
    )  # fmt: skip


def fadd(stall=1, **more):
    return Sass("FADD R1, R2, R3", stall, **more)


def load(width="", uniform=False, sectors=(0, 1, 2, 3), sets=0, **more):
    address = "UR4" if uniform else "R2.64"
    return Sass(f"LDG.E{width} R4, [{address}]", 2, sets=sets, unit=UnitClass.load_store, space=Space.global_,
                access=Access.load, sectors=sectors, **more)  # fmt: skip


def load_shared(width="", uniform=False, sets=0, words=1, **more):
    address = "UR4" if uniform else "R2"
    return Sass(f"LDS{width} R4, [{address}]", 2, sets=sets, unit=UnitClass.load_store, space=Space.shared,
                access=Access.load, words=words, **more)  # fmt: skip


def store(width="", uniform=False, shared=False, sectors=(0, 1, 2, 3)):
    address = "UR4" if uniform else "R2" if shared else "R2.64"
    space = Space.shared if shared else Space.global_
    return Sass(f"{'STS' if shared else 'STG.E'}{width} [{address}], R4", 2, reads=0, unit=UnitClass.load_store,
                space=space, access=Access.store, sectors=() if shared else sectors, words=int(shared),
                writes=False)  # fmt: skip


EXIT = Sass("EXIT", 5, unit=UnitClass.exit, writes=False)


def launch(blocks: Sequence[Sequence[Sequence[Sass]]], **of_launch) -> LaunchTrace:
    """Blocks of warps; EXIT is added to each. Instructions stand one behind the other, warp for warp the same ones at
    the same address."""
    warps = [[*warp, EXIT] for block in blocks for warp in block]
    placed = [_placed(warp) for warp in warps]
    rows = list(dict.fromkeys(each for warp in placed for each in warp))
    number = {each: row for row, each in enumerate(rows)}
    flat = [each for warp in placed for each in warp]
    far = [each.sectors for each in flat]
    per_warp = np.cumsum([0, *map(len, placed)])
    accesses = np.cumsum([0, *map(len, far)])
    return LaunchTrace(
        launch_id=1, kernel_name="k", grid=(len(blocks), 1, 1), block=(32 * max(map(len, blocks)), 1, 1),
        shared_bytes=0, registers=16, binary_version=86, static=_static(rows),
        block_warps=np.cumsum([0, *map(len, blocks)]), warp_instructions=per_warp, warp_accesses=accesses[per_warp],
        instruction=np.array([number[each] for each in flat], np.int32), active=np.full(len(flat), 32, np.uint8),
        accesses=np.array([len(each.sectors) or each.words for each in flat], np.uint8),
        sector=np.array([sector for each in far for sector in each], np.int64),
        written=np.array([0xFFFFFFFF if each.access == Access.store else 0 for each in flat for _ in each.sectors],
                         np.uint32), **of_launch,
    )  # fmt: skip


def run(blocks, target=None):
    return detailed.simulate(launch(blocks), target or core())[0]


def cycles(blocks, target=None):
    return run(blocks, target).busy_cycles


def _placed(warp: Sequence[Sass]) -> list[Sass]:
    place, out = 0, []
    for each in warp:
        place = place if each.at is None else each.at
        out.append(replace(each, at=place))
        place += 1
    return out


def _static(rows: Sequence[Sass]) -> StaticInstructions:
    count = len(rows)
    none = np.full((count, MAX_OPERANDS), NO_REGISTER, np.int16)
    written = none.copy()
    written[:, 0] = [5 if each.writes else NO_REGISTER for each in rows]
    columns = {name: np.zeros(count, kind) for name, kind in COLUMNS.items()}
    columns |= {name: np.full((count, most), NONE, kind) for name, (kind, most) in LISTS.items()}
    for row, each in enumerate(rows):
        columns["stall"][row], columns["yields"][row], columns["waits"][row] = each.stall, each.yields, each.waits
        columns["write_barrier"][row], columns["read_barrier"][row] = each.sets, each.reads
        for bank, offset in re.findall(r"c\[(0x\w+)\]\[(0x\w+)\]", each.text)[:1]:
            columns["constant_bank"][row, 0], columns["constant_offset"][row, 0] = int(bank, 16), int(offset, 16)
    details = InstructionDetails(
        text=tuple(each.text for each in rows), listed=("",) * count, files=(), **columns,
    )  # fmt: skip
    words = [each.text.split()[each.text.startswith("@")] for each in rows]
    opcodes = tuple(dict.fromkeys(words))
    return StaticInstructions(
        opcodes, np.array([16 * (each.at or 0) for each in rows]), np.array(list(map(opcodes.index, words)), np.int32),
        np.array([each.unit for each in rows], np.uint8), np.array([each.space for each in rows], np.uint8),
        np.array([each.access for each in rows], np.uint8), np.array([each.immediate for each in rows], np.int32),
        np.zeros(count, np.bool_),
        written, none, details,
    )  # fmt: skip
