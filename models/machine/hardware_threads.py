"""Threads of a core that execute at once: what is left of the core for each of them.

They are taken to be alike, and always at work. Of all that they share each has an equal part then: of slots of the
front end and of units, of buffers (as cores divide them, or as equal claims do), of bandwidth, and of caches and TLBs.
Between two uses of a line by a thread, each other thread brings as many lines, so that a distance D is one of n D in
the cache that they share (SDCM on interleaved streams), and a cache of an n-th of the lines hits as often: fewer sets.
Latencies stay as they are.
"""

from __future__ import annotations

from manyscale.models.machine import Node
from manyscale.models.machine.processor import Cache, Core, Tlb


def of_one_thread(node: Node) -> Node:
    """The node as one of the threads of each of its cores finds it. What is no rate stays whole: the core's width and
    the window that it fetches, which models divide by ``core.hardware_threads``. Never of its own result."""
    core = node.core
    if core is None or core.hardware_threads == 1:
        return node
    number = core.hardware_threads
    memory = node.main_memory
    return node.model_copy(
        update={
            "core": _core(core, number),
            "caches": {name: _cache(cache, number) for name, cache in node.caches.items()},
            "tlbs": {name: _tlb(tlb, number) for name, tlb in node.tlbs.items()},
            "main_memory": memory and memory.model_copy(update={"ps_per_byte": memory.ps_per_byte * number}),
        }
    )


def _core(core: Core, number: int) -> Core:
    buffers = ("reorder_buffer", "load_buffer", "store_buffer", "line_fill_buffers", "vector_registers")
    rates = (
        "loads_per_cycle", "stores_per_cycle", "vector_loads_per_cycle", "vector_stores_per_cycle",
        "accesses_per_cycle", "string_bytes_per_cycle", "forwarded_loads_per_cycle",
    )  # fmt: skip
    parts = {name: max(1, size // number) for name in buffers if (size := getattr(core, name))}
    parts |= {name: rate / number for name in rates if (rate := getattr(core, name))}
    costs = {
        name: cost.model_copy(update={"reciprocal_throughput_cycles": cost.reciprocal_throughput_cycles * number})
        for name, cost in core.instructions.items()
    }
    return core.model_copy(update={**parts, "instructions": costs})


def _cache(cache: Cache, number: int) -> Cache:
    rate = cache.ps_per_byte
    update: dict[str, object] = {"ps_per_byte": None if rate is None else rate * number}
    if cache.line_bytes is not None and cache.ways is not None:
        sets, ways = _part(cache.num_sets, cache.ways, number)
        update |= {"size_bytes": sets * ways * cache.line_bytes, "ways": ways}
    return cache.model_copy(update=update)


def _tlb(tlb: Tlb, number: int) -> Tlb:
    sets, ways = _part(tlb.entries // tlb.ways, tlb.ways, number)
    return tlb.model_copy(update={"entries": sets * ways, "ways": ways})


def _part(sets: int, ways: int, number: int) -> tuple[int, int]:
    """Of sets, where there are enough, else of ways."""
    return (sets // number, ways) if sets >= number else (sets, max(1, ways // number))
