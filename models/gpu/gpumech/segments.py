"""Warps as segments: what a warp issues between two waits for memory.

The interval algorithm (GPUMech: Huang, dissertation, Georgia Institute of Technology, 2015, sec. 4.3.2, eq. 13) with
one change: a stall that ends when memory answers is left open, since how long it takes is not known before the caches
and queues are (gpu/gpumech/replay.py). So a segment depends on the program, the units and the pipeline only, and serves
any memory system. It ends at the first use of a load's result, after an atomic, at a barrier, or with the warp.

Inside a segment instructions are issued in order, one a cycle, as their operands come (registers as the tracer saw
them); stalls of arithmetic are part of it. Behind a wait all results of arithmetic are there.

Cost: O(instructions x operands); O(instructions) for warps that do what the one before them does.
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
)  # fmt: skip
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
        ("offset", "i4"),  # cycles from the segment's begin to its issue
        ("requests", "u1"),  # to global and local memory: sectors; to shared memory: cycles
        ("kind", "u1"),
        # filled in by gpu/gpumech/outline.py
        ("passes", "u1"),  # cycles that it takes L1
        ("lines", "u1"),
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


class Segments(NamedTuple):
    """``segment`` SEGMENT[n], ``access`` ACCESS[m], warp after warp; ``first_segment`` int64[warps + 1] and
    ``first_access`` int64[warps + 1]. Of static instructions, int64: ``executed``, how often each is;
    ``result``, cycles from its issue to that of one that needs its result, but for what caches and banks of shared
    memory take."""

    segment: np.ndarray
    access: np.ndarray
    first_segment: np.ndarray
    first_access: np.ndarray
    executed: np.ndarray
    result: np.ndarray


def segments(program: LaunchProgram, gpu: Gpu) -> Segments:
    """The segments of all warps of a launch."""
    static = program.static
    count, busy, result = (np.zeros(len(static), np.int64) for _ in range(3))
    pipeline, shared = round(gpu.pipeline_cycles), gpu.front_cycles + 1 + round(gpu.shared_memory.latency_cycles)
    accesses, ends, registers = _survey(
        static, program.operand, program.instruction, pipeline, shared, count, busy, result
    )
    warps = len(program.warp_instructions) - 1
    made = Segments(
        np.empty(ends + warps, SEGMENT), np.empty(accesses, ACCESS), np.empty(warps + 1, np.int64),
        np.empty(warps + 1, np.int64), count, result,
    )  # fmt: skip
    done = _cut(program, made, busy, registers)
    return made._replace(segment=made.segment[:done])


@njit(cache=True, nogil=True)
def _survey(static, operand, instruction, pipeline, shared, count, busy, result):  # type: ignore[no-untyped-def]
    """Fill in of static instructions: ``count``; ``busy``, cycles for which each takes the unit that the launch
    takes for the most; ``result``, see Segments. Returns how many accesses there are, instructions that can end a
    segment, and registers."""
    for row in instruction:
        count[row] += 1
    taken = np.zeros(NUM_UNITS, np.int64)
    accesses, ends = 0, 0
    for i in range(len(static)):
        own = static[i]
        if own.front < NUM_UNITS:
            taken[own.front] += count[i] * own.interval
        if own.kind >= MEMORY:
            ends += count[i]
        if own.kind == MEMORY:
            accesses += count[i]
            result[i] = 1
        elif own.kind == SHARED:
            accesses += count[i]
            result[i] = shared
        else:
            result[i] = max(1, own.latency + (pipeline if own.written < own.end else pipeline - 1))
    most = taken.argmax()
    for i in range(len(static)):
        if static[i].front == most:
            busy[i] = static[i].interval
    registers = 1
    for register in operand:
        registers = max(registers, register + 1)
    return accesses, ends, registers


@inlined
def _kind_of(own):  # type: ignore[no-untyped-def]
    if own.kind == SHARED:
        return IN_SHARED
    if own.access == STORE:
        return STORES_PAST_L1 if own.passes_l1 else STORES
    return PASSES_L1 if own.passes_l1 else LOADS


@inlined
def _operands(own, operand, ready, access, clock, segment):  # type: ignore[no-untyped-def]
    """When the results of arithmetic that an instruction needs are there; and whether it is the first to wait for an
    access."""
    waits = False
    for i in range(own.first, own.end):
        register = operand[i]
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
        loads = wait == -1 and (access[i].kind == LOADS or access[i].kind == PASSES_L1)
        copies = wait <= _GROUP and (kind == MEMORY_BARRIER or _GROUP - wait < limit)
        if copies or (loads and kind == MEMORY_BARRIER):
            access[i].wait = segment
            waits = True
    return waits


@inlined
def equal(rows, first, other, count):  # type: ignore[no-untyped-def]
    """Whether ``count`` rows from ``first`` and from ``other`` on are the same."""
    i = 0
    while i < count and rows[first + i] == rows[other + i]:
        i += 1
    return i == count


@inlined
def _copy(made, like, num_segments, num_accesses, requests, begin, place):  # type: ignore[no-untyped-def]
    """The segments of a warp that executes what warp ``like`` does: how many segments and accesses there are then.
    ``place`` int32[]: of each access of ``like``, its instruction."""
    segment, access = made.segment, made.access
    shift = num_segments - made.first_segment[like]
    for i in range(made.first_segment[like], made.first_segment[like + 1]):
        old, new = segment[i], segment[num_segments]
        new.issued = old.issued
        new.cycles = old.cycles
        new.busy = old.busy
        new.accesses = old.accesses
        new.end = old.end
        num_segments += 1
    first = made.first_access[like]
    for i in range(first, made.first_access[like + 1]):
        mine, theirs = access[num_accesses], access[i]
        mine.wait = theirs.wait + shift
        mine.row = theirs.row
        mine.offset = theirs.offset
        mine.kind = theirs.kind
        mine.requests = requests[begin + place[i - first]]
        num_accesses += 1
    return num_segments, num_accesses


@inlined
def _set_access(own, does, row, offset, requests):  # type: ignore[no-untyped-def]
    """An access that nothing waits for yet."""
    own.wait = -1
    own.row = row
    own.offset = offset
    own.requests = requests
    own.kind = _kind_of(does)


@inlined
def _cut_warp(program, made, unit_busy, ready, place, warp, clock):  # type: ignore[no-untyped-def]
    """The segments of a warp that begins at ``clock``: how many segments and accesses there are then, and when all of
    its results are there. ``place`` as for ``_copy``."""
    segment, access = made.segment, made.access
    num_segments, num_accesses = made.first_segment[warp], made.first_access[warp]
    first_access = num_accesses
    first, last = program.warp_instructions[warp], program.warp_instructions[warp + 1]
    begin = clock
    latest = clock  # result of arithmetic
    issued, busy, accesses, group = 0, 0, 0, 0
    for at in range(first, last):
        row = program.instruction[at]
        does = program.static[row]
        kind = does.kind
        time, waits = _operands(does, program.operand, ready, access, clock, num_segments)
        if waits:
            _close(segment, num_segments, issued, time - begin, busy, accesses, WAITS)
            num_segments += 1
            issued, busy, accesses = 0, 0, 0
            clock = begin = max(time, latest)
        else:
            clock = time
        issued += 1
        if kind == MEMORY or kind == SHARED:
            place[num_accesses - first_access] = at - first
            _set_access(access[num_accesses], does, row, clock - begin, program.requests[at])
            accesses += 1
            done = _PENDING + num_accesses
            if does.access == COPY:
                access[num_accesses].wait = _GROUP - group
                done = clock
            num_accesses += 1
        else:
            busy += unit_busy[row]
            done = clock + made.result[row]
            latest = max(latest, done)
        for i in range(does.first, does.written):
            ready[program.operand[i]] = done
        clock += 1
        end = -1
        if at + 1 == last:
            end = EXITS
        elif kind == MEMORY:
            if does.access == ATOMIC or does.access == REDUCTION:  # (copies may pass L1, too)
                access[num_accesses - 1].wait = num_segments
                end = WAITS
        elif kind == BARRIER:
            end = MEETS
        elif kind == COPY_GROUP:
            group += 1
        elif kind == MEMORY_BARRIER or kind == COPY_WAIT:
            limit = group - does.immediate
            if _mark(access, first_access, num_accesses, num_segments, kind, limit):
                end = WAITS
        if end >= 0:
            cycles = max(clock, latest) - begin if end == EXITS else clock - begin
            _close(segment, num_segments, issued, cycles, busy, accesses, end)
            num_segments += 1
            issued, busy, accesses = 0, 0, 0
            clock = begin = max(clock, latest)
    for i in range(first_access, num_accesses):
        if access[i].wait < 0:
            access[i].wait = num_segments - 1
    return num_segments, num_accesses, max(clock, latest)


@njit(cache=True, nogil=True)
def _cut(program, made, unit_busy, registers):  # type: ignore[no-untyped-def]
    """Fill ``made``: how many segments there are."""
    warp_first, instruction = program.warp_instructions, program.instruction
    ready = np.zeros(registers, np.int64)
    num_segments = 0
    num_accesses = 0
    clock = 0  # goes on from warp to warp, so that ``ready`` needs no emptying
    place = np.empty(len(made.access), np.int32)
    like = -1  # the last warp that was not copied
    for warp in range(len(warp_first) - 1):
        made.first_segment[warp] = num_segments
        made.first_access[warp] = num_accesses
        count = warp_first[warp + 1] - warp_first[warp]
        alike = like >= 0 and warp_first[like + 1] - warp_first[like] == count
        if alike and equal(instruction, warp_first[warp], warp_first[like], count):
            num_segments, num_accesses = _copy(
                made, like, num_segments, num_accesses, program.requests, warp_first[warp], place
            )
            continue
        num_segments, num_accesses, clock = _cut_warp(program, made, unit_busy, ready, place, warp, clock)
        like = warp
    made.first_segment[len(warp_first) - 1] = num_segments
    made.first_access[len(warp_first) - 1] = num_accesses
    return num_segments
