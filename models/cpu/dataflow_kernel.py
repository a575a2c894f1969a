"""The kernel of the dataflow model: one pass over executed instructions.

Every time is the latest of what it waits for plus a latency, and what waits for what does not depend on times. So each
time is a maximum of sums: no latency that grows makes anything end earlier.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, inner_inlined, separate
from manyscale.models.workload.detail_tables import InstructionClass

NUM_REGISTERS: Final = 256
# bits of an instruction's ``traits``
FUSED: Final = 1  # enters and leaves with the instruction after it
RENAMED: Final = 2  # done when its sources are: no unit, no latency
ADDRESSES: Final = 4  # does nothing beside its memory accesses
VECTOR: Final = 8  # its memory accesses are of vector registers
ENDS_BLOCK: Final = 16  # a branch
WRITES_VECTOR: Final = 32
UPDATES: Final = 64  # loads, and stores what it makes of it
# units beside those of the instruction classes
LOADS: Final = 0
ACCESSES: Final = 1
FETCH: Final = 2
FORWARDS: Final = 3
FIRST_CLASS_UNIT: Final = 4
FIRST_TRANSFER: Final = FIRST_CLASS_UNIT + len(InstructionClass)  # of a line from each level
# parts of the CPI stack; those of the memory's levels beyond the first follow
BASE: Final = 0
UNITS: Final = 1
DEPENDENCY: Final = 2
FORWARDING: Final = 3
BRANCHES: Final = 4
BANDWIDTH: Final = 5
FETCHING: Final = 6
TRANSLATION: Final = 7
FIRST_LEVEL: Final = 8
# entries of ``clock``
DISPATCHED: Final = 0
RETIRED: Final = 1
COMMITTED: Final = 2
REDIRECTED: Final = 3  # what follows a branch that was mispredicted
FETCHED: Final = 4  # the last window of the block
LATE_BY_FETCH: Final = 5  # what entering has lost to them, and leaving not yet felt
LATE_BY_BRANCH: Final = 6
AHEAD: Final = 7  # of what follows a mispredicted branch: its entry, were it predicted
# entries of ``counts`` beyond those of the rings
INSTRUCTIONS: Final = 5
PREVIOUS: Final = 6  # block executed last
BRANCH: Final = 7  # the number of the last mispredicted branch, from 1 on
BEHIND: Final = 8  # places of the reorder buffer taken up to it

_TABLE: Final = 4096  # entries that remember stores and lines on their way, by address
_GRANULE_SHIFT: Final = 3
_FETCHED_AHEAD: Final = 8.0  # cycles that the front end is before the reorder buffer at most
# level codes: the level that holds the line, the one whose latency is seen, and the TLB that translates, 0 the nearest
LEVEL_MASK: Final = 7
SEEN_SHIFT: Final = 3
TRANSLATION_SHIFT: Final = 6


class Code(NamedTuple):
    """Static tables. ``blocks`` int64[blocks + 1, 5] and ``instructions`` int64[instructions + 1, 6], by the columns
    below, a row ends where the next begins; ``costs`` float64[instructions, 2]: latency and occupancy of the unit, in
    cycles; ``registers`` int64[]: of each instruction those of its addresses, its other sources, its destinations;
    ``accesses`` int64[accesses, 2]: whether it is a store, and bytes."""

    blocks: np.ndarray
    instructions: np.ndarray
    costs: np.ndarray
    registers: np.ndarray
    accesses: np.ndarray


# columns of ``blocks``
FIRST_INSTRUCTION: Final = 0
NEXT_BLOCK: Final = 1  # that follows in the code, -1 unknown
FIRST_WINDOW: Final = 2
LAST_WINDOW: Final = 3
REPEATS: Final = 4  # one instruction that is no branch: if it follows itself, it is a string instruction
# columns of ``instructions``; sources of addresses lie from FIRST_REGISTER on, others from FIRST_DATA on
TRAITS: Final = 0
UNIT: Final = 1
FIRST_REGISTER: Final = 2
FIRST_DATA: Final = 3
FIRST_DESTINATION: Final = 4
FIRST_ACCESS: Final = 5
IS_STORE: Final = 0  # columns of ``accesses``
BYTES: Final = 1


class Limits(NamedTuple):
    """Of a core, in cycles: ``slot`` 1 / width; ``files`` float64[2, 3]: of general and of vector registers, occupancy
    of the units of loads and of stores, and time from store to load; ``forward``: occupancy of forwarding by a load;
    ``repeat``: for how long a load that an update answers occupies the units of accesses beyond the usual; ``levels``
    float64[levels, 2]: latency, and time to transfer a line, of each level, the nearest first, main memory last;
    ``translation`` float64[TLBs + 1]: by the TLB that knows the page, a walk last; ``prefetch_lines``: how far
    prefetchers run ahead; ``write_back``: share of a transfer that a line which a store missed takes again;
    ``stores_on_the_way``: stores that may wait to be written; ``rings`` int64[5]: places of each ring, 0 without
    limit."""

    slot: float
    files: np.ndarray
    access: float
    forward: float
    repeat: float
    fetch: float
    string: float
    vector_load: float
    misprediction: float
    levels: np.ndarray
    translation: np.ndarray
    prefetch_lines: float
    write_back: float
    line_shift: int
    stores_on_the_way: int
    rings: np.ndarray


LOAD: Final = 0  # columns of ``files``
STORE: Final = 1
FORWARD: Final = 2
LATENCY: Final = 0  # columns of ``levels``
TRANSFER: Final = 1
# rings; counts have the same numbers
REORDER: Final = 0
LOADED: Final = 1
STORED: Final = 2
FILLS: Final = 3
VECTORS: Final = 4


class State(NamedTuple):
    """What one piece of a stream leaves to the next; all times in cycles. ``rings`` float64[5, places]: when the one
    that has each place leaves it. ``tags`` int64[entries, 5] and ``times`` float64[entries, 2]: the last store to, and
    the last line on its way of, what falls on an entry. ``early`` float64[registers]: when each has what was computed
    behind the mispredicted branch of number ``behind`` int64[registers], had it been predicted."""

    clock: np.ndarray
    counts: np.ndarray
    register: np.ndarray
    unit_free: np.ndarray
    rings: np.ndarray
    tags: np.ndarray
    times: np.ndarray
    stack: np.ndarray
    early: np.ndarray
    behind: np.ndarray


STORE_TAG: Final = 0  # columns of ``tags``
STORE_FILE: Final = 1
STORE_NUMBER: Final = 2
STORE_UPDATES: Final = 3
LINE_TAG: Final = 4
STORE_TIME: Final = 0  # columns of ``times``
LINE_TIME: Final = 1


def new_state(rings: np.ndarray, num_levels: int) -> State:
    """An empty core, of ``Limits.rings``."""
    tags = np.zeros((_TABLE, 5), np.int64)
    tags[:, [STORE_TAG, LINE_TAG]] = -1
    counts = np.zeros(9, np.int64)
    counts[PREVIOUS] = -1
    counts[BEHIND] = -int(rings[REORDER]) - 1
    return State(
        np.zeros(8),
        counts,
        np.zeros(NUM_REGISTERS),
        np.zeros(FIRST_TRANSFER + num_levels),
        np.zeros((len(rings), int(rings.max()))),
        tags,
        np.zeros((_TABLE, 2)),
        np.zeros(FIRST_LEVEL + num_levels - 1),
        np.zeros(NUM_REGISTERS),
        np.zeros(NUM_REGISTERS, np.int64),
    )


class Piece(NamedTuple):
    """Of a stream: ``block_ids`` int32[executions], ``mispredicted`` bool[executions]; of their accesses ``addresses``
    uint64[] and ``levels`` uint8[] (codes, see LEVEL_MASK)."""

    block_ids: np.ndarray
    mispredicted: np.ndarray
    addresses: np.ndarray
    levels: np.ndarray


class Core(NamedTuple):
    """All that one pass works on."""

    code: Code
    limits: Limits
    state: State
    piece: Piece


@inner_inlined
def _claim(free, unit, now, occupancy):  # type: ignore[no-untyped-def]
    """When a unit is free for an instruction that enters ``now``; it is kept for ``occupancy``."""
    begin = max(free[unit], now)
    free[unit] = begin + occupancy
    return begin


@inner_inlined
def _room(core, ring):  # type: ignore[no-untyped-def]
    """When the next one finds a place in a ring."""
    limits, state = core.limits, core.state
    places = limits.rings[ring]
    return state.rings[ring, state.counts[ring] % places] if places > 0 else 0.0


@inner_inlined
def _keep(core, ring, end):  # type: ignore[no-untyped-def]
    """A place of a ring is taken until ``end``."""
    limits, state = core.limits, core.state
    if limits.rings[ring] > 0:
        state.rings[ring, state.counts[ring] % limits.rings[ring]] = end
    state.counts[ring] += 1


@inner
def _line(core, now, start, address, level, is_store):  # type: ignore[no-untyped-def]
    """(time at which an access that entered ``now`` and starts at ``start`` has its line, part that it waits for).
    O(1)."""
    limits, state = core.limits, core.state
    served, seen = level & LEVEL_MASK, level >> SEEN_SHIFT & LEVEL_MASK
    translation = limits.translation[level >> TRANSLATION_SHIFT]
    start += translation
    line = np.int64(address >> np.uint64(limits.line_shift))
    place = line & (_TABLE - 1)
    ready, part = start + limits.levels[0, LATENCY], TRANSLATION if translation > 0 else DEPENDENCY
    if served > 0:
        transfer = limits.levels[served, TRANSFER]
        ahead = limits.prefetch_lines * transfer if seen < served else 0.0
        # what is written goes back later
        occupancy = transfer * (1 + limits.write_back) if is_store else transfer
        begin = _claim(state.unit_free, FIRST_TRANSFER + served, now - ahead, occupancy)
        if seen > 0:
            start = max(start, _room(core, FILLS))
            ready, part = start + limits.levels[seen, LATENCY], FIRST_LEVEL + seen - 1
        late = begin + transfer if seen < served else begin + limits.levels[seen, LATENCY]
        if late > ready:
            ready, part = late, BANDWIDTH
        if seen > 0:
            _keep(core, FILLS, ready)
        state.tags[place, LINE_TAG] = line
        state.times[place, LINE_TIME] = ready
    elif state.tags[place, LINE_TAG] == line and state.times[place, LINE_TIME] > ready:
        ready, part = state.times[place, LINE_TIME], BANDWIDTH
    return ready, part


@inner
def _forwarded(core, address, num_bytes, vector, now):  # type: ignore[no-untyped-def]
    """When the bytes of a store that may still be on its way reach a load of the same address; 0 if there is none.
    However many stores answer, a load is forwarded to once. If one is an update, the load has come before the data,
    and is tried again.
    O(bytes / 8)."""
    limits, state = core.limits, core.state
    ready, on_the_way, updates = 0.0, -1.0, 0
    last = np.int64((address + np.uint64(max(num_bytes, 1) - 1)) >> np.uint64(_GRANULE_SHIFT))
    granule = np.int64(address >> np.uint64(_GRANULE_SHIFT))
    while granule <= last:
        place = granule & (_TABLE - 1)
        if state.tags[place, STORE_TAG] == granule:
            after = limits.files[max(vector, state.tags[place, STORE_FILE]), FORWARD]
            ready = max(ready, state.times[place, STORE_TIME] + after)
            if state.counts[STORED] - state.tags[place, STORE_NUMBER] <= limits.stores_on_the_way:
                on_the_way = max(on_the_way, after)
                updates = max(updates, state.tags[place, STORE_UPDATES])
        granule += 1
    if on_the_way >= 0:
        ready = max(ready, _claim(state.unit_free, FORWARDS, now, limits.forward) + on_the_way)
        if updates:
            _claim(state.unit_free, ACCESSES, now, limits.repeat)
    return ready


@inner
def _remember_store(state, address, num_bytes, vector, updates, time):  # type: ignore[no-untyped-def]
    """Stores to the same bytes complete in order. O(bytes / 8)."""
    last = np.int64((address + np.uint64(max(num_bytes, 1) - 1)) >> np.uint64(_GRANULE_SHIFT))
    granule = np.int64(address >> np.uint64(_GRANULE_SHIFT))
    while granule <= last:
        place = granule & (_TABLE - 1)
        same = state.tags[place, STORE_TAG] == granule
        state.tags[place, STORE_TAG] = granule
        state.times[place, STORE_TIME] = max(time, state.times[place, STORE_TIME]) if same else time
        state.tags[place, STORE_FILE] = vector
        state.tags[place, STORE_UPDATES] = updates
        state.tags[place, STORE_NUMBER] = state.counts[STORED]
        granule += 1


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
        arrival, cause = _line(core, now, now, piece.addresses[place], served, False)
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
    room = _room(core, REORDER)
    if code.instructions[i, TRAITS] & WRITES_VECTOR:
        room = max(room, _room(core, VECTORS))
    for access in range(code.instructions[i, FIRST_ACCESS], code.instructions[i + 1, FIRST_ACCESS]):
        if not code.accesses[access, IS_STORE]:
            room = max(room, _room(core, LOADED))
        elif _room(core, STORED) > now:
            now, why = _room(core, STORED), BANDWIDTH
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
    entry = max(clock[AHEAD] + width, _room(core, REORDER))
    for access in range(code.instructions[i, FIRST_ACCESS], code.instructions[i + 1, FIRST_ACCESS]):
        if not code.accesses[access, IS_STORE]:
            entry = max(entry, _room(core, LOADED))
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
    begin = _claim(state.unit_free, LOADS, now, steps * limits.files[vector, LOAD])
    begin = max(begin, _claim(state.unit_free, ACCESSES, now, steps * limits.access))
    if begin > start:
        start, reason = begin, UNITS
    early, part = _line(core, asked, min(start, known), address, np.int64(core.piece.levels[place]), False)
    early += limits.vector_load * vector
    arrival = start + limits.levels[0, LATENCY] + limits.vector_load * vector
    if arrival < early:
        arrival = early
    else:
        part = DEPENDENCY
    if part == DEPENDENCY and reason != BASE:
        part = reason
    forwarded = _forwarded(core, address, code.accesses[access, BYTES], vector, now)
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
        _keep(core, REORDER, left)
    if traits & WRITES_VECTOR:
        _keep(core, VECTORS, left)
    for access in range(code.instructions[i, FIRST_ACCESS], code.instructions[i + 1, FIRST_ACCESS]):
        if code.accesses[access, IS_STORE]:
            occupancy = limits.files[1 if traits & VECTOR else 0, STORE]
            clock[COMMITTED] = max(clock[COMMITTED] + occupancy, left, line_ready)
            _keep(core, STORED, clock[COMMITTED])
        else:
            _keep(core, LOADED, left)


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
        begin = _claim(state.unit_free, code.instructions[i, UNIT], now, code.costs[i, 1])
        if begin > done:
            done, reason = begin, UNITS
        done += code.costs[i, 0]
        if reason == BASE and code.costs[i, 0] > 1:
            reason = DEPENDENCY
    line_ready = 0.0
    for access in range(first_access, end_access):
        if code.accesses[access, IS_STORE]:
            begin = _claim(state.unit_free, ACCESSES, now, limits.access)
            if begin > done:
                done, reason = begin, UNITS
            place = at + access - first_access
            address = piece.addresses[place]
            arrival, _ = _line(core, now, done, address, np.int64(piece.levels[place]), True)
            _remember_store(state, address, code.accesses[access, BYTES], vector, updates, done)
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
