"""Caches and main memory that the cores of one node share, with time: what ``memory_kernel`` works on.

``new_memory_system`` makes it of a machine's Node. Parameters are those of ``models.processor``. What is simulated of
them: LRU, write-back and write-allocate caches whose lines have one size and no sectors; inclusive and exclusive ones,
those that promise neither; prefetchers; coherence; line fill buffers; bandwidths; main memory with or without DRAM;
sockets. TLBs are left out. Other kinds of caches are refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.machine.processor import Cache, Core, MainMemory, data_caches, needed
from manyscale.models.node.memory import dram
from manyscale.models.node.memory.cache_rows import COMING, EMPTY, NUM_COMING
from manyscale.models.node.memory.directory import new_directory
from manyscale.models.node.memory.reservations import new_reservations

SERVED, MISSED, WRITTEN_BACK, INVALIDATED = 0, 1, 2, 3  # third index of ``MemorySystem.counts``
MOST_CORES: Final = 1024
PLAIN_PAGE_BYTES: Final = 4096  # of memory that lies in several sockets, none further than the others

LEVEL: Final = np.dtype(
    [
        ("sets", "i8"), ("ways", "i8"), ("mask", "i8"),  # sets - 1 if that is a power of two, else -1
        ("first", "i8"), ("slots", "i8"),  # first slot; slots of each instance
        ("cores", "i8"), ("instances", "i8"),  # cores that share an instance
        ("inclusive", "i8"), ("exclusive", "i8"),
        ("latency", "f8"), ("core_cycles", "f8"), ("shared_cycles", "f8"),  # a line's; 0: without limit
        ("core_resource", "i8"), ("shared_resource", "i8"),  # of core 0, of instance 0
        ("first_stream", "i8"), ("streams", "i8"), ("confirm", "i8"), ("degree", "i8"), ("distance", "i8"),
        ("page_shift", "i8"),
    ]
)  # fmt: skip
CORE: Final = np.dtype([("group", "i8"), ("socket", "i8"), ("place", "i8"), ("first_level", "i8")])
MEMORY: Final = np.dtype(
    [
        ("levels", "i8"), ("private", "i8"), ("groups", "i8"),  # the first ``private`` levels belong to one group each
        ("group_cores", "i8"), ("first_core", "i8"), ("cores", "i8"), ("buffers", "i8"), ("writes_aside", "i8"),
        ("latency", "f8"), ("reach", "f8"),  # until a request is there
        ("channels", "i8"), ("banks", "i8"), ("row_shift", "i8"),  # log2 of a row's lines
        ("channel_shift", "i8"), ("bank_shift", "i8"),  # log2, -1 if no power of two
        ("activate", "f8"), ("precharge", "f8"), ("row_cycle", "f8"), ("after_activate", "f8"),
        ("channel_cycles", "f8"), ("channel_resource", "i8"), ("bank_resource", "i8"),
        ("sockets", "i8"), ("has_numa", "i8"), ("first_touch", "i8"), ("page_shift", "i8"),
        ("numa_latency", "f8"), ("link_cycles", "f8"), ("link_resource", "i8"),
    ]
)  # fmt: skip
STREAM: Final = np.dtype([("page", "i8"), ("line", "i8"), ("step", "i8"), ("ahead", "i8")])


class MemorySystem(NamedTuple):
    """State, and what was counted.

    ``served`` int64[cores + 1]: what served a core's last access: the number of a cache, nearest 0; the number of
    caches for main memory, one more for another core's cache or another socket's memory. ``counts``
    int64[cores + 1, levels + 2, 4]: by core and what served as above: lines that were served there, missed there,
    written back from there, and taken from there since a core elsewhere stored (by the core that lost it). A line from
    elsewhere counts as served by the nearest level that both share, or main memory, too. The last core is where what is
    not counted goes.
    """

    tag: np.ndarray  # all levels', level by level, instance by instance, set by set: ``cache_rows``
    ready: np.ndarray  # beside tags of the first level
    coming: np.ndarray  # records: of other levels
    first_slot: np.ndarray  # [cores, levels]: of the instance that the core uses
    level: np.ndarray  # records, of each kind of cores; the last of these is main memory
    core: np.ndarray  # records
    memory: np.ndarray  # record
    counts: np.ndarray
    served: np.ndarray
    buffer_free: np.ndarray  # [cores, buffers]: when each line fill buffer is free, ascending
    taken: np.ndarray  # see ``reservations``
    directory: np.ndarray
    bank: np.ndarray  # records
    home: np.ndarray  # of pages: socket
    stream: np.ndarray  # records, of prefetchers, those of an instance in order of use


def new_memory_system(
    node: Node, num_cores: int, *, first_core: int = 0, most_lines: int | None = None
) -> MemorySystem:
    """Empty caches for cores [first_core, first_core + num_cores) of a node; cores fill sockets in order, and a level
    of ``shared_by_cores`` n serves n consecutive ones. ``most_lines``: how many different lines will be asked for at
    most, prefetched ones included, if that is known; the directory is no larger than they need. Raises ValueError for
    what a node does not say, cannot be, or is not simulated. Memory: 8 B per line of all caches, 40 to 72 B more per
    line of private ones, 8 KiB per channel, bank, link and limited bandwidth of a core or cache."""
    kinds = _kinds(node, first_core, num_cores)
    for each in kinds.nodes:
        _check(data_caches(each.caches), each, num_cores, first_core)
    levels = list(data_caches(kinds.nodes[0].caches).values())
    line_bytes = needed(levels[0].line_bytes, "line")
    frequency = needed(node.frequency_hz, "frequency", "node: ")
    main = needed(node.main_memory, "main_memory", "node: ")
    cores = [needed(each.core, "core", "node: ") for each in kinds.nodes]
    cycles_per_ps = frequency / 1e12
    level, num_slots, num_streams, num_resources = _levels(kinds, main, num_cores, first_core, cycles_per_ps)
    memory = np.zeros(1, MEMORY)
    first = memory[0]
    first["levels"], first["cores"], first["first_core"] = len(levels), num_cores, first_core
    first["group_cores"] = levels[0].shared_by_cores
    first["groups"] = level["instances"][0]
    first["private"] = sum(each.shared_by_cores == levels[0].shared_by_cores for each in levels)
    first["buffers"] = max(core.line_fill_buffers for core in cores)
    first["writes_aside"] = _writes_aside(cores)
    reach = float(level["latency"][len(levels) - 1])
    num_resources = _main_memory(first, node, main, line_bytes, cycles_per_ps, num_resources, reach)
    rows = len(levels) + 1
    _check_private(first, level[: first["private"]], list(data_caches(node.caches)))
    number = np.arange(first_core, first_core + num_cores)
    group = number // levels[0].shared_by_cores
    of_kind = [len(np.unique(group[kinds.kind == kind])) for kind in range(len(kinds.nodes))]
    num_private = 1
    if first["groups"] > 1:
        private = [level["slots"][kind * rows : kind * rows + first["private"]] for kind in range(len(kinds.nodes))]
        num_private = sum(int(slots.sum()) * count for slots, count in zip(private, of_kind, strict=True))
    if most_lines is not None:
        num_private = min(num_private, max(most_lines, 1))
    own = level[kinds.kind[:, None] * rows + np.arange(len(levels))]
    instance = number[:, None] // own["cores"] - first_core // own["cores"]
    of_core = np.zeros(num_cores + 1, CORE)
    of_core["group"][:-1], of_core["socket"][:-1] = instance[:, 0], number // node.cores_per_socket
    of_core["place"] = np.arange(num_cores + 1)
    of_core["first_level"][:-1] = kinds.kind * rows
    buffer_free = np.zeros((num_cores, first["buffers"]))
    for core, kind in enumerate(kinds.kind.tolist()):
        buffer_free[core, cores[kind].line_fill_buffers :] = np.inf  # never free: it has fewer than others
    bank = np.zeros(max(1, first["sockets"] * first["channels"] * first["banks"]), dram.BANK)
    bank["row"] = dram.CLOSED
    stream = np.zeros(max(1, num_streams), STREAM)
    stream["page"] = -1
    return MemorySystem(
        tag=np.full(num_slots, EMPTY),
        ready=np.zeros(sum(int(level["slots"][kind * rows]) * count for kind, count in enumerate(of_kind))),
        coming=np.zeros(NUM_COMING, COMING),
        first_slot=own["first"] + instance * own["slots"],
        level=level,
        core=of_core,
        memory=memory,
        counts=np.zeros((num_cores + 1, len(levels) + 2, 4), np.int64),
        served=np.zeros(num_cores + 1, np.int64),
        buffer_free=buffer_free,
        taken=new_reservations(num_resources),
        directory=new_directory(num_private, int(first["groups"])),
        bank=bank,
        home=np.full(dram.HOMES if first["sockets"] > 1 and first["first_touch"] else 1, dram.UNTOUCHED, np.int8),
        stream=stream,
    )


class _Kinds(NamedTuple):
    """``nodes`` as if all cores were of one kind, of each that the cores have; ``kind`` int64[cores]: which of them.
    ``clock`` of each: cycles of the node for one of its cores."""

    nodes: list[Node]
    kind: np.ndarray
    clock: list[float]


def _kinds(node: Node, first_core: int, num_cores: int) -> _Kinds:
    every = node.of_kinds
    of_cores = np.array(node.kind_of_cores or [0] * node.num_cores, np.int64)
    used, kind = np.unique(of_cores[first_core : first_core + num_cores], return_inverse=True)
    nodes = [every[number] for number in used.tolist()] or [every[0]]
    return _Kinds(nodes, kind, [clock_of(node, each) for each in nodes])


def clock_of(node: Node, kind: Node) -> float:
    """Cycles of a node for one of cores of a kind."""
    if node.frequency_hz is None or kind.frequency_hz is None or node.frequency_hz == kind.frequency_hz:
        return 1.0
    return node.frequency_hz / kind.frequency_hz


def _writes_aside(cores: list[Core]) -> bool:
    """Raises ValueError where kinds differ."""
    found = {core.writes_back_aside for core in cores}
    if len(found) > 1:
        raise ValueError("core_kinds: core: writes_back_aside is the same for all kinds where memory is simulated")
    return found.pop()


def _levels(
    kinds: _Kinds, main: MainMemory, num_cores: int, first_core: int, cycles_per_ps: float
) -> tuple[np.ndarray, int, int, int]:
    """Records of levels and main memory, of each kind of cores; numbers of slots, streams and resources. Places of a
    level are counted from where its instance 0 would lie, if all were of the kind."""
    of_kinds = [data_caches(each.caches) for each in kinds.nodes]
    names = list(of_kinds[0])
    rows = np.zeros((len(of_kinds), len(names) + 1), LEVEL)
    num_slots = num_streams = num_resources = 0
    number = np.arange(first_core, first_core + num_cores)
    nearest = of_kinds[0][names[0]].shared_by_cores
    for k, name in enumerate(names):
        for kind, caches in enumerate(of_kinds):
            cache, row = caches[name], rows[kind, k]
            shared = cache.shared_by_cores
            if kind and shared != nearest:  # all kinds have it in common
                rows[kind, k] = rows[0, k]
                continue
            line = needed(cache.line_bytes, "line")
            sets, ways = cache.num_sets, needed(cache.ways, "ways")
            instances = (first_core + num_cores - 1) // shared - first_core // shared + 1
            mine = np.unique(number[kinds.kind == kind] // shared - first_core // shared)
            first, count = (int(mine[0]), len(mine)) if shared == nearest else (0, instances)
            row["sets"], row["ways"], row["mask"] = sets, ways, sets - 1 if sets & (sets - 1) == 0 else -1
            row["first"], row["slots"] = num_slots - first * sets * ways, sets * ways
            row["cores"], row["instances"] = shared, instances
            num_slots += count * sets * ways
            row["inclusive"], row["exclusive"] = cache.inclusion == "inclusive", cache.inclusion == "exclusive"
            clock = kinds.clock[kind] if shared == nearest else 1.0
            row["latency"] = needed(cache.latency_cycles, "latency", f"{name}: ") * clock
            if k:  # how often the first level is read is the core's matter
                row["core_cycles"] = line * (cache.ps_per_byte or 0.0) * cycles_per_ps
                row["shared_cycles"] = line * (cache.shared_ps_per_byte or 0.0) * cycles_per_ps
            if row["core_cycles"]:
                row["core_resource"] = num_resources
                num_resources += num_cores
            if row["shared_cycles"]:
                row["shared_resource"] = num_resources
                num_resources += instances
            if cache.prefetcher is not None:
                row["first_stream"] = num_streams - first * cache.prefetcher.streams
                row["streams"] = cache.prefetcher.streams
                row["confirm"], row["degree"] = cache.prefetcher.confirm, cache.prefetcher.degree
                row["distance"] = cache.prefetcher.distance
                row["page_shift"] = (cache.prefetcher.page_bytes // line).bit_length() - 1
                num_streams += count * cache.prefetcher.streams
    memory = rows[0, -1]
    memory["latency"] = main.latency_ps * cycles_per_ps
    memory["instances"], memory["cores"] = 1, num_cores
    if main.dram is None and main.ps_per_byte:
        memory["core_cycles"] = int(line) * main.ps_per_byte * cycles_per_ps
        memory["core_resource"] = num_resources
        num_resources += num_cores
    rows[1:, -1] = memory
    return rows.ravel(), num_slots, num_streams, num_resources


def _main_memory(
    memory: np.void, node: Node, main: MainMemory, line: int, cycles_per_ps: float, num_resources: int, reach: float
) -> int:
    """Fill in what concerns main memory and sockets: the number of resources, now with its."""
    sockets = memory["sockets"] = node.sockets
    memory["latency"], memory["reach"] = main.latency_ps * cycles_per_ps, reach
    memory["channel_resource"] = num_resources
    if main.dram is not None:
        part = main.dram
        memory["channels"], memory["banks"] = part.channels, part.banks
        if part.row_bytes < line:
            raise ValueError(f"dram: row: {part.row_bytes} B hold no line of {line} B")
        memory["row_shift"] = (part.row_bytes // line).bit_length() - 1
        memory["channel_shift"], memory["bank_shift"] = _shift(part.channels), _shift(part.banks)
        memory["activate"], memory["precharge"] = part.activate_ps * cycles_per_ps, part.precharge_ps * cycles_per_ps
        memory["row_cycle"] = part.row_cycle_ps * cycles_per_ps
        memory["after_activate"] = memory["latency"] - memory["activate"] - reach
        memory["channel_cycles"] = line * part.channel_ps_per_byte * cycles_per_ps
        num_resources += sockets * part.channels
        memory["bank_resource"] = num_resources
        num_resources += sockets * part.channels * part.banks
    else:
        memory["channel_cycles"] = line * (main.node_ps_per_byte or 0.0) * cycles_per_ps * sockets
        num_resources += sockets
    page = PLAIN_PAGE_BYTES
    if node.numa is not None:
        memory["has_numa"], memory["first_touch"] = 1, node.numa.pages == "first-touch"
        memory["numa_latency"] = node.numa.latency_ps * cycles_per_ps
        memory["link_cycles"] = line * node.numa.ps_per_byte * cycles_per_ps
        memory["link_resource"] = num_resources
        num_resources += sockets
        page = node.numa.page_bytes
    if page < line or page & (page - 1):
        raise ValueError(f"numa: page: {page} B is no power of two of at least a line of {line} B")
    memory["page_shift"] = (page // line).bit_length() - 1
    return num_resources


def _shift(number: int) -> int:
    """log2 of a power of two, -1 of other numbers."""
    return number.bit_length() - 1 if number & (number - 1) == 0 else -1


def _check(caches: dict[str, Cache], node: Node, num_cores: int, first_core: int) -> None:
    """Raises ValueError for what is not simulated."""
    if not caches:
        raise ValueError("caches: the node has none; add at least one level to the machine")
    if num_cores < 1 or first_core < 0 or first_core + num_cores > node.num_cores:
        last = first_core + num_cores - 1
        raise ValueError(f"cores {first_core} to {last} are not all of the node's {node.num_cores}")
    if num_cores > MOST_CORES:
        raise ValueError(f"{num_cores} cores of a node are not simulated with time; {MOST_CORES} at most")
    nearer: Cache | None = None
    for name, cache in caches.items():
        line, ways = needed(cache.line_bytes, "line", f"{name}: "), needed(cache.ways, "ways", f"{name}: ")
        first_line = line if nearer is None else needed(nearer.line_bytes, "line")
        kinds = {
            f"replacement {cache.replacement}": cache.replacement != "lru" and ways > 1,
            "sectors": cache.sector_bytes not in (None, line),
            "write-through": cache.write != "write-back",
            "write_allocate: false": not cache.write_allocate,
            f"lines of {line} B after {first_line} B": line != first_line,
        }
        for kind, is_so in kinds.items():
            if is_so:
                known = "only LRU, write-back, write-allocate, lines of one size"
                raise ValueError(f"{name}: {kind}: not simulated with time; {known}")
        if nearer is None and cache.inclusion == "exclusive":
            raise ValueError(f"{name}: the first level cannot be exclusive: no nearer level hands it lines")
        if nearer is not None and cache.shared_by_cores % nearer.shared_by_cores:
            raise ValueError(
                f"{name}: shared by {cache.shared_by_cores} cores, the level before by {nearer.shared_by_cores}; the "
                "first must be a multiple of the second"
            )
        if cache.prefetcher is not None and cache.inclusion == "exclusive":
            raise ValueError(f"{name}: an exclusive level cannot prefetch: only nearer levels hand it lines")
        page = line if cache.prefetcher is None else cache.prefetcher.page_bytes
        if page < line or page & (page - 1):
            raise ValueError(f"{name}: the prefetcher's page is no power of two of at least a line")
        nearer = cache


def _check_private(memory: np.void, private: np.ndarray, names: list[str]) -> None:
    """Raises ValueError for private levels that the directory cannot follow."""
    for name, row in zip(names, private, strict=False):
        if memory["groups"] > 1 and row["exclusive"]:
            raise ValueError(f"{name}: private and exclusive: not simulated with time for several cores; say neither")
