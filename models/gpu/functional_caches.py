"""Caches of a GPU without time: which level answers a request, in the order in which requests are made.

Lines of sectors, least recently used first, in sets of any number of ways. A request for a sector that another one
missed in the same turn (gpumech_collector.py) is a pending hit: it waits for that miss. Source: GPUMech (Huang,
dissertation, Georgia Institute of Technology, 2015), sec. 4.5.2 and 4.6.4, which counts these as hits and names them
as the main source of its error.

A sector of which a store wrote all bytes can be read; one that was written in part is as it was before (the detailed
model adds the parts up). Frames that are on their way or dirty are replaced like others.

Cost: O(1) for each request.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.parameters import GpuCache
from manyscale.models.kernels import inlined

WRITES: Final = ("through", "evict", "back")
_EVICT: Final = WRITES.index("evict")
HIT: Final = 0
PENDING_NEXT: Final = 1  # of a miss of the same turn that the next level answers
PENDING_MEMORY: Final = 2  # of one that memory answers
MISS: Final = 3
FULL: Final = 0xFFFFFFFF  # all bytes of a sector
_NOWHERE: Final = -1

LINE: Final = np.dtype(
    [
        ("tag", "i8"),
        ("turn", "i4"),  # of its last miss
        ("chain", "i4"),  # next of its bucket
        ("older", "i4"), ("newer", "i4"),  # of its set
        ("valid", "u1"), ("dirty", "u1"),  # sectors
        ("missed", "u1"),  # sectors missed in ``turn``
        ("memory", "u1"),  # those of them that memory answers
    ],
    align=True,
)  # fmt: skip
SET: Final = np.dtype([("lines", "i4"), ("oldest", "i4"), ("newest", "i4")], align=True)
(READS, READ_MISSES, READ_PENDING, WRITTEN, WRITE_MISSES, WRITTEN_BACK) = range(6)


class Caches(NamedTuple):
    """C caches of one geometry. ``line`` LINE[C, sets x ways], ``bucket`` int32[C, B] (heads of chains, -1: none),
    ``set`` SET[C, sets], ``counts`` int64[6] as above. ``turn`` int64[1]: the last one."""

    line: np.ndarray
    bucket: np.ndarray
    set: np.ndarray
    counts: np.ndarray
    turn: np.ndarray


class CacheRules(NamedTuple):
    """``ways``; ``set_mask`` of the index; ``sector_shift`` from a request to its line; ``write`` into WRITES."""

    ways: int
    set_mask: int
    sector_shift: int
    write: int
    write_allocate: int


def caches(cache: GpuCache, count: int, size_bytes: int | None = None) -> tuple[Caches, CacheRules]:
    """``count`` empty caches, of ``size_bytes`` (with as many sets; None: all slices of ``cache`` together)."""
    sets = cache.num_sets * cache.slices if size_bytes is None else cache.num_sets
    rows = (cache.size_bytes if size_bytes is None else size_bytes) // cache.line_bytes
    sets = 1 << (sets.bit_length() - 1)
    ways = max(1, rows // sets)
    rules = CacheRules(
        ways=ways,
        set_mask=sets - 1,
        sector_shift=(cache.line_bytes // cache.sector_bytes).bit_length() - 1,
        write=WRITES.index(cache.write),
        write_allocate=int(cache.write_allocate),
    )
    made = Caches(
        line=np.empty((count, sets * ways), LINE),
        bucket=np.full((count, 1 << (2 * sets * ways - 1).bit_length()), _NOWHERE, np.int32),
        set=np.zeros((count, sets), SET),
        counts=np.zeros(6, np.int64),
        turn=np.zeros(1, np.int64),
    )
    return made, rules


def forget_all(held: Caches) -> None:
    """Empty them."""
    held.bucket[:] = _NOWHERE
    held.set[:] = 0


@inlined
def _bucket(bucket, tag):  # type: ignore[no-untyped-def]
    return (tag ^ (tag >> 9) ^ (tag >> 17)) & (bucket.shape[1] - 1)


@inlined
def _index(rules, tag):  # type: ignore[no-untyped-def]
    return tag & rules.set_mask


@inlined
def find(held, c, tag):  # type: ignore[no-untyped-def]
    """The frame of a line, -1: none."""
    lines = held.line[c]
    at = held.bucket[c, _bucket(held.bucket, tag)]
    while at >= 0 and lines[at].tag != tag:
        at = lines[at].chain
    return at


@inlined
def _join(lines, own, at):  # type: ignore[no-untyped-def]
    """The newest of its set."""
    lines[at].older = own.newest
    lines[at].newer = _NOWHERE
    if own.newest >= 0:
        lines[own.newest].newer = at
    else:
        own.oldest = at
    own.newest = at


@inlined
def _leave(lines, own, at):  # type: ignore[no-untyped-def]
    older, newer = lines[at].older, lines[at].newer
    if older >= 0:
        lines[older].newer = newer
    else:
        own.oldest = newer
    if newer >= 0:
        lines[newer].older = older
    else:
        own.newest = older


@inlined
def use(held, rules, c, at):  # type: ignore[no-untyped-def]
    """A line is used."""
    lines = held.line[c]
    own = held.set[c, _index(rules, lines[at].tag)]
    if own.newest != at:
        _leave(lines, own, at)
        _join(lines, own, at)


@inlined
def _unchain(held, c, at):  # type: ignore[no-untyped-def]
    lines = held.line[c]
    place = _bucket(held.bucket, lines[at].tag)
    before = held.bucket[c, place]
    if before == at:
        held.bucket[c, place] = lines[at].chain
        return
    while lines[before].chain != at:
        before = lines[before].chain
    lines[before].chain = lines[at].chain


@inlined
def place(held, rules, c, tag):  # type: ignore[no-untyped-def]
    """The frame that a new line gets, without sectors; of the line that it replaces, dirty sectors are written back."""
    lines = held.line[c]
    index = _index(rules, tag)
    own = held.set[c, index]
    if own.lines == 0:
        own.oldest = _NOWHERE
        own.newest = _NOWHERE
    if own.lines < rules.ways:
        at = index * rules.ways + own.lines
        own.lines += 1
    else:
        at = own.oldest
        _leave(lines, own, at)
        _unchain(held, c, at)
        dirty = lines[at].dirty
        while dirty:
            held.counts[WRITTEN_BACK] += 1
            dirty &= dirty - 1
    line = lines[at]
    line.tag = tag
    line.valid = 0
    line.dirty = 0
    line.missed = 0
    line.turn = _NOWHERE
    bucket = _bucket(held.bucket, tag)
    line.chain = held.bucket[c, bucket]
    held.bucket[c, bucket] = at
    _join(lines, own, at)
    return at


@inlined
def read_at(held, rules, c, at, bit, turn):  # type: ignore[no-untyped-def]
    """A sector of the line at frame ``at`` is read: HIT, what it waits for, or MISS (which is to be ``fill``ed)."""
    line = held.line[c, at]
    held.counts[READS] += 1
    if line.turn == turn and line.missed & bit:
        held.counts[READ_PENDING] += 1
        return PENDING_MEMORY if line.memory & bit else PENDING_NEXT
    if line.valid & bit:
        return HIT
    held.counts[READ_MISSES] += 1
    return MISS


@inlined
def fill(held, c, at, bit, turn, from_memory):  # type: ignore[no-untyped-def]
    """A sector was missed in ``turn``, and is there in the next."""
    line = held.line[c, at]
    if line.turn != turn:
        line.turn = turn
        line.missed = 0
        line.memory = 0
    line.missed |= bit
    line.valid |= bit
    if from_memory:
        line.memory |= bit


@inlined
def write(held, rules, c, tag, bit, written):  # type: ignore[no-untyped-def]
    """A sector is written: True if the next level is told at once (it does not stay here alone)."""
    at = find(held, c, tag)
    held.counts[WRITTEN] += 1
    hit = at >= 0 and ((held.line[c, at].valid | held.line[c, at].dirty) & bit) != 0
    if not hit:
        held.counts[WRITE_MISSES] += 1
    if rules.write == _EVICT:
        if hit:
            held.line[c, at].valid &= ~bit
        return True
    if at < 0:
        if not rules.write_allocate:
            return True
        at = place(held, rules, c, tag)
    else:
        use(held, rules, c, at)
    if written == FULL:
        held.line[c, at].valid |= bit
    if rules.write == WRITES.index("back"):
        held.line[c, at].dirty |= bit
        return False
    return True
