"""Queues of ready task instances by policy, in arrays that are made beforehand.

First in first out, last in first out and work stealing keep linked lists, one per priority and, for work stealing, per
core. Data reuse keeps each instance in three: of the core on which its data lie, of the cores that share that core's
last cache, and of all. Critical path first keeps a heap. An instance stands here as a row of the scheduler's.

Work stealing takes from the first queue that is not empty from a drawn core on, so that no core finds nothing while
there is something (the draws of Blumofe and Leiserson, Scheduling Multithreaded Computations by Work Stealing, J. ACM
46(5), 1999, repeated until one succeeds, at no cost). Draws are hashes of (seed, how many there were before).

By critical path a core that is slower than others takes the instance with the shortest way to the end, so that the
others are there for what is critical (as the runtime system CATS does: Chronaki et al., "Criticality-aware dynamic task
scheduling for heterogeneous architectures", ICS 2015).

Cost: O(1), by critical path O(log ready), on a slower core O(ready); a take also looks at each priority until it finds
an instance, a steal at cores / 64 words.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import count_ones, inner, inner_inlined, seldom, separate
from manyscale.models.kernels.event_heap import event_record, pop, push
from manyscale.models.kernels.hashing import mix
from manyscale.models.node.scheduler.runtime_system import Policy

FIFO, LIFO, WORK_STEALING, CRITICAL_PATH, DATA_REUSE, LEARNED = 0, 1, 2, 3, 4, 5
POLICY_NUMBER: Final[dict[Policy, int]] = {
    "fifo": FIFO,
    "lifo": LIFO,
    "work-stealing": WORK_STEALING,
    "critical-path": CRITICAL_PATH,
    "data-reuse": DATA_REUSE,
    "predicted-critical-path": LEARNED,
}
_ROW_BITS: Final = 32
_ROW: Final = (1 << _ROW_BITS) - 1


class ReadyQueues(NamedTuple):
    """``control``: one record; ``length`` is the number of ready instances. ``bottom_level`` int64[rows]: the longest
    way from an instance's start to the end, filled by whoever knows it."""

    control: np.ndarray
    list: np.ndarray  # records: first, last
    link: np.ndarray  # records: before, after; of row r in its k-th list: r * num_links + k
    occupied: np.ndarray  # uint64[words]: bit of each core whose queue is not empty
    heap: np.ndarray  # of events, see ``_put_in_heap``
    heap_size: np.ndarray
    bottom_level: np.ndarray
    is_slow: np.ndarray  # uint8[cores], of those slower than others; empty where all are alike, or it does not matter


# ``longest``: more than any bottom level
_CONTROL: Final = np.dtype(
    [
        ("policy", "i8"), ("length", "i8"), ("num_levels", "i8"), ("num_cores", "i8"), ("num_groups", "i8"),
        ("order", "i8"), ("longest", "i8"), ("seed", "u8"), ("num_draws", "u8"),
    ]
)  # fmt: skip
_LIST: Final = np.dtype([("first", "i4"), ("last", "i4")])
_LINK: Final = np.dtype([("before", "i4"), ("after", "i4")])


