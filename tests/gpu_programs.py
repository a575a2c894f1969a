"""Kernel launches from lists of instructions written in Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from manyscale.models.workload.launch_trace import (
    MAX_OPERANDS,
    NO_REGISTER,
    Access,
    LaunchTrace,
    Space,
    StaticInstructions,
    UnitClass,
)

FULL = 0xFFFFFFFF


@dataclass(frozen=True)
class Instruction:
    """``operation``: its words, of an asynchronous one (models/workload/asynchronous.py). ``sectors``: numbers of
    the 32-byte sectors that it accesses, ascending; of shared memory ``words`` that the busiest bank gives."""

    unit: UnitClass = UnitClass.int
    to: int | None = None
    sources: tuple[int, ...] = ()
    space: Space = Space.none
    access: Access = Access.none
    sectors: tuple[int, ...] = ()
    words: int = 0
    bypasses_l1: bool = False
    immediate: int = 0
    written: int = FULL
    opcode: str = "OP"
    operation: tuple[int, ...] = ()


def integer(to: int | None = None, *sources: int) -> Instruction:
    return Instruction(UnitClass.int, to, sources)


def special(to: int | None = None, *sources: int) -> Instruction:
    return Instruction(UnitClass.sfu, to, sources)


def load(to: int, *sectors: int, source: int = 200, bypasses_l1: bool = False) -> Instruction:
    return Instruction(
        UnitClass.load_store, to, (source,), Space.global_, Access.load, sectors, bypasses_l1=bypasses_l1
    )


def store(*sectors: int, source: int = 200, written: int = FULL) -> Instruction:
    return Instruction(UnitClass.load_store, None, (source,), Space.global_, Access.store, sectors, written=written)


def atomic(to: int, *sectors: int) -> Instruction:
    return Instruction(UnitClass.load_store, to, (200,), Space.global_, Access.atomic, sectors)


def copy(*sectors: int, bypasses_l1: bool = False) -> Instruction:
    return Instruction(UnitClass.load_store, None, (200,), Space.global_, Access.copy, sectors, bypasses_l1=bypasses_l1)


def load_shared(to: int, words: int = 1) -> Instruction:
    return Instruction(UnitClass.load_store, to, (200,), Space.shared, Access.load, words=words)


def other(unit: UnitClass, immediate: int = 0) -> Instruction:
    return Instruction(unit, immediate=immediate)


BARRIER = other(UnitClass.barrier)
EXIT = other(UnitClass.exit)


def launch(
    blocks: Sequence[Sequence[Sequence[Instruction]]], launch_id: int = 1, registers: int = 16, shared: int = 0
) -> LaunchTrace:
    """Blocks of warps of instructions; EXIT is added to each warp."""
    warps = [[*warp, EXIT] for block in blocks for warp in block]
    kinds = list(dict.fromkeys(_static(each) for warp in warps for each in warp))
    row = {kind: number for number, kind in enumerate(kinds)}
    flat = [each for warp in warps for each in warp]
    of_memory = [each.space in (Space.global_, Space.local) for each in flat]
    requests = [each.sectors if memory else () for each, memory in zip(flat, of_memory, strict=True)]
    per_warp = np.cumsum([0, *(len(warp) for warp in warps)])
    accesses = np.cumsum([0, *map(len, requests)])
    written = [
        each.written if each.access != Access.load else 0 for each, own in zip(flat, requests, strict=True) for _ in own
    ]
    return LaunchTrace(
        launch_id=launch_id, kernel_name="k", grid=(len(blocks), 1, 1), block=(32 * max(map(len, blocks)), 1, 1),
        shared_bytes=shared, registers=registers, binary_version=80, static=_table(kinds),
        block_warps=np.cumsum([0, *map(len, blocks)]), warp_instructions=per_warp, warp_accesses=accesses[per_warp],
        instruction=np.array([row[_static(each)] for each in flat], np.int32),
        active=np.full(len(flat), 32, np.uint8),
        accesses=np.array([len(own) or each.words for each, own in zip(flat, requests, strict=True)], np.uint8),
        sector=np.array([sector for own in requests for sector in own], np.int64),
        written=np.array(written, np.uint32), **_words(warps),
    )  # fmt: skip


def pieces(trace: LaunchTrace, blocks: int) -> Iterator[LaunchTrace]:
    """A launch as so many blocks at a time."""
    for first in range(0, trace.num_blocks, blocks):
        warps = trace.block_warps[first : min(first + blocks, trace.num_blocks) + 1]
        part = {"block_warps": warps - warps[0]}
        for offsets, columns in _OF_WARPS.items():
            if (ends := getattr(trace, offsets)) is None:
                continue
            ends = ends[warps[0] : warps[-1] + 1]
            part[offsets] = ends - ends[0]
            part |= {name: getattr(trace, name)[ends[0] : ends[-1]] for name in columns}
        yield replace(trace, **part)


_OF_WARPS = {
    "warp_instructions": ("instruction", "active", "accesses"),
    "warp_accesses": ("sector", "written"),
    "warp_words": ("words",),
}


def _words(warps: Sequence[Sequence[Instruction]]) -> dict[str, np.ndarray]:
    of_warps = [[word for each in warp for word in each.operation] for warp in warps]
    if not any(of_warps):
        return {}
    return {
        "warp_words": np.cumsum([0, *map(len, of_warps)]),
        "words": np.array([word for words in of_warps for word in words], np.int64),
    }


def _static(each: Instruction) -> tuple[object, ...]:
    return (
        each.unit, each.to, each.sources, each.space, each.access, each.bypasses_l1, each.immediate, each.opcode,
    )  # fmt: skip


def _table(kinds: list[tuple[object, ...]]) -> StaticInstructions:
    unit, to, sources, space, access, bypasses, immediate, opcode = zip(*kinds, strict=True)
    opcodes = tuple(dict.fromkeys(map(str, opcode)))

    def operands(rows: Sequence[Sequence[int]]) -> np.ndarray:
        return np.array([[*row, *[NO_REGISTER] * (MAX_OPERANDS - len(row))] for row in rows], np.int16)

    count = len(kinds)
    return StaticInstructions(
        opcodes, 16 * np.arange(count), np.array([opcodes.index(str(each)) for each in opcode], np.int32),
        np.array(unit, np.uint8), np.array(space, np.uint8),
        np.array(access, np.uint8), np.array(immediate, np.int32), np.array(bypasses, np.bool_),
        operands([() if each is None else (each,) for each in to]), operands(sources),
    )  # fmt: skip
