"""Of lines that windows use, how many other lines lie since their last use: one pass over all accesses.

Lines of a spatial sample count (SHARDS: Waldspurger et al., FAST 2015); lines of windows, and those beside them that
show a stream, are followed without counting. When those that count were used last is kept in a Fenwick tree over slots
of time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, inner_inlined

_FILTER_BITS: Final = 18
_SAMPLED_ACCESSES: Final = 1_000_000  # of a program about so many are followed
_MOST_SAMPLING: Final = 64
_GROUP: Final = 8  # lines: what a prefetcher may be ahead
_RUN: Final = 3  # lines one after the other that make a stream
_NEAR: Final = 64.0  # other lines between two of a stream
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)

_STATE: Final = np.dtype([("slot", "i8"), ("sampled", "i8"), ("piece", "i8"), ("now", "i8"), ("window", "i8")])


class Followed(NamedTuple):
    """Lines that are followed. A table of keys ``key`` int64[slots] (-1 free) with ``row`` int32[slots]. Of each row:
    ``last`` int64: the latest slot of time at its last use, ``user`` int64: the instance that used it last, ``sampled``
    int8: whether it counts; ``first_at`` and ``last_at`` int64: its first and last accesses. ``tree`` int32[]: Fenwick
    tree over slots of time, ``live`` int32[]: the row that a slot is the last use of, -1."""

    state: np.ndarray
    key: np.ndarray
    row: np.ndarray
    last: np.ndarray
    user: np.ndarray
    counts: np.ndarray
    first_at: np.ndarray
    last_at: np.ndarray
    tree: np.ndarray
    live: np.ndarray
    wanted: np.ndarray


def distances(
    addresses: np.ndarray, shift: int, first_access: np.ndarray, end_access: np.ndarray, time: np.ndarray,
    owner: np.ndarray, window_time: np.ndarray, window_user: np.ndarray, first_line: np.ndarray, line: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:  # fmt: skip
    """(cold, warm, ahead, is_own) of the lines of windows, and how many lines there are, see MicroProfiles. Pieces run
    in their order: their accesses, ``time`` (accesses before each) and ``owner``, an instance; ``window_time``: when
    the history of each window begins, ``window_user`` its instance. O(accesses + lines of windows x log)."""
    total = int((end_access - first_access).sum())
    every = 1
    while total / every > _SAMPLED_ACCESSES and every < _MOST_SAMPLING:
        every *= 2
    beside = _beside(line)
    unique = np.unique(np.concatenate((line, beside[beside >= 0])))
    order = np.argsort(window_time, kind="stable")
    cold, is_own = np.full(len(line), np.inf, np.float32), np.zeros(len(line), bool)
    ahead = cold.copy()
    slots = 1 << (4 * max(len(unique), 1 << 14)).bit_length()
    followed = _new(unique, slots, every)
    while not _pass(
        followed, addresses, shift, every, first_access, end_access, time, owner, window_time, window_user, order,
        first_line, line, beside, cold, ahead, is_own,
    ):  # fmt: skip
        followed = _larger(followed)
    warm = _around(followed, window_time, first_line, line, cold, every)
    for values in (cold, warm):
        _add_lines_between(first_line, values)
    counted = followed.counts[: followed.state[0]["sampled"]].astype(bool)
    used = int(np.count_nonzero(counted & (followed.first_at[: len(counted)] >= 0)))
    return cold, warm, ahead, is_own, every * used


def _beside(line: np.ndarray) -> np.ndarray:
    """int64[lines, 2, _RUN]: of each line the last lines of the group before its own, and the first of the group
    behind, in the order in which a stream towards it uses them."""
    begin = line - line % _GROUP
    alone = ~(np.isin(line + 1, line) | np.isin(line - 1, line))
    before, behind = begin[:, None] - np.arange(_RUN, 0, -1), begin[:, None] + _GROUP + np.arange(_RUN)[::-1]
    beside = np.stack((before, behind), axis=1)
    beside[alone] = -1  # no stream
    return np.ascontiguousarray(beside)


def _new(unique: np.ndarray, slots: int, every: int) -> Followed:
    rows = slots // 2
    followed = Followed(
        np.zeros(1, _STATE), np.full(slots, -1, np.int64), np.zeros(slots, np.int32), np.full(rows, -1, np.int64),
        np.full(rows, -1, np.int64), np.zeros(rows, np.int8), np.full(rows, -1, np.int64), np.full(rows, -1, np.int64),
        np.zeros(4 * slots + 1, np.int32), np.full(4 * slots, -1, np.int32), np.zeros(1 << _FILTER_BITS, np.int8),
    )  # fmt: skip
    _want(followed, unique, every)
    return followed


def _larger(followed: Followed) -> Followed:
    """With twice the room."""
    rows, slots = len(followed.last), len(followed.key)
    key, row = np.full(2 * slots, -1, np.int64), np.zeros(2 * slots, np.int32)
    _move(followed.key, followed.row, key, row)
    more = np.full(rows, -1, np.int64)
    none = np.zeros(4 * slots, np.int32)
    tree, live = np.zeros(8 * slots + 1, np.int32), np.concatenate((followed.live, none - 1))
    _rebuild(live, tree, followed.counts)
    last, user, first_at, last_at = (
        np.concatenate((each, more)) for each in (followed.last, followed.user, followed.first_at, followed.last_at)
    )
    counts = np.concatenate((followed.counts, np.zeros(rows, np.int8)))
    return Followed(followed.state, key, row, last, user, counts, first_at, last_at, tree, live, followed.wanted)


@inner_inlined
def _hash(line):  # type: ignore[no-untyped-def]
    mixed = np.uint64(line) * _FACTOR
    return mixed ^ (mixed >> np.uint64(32))


@inner_inlined
def _is_sampled(mixed, every):  # type: ignore[no-untyped-def]
    return (mixed >> np.uint64(20)) & np.uint64(every - 1) == 0


@inner_inlined
def _find(key, line, mixed):  # type: ignore[no-untyped-def]
    mask = key.shape[0] - 1
    place = np.int64(mixed & np.uint64(mask))
    while key[place] != line and key[place] >= 0:
        place = (place + 1) & mask
    return place


@inner
def _add_row(followed, place, line, mixed, every):  # type: ignore[no-untyped-def]
    state = followed.state[0]
    followed.key[place], followed.row[place] = line, state.sampled
    followed.counts[state.sampled] = 1 if _is_sampled(mixed, every) else 0
    state.sampled += 1


@allocation_free
def _want(followed, unique, every):  # type: ignore[no-untyped-def]
    followed = by_reference(followed)
    for line in unique:
        mixed = _hash(line)
        followed.wanted[mixed & np.uint64((1 << _FILTER_BITS) - 1)] = 1
        _add_row(followed, _find(followed.key, line, mixed), line, mixed, every)


@allocation_free
def _move(key, row, new_key, new_row):  # type: ignore[no-untyped-def]
    for place in range(key.shape[0]):
        if key[place] >= 0:
            to = _find(new_key, key[place], _hash(key[place]))
            new_key[to], new_row[to] = key[place], row[place]


@allocation_free
def _rebuild(live, tree, counts):  # type: ignore[no-untyped-def]
    """O(slots)"""
    for i in range(tree.shape[0]):
        tree[i] = 0
    for slot in range(live.shape[0]):
        if live[slot] >= 0 and counts[live[slot]]:
            tree[slot + 1] += 1
        parent = slot + 1 + ((slot + 1) & -(slot + 1))
        if parent < tree.shape[0]:
            tree[parent] += tree[slot + 1]


@inner
def _compact(followed):  # type: ignore[no-untyped-def]
    """Times without the slots that are no last use any more. O(slots + rows)."""
    to = np.int64(0)
    for slot in range(followed.state[0].slot):
        row = followed.live[slot]
        if row >= 0:
            followed.live[slot] = -1
            followed.live[to] = row
            followed.last[row] = to
            to += 1
        followed.tree[slot] = to
    for row in range(followed.state[0].sampled):
        if not followed.counts[row] and followed.last[row] >= 0:
            followed.last[row] = followed.tree[followed.last[row]] - 1
    followed.state[0].slot = to
    _rebuild(followed.live, followed.tree, followed.counts)


@inner_inlined
def _change(tree, slot, by):  # type: ignore[no-untyped-def]
    at = slot + 1
    while at < tree.shape[0]:
        tree[at] += by
        at += at & -at


@inner_inlined
def _count_to(tree, slot):  # type: ignore[no-untyped-def]
    """How many lines that count were last used in slots up to ``slot``."""
    total, at = np.int64(0), slot + 1
    while at > 0:
        total += tree[at]
        at -= at & -at
    return total


@inner
def _use(followed, place, line, mixed, every, user, access):  # type: ignore[no-untyped-def]
    """A followed line is used. Amortised O(log slots)."""
    state = followed.state[0]
    if followed.key[place] < 0:
        _add_row(followed, place, line, mixed, every)
    if state.slot == followed.live.shape[0]:
        _compact(followed)
    row = followed.row[place]
    if followed.first_at[row] < 0:
        followed.first_at[row] = access
    followed.user[row], followed.last_at[row] = user, access
    if followed.counts[row]:
        if followed.last[row] >= 0:
            followed.live[followed.last[row]] = -1
            _change(followed.tree, followed.last[row], -1)
        followed.live[state.slot] = row
        _change(followed.tree, state.slot, 1)
        state.slot += 1
    followed.last[row] = state.slot - 1


@inner
def _since(followed, every, total, line):  # type: ignore[no-untyped-def]
    """Lines that count since the last use of a followed line. O(log slots)."""
    row = followed.row[_find(followed.key, line, _hash(line))]
    if followed.first_at[row] < 0:
        return np.inf
    return np.float64(every * (total - _count_to(followed.tree, followed.last[row])))


@inner
def _ask(followed, every, first, end, line, beside, user, cold, ahead, is_own):  # type: ignore[no-untyped-def]
    """Distances of a window's lines when it begins. O(lines x log slots)."""
    total = _count_to(followed.tree, followed.live.shape[0] - 1)
    for k in range(first, end):
        row = followed.row[_find(followed.key, line[k], _hash(line[k]))]
        if followed.first_at[row] >= 0:
            cold[k] = every * (total - _count_to(followed.tree, followed.last[row]))
            is_own[k] = followed.user[row] == user
        for side in range(2):
            found, is_stream = np.inf, True
            for place in range(beside.shape[2]):
                other = np.inf
                if beside[k, side, place] >= 0:
                    other = _since(followed, every, total, beside[k, side, place])
                is_stream = is_stream and other < np.inf and (place == 0 or found - _NEAR <= other <= found)
                found = other
            if is_stream and found < ahead[k]:
                ahead[k] = found


