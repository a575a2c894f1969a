"""What the caches of a node hold, at the granularity of pieces of task instances: the level that serves each first use.

Caches that the same cores share are a *tier*: of most machines the private ones are the first, the shared one is the
second. An instance of a tier is one LRU stack (Mattson et al., IBM Systems Journal 9(2), 1970): a cache of C lines
holds what lies less than C deep. Lines whose sets have about as many lines of the program belong together in one of
some classes, each with a stack of its own that has its sets' share of the cache: where few sets have to hold many
lines, these go earlier. A stack is kept in *epochs* of some lines: of each line the epoch of its last use, of each
epoch how many lines were used last in it, of each cache the oldest epoch that still fits. So a use costs O(1), and is
exact to an epoch, 1/16 of the class's part of the tier's smallest cache.

Lines that another core has written since are no longer there; which core that was is known. What an instance of the
last tier does not hold comes from a core that wrote it, if that still holds it, else from main memory: then a line that
was modified has been written back.

Assumptions: sets of a class are one fully associative LRU cache; a piece uses its lines when it begins, all at once;
uses inside a piece but the first of each line are the core's matter (costs.py); a cache further out sees only what
nearer ones lack; an exclusive one holds its lines beside theirs. The nearest prefetcher follows first uses that miss
the levels before its own, from piece to piece; what it fetches is there in time, and what it fetches in vain takes
nothing.

Memory: 12 B a slot; a core's private caches have four slots a line, or one a line that there is.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.machine.processor import Cache, data_caches
from manyscale.models.node.memory.system import LEVEL, STREAM
from manyscale.models.node.shared.piece_lines import PieceLines

EPOCHS: Final = 16  # of the smallest cache of a tier
CLASSES: Final = 4  # of sets

ENTRY: Final = np.dtype([("line", "i4"), ("epoch", "i4"), ("sequence", "i4")])
LINE: Final = np.dtype(
    [
        ("written", "i4"),
        ("used", "i4"),
        ("writer", "i2"),
        ("user", "i2"),
        ("sockets", "u1"),  # a bit for each whose cores have used it since it was written; one bit for all beyond 7
        ("dirty", "u1"),  # MODIFIED, and OWNED as long as its writer's private caches have the only copy that counts
        ("visits", "u1"),  # by who used it last
        ("shared", "u1"),
        ("writer_visits", "i4"),
    ]
)
TIER: Final = np.dtype(
    [
        ("cores", "i8"), ("levels", "i8"), ("first_level", "i8"), ("slots", "i8"), ("first_entry", "i8"),
        ("first_stack", "i8"), ("first_depth", "i8"), ("per_epoch", "i8"), ("ring", "i8"), ("first_count", "i8"),
    ]
)  # fmt: skip
STACK: Final = np.dtype([("now", "i8"), ("filled", "i8")])
DEPTH: Final = np.dtype([("threshold", "i8"), ("total", "i8"), ("capacity", "i8")])
CONTROL: Final = np.dtype(
    [
        ("sequence", "i8"),
        ("levels", "i8"),
        ("row_shift", "i8"),
        ("channels", "i8"),
        ("banks", "i8"),
        ("sockets", "i8"),
        ("home_shift", "i8"),
        ("written", "i8"),
        ("owes", "i8"),
    ]
)  # ``home_shift``: lines of a page that is its first user's, -1: none is
HOMES: Final = 1 << 16
# what a piece's first uses come to, beside the levels: in the columns behind them
REMOTE: Final = 1  # + levels: from another socket's caches
FAR: Final = 2  # + levels: of those from main memory, another socket's
WRITTEN: Final = 3  # + levels: lines written back to main memory
ROWS: Final = 4  # + levels: rows of DRAM that were opened for them
PASSED: Final = 5  # + levels: of those from a shared cache, lines that another core has modified
DOWN: Final = 6  # + levels: modified lines that private caches will write to the first shared one
FOUGHT: Final = 7  # + levels: times that a line comes back from a core that uses it at the same time, where one stores
CROSSED: Final = 8  # + levels: the same from a core of another socket
TAKEN: Final = 9  # + levels: stores to lines that it has and another core does, too
TAKEN_FAR: Final = 10  # + levels: the same of another socket
LED: Final = 11  # + levels: lines that are loaded from main memory, not closely behind another one from there or far
LED_FAR: Final = 12  # + levels: the same from another socket's caches
COLUMNS: Final = 13  # + levels
NEAR_OWED, FAR_OWED = 0, 1
MODIFIED, OWNED = 1, 2
_AHEAD: Final = 256  # lines that a prefetcher has fetched and that are known, at most


class Occupancy(NamedTuple):
    """See the module; records of the types above."""

    control: np.ndarray
    tier: np.ndarray
    entry: np.ndarray
    stack: np.ndarray
    depth: np.ndarray
    counted: np.ndarray
    modified: np.ndarray
    line: np.ndarray
    home: np.ndarray
    line_number: np.ndarray
    row_of: np.ndarray
    socket: np.ndarray
    running: np.ndarray  # int64[cores]: number of the piece that each executes, 0 for none
    kind: np.ndarray  # uint8[tiers, lines]: class of each line
    loaded: np.ndarray  # float64[levels + 2]: of the last piece, loaded lines by the level that they wait for
    stored: np.ndarray  # float64[levels + 2]: lines stored to first
    prefetcher: np.ndarray  # record, see memory/system.py; ``ways`` is the number of its level here
    stream: np.ndarray
    ahead: np.ndarray  # int64[instances, _AHEAD]: line numbers
    owed: np.ndarray  # float64[cores, 2]: times that lines have to come back since another core's piece began


def empty_caches(lines: PieceLines, node: Node, num_cores: int) -> Occupancy:
    """Caches that hold nothing. O(slots), of memory that is not written yet."""
    caches = list(data_caches(node.caches).values())
    sizes = [cache.size_bytes // lines.line_bytes for cache in caches]
    every = lines.every
    groups = [[k for k, _ in each] for _, each in groupby(enumerate(caches), lambda pair: pair[1].shared_by_cores)]
    tier = np.zeros(len(groups), TIER)
    entries = stacks = depths = counts = last_counts = nearer_tier = 0
    depth_rows: list[np.ndarray] = []
    kind = np.zeros((len(groups), lines.num_lines), np.uint8)
    nearer = 0
    for t, levels in enumerate(groups):
        cores = min(caches[levels[0]].shared_by_cores, num_cores)
        instances = -(-num_cores // cores)
        capacity = np.array([max(sizes[k] // every, 1) for k in levels])
        ways = caches[levels[-1]].ways or sizes[levels[-1]]
        numbers = lines.line_number if lines.all_numbers is None else lines.all_numbers
        classes, share = _classes_of_lines(numbers, max(sizes[levels[-1]] // ways, 1))
        kind[t] = classes if lines.kept is None else classes[lines.kept]
        for place, k in enumerate(levels):
            if caches[k].inclusion == "exclusive":
                capacity[place] += nearer * (cores if t else 1) + (int(capacity[place - 1]) if place else 0)
        slots = 1 << int(min(max(lines.num_lines, 1), 4 * int(capacity[-1])) - 1).bit_length()
        per_epoch = max(1, int(capacity.min()) // (EPOCHS * CLASSES))
        ring = 1 << int(2 * (int(capacity.max()) + (cores * nearer if t else 0)) // per_epoch + 4).bit_length()
        tier[t] = (
            cores, len(levels), levels[0], slots, entries, stacks, depths, per_epoch, ring, counts,
        )  # fmt: skip
        nearer = int(capacity[-1])
        entries += instances * slots
        stacks += instances * CLASSES
        depths += instances * CLASSES * (len(levels) + (t == len(groups) - 1))
        last_counts = instances * CLASSES * ring
        counts += last_counts
        if t == len(groups) - 1:  # modified lines leave all caches when as much has come as these hold together
            capacity = np.append(capacity, capacity[-1] + (cores * nearer_tier if t else 0))
        nearer_tier = int(capacity[-1])
        each = np.zeros(instances * CLASSES * len(capacity), DEPTH)
        of_class = np.maximum(np.rint(np.outer(share, capacity)), 1).astype(np.int64)
        each["threshold"], each["capacity"] = 1, np.tile(of_class.ravel(), instances)
        depth_rows.append(each)
    stack = np.zeros(stacks, STACK)
    stack["now"] = 1
    control = np.zeros(1, CONTROL)
    control["levels"] = len(caches)
    memory, shift = node.main_memory, lines.line_bytes.bit_length() - 1
    dram = None if memory is None else memory.dram
    control["channels"], control["banks"] = (dram.channels, dram.banks) if dram is not None else (1, 1)
    row = dram.row_bytes // lines.line_bytes if dram is not None else 1
    control["row_shift"] = max(row, 1).bit_length() - 1
    sockets = min(node.sockets, -(-num_cores // node.cores_per_socket))
    control["sockets"], control["home_shift"] = sockets, -1
    if sockets > 1 and node.numa is not None and node.numa.pages == "first-touch":
        control["home_shift"] = max(node.numa.page_bytes.bit_length() - 1 - shift, 0)
    of_line = np.zeros(lines.num_lines, LINE)
    of_line["writer"] = of_line["user"] = -1
    return Occupancy(
        control, tier, np.zeros(entries, ENTRY), stack, np.concatenate(depth_rows), np.zeros(counts, np.int32),
        np.zeros(last_counts, np.int32), of_line,
        np.full(HOMES if sockets > 1 else 1, -1, np.int8), lines.line_number,
        np.full(int(control["channels"][0] * control["banks"][0]) * sockets, -1, np.int64),
        (np.arange(num_cores) // node.cores_per_socket).astype(np.int64), np.zeros(num_cores, np.int64), kind,
        np.zeros(len(caches) + 2), np.zeros(len(caches) + 2), *_prefetcher(caches, lines.line_bytes, num_cores),
        np.zeros((num_cores, 2)),
    )  # fmt: skip


def nothing_runs(caches: Occupancy) -> None:
    """What ran before has ended, and owes nothing."""
    caches.running[:], caches.owed[:], caches.control["owes"] = 0, 0.0, 0


def _prefetcher(caches: list[Cache], line_bytes: int, num_cores: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the first level that has one."""
    record = np.zeros(1, LEVEL)
    instances, record["slots"] = 1, 1
    for level, cache in enumerate(caches):
        if cache.prefetcher is not None:
            instances = -(-num_cores // cache.shared_by_cores)
            of = cache.prefetcher
            for name in ("streams", "confirm", "degree", "distance"):
                record[name] = getattr(of, name)
            record["page_shift"] = (of.page_bytes // line_bytes).bit_length() - 1
            record["ways"], record["cores"] = level, cache.shared_by_cores
            break
    stream = np.zeros(max(instances * int(record["streams"][0]), 1), STREAM)
    stream["page"] = -1
    return record, stream, np.full((instances, _AHEAD), -1)


def _classes_of_lines(line_number: np.ndarray, sets: int) -> tuple[np.ndarray, np.ndarray]:
    """(uint8[lines], float64[CLASSES]): the class of each line, by how many lines fall into its set, and the share of
    all sets that each class has. O(lines + sets log)."""
    chosen = line_number % sets
    count = np.bincount(chosen, minlength=sets)
    order = np.argsort(count, kind="stable")
    until = np.cumsum(count[order])
    of_set = np.zeros(sets, np.uint8)
    of_set[order] = np.minimum(CLASSES * (until - count[order] / 2) // max(int(until[-1]), 1), CLASSES - 1)
    return of_set[chosen], np.bincount(of_set, minlength=CLASSES) / sets
