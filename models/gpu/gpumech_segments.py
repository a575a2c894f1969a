"""Warps as segments: what a warp issues between two waits for memory.

The interval algorithm (GPUMech: Huang, dissertation, Georgia Institute of Technology, 2015, sec. 4.3.2, eq. 13) with
one change: a stall that ends when memory answers is left open, since how long it takes is not known before the caches
and queues are (gpumech_replay.py). So a segment depends on the program, the units and the pipeline only, and serves
any memory system. It ends at the first use of a load's result, after an atomic, at a barrier, or with the warp.

Inside a segment instructions are issued in order, one a cycle, as their operands come (registers as the tracer saw
them); stalls of arithmetic are part of it. Behind a wait all results of arithmetic are there.

Cost: O(instructions x operands).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.launch_program import (
    ATOMIC,
    BARRIER,
    COPY,
    COPY_GROUP,
    COPY_WAIT,
    MEMORY,
    MEMORY_BARRIER,
    NUM_UNITS,
    REDUCTION,
    SHARED,
    STORE,
    LaunchProgram,
)
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.kernels import inlined, njit

WAITS: Final = 0  # how a segment ends: for memory
MEETS: Final = 1  # at a barrier of the block
EXITS: Final = 2  # with the warp

SEGMENT: Final = np.dtype(
    [
        ("issued", "i4"),  # instructions
        ("cycles", "i4"),  # from the first one's issue until the next segment could begin, but for memory
        ("busy", "i4"),  # cycles that the unit takes that limits the launch most
        ("accesses", "i4"),
        ("end", "i4"),
    ],
    align=True,
)
ACCESS: Final = np.dtype(  # of an instruction to memory
    [
        ("wait", "i4"),  # segment at whose end the warp waits for it
        ("row", "i4"),  # of the static instructions
        ("offset", "u2"),  # cycles from the segment's begin to its issue
        ("requests", "u1"),  # to global and local memory: sectors; to shared memory: cycles
        ("kind", "u1"),
        # what the caches say of it (gpumech_collector.py)
        ("passes", "u1"),  # cycles that it takes L1
        ("sent", "u1"),  # requests that leave the SM
        ("level", "u1"),  # that answers last
        ("fetched", "u1"),  # requests that memory answers
    ],
    align=True,
)
LOADS: Final = 0  # kinds of accesses
STORES: Final = 1
PASSES_L1: Final = 2  # loads and atomics that L1 does not answer
STORES_PAST_L1: Final = 3
IN_SHARED: Final = 4

_PENDING: Final = 1 << 60  # a register's time: above, the number of the access that it waits for
_GROUP: Final = -2  # an access's ``wait``: of an open group of copies, downwards
_MOST_OFFSET: Final = 0xFFFF


class Segments(NamedTuple):
    """``segment`` SEGMENT[n], ``access`` ACCESS[m], warp after warp; ``first_segment`` int64[warps + 1] and
    ``first_access`` int64[warps + 1]. ``count`` int64[static]: how often each instruction is executed."""

    segment: np.ndarray
    access: np.ndarray
    first_segment: np.ndarray
    first_access: np.ndarray
    count: np.ndarray


class _Rows(NamedTuple):
    """Of static instructions: ``result`` int32, from issue to that of one that needs it; ``busy`` int32."""

    kind: np.ndarray
    access: np.ndarray
    bypass: np.ndarray
    immediate: np.ndarray
    result: np.ndarray
    busy: np.ndarray
    operand: np.ndarray
    operand_first: np.ndarray
    operand_written: np.ndarray


def segments(program: LaunchProgram, gpu: Gpu) -> Segments:
    """The segments of all warps of a launch."""
    count = np.zeros(len(program.kind), np.int64)
    _count(program.instruction, count)
    kind = program.kind
    rows = _Rows(
        kind, program.access, program.bypass, program.immediate, results(program, gpu),
        np.where(program.unit == _busiest(program, count), program.interval, 0).astype(np.int32),
        program.operand, program.operand_first, program.operand_written,
    )  # fmt: skip
    accesses = int(count[(kind == MEMORY) | (kind == SHARED)].sum())
    warps = len(program.warp_instructions) - 1
    most = int(count[(kind == MEMORY) | (kind > SHARED)].sum()) + warps
    made = Segments(
        np.empty(most, SEGMENT), np.empty(accesses, ACCESS), np.empty(warps + 1, np.int64),
        np.empty(warps + 1, np.int64), count,
    )  # fmt: skip
    registers = int(program.operand.max(initial=0)) + 1
    done = _cut(rows, program.warp_instructions, program.instruction, program.requests, made, registers)
    return made._replace(segment=made.segment[:done])


def results(program: LaunchProgram, gpu: Gpu) -> np.ndarray:
    """int32[static]: cycles from the issue of an instruction to that of one that needs its result; of loads from
    global and local memory, when L1 has it; of those from shared memory, with one word of each bank."""
    reads = program.operand_written < program.operand_first[1:]
    pipeline = round(gpu.pipeline_cycles)
    cycles = np.where(reads, pipeline, pipeline - 1) + program.latency
    cycles[program.kind == MEMORY] = gpu.l1_hit_cycles
    cycles[program.kind == SHARED] = gpu.front_cycles + 1 + round(gpu.shared_memory.latency_cycles)
    return np.maximum(cycles, 1).astype(np.int32)


def _busiest(program: LaunchProgram, count: np.ndarray) -> int:
    """The unit that the launch takes for the most cycles."""
    own = program.kind < NUM_UNITS
    return int(np.bincount(program.unit[own], (count * program.interval)[own], NUM_UNITS).argmax())


@njit(cache=True, nogil=True)
def _count(instruction, count):  # type: ignore[no-untyped-def]
    for row in instruction:
        count[row] += 1


@inlined
def _kind_of(rows, row):  # type: ignore[no-untyped-def]
    access = rows.access[row]
    if rows.kind[row] == SHARED:
        return IN_SHARED
    if access == STORE:
        return STORES_PAST_L1 if rows.bypass[row] else STORES
    if access == ATOMIC or access == REDUCTION or rows.bypass[row]:
        return PASSES_L1
    return LOADS


@inlined
def _operands(rows, row, ready, access, clock, segment):  # type: ignore[no-untyped-def]
    """When the results of arithmetic that an instruction needs are there; and whether it waits for memory: accesses
    that it is the first to wait for."""
    waits = False
    for i in range(rows.operand_first[row], rows.operand_first[row + 1]):
        register = rows.operand[i]
        time = ready[register]
        if time > clock:
            if time < _PENDING:
                clock = time
            else:
                ready[register] = 0
                waited = access[time - _PENDING]
                if waited.wait == -1:
                    waited.wait = segment
                    waits = True
    return clock, waits


@inlined
def _close(segment, at, issued, cycles, busy, accesses, end):  # type: ignore[no-untyped-def]
    own = segment[at]
    own.issued = issued
    own.cycles = max(cycles, issued)
    own.busy = busy
    own.accesses = accesses
    own.end = end


@inlined
def _mark(access, first, end, segment, kind, limit):  # type: ignore[no-untyped-def]
    """A warp waits at the end of ``segment`` for its loads, or (``kind`` COPY_WAIT) for copies of groups below
    ``limit``: whether there are any."""
    waits = False
    for i in range(first, end):
        wait = access[i].wait
        if kind == MEMORY_BARRIER and wait == -1 and (access[i].kind == LOADS or access[i].kind == PASSES_L1):
            access[i].wait = segment
            waits = True
        elif wait <= _GROUP and (kind == MEMORY_BARRIER or _GROUP - wait < limit):
            access[i].wait = segment
            waits = True
    return waits


@njit(cache=True, nogil=True)
def _cut(rows, warp_first, instruction, requests, made, registers):  # type: ignore[no-untyped-def]
    """Fill ``made``: how many segments there are."""
    segment, access = made.segment, made.access
    ready = np.zeros(registers, np.int64)
    num_segments = 0
    num_accesses = 0
    clock = 0  # goes on from warp to warp, so that ``ready`` needs no emptying
    for warp in range(len(warp_first) - 1):
        made.first_segment[warp] = num_segments
        made.first_access[warp] = first_access = num_accesses
        last = warp_first[warp + 1]
        begin = clock
        latest = clock  # result of arithmetic
        issued, busy, accesses, group = 0, 0, 0, 0
        for at in range(warp_first[warp], last):
            row = instruction[at]
            kind = rows.kind[row]
            time, waits = _operands(rows, row, ready, access, clock, num_segments)
            if waits:
                _close(segment, num_segments, issued, time - begin, busy, accesses, WAITS)
                num_segments += 1
                issued, busy, accesses = 0, 0, 0
                clock = begin = max(time, latest)
            else:
                clock = time
            issued += 1
            first, written = rows.operand_first[row], rows.operand_written[row]
            if kind == MEMORY or kind == SHARED:
                own = access[num_accesses]
                own.wait = -1
                own.row = row
                own.offset = min(clock - begin, _MOST_OFFSET)
                own.requests = requests[at]
                own.kind = _kind_of(rows, row)
                accesses += 1
                if kind == SHARED:
                    done = clock + rows.result[row] + max(1, requests[at])
                    latest = max(latest, done)
                else:
                    done = _PENDING + num_accesses
                    if rows.access[row] == COPY:
                        own.wait = _GROUP - group
                        done = clock
                for i in range(first, written):
                    ready[rows.operand[i]] = done
                num_accesses += 1
            else:
                busy += rows.busy[row]
                done = clock + rows.result[row]
                latest = max(latest, done)
                for i in range(first, written):
                    ready[rows.operand[i]] = done
            clock += 1
            end = -1
            if at + 1 == last:
                end = EXITS
            elif kind == MEMORY:
                if rows.access[row] == ATOMIC or rows.access[row] == REDUCTION:
                    access[num_accesses - 1].wait = num_segments
                    end = WAITS
            elif kind > SHARED:
                if kind == BARRIER:
                    end = MEETS
                elif kind == COPY_GROUP:
                    group += 1
                elif kind == MEMORY_BARRIER or kind == COPY_WAIT:
                    limit = group - rows.immediate[row]
                    if _mark(access, first_access, num_accesses, num_segments, kind, limit):
                        end = WAITS
            if end >= 0:
                cycles = clock - begin
                if end == EXITS:
                    cycles = max(cycles, latest - begin)
                _close(segment, num_segments, issued, cycles, busy, accesses, end)
                num_segments += 1
                issued, busy, accesses = 0, 0, 0
                clock = begin = max(clock, latest)
        for i in range(first_access, num_accesses):
            if access[i].wait < 0:
                access[i].wait = num_segments - 1
        clock = max(clock, latest)
    made.first_segment[len(warp_first) - 1] = num_segments
    made.first_access[len(warp_first) - 1] = num_accesses
    return num_segments