@allocation_free
def _pass(  # type: ignore[no-untyped-def]
    followed, addresses, shift, every, first_access, end_access, time, owner, window_time, window_user, order,
    first_line, line, beside, cold, ahead, is_own,
):  # fmt: skip
    """All accesses in their order: False where there is no room for more lines. O(accesses)."""
    followed = by_reference(followed)
    state = followed.state[0]
    room = followed.last.shape[0] - 2
    while state.piece < first_access.shape[0]:
        user = owner[state.piece]
        state.now = max(state.now, time[state.piece])
        to_access = first_access[state.piece] - time[state.piece]
        end = end_access[state.piece] - to_access
        previous = np.int64(-1)
        while True:
            while state.window < order.shape[0] and window_time[order[state.window]] <= state.now:
                w = order[state.window]
                _ask(
                    followed, every, first_line[w], first_line[w + 1], line, beside, window_user[w], cold, ahead, is_own
                )
                state.window += 1
            if state.now >= end:
                break
            until = end
            if state.window < order.shape[0]:
                until = min(end, window_time[order[state.window]])
            for now in range(state.now, until):
                touched = np.int64(addresses[now + to_access] >> np.uint64(shift))
                if touched == previous:
                    continue
                previous = touched
                mixed = _hash(touched)
                if _is_sampled(mixed, every) or followed.wanted[mixed & np.uint64((1 << _FILTER_BITS) - 1)]:
                    place = _find(followed.key, touched, mixed)
                    if followed.key[place] < 0:
                        if not _is_sampled(mixed, every):
                            continue
                        if state.sampled >= room:
                            state.now = now
                            return False
                    _use(followed, place, touched, mixed, every, user, now)
            state.now = until
        state.piece += 1
    return True


