"""Nodes for tests of their memory, and kernels that ask it."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference
from manyscale.models.machine import Node
from manyscale.models.machine.processor import Cache
from manyscale.models.node.memory.kernel import access, read_sets_soon, touch
from manyscale.models.node.memory.system import MemorySystem
from manyscale.models.workload.detail_tables import InstructionClass

_ONE_CYCLE = {"latency": "1 cycle", "reciprocal_throughput": "1 cycle"}
CORE: dict[str, Any] = {
    "width": 4,
    "reorder_buffer": 128,
    "loads_per_cycle": 2,
    "stores_per_cycle": 1,
    "line_fill_buffers": 10,
    "store_to_load": "5 cycles",
    "instructions": {each.name: _ONE_CYCLE for each in InstructionClass},
}
DRAM: dict[str, Any] = {
    "channels": 2,
    "banks": 4,
    "row": "1 KiB",
    "channel_bandwidth": "8 GB/s",  # 8 ns a line
    "activate": "14 ns",
    "access": "14 ns",
    "precharge": "12 ns",
    "row_cycle": "46 ns",
}
MEMORY: dict[str, Any] = {"latency": "100 ns", "bandwidth": "inf B/s"}


def caches(sizes: dict[str, tuple[int, int, int]], **more: dict[str, Any]) -> dict[str, Cache]:
    """Caches by (bytes, ways, cores that share), lines of 64 B, latency 0 if ``more`` of it does not say."""
    return {
        name: Cache.model_validate(
            {"size": f"{size} B", "ways": ways, "shared_by_cores": shared, "line": "64 B", "latency": "0 cycles"}
            | more.get(name, {})
        )
        for name, (size, ways, shared) in sizes.items()
    }


def node(
    num_cores: int,
    levels: dict[str, Cache],
    *,
    sockets: int = 1,
    memory: dict[str, Any] = MEMORY,
    numa: dict[str, Any] | None = None,
    core: dict[str, Any] = CORE,
) -> Node:
    """A node at 1 GHz: a cycle is a nanosecond."""
    return Node.model_validate(
        {
            "sockets": sockets, "cores_per_socket": num_cores // sockets, "frequency": "1 GHz", "caches": levels,
            "main_memory": memory, "core": core, "numa": numa,
        }
    )  # fmt: skip


@allocation_free
def _flow(mem, core, line, is_store, cycle, depth, done):  # type: ignore[no-untyped-def]
    mem = by_reference(mem)
    num_cores = mem.core.shape[0] - 1
    for i in range(line.shape[0]):
        start = cycle[i]
        if depth and i >= depth * num_cores:
            start = max(start, done[i - depth * num_cores])
        done[i] = access(mem, core[i], line[i], is_store[i], start)
        if mem.served[core[i]] > 0 and i + num_cores < line.shape[0]:  # as a core does
            read_sets_soon(mem, core[i], line[i + num_cores])


def flow(
    memory: MemorySystem, core: Any, line: Any, is_store: Any = False, cycle: Any = 0.0, depth: int = 0
) -> np.ndarray:
    """When accesses are done. With ``depth``, cores take turns, and each of them waits for its access ``depth`` turns
    before."""
    shape = np.broadcast_shapes(*(np.shape(each) for each in (core, line, is_store, cycle)))
    shape = shape or (1,)
    given = [
        np.array(np.broadcast_to(each, shape), kind)
        for each, kind in ((core, np.int64), (line, np.int64), (is_store, np.bool_), (cycle, np.float64))
    ]
    done = np.zeros(shape)
    _flow(memory, *given, depth, done)
    return done


def run(memory: MemorySystem, core: Any, line: Any, is_store: Any, cycle: Any) -> np.ndarray:
    """When accesses are done that ask at given cycles."""
    return flow(memory, core, line, is_store, cycle)


@allocation_free
def _touch(mem, core, line, is_store):  # type: ignore[no-untyped-def]
    mem = by_reference(mem)
    for i in range(line.shape[0]):
        touch(mem, core[i], line[i], is_store[i])


def run_touch(memory: MemorySystem, core: np.ndarray, line: np.ndarray, is_store: np.ndarray) -> None:
    """Accesses without time."""
    _touch(memory, core, line, is_store)
