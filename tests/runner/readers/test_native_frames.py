"""Executions inferred from callbacks, on programs of a few parts written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.runner.readers.binaries.regions import Ends
from manyscale.runner.readers.raw_trace import frames

# Functions 0 to 4 with blocks of parts: (accesses, how it ends, callee, function, block).
PARTS = {
    "main": (0, Ends.calls_known, 1, 0, 0),  # block 0: tail(); tail(); library();
    "main+1": (0, Ends.calls_known, 1, 0, 0),
    "main+2": (0, Ends.calls_foreign, -1, 0, 0),
    "main+3": (0, Ends.jumps, -1, 0, 0),
    "main-end": (1, Ends.returns, -1, 0, 1),
    "tail": (1, Ends.leaves, 2, 1, 2),  # tail() { one access; return leaf(); }
    "leaf": (1, Ends.returns, -1, 2, 3),
    "compare": (2, Ends.returns, -1, 3, 4),
    "recurse": (0, Ends.jumps, -1, 4, 5),  # recurse() { if (...) recurse(); else library(); }
    "again": (0, Ends.calls_known, 4, 4, 6),
    "again+1": (0, Ends.returns, -1, 4, 6),
    "last": (0, Ends.calls_foreign, -1, 4, 7),
    "last+1": (0, Ends.returns, -1, 4, 7),
}
NAMES = list(PARTS)
ENTRIES = ("main", "tail", "leaf", "compare", "recurse")


def follow(text: str, marks: tuple[int, ...] = (), opens: bool = False) -> tuple[list[str], list[int]]:
    """The executions, with their accesses where they are not all, and how many there were at each mark. In ``text`` a
    name begins a block, @name accesses memory."""
    parts = np.zeros((len(PARTS), frames.NUM_COLUMNS), np.int64)
    for row, values in enumerate(PARTS.values()):
        is_last = row + 1 == len(PARTS) or list(PARTS.values())[row + 1][4] != values[4]
        parts[row] = *values, is_last, is_last and values[1] == Ends.jumps
    words = text.split()
    part = np.array([NAMES.index(word.lstrip("@")) for word in words], np.int32)
    kind = np.array(
        [
            frames.ACCESSES_MEMORY if word[0] == "@" else frames.ENTERS if word in ENTRIES else frames.BEGINS
            for word in words
        ],
        np.int32,
    )
    state = np.zeros(frames.NUM_STATE, np.int64)
    state[frames.OPEN] = -1
    positions = np.array([*marks, len(words)], np.int64)
    kinds = np.full(len(positions), frames.WINDOW_OPENS if opens else frames.SEGMENT_ENDS, np.int64)
    out = np.zeros(100, np.int32), np.zeros(100, np.int32), np.zeros(100, np.uint64)
    mark_out = np.zeros(len(positions), np.int64)
    events = np.arange(len(words), dtype=np.int32)
    end = frames.execute(
        0, events, kind, part, events, positions, kinds, parts, 4, np.zeros((50, 2), np.int64), state,
        np.zeros(1, np.uint64), *out, mark_out,
    )  # fmt: skip
    assert end == len(words)
    told = []
    for index in range(state[frames.OUT]):
        name, count = NAMES[out[0][index]], int(out[1][index])
        told.append(name if count == PARTS[name][0] else f"{name}:{count}")
    return told, mark_out[:-1].tolist()


TAIL = "tail @tail leaf @leaf"
CALLS = ["tail", "leaf"]


@pytest.mark.theory
def test_a_function_that_is_jumped_to_returns_in_place_of_the_one_that_jumped():
    told, _ = follow(f"main {TAIL} {TAIL}")
    assert told == ["main", *CALLS, "main+1", *CALLS, "main+2"]


@pytest.mark.theory
def test_what_must_have_been_executed_belongs_to_the_segment_that_ends():
    text = f"main {TAIL} {TAIL}"
    assert follow(text, marks=(5,))[1] == [4]  # main+1 follows at once on leaf's return


@pytest.mark.theory
def test_a_librarys_callbacks_come_before_what_follows_its_call():
    text = f"main {TAIL} {TAIL} compare @compare @compare compare @compare @compare main-end @main-end"
    expected = ["main", *CALLS, "main+1", *CALLS, "main+2", "compare", "compare", "main+3", "main-end"]
    assert follow(text)[0] == expected


DOWN = "recurse again recurse again recurse last"
UP = ["last+1", "again+1", "again+1"]


@pytest.mark.theory
def test_recursion_returns_level_by_level():
    """What is behind the last call shows once a frame below goes on."""
    told, _ = follow(f"main {TAIL} {TAIL} {DOWN} main-end @main-end")
    assert told[:7] == ["main", *CALLS, "main+1", *CALLS, "main+2"]
    assert told[7:] == [*DOWN.split(), *UP, "main+3", "main-end"]


@pytest.mark.theory
def test_frames_that_are_jumped_out_of_execute_nothing_more():
    """longjmp from a callback to main: the calls above it have not returned."""
    told, _ = follow(f"main {TAIL} {TAIL} recurse again recurse again main-end @main-end")
    assert told[7:] == ["recurse", "again", "recurse", "again", "main+3", "main-end"]


@pytest.mark.theory
def test_a_part_that_is_cut_off_keeps_the_accesses_it_made():
    told, _ = follow("compare @compare leaf @leaf")
    assert told == ["compare:1", "leaf"]


@pytest.mark.theory
def test_a_window_that_opens_forgets_the_frames():
    """Where the middle of main shows first, nothing before it is made up."""
    assert follow("main-end @main-end")[0] == ["main-end"]
    assert follow(f"main {TAIL} main-end @main-end", marks=(5,), opens=True)[0] == [
        "main", *CALLS, "main+1", "main-end",
    ]  # fmt: skip


@pytest.mark.property
@pytest.mark.parametrize("room", range(6, 30))
def test_execution_goes_on_where_the_room_ended(room):
    """Outputs that are too small at first give the same executions."""
    parts = np.zeros((len(PARTS), frames.NUM_COLUMNS), np.int64)
    for row, values in enumerate(PARTS.values()):
        parts[row, :5] = values
        parts[row, frames.LAST] = row + 1 == len(PARTS) or list(PARTS.values())[row + 1][4] != values[4]
    words = f"main {TAIL} {TAIL} compare @compare @compare main-end @main-end".split()
    part = np.array([NAMES.index(word.lstrip("@")) for word in words], np.int32)
    kind = np.array([2 if word[0] == "@" else 1 if word in ENTRIES else 0 for word in words], np.int32)
    state = np.zeros(frames.NUM_STATE, np.int64)
    state[frames.OPEN] = -1
    events, stack, none = np.arange(len(words), dtype=np.int32), np.zeros((9, 2), np.int64), np.zeros(0, np.int64)
    hashes, at, told = np.zeros(1, np.uint64), 0, []
    out = np.zeros(room, np.int32), np.zeros(room, np.int32), np.zeros(room, np.uint64)
    for _ in range(100):
        at = frames.execute(
            at, events, kind, part, events, none, none, parts, 4, stack, state, hashes, *out, none
        )  # fmt: skip
        told += out[0][: state[frames.OUT]].tolist()
        if at == len(words):
            break
        before = len(out[0])
        state[frames.OUT] = 0
        need = (int(state[frames.DEPTH]) + 4) * 4
        out = tuple(np.zeros(max(need, before), each.dtype) for each in out)
    assert [NAMES[each] for each in told] == [
        "main", *CALLS, "main+1", *CALLS, "main+2", "compare", "main+3",
    ]  # fmt: skip
    assert NAMES[state[frames.OPEN]] == "main-end"
