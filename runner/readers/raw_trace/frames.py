"""From the order in which callbacks came to executions of blocks: the kernels behind readers/raw_trace/detail.py.

A callback says that a block begins or that a place in the code accesses memory. Blocks are cut into parts by calls
(``runner/readers/binaries/regions.py``), and only the first part begins with a callback. That a later part has begun is
known from its first access; one without accesses is inferred, from a stack of frames:

- a function's entry block puts a frame on it; a part that returns, once its accesses have been made, takes it off;
- where an instrumented function returned to the part that called it, the part behind the call has been executed, too,
  and if it has no accesses, it leads on to what it calls or to a return;
- a library's function may have called back, so what is behind a call of it is inferred only from a later callback of
  the same frame or of one below: it is put in as late as can be.

Frames left without a return (longjmp, exceptions) are found when a block of a frame below them begins. Nothing is
inferred for them. Where a window opens, the frames that were there before are not known: they are added as they show.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.runner.readers.binaries.regions import Ends

# columns of a table with a row per part
ACCESSES, ENDS, CALLEE, FUNCTION, BLOCK, LAST, GOES_ON = range(7)  # GOES_ON: to another block, no call in between
NUM_COLUMNS: Final = 7
# what a callback is
BEGINS, ENTERS, ACCESSES_MEMORY, NOTHING = range(4)
# places in the state
DEPTH, OPEN, COUNT, OUT, MARK = range(5)
NUM_STATE: Final = 5
SEGMENT_ENDS, WINDOW_OPENS = range(2)

HASH_START: Final = np.uint64(0xCBF29CE484222325)
HASH_FACTOR: Final = np.uint64(0x100000001B3)

_RETURNS, _KNOWN, _FOREIGN, _ANY, _LEAVES = (
    int(Ends.returns), int(Ends.calls_known), int(Ends.calls_foreign), int(Ends.calls_any), int(Ends.leaves),
)  # fmt: skip


@allocation_free
def _close(state, hashes, out_part, out_count, out_hash):  # type: ignore[no-untyped-def]
    """Write the open execution down."""
    if state[OPEN] >= 0:
        at = state[OUT]
        out_part[at] = state[OPEN]
        out_count[at] = state[COUNT]
        out_hash[at] = hashes[0]
        state[OUT] = at + 1
        state[OPEN] = -1


@allocation_free
def _open(part, state, hashes, out_part, out_count, out_hash):  # type: ignore[no-untyped-def]
    _close(state, hashes, out_part, out_count, out_hash)
    state[OPEN] = part
    state[COUNT] = 0
    hashes[0] = HASH_START


@allocation_free
def _settle(parts, stack, state, hashes, out_part, out_count, out_hash):  # type: ignore[no-untyped-def]
    """Do all that must have happened by now: returns, and parts without accesses behind a call that returned."""
    while state[DEPTH] > 0:
        top = state[DEPTH] - 1
        part = stack[top, 0]
        if part == state[OPEN] and state[COUNT] < parts[part, ACCESSES]:
            return
        ends = parts[part, ENDS]
        if ends == _RETURNS or ends == _LEAVES:
            state[DEPTH] = top
            if top > 0 and parts[stack[top - 1, 0], ENDS] == _KNOWN:
                # what is jumped to returns in this one's place: if it shows itself, then by its entry
                stack[top - 1, 1] = 0 if ends == _LEAVES and parts[part, CALLEE] >= 0 else 1
        elif ends == _KNOWN and stack[top, 1] and not parts[part, LAST] and parts[part + 1, ACCESSES] == 0:
            stack[top, 0] = part + 1
            stack[top, 1] = 0
            _open(part + 1, state, hashes, out_part, out_count, out_hash)
        else:
            return


@allocation_free
def _rest(frame, end_part, parts, stack, state, hashes, out_part, out_count, out_hash):  # type: ignore[no-untyped-def]
    """Execute the parts without accesses that follow in a frame's block, up to before ``end_part`` (-1: all)."""
    part = stack[frame, 0]
    while not parts[part, LAST] and part + 1 != end_part:
        part += 1
        if parts[part, ACCESSES] == 0:
            _open(part, state, hashes, out_part, out_count, out_hash)
    stack[frame, 0] = part
    stack[frame, 1] = 0


