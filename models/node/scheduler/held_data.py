"""What caches still hold of the data of task instances, for the policy data-reuse.

Each core's outermost private cache and each last cache is an LRU list of groups of lines (task_data.py), as long as
their bytes fit: a group that is used becomes the first, and the last ones leave. What an instance writes is stale
elsewhere. So a group is held where no more than the cache's size was used since, which is the stack distance of
Mattson et al. (IBM Systems Journal 9(2), 1970) at the level of tasks: sets, lines that are used in part and the order
inside an instance are left out, and an instance's data count as used when it begins.

Of the ready instances a core takes the one whose data held spare it most time: their bytes, times what a line of memory
takes longer than one of the cache that holds it. Runtime systems score tasks so by the bytes that lie near (the
affinity scheduler of OmpSs: Bueno et al., "Productive Programming of GPU Clusters with OmpSs", IPDPS 2012). Of equal
ones it takes the one that goes by predecessors: first those whose last predecessor ran here, then on a core that shares
the last cache, the oldest first.

Cost: O(data of the instances that are looked at) a take, of which there are up to ``_LOOKED_AT`` of each list; O(data)
a begin. Memory: 12 B a group and cache. Beyond ``_MOST_ENTRIES`` of these only some groups, drawn, are followed, in
caches that are smaller by as much (spatial sampling as of SHARDS: Waldspurger et al., FAST 2015).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import inner, inner_inlined, read_only, seldom
from manyscale.models.kernels.hashing import mix
from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches, needed
from manyscale.models.node.scheduler.task_data import TaskData

_LOOKED_AT: Final = 1024
_MOST_ENTRIES: Final = 1 << 24
_NONE: Final = -1

_ENTRY: Final = np.dtype([("before", "i4"), ("after", "i4"), ("version", "i4")])
_CACHE: Final = np.dtype([("first", "i4"), ("last", "i4"), ("bytes", "i8"), ("size", "i8")])


class HeldData(NamedTuple):
    """``first`` int64[instances + 1], ``group`` int32[], ``is_written`` uint8[], ``size_bytes`` int64[groups]: see
    TaskData. ``version`` int32[groups]: how often each was written. ``entry`` records [caches, groups]: neighbours in
    the list of a cache, and the version that it holds, -1 where the group does not stand in it. ``cache`` records.
    ``private`` and ``shared`` int32[cores]: a core's caches, -1 for none. ``gain`` float64[2]: what a byte spares that
    the private, the last cache holds. All are empty where the data are not known."""

    first: np.ndarray
    group: np.ndarray
    is_written: np.ndarray
    size_bytes: np.ndarray
    version: np.ndarray
    entry: np.ndarray
    cache: np.ndarray
    private: np.ndarray
    shared: np.ndarray
    gain: np.ndarray


def no_data() -> HeldData:
    """Where nothing is known of data."""
    none = np.zeros(0, np.int32)
    return HeldData(
        read_only(np.zeros(0), np.int64), read_only(none, np.int32), read_only(none, np.uint8),
        read_only(none, np.int64), none, np.zeros((0, 0), _ENTRY), np.zeros(0, _CACHE), none, none, np.zeros(2),
    )  # fmt: skip


def new_held(data: TaskData, node: Node, num_cores: int, first_core: int = 0) -> HeldData:
    """Empty caches of cores [first_core, first_core + num_cores). Raises ValueError for a node that lacks a
    parameter."""
    for kernel in (take_held, use_data):
        kernel.want()
    caches = list(data_caches(node.caches).values())
    if not caches:
        return no_data()
    alone = [each for each in caches if each.shared_by_cores == 1]
    last = caches[-1] if caches[-1].shared_by_cores > 1 else None
    none = np.full(num_cores, _NONE)
    private = np.arange(num_cores) if alone else none
    count = num_cores if alone else 0
    sizes = _private_sizes(node, first_core, num_cores) if alone else []
    shared = none
    if last is not None:
        shared = (first_core + np.arange(num_cores)) // last.shared_by_cores - first_core // last.shared_by_cores
        of_shared = np.full(int(shared.max()) + 1, last.size_bytes)
        if alone and last.inclusion == "exclusive":
            np.add.at(of_shared, shared, sizes)
        sizes = [*sizes, *of_shared.tolist()]
    kept, share = _kept(data, len(sizes))
    cache = np.zeros(len(sizes), _CACHE)
    cache["first"] = cache["last"] = _NONE
    cache["size"] = np.rint(np.array(sizes) * share)
    entry = np.zeros((len(sizes), int(kept.max(initial=-1)) + 1), _ENTRY)
    entry["version"] = _NONE
    rows = kept[data.group] >= 0
    first = np.concatenate([[0], np.cumsum(rows)])[data.first]
    return HeldData(
        read_only(first, np.int64), read_only(kept[data.group[rows]], np.int32),
        read_only(data.is_written[rows], np.uint8), read_only(data.size_bytes[kept >= 0], np.int64),
        np.zeros(entry.shape[1], np.int32), entry, cache, private.astype(np.int32),
        np.where(shared >= 0, shared + count, _NONE).astype(np.int32), _gain(node),
    )  # fmt: skip


def _private_sizes(node: Node, first_core: int, num_cores: int) -> list[int]:
    """Of each core the size of its outermost cache that it shares with none."""
    of_kinds = [
        [cache.size_bytes for cache in data_caches(each.caches).values() if cache.shared_by_cores == 1][-1]
        for each in node.of_kinds
    ]
    kinds = node.kind_of_cores or (0,) * (first_core + num_cores)
    return [of_kinds[kind] for kind in kinds[first_core : first_core + num_cores]]


def _kept(data: TaskData, caches: int) -> tuple[np.ndarray, float]:
    """int64[groups]: number of each group that is followed, else -1; and which share of all bytes these are."""
    count = len(data.size_bytes)
    kept = np.ones(count, bool)
    if count * caches > _MOST_ENTRIES:
        drawn = mix.py_func(np.uint64(2), np.arange(count, dtype=np.uint64)) >> np.uint64(11)
        kept = drawn.astype(np.float64) * 2.0**-53 < _MOST_ENTRIES / (count * caches)
    share = float(data.size_bytes[kept].sum() / max(data.size_bytes.sum(), 1))
    return np.where(kept, np.cumsum(kept) - 1, _NONE), share


def _gain(node: Node) -> np.ndarray:
    """Picoseconds of a line, beside each other, not of a byte: only their ratio counts."""
    caches = list(data_caches(node.caches).values())
    main = needed(node.main_memory, "node.main_memory")
    cycle_ps = 1e12 / needed(node.frequency_hz, "node.frequency")
    latency = [needed(each.latency_cycles, "latency") * cycle_ps for each in caches if each.shared_by_cores == 1]
    near = latency[-1] if latency else 0.0
    return main.latency_ps - np.array([near, needed(caches[-1].latency_cycles, "latency") * cycle_ps])


@inner_inlined
def _unlink(held, cache, group):  # type: ignore[no-untyped-def]
    """A group leaves the list of a cache."""
    entry, me = held.entry[cache, group], held.cache[cache]
    if entry.before < 0:
        me.first = entry.after
    else:
        held.entry[cache, entry.before].after = entry.after
    if entry.after < 0:
        me.last = entry.before
    else:
        held.entry[cache, entry.after].before = entry.before
    entry.version = _NONE
    me.bytes -= held.size_bytes[group]


@inner
def _use(held, cache, group):  # type: ignore[no-untyped-def]
    """A core has used a group: it is the first in the list of a cache of its. Amortised O(1)."""
    entry, me = held.entry[cache, group], held.cache[cache]
    if entry.version >= 0:
        _unlink(held, cache, group)
    size = held.size_bytes[group]
    if size > me.size:  # no line of it is left when it is used again
        return
    entry.version = held.version[group]
    entry.before = _NONE
    entry.after = me.first
    if me.first >= 0:
        held.entry[cache, me.first].before = group
    else:
        me.last = group
    me.first = group
    me.bytes += size
    while me.bytes > me.size:
        _unlink(held, cache, me.last)


@inner
def _begin(sch, core, row):  # type: ignore[no-untyped-def]
    """A core begins an instance: its data are in the core's caches from now on, and what it writes in no others."""
    held = sch.held
    instance = row + sch.node[0].base
    for k in range(held.first[instance], held.first[instance + 1]):
        group = np.int64(held.group[k])
        held.version[group] += held.is_written[k]
        if held.private[core] >= 0:
            _use(held, held.private[core], group)
        if held.shared[core] >= 0:
            _use(held, held.shared[core], group)


