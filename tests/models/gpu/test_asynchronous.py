"""Bulk copies, barriers in shared memory and products of warp groups on a small GPU (gpu_small.py), by closed forms."""

from __future__ import annotations

import pytest
from gpu_programs import Instruction
from gpu_small import BEGIN, END, FRONT, MISS, PIPELINE, SHARED, cycles, gpu, read_before

from manyscale.models.workload.asynchronous import (
    ARRIVES,
    BEGINS,
    COPIES,
    LOADS,
    WAITS,
    amounts,
    first_word,
    run_of_rows,
)
from manyscale.models.workload.launch_trace import UnitClass

COPY_LATENCY = 50
FROM_L2 = MISS - 1 + 2  # of a sector: it leaves at once, and is written at the end
EXIT = 1 + PIPELINE - FRONT + 1  # of the last instruction
SECTOR = 32


def begins(barrier: int, arrivals: int) -> Instruction:
    return Instruction(opcode="SYNCS.EXCH.64", operation=(first_word(BEGINS, 1, barrier), arrivals))


def arrives(barrier: int, arrivals: int = 1, num_bytes: int = 0) -> Instruction:
    operation = (first_word(ARRIVES, 1, barrier), amounts(arrivals, num_bytes))
    return Instruction(opcode="SYNCS.ARRIVE.TRANS64", operation=operation)


def waits(barrier: int, parity: int = 0) -> Instruction:
    return Instruction(opcode="SYNCS.PHASECHK.TRANS64.TRYWAIT", operation=(first_word(WAITS, 0, barrier, parity),))


def copies(barrier: int, start: int, row: int, rows: int = 1, stride: int = 0, way: int = LOADS) -> Instruction:
    """Rows of ``row`` bytes from byte ``start`` on, each ``stride`` behind the last."""
    words = (first_word(COPIES, 3, barrier, way), row * rows, *run_of_rows(start, row, rows, stride))
    opcode = "UTMALDG.2D" if way == LOADS else "UTMASTG.2D"
    return Instruction(UnitClass.uniform, opcode=opcode, operation=words)


COMMIT = Instruction(UnitClass.uniform, opcode="UTMACMDFLUSH")
AWAIT_COPIES = Instruction(UnitClass.copy_wait, opcode="DEPBAR.LE")


def target(**more):
    return gpu(bulk_copies={"latency": f"{COPY_LATENCY} cycles", "interval": "1 cycle"}, **more)


def loading(*parts: Instruction) -> list[Instruction]:
    """A warp that begins a barrier at 0 for all that ``parts`` copy, and waits for it."""
    total = sum(each.operation[1] for each in parts)
    return [begins(0, 1), arrives(0, 1, total), *parts, waits(0)]


@pytest.mark.theory
def test_a_copy_waits_for_its_unit_the_way_to_l2_and_all_its_sectors():
    """Sectors that L2 has come one a cycle."""
    warm = list(range(256))
    times = {}
    for sectors in (1, 2, 65):
        memory = read_before(warm, target())
        times[sectors] = cycles([[loading(copies(0, 0, sectors * SECTOR))]], target(), memory, shared=1024)
    assert times[65] - times[1] == 64
    # behind two instructions: the unit, the way to L2 and back, into shared memory, and who waits reads the barrier
    assert times[1] == BEGIN + 2 + COPY_LATENCY + FROM_L2 + SHARED + EXIT + END
