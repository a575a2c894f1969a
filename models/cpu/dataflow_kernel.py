"""The kernel of the dataflow model: one pass over executed instructions.

Every time is the latest of what it waits for plus a latency (of lines that are asked for twice: from the earlier time
on), and what waits for what does not depend on times. So each time is made of sums, maxima and minima: no latency that
grows makes anything end earlier.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.cpu.dataflow_access import claim, forwarded_at, keep_place, line_of, remember_store, room_in
from manyscale.models.cpu.dataflow_tables import (
    ACCESSES,
    ADDRESSES,
    AHEAD,
    BANDWIDTH,
    BASE,
    BEHIND,
    BRANCH,
    BRANCHES,
    BYTES,
    COMMITTED,
    DEPENDENCY,
    DISPATCHED,
    FETCH,
    FETCHED,
    FETCHING,
    FIRST_ACCESS,
    FIRST_DATA,
    FIRST_DESTINATION,
    FIRST_INSTRUCTION,
    FIRST_REGISTER,
    FIRST_WINDOW,
    FORWARDING,
    FUSED,
    INSTRUCTIONS,
    IS_STORE,
    LAST_WINDOW,
    LATE_BY_BRANCH,
    LATE_BY_FETCH,
    LATENCY,
    LEVEL_MASK,
    LOAD,
    LOADED,
    LOADS,
    NEXT_BLOCK,
    PREVIOUS,
    REDIRECTED,
    RENAMED,
    REORDER,
    REPEATS,
    RETIRED,
    STORE,
    STORED,
    TRAITS,
    UNIT,
    UNITS,
    UPDATES,
    VECTOR,
    VECTORS,
    WRITES_VECTOR,
)
from manyscale.models.kernels import allocation_free, by_reference, inner_inlined, separate

_FETCHED_AHEAD: Final = 8.0  # cycles that the front end is before the reorder buffer at most


@separate
def _repeat(core, i, at):  # type: ignore[no-untyped-def]
    """One turn of string instruction ``i``: so many bytes per cycle, lines foreseen, none read only to be written."""
    code, limits, state, piece = core.code, core.limits, core.state, core.piece
    clock = state.clock
    now = max(clock[RETIRED], clock[DISPATCHED])
    num_bytes, left, part = 0, now, BASE
    for access in range(code.instructions[i, FIRST_ACCESS], code.instructions[i + 1, FIRST_ACCESS]):
        num_bytes = max(num_bytes, code.accesses[access, BYTES])
        place = at + access - code.instructions[i, FIRST_ACCESS]
        served = piece.levels[place] & LEVEL_MASK
        arrival, cause = line_of(core, -1, now, now, piece.addresses[place], served, False)
        if served > 0 and arrival - limits.levels[0, LATENCY] > left:
            left, part = arrival - limits.levels[0, LATENCY], cause
    turn = num_bytes * limits.string
    left = max(now + turn, left)
    state.stack[BASE] += turn
    state.stack[part] += left - turn - clock[RETIRED]
    clock[RETIRED] = clock[DISPATCHED] = left
    state.counts[INSTRUCTIONS] += 1


@inner_inlined
def _fetch(core, block):  # type: ignore[no-untyped-def]
    """The front end fetches the windows of a block, but that in which the block before it ended if it goes on there."""
    code, limits, state = core.code, core.limits, core.state
    previous = state.counts[PREVIOUS]
    state.counts[PREVIOUS] = block
    windows = code.blocks[block, LAST_WINDOW] - code.blocks[block, FIRST_WINDOW] + 1
    if previous >= 0 and code.blocks[previous, NEXT_BLOCK] == block:
        windows -= code.blocks[previous, LAST_WINDOW] == code.blocks[block, FIRST_WINDOW]
    state.clock[FETCHED] = 0.0
    if windows > 0:
        begin = max(state.unit_free[FETCH], state.clock[DISPATCHED] - _FETCHED_AHEAD)
        state.unit_free[FETCH] = begin + windows * limits.fetch
        state.clock[FETCHED] = begin + (windows - 1) * limits.fetch


@inner_inlined
def _enter(core, i, width, ends_block):  # type: ignore[no-untyped-def]
    """(when instruction ``i`` enters, part that it waited for). O(accesses)."""
    code = core.code
    clock = core.state.clock
    now, why = clock[DISPATCHED] + width, BASE
    room = room_in(core, REORDER)
    if code.instructions[i, TRAITS] & WRITES_VECTOR:
        room = max(room, room_in(core, VECTORS))
    for access in range(code.instructions[i, FIRST_ACCESS], code.instructions[i + 1, FIRST_ACCESS]):
        if not code.accesses[access, IS_STORE]:
            room = max(room, room_in(core, LOADED))
        elif room_in(core, STORED) > now:
            now, why = room_in(core, STORED), BANDWIDTH
    if room > now:  # the front end has time to spare
        now, why = room, BASE
        clock[LATE_BY_FETCH] = clock[LATE_BY_BRANCH] = 0.0
    if clock[REDIRECTED] > now:
        clock[LATE_BY_BRANCH] += clock[REDIRECTED] - now
        now = clock[REDIRECTED]
    if ends_block and clock[FETCHED] > now:
        clock[LATE_BY_FETCH] += clock[FETCHED] - now
        now = clock[FETCHED]
    clock[DISPATCHED] = now
    return now, why


@inner_inlined
def _ahead(core, i, width):  # type: ignore[no-untyped-def]
    """When instruction ``i`` would enter, were the mispredicted branch before it predicted. O(accesses)."""
    code, clock = core.code, core.state.clock
    entry = max(clock[AHEAD] + width, room_in(core, REORDER))
    for access in range(code.instructions[i, FIRST_ACCESS], code.instructions[i + 1, FIRST_ACCESS]):
        if not code.accesses[access, IS_STORE]:
            entry = max(entry, room_in(core, LOADED))
    clock[AHEAD] = entry
    return entry


@inner_inlined
def _early(core, first, end, entry):  # type: ignore[no-untyped-def]
    """When registers [``first``, ``end``) would be known to what enters at ``entry``, were the branch predicted.
    O(registers)."""
    code, state = core.code, core.state
    known = entry
    for k in range(first, end):
        name = code.registers[k]
        if state.behind[name] == state.counts[BRANCH]:
            known = max(known, state.early[name])
        else:
            known = max(known, state.register[name])
    return known


@inner_inlined
def _load(core, access, place, vector, now, start, reason, asked, known):  # type: ignore[no-untyped-def]
    """(when a load that entered ``now`` and knows its address at ``start`` has its data, part that it waits for, when
    it would have them were the branch before it predicted). Its line was asked for at ``known`` already by a load that
    entered at ``asked`` (``now`` and ``start`` where nothing ran ahead)."""
    code, limits, state = core.code, core.limits, core.state
    address = core.piece.addresses[place]
    # what lies in two lines is loaded in two steps
    last = address + np.uint64(max(code.accesses[access, BYTES], 1) - 1)
    steps = 1 if address >> np.uint64(limits.line_shift) == last >> np.uint64(limits.line_shift) else 2
    begin = claim(state.unit_free, LOADS, now, steps * limits.files[vector, LOAD])
    begin = max(begin, claim(state.unit_free, ACCESSES, now, steps * limits.access))
    if begin > start:
        start, reason = begin, UNITS
    level = np.int64(core.piece.levels[place])
    early, part = line_of(core, access, asked, min(start, known), address, level, False)
    early += limits.vector_load * vector
    arrival = start + limits.levels[0, LATENCY] + limits.vector_load * vector
    if arrival < early:
        arrival = early
    else:
        part = DEPENDENCY
    if part == DEPENDENCY and reason != BASE:
        part = reason
    forwarded = forwarded_at(core, address, code.accesses[access, BYTES], vector, now)
    if forwarded > arrival:
        return forwarded, FORWARDING, forwarded
    return arrival, part, early


@inner_inlined
def _leave(core, i, width, done, reason, line_ready):  # type: ignore[no-untyped-def]
    """Instruction ``i``, done at ``done``, leaves in order, and its stores are written, the lines of which are there at
    ``line_ready``. O(accesses)."""
    code, limits, state = core.code, core.limits, core.state
    clock, traits = state.clock, code.instructions[i, TRAITS]
    earliest = clock[RETIRED] + width
    left = max(earliest, done)
    wait = left - earliest
    by_branch = min(wait, clock[LATE_BY_BRANCH])
    by_fetch = min(wait - by_branch, clock[LATE_BY_FETCH])
    clock[LATE_BY_BRANCH] -= by_branch
    clock[LATE_BY_FETCH] -= by_fetch
    state.stack[BASE] += width
    state.stack[BRANCHES] += by_branch
    state.stack[FETCHING] += by_fetch
    state.stack[reason] += wait - by_branch - by_fetch
    clock[RETIRED] = left
    state.counts[INSTRUCTIONS] += 1
    if not traits & FUSED:
        keep_place(core, REORDER, left)
    if traits & WRITES_VECTOR:
        keep_place(core, VECTORS, left)
    for access in range(code.instructions[i, FIRST_ACCESS], code.instructions[i + 1, FIRST_ACCESS]):
        if code.accesses[access, IS_STORE]:
            occupancy = limits.files[1 if traits & VECTOR else 0, STORE]
            clock[COMMITTED] = max(clock[COMMITTED] + occupancy, left, line_ready)
            keep_place(core, STORED, clock[COMMITTED])
        else:
            keep_place(core, LOADED, left)


@inner_inlined
def _execute(core, i, at, ends_block):  # type: ignore[no-untyped-def]
    """Instruction ``i``, whose accesses stand from ``at`` on; returns when it is done. O(registers + accesses)."""
    code, limits, state, piece = core.code, core.limits, core.state, core.piece
    register, traits = state.register, code.instructions[i, TRAITS]
    vector, updates = 1 if traits & VECTOR else 0, 1 if traits & UPDATES else 0
    width = 0.0 if traits & FUSED else limits.slot
    first_access, end_access = code.instructions[i, FIRST_ACCESS], code.instructions[i + 1, FIRST_ACCESS]
    runs_ahead = state.counts[REORDER] - state.counts[BEHIND] < limits.rings[REORDER]
    now, why = _enter(core, i, width, ends_block)
    ready, reason = now, why
    middle = code.instructions[i, FIRST_DATA]
    for k in range(code.instructions[i, FIRST_REGISTER], middle):
        if register[code.registers[k]] > ready:
            ready, reason = register[code.registers[k]], DEPENDENCY
    address_ready, address_reason = ready, reason
    asked = min(_ahead(core, i, width), now) if runs_ahead else now
    early = _early(core, code.instructions[i, FIRST_REGISTER], middle, asked) if runs_ahead else ready
    known = early
    for access in range(first_access, end_access):
        if not code.accesses[access, IS_STORE]:
            place = at + access - first_access
            arrival, part, before = _load(core, access, place, vector, now, address_ready, address_reason, asked, known)
            early = max(early, before)
            if arrival > ready:
                ready, reason = arrival, part
    for k in range(middle, code.instructions[i, FIRST_DESTINATION]):
        if register[code.registers[k]] > ready:
            ready, reason = register[code.registers[k]], DEPENDENCY
    done = ready
    if runs_ahead:
        early = max(early, _early(core, middle, code.instructions[i, FIRST_DESTINATION], asked))
        if not traits & (RENAMED | ADDRESSES):
            early += code.costs[i, 0]
        for k in range(code.instructions[i, FIRST_DESTINATION], code.instructions[i + 1, FIRST_REGISTER]):
            state.early[code.registers[k]] = early
    if not traits & (RENAMED | ADDRESSES):
        begin = claim(state.unit_free, code.instructions[i, UNIT], now, code.costs[i, 1])
        if begin > done:
            done, reason = begin, UNITS
        done += code.costs[i, 0]
        if reason == BASE and code.costs[i, 0] > 1:
            reason = DEPENDENCY
    line_ready = 0.0
    for access in range(first_access, end_access):
        if code.accesses[access, IS_STORE]:
            begin = claim(state.unit_free, ACCESSES, now, limits.access)
            if begin > done:
                done, reason = begin, UNITS
            place = at + access - first_access
            address = piece.addresses[place]
            arrival, _ = line_of(core, access, now, done, address, np.int64(piece.levels[place]), True)
            remember_store(state, address, code.accesses[access, BYTES], vector, updates, done)
            line_ready = max(line_ready, arrival)
    for k in range(code.instructions[i, FIRST_DESTINATION], code.instructions[i + 1, FIRST_REGISTER]):
        register[code.registers[k]] = done
        state.behind[code.registers[k]] = state.counts[BRANCH] if runs_ahead else 0
    _leave(core, i, width, done, reason, line_ready)
    return done


@allocation_free
def run(core, next_id):  # type: ignore[no-untyped-def]
    """Executes a piece, which block ``next_id`` follows (-1 unknown), from where the state stands. O(instructions +
    accesses)."""
    core = by_reference(core)
    code, limits, state, piece = core.code, core.limits, core.state, core.piece
    at = 0
    for execution in range(piece.block_ids.shape[0]):
        block = piece.block_ids[execution]
        follower = piece.block_ids[execution + 1] if execution + 1 < piece.block_ids.shape[0] else next_id
        first, end = code.blocks[block, FIRST_INSTRUCTION], code.blocks[block + 1, FIRST_INSTRUCTION]
        if code.blocks[block, REPEATS] and limits.string > 0 and (follower == block or state.counts[PREVIOUS] == block):
            _repeat(core, first, at)
            state.counts[PREVIOUS] = block
            at += code.instructions[end, FIRST_ACCESS] - code.instructions[first, FIRST_ACCESS]
            continue
        _fetch(core, block)
        done = 0.0
        for i in range(first, end):
            done = _execute(core, i, at, i + 1 == end)
            at += code.instructions[i + 1, FIRST_ACCESS] - code.instructions[i, FIRST_ACCESS]
        if piece.mispredicted[execution]:
            state.clock[AHEAD] = state.clock[DISPATCHED]
            state.counts[BRANCH] += 1
            state.counts[BEHIND] = state.counts[REORDER]
            state.clock[REDIRECTED] = done + limits.misprediction
            state.unit_free[FETCH] = max(state.unit_free[FETCH], state.clock[REDIRECTED])
