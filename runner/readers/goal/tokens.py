"""The lines of GOAL text as arrays: one kernel scans the bytes, statement by statement.

Grammar of LogGOPSim (spcl/LogGOPSim 76451de, src/LogGOPSim/txt2bin.re), somewhat wider: comments may stand wherever a
blank may, and ``tag``, ``cpu`` and ``nic`` in any order. A label becomes a number: up to ten characters are packed
exactly, longer ones are hashed to 62 bits. Cost: O(bytes).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free, njit


def pack(word: bytes) -> int:
    """The number of a word of letters, digits and underscores of at most ten characters."""
    value = 0
    for byte in word:
        value = value << 6 | _code(byte)
    return value


def _code(byte: int) -> int:
    """1 to 63 for a digit, a letter or the underscore, in the order of their bytes."""
    if byte <= ord("9"):
        return byte - ord("0") + 1
    if byte <= ord("Z"):
        return byte - ord("A") + 11
    return 37 if byte == ord("_") else byte - ord("a") + 38


class Problem(IntEnum):
    """Why a scan stopped; TEXT_OF says it in words."""

    none = 0
    statement = 1
    colon = 2
    verb = 3
    number = 4
    bytes_unit = 5
    to = 6
    source = 7
    option = 8
    label = 9
    end_of_line = 10
    brace = 11
    outside = 12
    unclosed = 13
    num_ranks = 14
    rank = 15
    rank_twice = 16
    too_large = 17
    device = 18
    peer = 19


TEXT_OF: Final = {
    Problem.statement: "expected a statement (calc, send, recv, a label, rank, or a closing brace)",
    Problem.colon: "expected ':', 'requires' or 'irequires' after a label",
    Problem.verb: "expected calc, send or recv",
    Problem.number: "expected a number",
    Problem.bytes_unit: "expected 'b' after the number of bytes",
    Problem.to: "expected 'to' and a rank",
    Problem.source: "expected 'from' and a rank, or -1 for any",
    Problem.option: "expected 'tag', 'cpu', 'nic' or the end of the line",
    Problem.label: "expected a label",
    Problem.end_of_line: "expected the end of the line",
    Problem.brace: "expected '{'",
    Problem.outside: "stands outside the braces of a rank",
    Problem.unclosed: "the braces of the rank before are not closed",
    Problem.num_ranks: "num_ranks does not say what it said before",
    Problem.rank: "the rank is not one of num_ranks",
    Problem.rank_twice: "the rank is given twice",
    Problem.too_large: "the number is too large",
    Problem.device: "only cpu 0 and nic 0 are modelled; write the schedule for one CPU and one interface a rank",
    Problem.peer: "the other rank is not one of num_ranks",
}

SEND: Final = 0
RECEIVE: Final = 1
CALCULATION: Final = 2

# Fields of the scan's state
LINE, RANK, IN_COMMENT, NUM_OPERATIONS, NUM_DEPENDENCIES, PROBLEM, PROBLEM_AT = range(7)

_RANK, _NUM_RANKS, _SEND, _RECV, _CALC = (pack(word) for word in (b"rank", b"num_ranks", b"send", b"recv", b"calc"))
_REQUIRES, _IREQUIRES, _TO, _FROM = (pack(word) for word in (b"requires", b"irequires", b"to", b"from"))
_B, _TAG, _CPU, _NIC = (pack(word) for word in (b"b", b"tag", b"cpu", b"nic"))
_LARGEST: Final = 2**62
_CODES: Final = np.zeros(256, np.uint8)  # 0 for what no word holds
for _byte in b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz":
    _CODES[_byte] = _code(_byte)
_NL, _CR, _BLANK, _TABULATOR, _SLASH, _STAR, _COLON, _OPEN, _CLOSE, _MINUS = b"\n\r \t/*:{}-"


@dataclass(frozen=True)
class Statements:
    """Statements in file order. Of each operation: ``kind`` (SEND, ...), ``rank``, ``size`` (bytes or duration),
    ``peer``, ``tag``, ``label`` (0: none) and ``line``; of each dependency: its ``rank``, the ``dependent`` label, the
    ``required`` one, ``on_start``, and its ``line``."""

    kind: np.ndarray
    rank: np.ndarray
    size: np.ndarray
    peer: np.ndarray
    tag: np.ndarray
    label: np.ndarray
    line: np.ndarray
    dependency_rank: np.ndarray
    dependent: np.ndarray
    required: np.ndarray
    on_start: np.ndarray
    dependency_line: np.ndarray

    @classmethod
    def with_room(cls, num_lines: int) -> Statements:
        """Room for the statements of as many lines."""
        types = (np.uint8, np.int32, np.int64, np.int32, np.int32, np.int64, np.int64)
        return cls(
            *(np.empty(num_lines, dtype) for dtype in types),
            *(np.empty(num_lines, dtype) for dtype in (np.int32, np.int64, np.int64, np.uint8, np.int64)),
        )

    def first(self, num_operations: int, num_dependencies: int) -> Statements:
        """A copy of the first operations and dependencies."""
        columns = list(self.__dict__.values())
        return Statements(
            *(column[:num_operations].copy() for column in columns[:7]),
            *(column[:num_dependencies].copy() for column in columns[7:]),
        )

    @classmethod
    def joined(cls, parts: list[Statements]) -> Statements:
        """Those of consecutive parts of a file."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))


