"""What a run took of the machine that it ran on."""

from __future__ import annotations

import resource
import time

from manyscale.runner.system import peak_memory_bytes


class HostTime:
    """Wall time, CPU time (children included) and peak memory of this process since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()

    def figures(self) -> dict[str, float]:
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "wall_seconds": time.perf_counter() - self._wall,
            "cpu_seconds": own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,
            "peak_memory_bytes": max(peak_memory_bytes(own), peak_memory_bytes(children)),
        }
