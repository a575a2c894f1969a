"""The machines that profile and evaluate, after tables 6.1 and 6.2 of the thesis, with a quarter of their caches.

``profiling`` is like the Core i7 920: L2 of each core, L3 of 8 MiB that all share. ``evaluating`` is like the Xeon
E5320: L2 of 4 MiB that two cores share, and no L3. All cache sizes are a quarter of these (so 2 MiB and 1 MiB), that
working sets beyond them are simulated soon. Latencies (4, 10 and 38 cycles; 3 and 14) and reorder buffers (128 and 96
entries) are those generally given for Nehalem and the Core microarchitecture, as round figures: nothing here was
measured on either. The rest of the cores and the latency of main memory are the target marenostrum3's, the oldest x86
machine that is described; no prefetchers. Main memory has the 25.6 GB/s of three channels of DDR3-1066 (i7 920) or the
8.5 GB/s of the front-side bus (1,066 MT/s of 8 bytes).
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from manyscale.models.machine import Node
from manyscale.runner.study.targets import shipped_targets

_LINE: Final = {"line": "64 B", "ways": 8}
_PROFILING: Final = {
    "L1D": {"size": "8 KiB", "shared_by_cores": 1, "latency": "4 cycles", **_LINE},
    "L2": {"size": "64 KiB", "shared_by_cores": 1, "latency": "10 cycles", **_LINE},
    "L3": {"size": "2 MiB", "latency": "38 cycles", **_LINE, "ways": 16},
}
_EVALUATING: Final = {
    "L1D": {"size": "8 KiB", "shared_by_cores": 1, "latency": "3 cycles", **_LINE},
    "L2": {"size": "1 MiB", "shared_by_cores": 2, "latency": "14 cycles", **_LINE, "ways": 16},
}


def profiling(cores: int) -> Node:
    caches = {
        name: {**cache, "shared_by_cores": cache.get("shared_by_cores", cores)} for name, cache in _PROFILING.items()
    }
    return _node(cores, "2.66 GHz", caches, 128, "25.6 GB/s")


def evaluating(cores: int) -> Node:
    return _node(cores, "1.86 GHz", _EVALUATING, 96, "8.5 GB/s")


def _node(cores: int, frequency: str, caches: dict[str, Any], reorder_buffer: int, bandwidth: str) -> Node:
    base = yaml.safe_load(shipped_targets()["marenostrum3"].read_text())["node"]
    memory = {name: value for name, value in base["main_memory"].items() if name != "dram"}
    memory |= {"bandwidth": bandwidth, "node_bandwidth": bandwidth}
    core = base["core"] | {"reorder_buffer": reorder_buffer, "line_fill_buffers": 10}
    return Node.model_validate(
        base
        | {"cores_per_socket": cores, "frequency": frequency, "caches": caches, "main_memory": memory, "core": core}
    )