def new_state() -> np.ndarray:
    """The state of a scan before the first line."""
    state = np.zeros(7, np.int64)
    state[LINE], state[RANK] = 1, -1
    return state


def scan(text: np.ndarray, state: np.ndarray, seen: np.ndarray) -> Statements:
    """The statements of ``text`` (uint8, whole lines), which stands behind what ``state`` has seen; ``seen`` uint8 per
    rank that was opened. ``state[PROBLEM]`` tells why the scan stopped early, if it did."""
    found = Statements.with_room(int(np.count_nonzero(text == _NL)) + 1)
    state[NUM_OPERATIONS] = state[NUM_DEPENDENCIES] = 0
    _scan(text, state, seen, _CODES, *found.__dict__.values())
    return found.first(int(state[NUM_OPERATIONS]), int(state[NUM_DEPENDENCIES]))


@allocation_free
def _skip(text, at, state):  # type: ignore[no-untyped-def]
    """Behind blanks and comments, at the end of the line at the latest."""
    while True:
        byte = text[at]
        if state[IN_COMMENT]:
            if byte == _NL:
                return at
            if byte == _STAR and text[at + 1] == _SLASH:
                state[IN_COMMENT] = 0
                at += 1
            at += 1
        elif byte == _BLANK or byte == _TABULATOR or byte == _CR:
            at += 1
        elif byte == _SLASH and text[at + 1] == _SLASH:
            while text[at] != _NL:
                at += 1
            return at
        elif byte == _SLASH and text[at + 1] == _STAR:
            state[IN_COMMENT] = 1
            at += 2
        else:
            return at


@allocation_free
def _word(text, at, codes):  # type: ignore[no-untyped-def]
    """(number, place behind it) of a word; 0 if none starts here."""
    code = codes[text[at]]
    if code < 11 or code == 37:  # a digit or an underscore
        return np.int64(0), at
    value = np.int64(0)
    length = 0
    mixed = np.uint64(0xCBF29CE484222325)
    while code:
        value = value << 6 | code
        mixed = (mixed ^ np.uint64(code)) * np.uint64(0x100000001B3)
        length += 1
        at += 1
        code = codes[text[at]]
    if length > 10:
        value = np.int64(mixed >> np.uint64(2)) | np.int64(1) << 62
    return value, at


@allocation_free
def _number(text, at):  # type: ignore[no-untyped-def]
    """(value, place behind it): -1 for no number, -2 for one that is too large."""
    if text[at] < 48 or text[at] > 57:
        return np.int64(-1), at
    value = np.int64(0)
    while 48 <= text[at] <= 57:
        if value > _LARGEST // 10:
            return np.int64(-2), at
        value = value * 10 + (text[at] - 48)
        at += 1
    return value, at


@allocation_free
def _fail(state, problem, at):  # type: ignore[no-untyped-def]
    state[PROBLEM] = problem
    state[PROBLEM_AT] = at
    return at


@allocation_free
def _bounded(text, at, state, largest, may_be_any):  # type: ignore[no-untyped-def]
    """(number, place behind it) behind blanks; a number above ``largest``, and none, is a problem."""
    at = _skip(text, at, state)
    if may_be_any and text[at] == _MINUS and text[at + 1] == 49:
        return np.int64(-1), at + 2
    value, behind = _number(text, at)
    if value < 0:
        _fail(state, Problem.number if value == -1 else Problem.too_large, at)
    elif value > largest:
        _fail(state, Problem.too_large, at)
    return value, behind