def _around(
    followed: Followed,
    window_time: np.ndarray,
    first_line: np.ndarray,
    line: np.ndarray,
    cold: np.ndarray,
    every: int,
) -> np.ndarray:
    """Warm distances: where there is no use before, lines used after the last use or before the window. O(windows with
    such lines x lines that count)."""
    count = int(followed.state[0]["sampled"])
    mine = np.flatnonzero(followed.counts[:count] & (followed.last_at[:count] >= 0))
    mine = mine[np.argsort(followed.last_at[mine], kind="stable")]
    first_at, last_at = followed.first_at[mine], followed.last_at[mine]
    warm = cold.copy()
    rows = np.zeros(len(line), np.int64)
    _rows_of(followed.key, followed.row, line, rows)
    new = np.isinf(cold)
    owner = np.repeat(np.arange(len(window_time)), np.diff(first_line))
    for w in np.unique(owner[new]).tolist():
        which = first_line[w] + np.flatnonzero(new[first_line[w] : first_line[w + 1]])
        # not in between: used last before that use, and first only after the window began
        outside = np.concatenate(([0], np.cumsum(first_at >= window_time[w])))
        last = followed.last_at[rows[which]]
        between = len(mine) - outside[np.searchsorted(last_at, last, side="right")]
        warm[which] = np.where(last >= 0, every * np.maximum(between, 0), np.inf)
    return warm