@allocation_free
def _leave(depth, parts, stack, state, hashes, out_part, out_count, out_hash):  # type: ignore[no-untyped-def]
    """Take off the frames above ``depth``. One whose part called a function that did not return has been jumped out of;
    of another the rest is executed if nothing but a return follows."""
    while state[DEPTH] > depth:
        top = state[DEPTH] - 1
        part = stack[top, 0]
        follows = parts[part, ENDS] != _KNOWN or stack[top, 1] == 1
        last = part
        while follows and not parts[last, LAST]:
            last += 1
            follows = parts[last, ACCESSES] == 0
        if follows and (parts[last, ENDS] == _RETURNS or parts[last, ENDS] == _LEAVES):
            _rest(top, -1, parts, stack, state, hashes, out_part, out_count, out_hash)
            if top > 0 and parts[stack[top - 1, 0], ENDS] == _KNOWN:
                stack[top - 1, 1] = 1
        state[DEPTH] = top


@allocation_free
def _find_caller(function, parts, stack, state):  # type: ignore[no-untyped-def]
    """(frame, part) of a call of ``function`` that is reached from the stack without any access; (-1, -1) if there is
    none. O(frames left x parts)."""
    frame = state[DEPTH] - 1
    while frame >= 0:
        part = stack[frame, 0]
        if parts[part, ENDS] == _KNOWN and stack[frame, 1] == 0 and frame == state[DEPTH] - 1:
            return (frame, part) if parts[part, CALLEE] == function else (-1, -1)
        while not parts[part, LAST]:
            part += 1
            if parts[part, ACCESSES]:
                return -1, -1
            if parts[part, ENDS] == _KNOWN:
                return (frame, part) if parts[part, CALLEE] == function else (-1, -1)
        if parts[part, ENDS] != _RETURNS and parts[part, ENDS] != _LEAVES:
            return -1, -1
        frame -= 1
    return -1, -1


@allocation_free
def _enter(part, parts, stack, state, hashes, out_part, out_count, out_hash):  # type: ignore[no-untyped-def]
    """A function's entry block begins."""
    frame, caller = _find_caller(parts[part, FUNCTION], parts, stack, state)
    if frame >= 0 and (frame < state[DEPTH] - 1 or caller != stack[frame, 0]):
        _leave(frame + 1, parts, stack, state, hashes, out_part, out_count, out_hash)
        _rest(frame, caller + 1, parts, stack, state, hashes, out_part, out_count, out_hash)
    _push(part, stack, state)
    _open(part, state, hashes, out_part, out_count, out_hash)


@allocation_free
def _push(part, stack, state):  # type: ignore[no-untyped-def]
    stack[state[DEPTH], 0] = part
    stack[state[DEPTH], 1] = 0
    state[DEPTH] += 1


@allocation_free
def _begin(part, parts, stack, state, hashes, out_part, out_count, out_hash):  # type: ignore[no-untyped-def]
    """Another block of a function that is on the stack begins."""
    frame = state[DEPTH] - 1
    while frame >= 0 and parts[stack[frame, 0], FUNCTION] != parts[part, FUNCTION]:
        frame -= 1
    if frame >= 0:
        _leave(frame + 1, parts, stack, state, hashes, out_part, out_count, out_hash)
        _rest(frame, -1, parts, stack, state, hashes, out_part, out_count, out_hash)
        stack[frame, 0] = part
        stack[frame, 1] = 0
    else:
        _push(part, stack, state)
    _open(part, state, hashes, out_part, out_count, out_hash)


@allocation_free
def _go_on(part, parts, stack, state, hashes, out_part, out_count, out_hash):  # type: ignore[no-untyped-def]
    """A part that is not the open one makes an access: one behind a call."""
    frame = state[DEPTH] - 1
    while frame >= 0 and (parts[stack[frame, 0], BLOCK] != parts[part, BLOCK] or stack[frame, 0] > part):
        frame -= 1
    if frame >= 0:
        _leave(frame + 1, parts, stack, state, hashes, out_part, out_count, out_hash)
        if stack[frame, 0] < part:
            _rest(frame, part, parts, stack, state, hashes, out_part, out_count, out_hash)
        stack[frame, 0] = part
        stack[frame, 1] = 0
    else:
        _push(part, stack, state)
    _open(part, state, hashes, out_part, out_count, out_hash)