@seldom(gives="nothing")
def use_data(sch, core, row):  # type: ignore[no-untyped-def]
    """A core begins a chunk, see ``_begin``."""
    _begin(sch, core, row)


@inner
def _spared(held, core, instance):  # type: ignore[no-untyped-def]
    """What the data of an instance that caches hold spare a core."""
    spared = 0.0
    private, shared = held.private[core], held.shared[core]
    for k in range(held.first[instance], held.first[instance + 1]):
        group = held.group[k]
        if private >= 0 and held.entry[private, group].version == held.version[group]:
            spared += held.gain[0] * held.size_bytes[group]
        elif shared >= 0 and held.entry[shared, group].version == held.version[group]:
            spared += held.gain[1] * held.size_bytes[group]
    return spared


@seldom(gives="int")
def take_held(sch, core):  # type: ignore[no-untyped-def]
    """The ready instance that a core takes and begins, of the highest priority there is; it stands in lists still."""
    queues, held = sch.queues, sch.held
    control = queues.control[0]
    control.length -= 1
    levels = control.num_levels
    every = (control.num_cores + control.num_groups) * levels
    level = 0
    while queues.list[every + level].first < 0:
        level += 1
    best, most = np.int64(-1), -1.0
    for k in range(3):
        which = core
        if k == 1:
            which = control.num_cores + sch.core[core].group
        elif k == 2:
            which = control.num_cores + control.num_groups
        node = np.int64(queues.list[which * levels + level].first)
        looked = 0
        while node >= 0 and looked < _LOOKED_AT:
            row = node // 3
            spared = _spared(held, core, row + sch.node[0].base)
            if spared > most:
                best, most = row, spared
            node = np.int64(queues.link[node].after)
            looked += 1
    _begin(sch, core, best)
    return best