def new_queues(
    policy: Policy, num_rows: int, num_cores: int, num_groups: int, num_levels: int, seed: int, longest: int,
    speed: np.ndarray | None = None,
) -> ReadyQueues:  # fmt: skip
    """Empty queues for rows 0 to ``num_rows`` - 1 of ``num_levels`` priorities, level 0 first. ``longest``: more than
    any bottom level by the times that are known now; what is learned may be longer, up to what fits. Raises ValueError
    where these and the priorities are too large together."""
    number = POLICY_NUMBER[policy]
    is_heap = number in (CRITICAL_PATH, LEARNED)
    if number == LEARNED:
        longest = ((1 << 63) - 1) // num_levels
    elif is_heap and num_levels * longest >= 1 << 63:
        raise ValueError(f"{num_levels} priorities of ways of up to {longest} ps do not fit the policy {policy}")
    is_slow = (speed < speed.max() if is_heap and speed is not None else np.zeros(0)).astype(np.uint8)
    if is_slow.any():
        _take_last_of_heap.want()
    control = np.zeros(1, _CONTROL)
    control["policy"], control["num_levels"], control["num_cores"] = number, num_levels, num_cores
    control["num_groups"], control["seed"] = num_groups, np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
    control["longest"] = longest
    num_lists = 0 if is_heap else {WORK_STEALING: num_cores, DATA_REUSE: num_cores + num_groups + 1}.get(number, 1)
    lists = np.full(num_lists * num_levels, -1, np.int64).view(_LIST)
    num_links = 0 if is_heap else 3 if number == DATA_REUSE else 1
    return ReadyQueues(
        control=control,
        list=lists,
        link=np.zeros(num_rows * num_links, _LINK),
        occupied=np.zeros((num_cores + 63) // 64, np.uint64),
        heap=np.zeros(num_rows if is_heap else 0, event_record(np.dtype(np.int64))),
        heap_size=np.zeros(1, np.int64),
        bottom_level=np.zeros(num_rows if is_heap else 0, np.int64),
        is_slow=is_slow,
    )


@inner_inlined
def lowest_bit(word):  # type: ignore[no-untyped-def]
    """Number of the lowest set bit of a uint64 that is not 0."""
    return np.int64(count_ones((word & (~word + np.uint64(1))) - np.uint64(1)))


@inner_inlined
def _append(queues, which, node):  # type: ignore[no-untyped-def]
    entry = queues.list[which]
    last = entry.last
    queues.link[node].before = last
    queues.link[node].after = -1
    if last < 0:
        entry.first = node
    else:
        queues.link[last].after = node
    entry.last = node


@inner_inlined
def _remove(queues, which, node):  # type: ignore[no-untyped-def]
    entry = queues.list[which]
    before = queues.link[node].before
    after = queues.link[node].after
    if before < 0:
        entry.first = after
    else:
        queues.link[before].after = after
    if after < 0:
        entry.last = before
    else:
        queues.link[after].before = before


@inner_inlined
def put(queues, row, level, core, group):  # type: ignore[no-untyped-def]
    """An instance has become ready. ``core``: that made it ready, of data reuse: where its data lie; its ``group``."""
    control = queues.control[0]
    control.length += 1
    if control.policy <= LIFO:
        _append(queues, level, row)
    else:
        _put_elsewhere(queues, row, level, core, group)


@separate
def _put_elsewhere(queues, row, level, core, group):  # type: ignore[no-untyped-def]
    control = queues.control[0]
    levels = control.num_levels
    if control.policy == WORK_STEALING:
        _append(queues, core * levels + level, row)
        queues.occupied[core >> 6] |= np.uint64(1) << np.uint64(core & 63)
    elif control.policy == DATA_REUSE:
        _append(queues, core * levels + level, 3 * row)
        _append(queues, (control.num_cores + group) * levels + level, 3 * row + 1)
        _append(queues, (control.num_cores + control.num_groups) * levels + level, 3 * row + 2)
    else:
        _put_in_heap(queues, row, level)


@inner_inlined
def take(queues, core, group):  # type: ignore[no-untyped-def]
    """(row, whether it was stolen) of the instance that a core executes next; at least one must be ready."""
    control = queues.control[0]
    control.length -= 1
    if control.policy <= LIFO:
        which = 0
        while queues.list[which].first < 0:
            which += 1
        row = np.int64(queues.list[which].first if control.policy == FIFO else queues.list[which].last)
        _remove(queues, which, row)
        return row, False
    return _take_elsewhere(queues, core, group)


@separate
def _take_elsewhere(queues, core, group):  # type: ignore[no-untyped-def]
    control = queues.control[0]
    levels = control.num_levels
    if control.policy == CRITICAL_PATH or control.policy == LEARNED:
        if queues.is_slow.shape[0] > 0 and queues.is_slow[core]:
            return _take_last_of_heap(queues), False
        return pop(queues.heap, queues.heap_size) & _ROW, False
    if control.policy == WORK_STEALING:
        bit = np.uint64(1) << np.uint64(core & 63)
        owner = core
        if not queues.occupied[core >> 6] & bit:
            owner = _victim(queues.occupied, control)
        return _take_from(queues, owner, owner != core), owner != core
    every = (control.num_cores + control.num_groups) * levels
    level = 0
    while queues.list[every + level].first < 0:
        level += 1
    node = queues.list[core * levels + level].first
    if node < 0:
        node = queues.list[(control.num_cores + group) * levels + level].first
    if node < 0:
        node = queues.list[every + level].first
    return np.int64(node // 3), False


@inner
def remove_reused(queues, row, level, core, group):  # type: ignore[no-untyped-def]
    """Take an instance that `take` found by data reuse out of all its lists; ``core`` and ``group`` as it was put."""
    control = queues.control[0]
    levels = control.num_levels
    _remove(queues, core * levels + level, 3 * row)
    _remove(queues, (control.num_cores + group) * levels + level, 3 * row + 1)
    _remove(queues, (control.num_cores + control.num_groups) * levels + level, 3 * row + 2)


@inner
def _take_from(queues, owner, oldest):  # type: ignore[no-untyped-def]
    """The oldest or the latest of a core's queue that is not empty."""
    first = owner * queues.control[0].num_levels
    which = first
    while queues.list[which].first < 0:
        which += 1
    row = np.int64(queues.list[which].first if oldest else queues.list[which].last)
    _remove(queues, which, row)
    end = first + queues.control[0].num_levels
    while which < end and queues.list[which].first < 0:
        which += 1
    if which == end:
        queues.occupied[owner >> 6] &= ~(np.uint64(1) << np.uint64(owner & 63))
    return row


@inner
def _victim(occupied, control):  # type: ignore[no-untyped-def]
    """The first core from a drawn one on, and round, whose queue is not empty."""
    drawn = np.int64(mix(control.seed, control.num_draws) % np.uint64(control.num_cores))
    control.num_draws += np.uint64(1)
    at = int(drawn >> 6)
    word = occupied[at] & (~np.uint64(0) << np.uint64(drawn & 63))
    while word == 0:
        at += 1
        if at == occupied.shape[0]:
            at = 0
        word = occupied[at]
    return (at << 6) + lowest_bit(word)


@seldom(gives="int")
def _take_last_of_heap(queues):  # type: ignore[no-untyped-def]
    """The ready instance with the shortest way to the end, of those the latest. O(ready)."""
    last = queues.heap_size[0] - 1
    place = last
    for other in range((last + 1) >> 1, last):  # those without others below them
        if queues.heap[other].time > queues.heap[place].time or (
            queues.heap[other].time == queues.heap[place].time and queues.heap[other].number > queues.heap[place].number
        ):
            place = other
    row = queues.heap[place].number & _ROW
    if place < last:
        number, time = queues.heap[last].number, queues.heap[last].time
        queues.heap_size[0] = place
        push(queues.heap, queues.heap_size, number, time)
    queues.heap_size[0] = last
    return row


@inner
def _put_in_heap(queues, row, level):  # type: ignore[no-untyped-def]
    """Its time: the later, the lower the priority and the shorter the way to the end; its number: in which order
    instances became ready, and the row."""
    control = queues.control[0]
    number = (control.order << _ROW_BITS) | row
    push(queues.heap, queues.heap_size, number, level * control.longest - queues.bottom_level[row])
    control.order += 1
