"""What the kernels of the dataflow model work on: code, limits of the core, state, and a piece of the stream."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

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
IN_ORDER: Final = 8  # share of the latest lines beyond the first level that were foreseen
# entries of ``counts`` beyond those of the rings
INSTRUCTIONS: Final = 5
PREVIOUS: Final = 6  # block executed last
BRANCH: Final = 7  # the number of the last mispredicted branch, from 1 on
BEHIND: Final = 8  # places of the reorder buffer taken up to it

TABLE: Final = 4096  # entries that remember stores and lines on their way, by address
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


class Prefetch(NamedTuple):
    """Lines of a sequence come once they have been asked for long enough: up to ``degree`` at each line, at most
    ``distance`` ahead. Where others come between, a sequence begins anew in each page of 2^``page_shift`` lines, of
    which the first ``confirm`` are not foreseen. ``distance`` 0: all that is foreseen comes in time."""

    confirm: int
    degree: int
    distance: int
    page_shift: int


class Limits(NamedTuple):
    """Of a core, in cycles: ``slot`` 1 / width; ``files`` float64[2, 3]: of general and of vector registers,
    occupancy of the units of loads and of stores, and time from store to load; ``forward``: occupancy of forwarding
    by a load; ``repeat``: for how long a load that an update answers occupies the units of accesses beyond the
    usual; ``levels`` float64[levels, 2]: latency, and time to transfer a line, of each level, the nearest first,
    main memory last; ``translation`` float64[TLBs + 1]: by the TLB that knows the page, a walk last;
    ``prefetch_lines``: how far prefetchers run ahead; ``prefetch``: what says when a foreseen line comes
    (``Prefetch``); ``write_back``: share of a transfer that a line which a store missed takes again;
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
    prefetch: Prefetch
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
    behind the mispredicted branch of number ``behind`` int64[registers], had it been predicted. Of the sequence of each
    static access: ``followed`` int64[accesses, 3], by the columns below, and ``asked`` float64[accesses, distance]:
    when its latest lines were asked for."""

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
    followed: np.ndarray
    asked: np.ndarray


STORE_TAG: Final = 0  # columns of ``tags``
STORE_FILE: Final = 1
STORE_NUMBER: Final = 2
STORE_UPDATES: Final = 3
LINE_TAG: Final = 4
STORE_TIME: Final = 0  # columns of ``times``
LINE_TIME: Final = 1
LAST_LINE: Final = 0  # columns of ``followed``
NUMBER: Final = 1  # of the last line since the sequence was known; -1: it comes in time
UNKNOWN: Final = 2  # lines still to come until it is known again


def new_state(limits: Limits, num_accesses: int) -> State:
    """An empty core, for code of so many static accesses."""
    rings, num_levels = limits.rings, len(limits.levels)
    tags = np.zeros((TABLE, 5), np.int64)
    tags[:, [STORE_TAG, LINE_TAG]] = -1
    counts = np.zeros(9, np.int64)
    counts[PREVIOUS] = -1
    counts[BEHIND] = -int(rings[REORDER]) - 1
    clock = np.zeros(9)
    clock[IN_ORDER] = 1
    return State(
        clock,
        counts,
        np.zeros(NUM_REGISTERS),
        np.zeros(FIRST_TRANSFER + num_levels),
        np.zeros((len(rings), int(rings.max()))),
        tags,
        np.zeros((TABLE, 2)),
        np.zeros(FIRST_LEVEL + num_levels - 1),
        np.zeros(NUM_REGISTERS),
        np.zeros(NUM_REGISTERS, np.int64),
        np.zeros((num_accesses, 3), np.int64),
        np.zeros((num_accesses, limits.prefetch.distance)),
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