@allocation_free
def execute(  # type: ignore[no-untyped-def]
    first, events, kinds, event_part, event_site, mark_position, mark_kind, parts, max_parts, stack, state, hashes,
    out_part, out_count, out_hash, mark_out,
):  # fmt: skip
    """Follow ``events`` from ``first`` on; each is an index of ``kinds``, ``event_part`` (the part that begins or
    accesses) and ``event_site``. Fills the executions (``out_*``, ``state[OUT]`` of them) and how many there were at
    each mark. Returns where it stopped: at the end, or where the outputs or the stack have no room left.
    O(events), but for the frames that are left."""
    at = first
    while at <= len(events):
        while state[MARK] < len(mark_position) and mark_position[state[MARK]] == at:
            _settle(parts, stack, state, hashes, out_part, out_count, out_hash)
            _close(state, hashes, out_part, out_count, out_hash)
            mark_out[state[MARK]] = state[OUT]
            if mark_kind[state[MARK]] == WINDOW_OPENS:
                state[DEPTH] = 0
            state[MARK] += 1
        if at == len(events):
            break
        event = events[at]
        part = event_part[event]
        kind = kinds[event]
        if kind == ACCESSES_MEMORY and part == state[OPEN]:
            state[COUNT] += 1
            hashes[0] = (hashes[0] ^ np.uint64(event_site[event])) * HASH_FACTOR
            at += 1
            continue
        if kind == BEGINS and state[OPEN] >= 0 and parts[state[OPEN], GOES_ON] and state[OUT] < len(out_part):
            top = state[DEPTH] - 1  # the usual case of what _settle and _begin do
            if stack[top, 0] == state[OPEN] and parts[state[OPEN], FUNCTION] == parts[part, FUNCTION]:
                stack[top, 0] = part
                _open(part, state, hashes, out_part, out_count, out_hash)
                at += 1
                continue
        if kind == ACCESSES_MEMORY and part < 0:  # code that several blocks share: of the block that is being executed
            part = state[OPEN]
            if part < 0 and state[DEPTH] > 0:
                part = stack[state[DEPTH] - 1, 0]
                part += 0 if parts[part, LAST] else 1
            if part < 0:
                kind = NOTHING
        if state[OUT] + (state[DEPTH] + 3) * max_parts > len(out_part) or state[DEPTH] + 1 >= len(stack):
            break
        if kind != NOTHING:
            _settle(parts, stack, state, hashes, out_part, out_count, out_hash)
        if kind == ACCESSES_MEMORY:
            if part != state[OPEN]:
                _go_on(part, parts, stack, state, hashes, out_part, out_count, out_hash)
            state[COUNT] += 1
            hashes[0] = (hashes[0] ^ np.uint64(event_site[event])) * HASH_FACTOR
        elif kind == ENTERS:
            _enter(part, parts, stack, state, hashes, out_part, out_count, out_hash)
        elif kind == BEGINS:
            _begin(part, parts, stack, state, hashes, out_part, out_count, out_hash)
        at += 1
    return at


@allocation_free
def last_sites(events, kinds, event_site, sites):  # type: ignore[no-untyped-def]
    """Fill ``sites`` with the places of the last accesses of ``events``; what is missing at its begin stays. Returns
    how many are. O(accesses asked for)."""
    missing = len(sites)
    at = len(events) - 1
    while missing and at >= 0:
        if kinds[events[at]] == ACCESSES_MEMORY:
            missing -= 1
            sites[missing] = event_site[events[at]]
        at -= 1
    return missing


def hash_of(sites: list[int]) -> int:
    """The hash of a sequence of places that access memory, as ``execute`` makes it."""
    value = int(HASH_START)
    for site in sites:
        value = ((value ^ site) * int(HASH_FACTOR)) & 0xFFFFFFFFFFFFFFFF
    return value
