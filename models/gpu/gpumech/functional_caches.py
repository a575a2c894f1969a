"""Caches of a GPU without time: which level answers a request, in the order in which requests are made.

Lines of sectors, least recently used first, in sets of any number of ways. A request for a sector that another one
missed, and that is not there in that turn (gpu/gpumech/collector.py), is a pending hit: it waits for that miss. Source:
GPUMech (Huang, dissertation, Georgia Institute of Technology, 2015), sec. 4.5.2 and 4.6.4, which counts these as hits
and names them as the main source of its error.

A sector of which a store wrote all bytes can be read; one that was written in part is as it was before (the detailed
model adds the parts up). Frames that were missed in the same turn are not replaced, nor are dirty ones before they are
as many as the cache's share of them.

Cost: O(1) for each line that is accessed or replaced; O(ways) where all clean lines of a set are on their way.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.gpumech.leaders import forget_leaders
from manyscale.models.gpu.parameters import GpuCache
from manyscale.models.gpu.sm.limits import BACK, EVICT, WRITES
from manyscale.models.kernels import allocation_free, inlined

FULL: Final = 0xFFFFFFFF  # all bytes of a sector
_NOWHERE: Final = -1
_LATER: Final = 1 << 40  # a turn in which nothing is on its way any more
_MOST_WAITING: Final = 120  # in a byte, with one bit left
_COUNT: Final = np.array([mask.bit_count() for mask in range(256)])
_BYTES: Final = np.array([sum((mask >> bit & 1) << 8 * bit for bit in range(8)) for mask in range(256)], np.uint64)

LINE: Final = np.dtype(
    [
        ("tag", "i8"),
        ("used", "i8"),  # last use
        ("waiting", "u8"),  # requests for each sector that wait, a byte of each
        ("turn", "i4"),  # from which on what was missed last is there
        ("chain", "i4"),  # next of its bucket
        ("older", "i4"), ("newer", "i4"),  # of its set, of those that were written to or the others, by last use
        ("valid", "u1"), ("dirty", "u1"),  # sectors
        ("missed", "u1"),  # sectors missed before ``turn``
        ("memory", "u1"),  # those of them that memory answers
    ],
    align=True,
)  # fmt: skip
READS, READ_MISSES, READ_PENDING, WRITTEN, WRITE_MISSES, WRITTEN_BACK = range(6)  # requests


class Caches(NamedTuple):
    """C caches of one geometry. ``line`` LINE[C, sets x ways], ``bucket``
    int32[C, B] (heads of chains, -1: none), ``lines`` int32[C, sets] (how many of each set are in use), ``ends``
    int32[C, sets, 2, 2]: of the clean and of the dirty lines of each set, the one that was not used for longest and the
    one that was used last, -1: none. ``counts`` int64[6], as above; ``clock`` int64[1]: uses so far; ``turn`` int64[C],
    or of each slice: the turn now; ``dirty`` int64[C]: lines that were written to. ``leader`` int64[C, lines, sectors]:
    who missed each last, counted on from launch to launch, where this one's begin at ``base`` int64[1]; -1: nobody.
    ``slice_masks`` int64[] and ``slice_shift`` int64[1]: those of gpu/l2/slices.py."""

    line: np.ndarray
    bucket: np.ndarray
    lines: np.ndarray
    ends: np.ndarray
    counts: np.ndarray
    clock: np.ndarray
    turn: np.ndarray
    dirty: np.ndarray
    leader: np.ndarray
    base: np.ndarray
    slice_masks: np.ndarray
    slice_shift: np.ndarray


class CacheRules(NamedTuple):
    """``ways``; ``set_mask`` of the index, in which the bits above ``fold`` take part (63: none do);
    ``merges``: requests that wait for one miss; ``sector_shift`` from a request to its line; ``write`` into WRITES;
    ``dirty_limit`` of lines, below which those that were written to stay."""

    ways: int
    set_mask: int
    fold: int
    merges: int
    sector_shift: int
    write: int
    write_allocate: int
    dirty_limit: int


def cache_rules(cache: GpuCache, size_bytes: int | None = None) -> CacheRules:
    """Of an L1 of ``size_bytes`` (with as many sets), or (None) of all slices of an L2 together, lines spread over the
    sets by their higher bits, too."""
    whole = size_bytes is None
    sets = cache.num_sets * cache.slices if whole else cache.num_sets
    lines = (cache.size_bytes if size_bytes is None else size_bytes) // cache.line_bytes
    sets = 1 << (sets.bit_length() - 1)
    return CacheRules(
        ways=max(1, lines // sets),
        set_mask=sets - 1,
        fold=max(1, sets.bit_length() - 1) if whole else 63,
        merges=min(cache.merges, _MOST_WAITING),
        sector_shift=(cache.line_bytes // cache.sector_bytes).bit_length() - 1,
        write=WRITES.index(cache.write),
        write_allocate=int(cache.write_allocate),
        dirty_limit=round(cache.dirty_share * lines) * (cache.slices if whole else 1),
    )


def caches(
    cache: GpuCache, rules: CacheRules, count: int | None = None, slice_masks: np.ndarray | None = None
) -> Caches:
    """``count`` empty caches, or (None) an L2, whose ``slice_masks`` are those of gpu/l2/slices.py."""
    sets = rules.set_mask + 1
    lines = sets * rules.ways
    number = 1 if count is None else count
    return Caches(
        line=np.empty((number, lines), LINE),
        bucket=np.full((number, 1 << (2 * lines - 1).bit_length()), _NOWHERE, np.int32),
        lines=np.zeros((number, sets), np.int32),
        ends=np.full((number, sets, 2, 2), _NOWHERE, np.int32),
        counts=np.zeros(6, np.int64),
        clock=np.zeros(1, np.int64),
        turn=np.zeros(cache.slices if count is None else count, np.int64),
        dirty=np.zeros(number, np.int64),
        leader=np.empty((number, lines, cache.line_bytes // cache.sector_bytes), np.int64),
        base=np.zeros(1, np.int64),
        slice_masks=np.zeros(0, np.int64) if slice_masks is None else slice_masks,
        slice_shift=np.array([(cache.slices - 1).bit_length() + 1]),
    )


def forget_all(held: Caches) -> None:
    """Empty them."""
    held.bucket[:] = _NOWHERE
    held.lines[:] = 0
    held.ends[:] = _NOWHERE
    held.counts[:] = 0
    held.dirty[:] = 0


@inlined
def forget(held, c):  # type: ignore[no-untyped-def]
    """Empty one of them. O(lines)."""
    held.bucket[c] = _NOWHERE
    held.lines[c] = 0
    held.ends[c] = _NOWHERE
    held.dirty[c] = 0


@inlined
def count_of(sectors):  # type: ignore[no-untyped-def]
    """Sectors of a mask."""
    return _COUNT[sectors]


@inlined
def _bucket(bucket, tag):  # type: ignore[no-untyped-def]
    return (tag ^ (tag >> 9) ^ (tag >> 17)) & (bucket.shape[1] - 1)


@inlined
def _index(rules, tag):  # type: ignore[no-untyped-def]
    return (tag ^ (tag >> rules.fold)) & rules.set_mask


@inlined
def find(held, c, tag):  # type: ignore[no-untyped-def]
    """The frame of a line, -1: none."""
    lines = held.line[c]
    at = held.bucket[c, _bucket(held.bucket, tag)]
    while at >= 0 and lines[at].tag != tag:
        at = lines[at].chain
    return at


@inlined
def _leave(held, rules, c, at):  # type: ignore[no-untyped-def]
    """A line leaves the list that it is in."""
    lines = held.line[c]
    mine = lines[at]
    ends = held.ends[c, _index(rules, mine.tag), 1 if mine.dirty else 0]
    if mine.older >= 0:
        lines[mine.older].newer = mine.newer
    else:
        ends[0] = mine.newer
    if mine.newer >= 0:
        lines[mine.newer].older = mine.older
    else:
        ends[1] = mine.older


@inlined
def _join(held, rules, c, at):  # type: ignore[no-untyped-def]
    """A line is the one of its list that was used last."""
    lines = held.line[c]
    mine = lines[at]
    ends = held.ends[c, _index(rules, mine.tag), 1 if mine.dirty else 0]
    mine.older = ends[1]
    mine.newer = _NOWHERE
    if ends[1] >= 0:
        lines[ends[1]].newer = at
    else:
        ends[0] = at
    ends[1] = at


@inlined
def use(held, rules, c, at):  # type: ignore[no-untyped-def]
    """A line is used."""
    held.clock[0] += 1
    mine = held.line[c, at]
    mine.used = held.clock[0]
    if mine.newer >= 0:
        _leave(held, rules, c, at)
        _join(held, rules, c, at)


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
def mark_dirty(held, rules, c, at, sectors):  # type: ignore[no-untyped-def]
    """Sectors of the line that was used last were written to."""
    line = held.line[c, at]
    if line.dirty == 0 and sectors:
        held.dirty[c] += 1
        _leave(held, rules, c, at)
        line.dirty |= sectors
        _join(held, rules, c, at)
    else:
        line.dirty |= sectors


@inlined
def _oldest(lines, at, turn):  # type: ignore[no-untyped-def]
    """The first of a list that is not on its way, from ``at`` on; -1: none."""
    while at >= 0 and lines[at].turn > turn and lines[at].missed != 0:
        at = lines[at].newer
    return at


@inlined
def _victim(held, rules, c, first, turn, ends):  # type: ignore[no-untyped-def]
    """The line of a full set that makes room, and whether it must be waited for."""
    lines = held.line[c]
    stays = held.dirty[c] < rules.dirty_limit
    clean = _oldest(lines, ends[0, 0], turn)
    dirty = np.int32(-1) if stays else _oldest(lines, ends[1, 0], turn)
    if clean >= 0 or dirty >= 0:
        if dirty < 0 or (clean >= 0 and lines[clean].used < lines[dirty].used):
            return np.int64(clean), False
        return np.int64(dirty), False
    at, written, coming = -1, -1, -1
    for i in range(first, first + rules.ways):
        line = lines[i]
        if line.turn > turn and line.missed != 0:
            if coming < 0 or line.used < lines[coming].used:
                coming = i
        elif stays and line.dirty != 0:
            if written < 0 or line.used < lines[written].used:
                written = i
        elif at < 0 or line.used < lines[at].used:
            at = i
    if at >= 0:
        return at, False
    return (coming, True) if coming >= 0 else (written, False)


@allocation_free
def place(held, rules, c, tag, turn):  # type: ignore[no-untyped-def]
    """The frame that a new line gets, without sectors: of the line of its set that was not used for longest, but for
    those that were missed in ``turn`` or must stay for being written to. And whether it must be waited for, since all
    of its set are on their way. Who missed what was there stands until the frame is filled."""
    lines = held.line[c]
    index = _index(rules, tag)
    first = index * rules.ways
    in_flight = False
    if held.lines[c, index] < rules.ways:
        at = first + held.lines[c, index]
        held.lines[c, index] += 1
    else:
        at, in_flight = _victim(held, rules, c, first, turn, held.ends[c, index])
        _unchain(held, c, at)
        _leave(held, rules, c, at)
        if lines[at].dirty:
            held.dirty[c] -= 1
        if rules.write == BACK:
            held.counts[WRITTEN_BACK] += count_of(lines[at].dirty)
    line = lines[at]
    line.tag = tag
    line.valid = 0
    line.dirty = 0
    line.missed = 0
    line.turn = _NOWHERE
    line.waiting = 0
    bucket = _bucket(held.bucket, tag)
    line.chain = held.bucket[c, bucket]
    held.bucket[c, bucket] = at
    held.clock[0] += 1
    line.used = held.clock[0]
    _join(held, rules, c, at)
    return at, in_flight


@inlined
def _wait(line, rules, pending):  # type: ignore[no-untyped-def]
    """Requests for ``pending`` sectors wait; those of them for which there is no room."""
    waiting = line.waiting + _BYTES[pending]
    full = (waiting + np.uint64(127 - rules.merges) * _BYTES[255]) & (_BYTES[255] << np.uint64(7))
    if not full:
        line.waiting = waiting
        return np.int64(0)
    blocked = np.int64(0)
    for sector in range(8):
        blocked |= np.int64(full >> np.uint64(8 * sector + 7) & np.uint64(1)) << sector
    line.waiting = waiting - _BYTES[blocked]
    return blocked


@inlined
def read(held, rules, c, tag, sectors, which):  # type: ignore[no-untyped-def]
    """Sectors of a line are read in turn ``which``: its frame, and masks of those that are missing (to be ``fill``ed),
    of those that were missed before in the same turn, and of these the ones that memory answers. And of sectors that
    must be waited for, since too many wait for them already or all lines of the set are on their way: the cache does
    nothing until then, which is a turn of its own."""
    at = find(held, c, tag)
    blocked = 0
    if at < 0:
        at, in_flight = place(held, rules, c, tag, held.turn[which])
        if in_flight:
            blocked = sectors
    else:
        use(held, rules, c, at)
    line = held.line[c, at]
    pending = sectors & line.missed if line.turn > held.turn[which] else 0
    missing = sectors & ~line.valid
    if pending:
        held.counts[READ_PENDING] += count_of(pending)
        blocked = _wait(line, rules, pending)
    if missing:
        held.counts[READ_MISSES] += count_of(missing)
    return at, missing, pending, pending & line.memory, blocked


@inlined
def fill(held, c, at, missing, which, from_memory, turns, leader):  # type: ignore[no-untyped-def]
    """Sectors were missed in turn ``which`` by ``leader``, some of them answered by memory; so many turns later they
    are there."""
    line = held.line[c, at]
    turn = held.turn[which]
    if line.turn == _NOWHERE:
        forget_leaders(held, c, at)
    if line.turn <= turn:
        line.missed = 0
        line.memory = 0
    line.turn = turn + turns
    for sector in range(held.leader.shape[2]):
        if missing >> sector & 1:
            held.leader[c, at, sector] = held.base[0] + leader
    line.missed |= missing
    line.valid |= missing
    line.memory |= from_memory
    line.waiting = line.waiting & ~(_BYTES[missing] * np.uint64(255)) | _BYTES[missing]


@inlined
def write(held, rules, c, tag, sectors, full):  # type: ignore[no-untyped-def]
    """Sectors of a line are written, some in ``full``."""
    at = find(held, c, tag)
    count = count_of(sectors)
    held.counts[WRITTEN] += count
    there = 0 if at < 0 else sectors & (held.line[c, at].valid | held.line[c, at].dirty)
    held.counts[WRITE_MISSES] += count - count_of(there)
    if rules.write == EVICT:
        if there:
            held.line[c, at].valid &= ~there
        return
    if at < 0:
        if not rules.write_allocate:
            if rules.write == BACK:
                held.counts[WRITTEN_BACK] += count
            return
        at, _ = place(held, rules, c, tag, _LATER)
        forget_leaders(held, c, at)
    else:
        use(held, rules, c, at)
    held.line[c, at].valid |= full
    mark_dirty(held, rules, c, at, sectors)