@allocation_free
def _rows_of(key, row, line, result):  # type: ignore[no-untyped-def]
    for k in range(line.shape[0]):
        result[k] = row[_find(key, line[k], _hash(line[k]))]


def _add_lines_between(first_line: np.ndarray, distance: np.ndarray) -> None:
    """From distances when a window begins to those at each line's first use in it: lines that it used before, and whose
    own last use is farther away, come on top. O(lines x log)."""
    count = len(distance)
    owner = np.repeat(np.arange(len(first_line) - 1), np.diff(first_line))
    order = np.lexsort((-np.arange(count), -distance, owner))  # of equal ones the later first: it does not count them
    rank = np.zeros(count, np.int64)
    rank[order] = np.arange(count) - first_line[owner[order]]
    _count_farther(first_line, rank, np.zeros(int(np.diff(first_line).max(initial=0)) + 1, np.int64), distance)


@allocation_free
def _count_farther(first_line, rank, tree, distance):  # type: ignore[no-untyped-def]
    """``rank`` int64[lines]: place of each by its distance in its window, the farthest first."""
    for w in range(first_line.shape[0] - 1):
        size = first_line[w + 1] - first_line[w]
        for k in range(size + 1):
            tree[k] = 0
        for k in range(first_line[w], first_line[w + 1]):
            at, more = rank[k], 0
            while at > 0:
                more += tree[at]
                at -= at & -at
            distance[k] += more
            at = rank[k] + 1
            while at <= size:
                tree[at] += 1
                at += at & -at