@allocation_free
def _operation(text, at, state, codes, num_ranks, verb, kind, size, peer, tag):  # type: ignore[no-untyped-def]
    """Read an operation behind its verb, to the end of the line; returns the place there."""
    row = state[NUM_OPERATIONS]
    value, at = _bounded(text, at, state, _LARGEST, False)
    if state[PROBLEM]:
        return at
    size[row] = value
    peer[row] = -2
    tag[row] = 0
    if verb == _CALC:
        kind[row] = CALCULATION
    else:
        kind[row] = SEND if verb == _SEND else RECEIVE
        at = _skip(text, at, state)
        word, behind = _word(text, at, codes)
        if word != _B:
            return _fail(state, Problem.bytes_unit, at)
        at = _skip(text, behind, state)
        word, behind = _word(text, at, codes)
        if word != (_TO if verb == _SEND else _FROM):
            return _fail(state, Problem.to if verb == _SEND else Problem.source, at)
        at = _skip(text, behind, state)
        value, behind = _bounded(text, at, state, _LARGEST, verb == _RECV)
        if state[PROBLEM]:
            return at
        if value >= num_ranks:
            return _fail(state, Problem.peer, at)
        peer[row] = value
        at = behind
    while True:
        at = _skip(text, at, state)
        if text[at] == _NL:
            return at
        word, behind = _word(text, at, codes)
        if word == _TAG and verb != _CALC:
            value, at = _bounded(text, behind, state, 2**31 - 1, verb == _RECV)
            if state[PROBLEM]:
                return at
            tag[row] = value
        elif word == _CPU or word == _NIC:
            value, behind = _bounded(text, behind, state, _LARGEST, False)
            if state[PROBLEM]:
                return at
            if value:
                return _fail(state, Problem.device, at)
            at = behind
        else:
            return _fail(state, Problem.option, at)


@njit(cache=True, nogil=True)
def _scan(  # type: ignore[no-untyped-def]
    text, state, seen, codes, kind, rank, size, peer, tag, label, line, dependency_rank, dependent, required, on_start,
    dependency_line,
):  # fmt: skip
    """Fill the columns. Stops at the first problem. O(bytes)."""
    at = 0
    while at < text.shape[0] and state[PROBLEM] == 0:
        at = _skip(text, at, state)
        if text[at] == _NL:
            state[LINE] += 1
            at += 1
            continue
        if text[at] == _CLOSE:
            if state[RANK] < 0:
                _fail(state, Problem.outside, at)
            state[RANK] = -1
            at += 1
            continue
        begin = at
        word, at = _word(text, at, codes)
        if word == 0:
            _fail(state, Problem.statement, at)
        elif word == _NUM_RANKS:
            value, at = _bounded(text, at, state, _LARGEST, False)
            if state[PROBLEM] == 0 and value != seen.shape[0]:
                _fail(state, Problem.num_ranks, begin)
        elif word == _RANK:
            value, at = _bounded(text, at, state, _LARGEST, False)
            if state[PROBLEM]:
                continue
            at = _skip(text, at, state)
            if text[at] != _OPEN:
                _fail(state, Problem.brace, at)
            elif state[RANK] >= 0:
                _fail(state, Problem.unclosed, begin)
            elif value >= seen.shape[0]:
                _fail(state, Problem.rank, begin)
            elif seen[value]:
                _fail(state, Problem.rank_twice, begin)
            else:
                seen[value] = 1
                state[RANK] = value
            at += 1
        elif state[RANK] < 0:
            _fail(state, Problem.outside, begin)
        else:
            first = np.int64(0)
            if word != _SEND and word != _RECV and word != _CALC:
                first = word
                at = _skip(text, at, state)
                if text[at] == _COLON:
                    at = _skip(text, at + 1, state)
                    begin = at
                    word, at = _word(text, at, codes)
                    if word != _SEND and word != _RECV and word != _CALC:
                        _fail(state, Problem.verb, begin)
                        continue
                else:
                    begin = at
                    word, at = _word(text, at, codes)
                    if word != _REQUIRES and word != _IREQUIRES:
                        _fail(state, Problem.colon, begin)
                        continue
                    at = _skip(text, at, state)
                    second, behind = _word(text, at, codes)
                    if second == 0:
                        _fail(state, Problem.label, at)
                        continue
                    at = _skip(text, behind, state)
                    if text[at] != _NL:
                        _fail(state, Problem.end_of_line, at)
                        continue
                    row = state[NUM_DEPENDENCIES]
                    dependency_rank[row] = state[RANK]
                    dependent[row] = first
                    required[row] = second
                    on_start[row] = word == _IREQUIRES
                    dependency_line[row] = state[LINE]
                    state[NUM_DEPENDENCIES] += 1
                    continue
            row = state[NUM_OPERATIONS]
            at = _operation(text, at, state, codes, seen.shape[0], word, kind, size, peer, tag)
            rank[row] = state[RANK]
            label[row] = first
            line[row] = state[LINE]
            state[NUM_OPERATIONS] += 1
