"""Stack distances as plainly as possible, and real streams to compare them on."""

from __future__ import annotations

from pathlib import Path

from manyscale.models.memory.access_stream import Accesses, accesses, sites_of
from manyscale.models.memory.reuse_profile import COLD
from manyscale.models.workload import Workload
from manyscale.runner.readers import lackey

TRACES = Path(__file__).parents[2] / "data" / "detail"


def naive_distances(units: list[int]) -> list[int]:
    """Of an LRU stack that is a list, the latest last. O(accesses distinct)."""
    stack: list[int] = []
    distances = []
    for unit in units:
        if unit in stack:
            place = stack.index(unit)
            distances.append(len(stack) - 1 - place)
            del stack[place]
        else:
            distances.append(COLD)
        stack.append(unit)
    return distances


def whole_stream(workload: Workload, granularity_bytes: int) -> Accesses:
    assert workload.detail is not None
    batch = workload.detail.read_executions(0, int(workload.detail.execution_bounds()[-1]))
    return accesses(batch.block_ids, batch.addresses, sites_of(workload), granularity_bytes)


def traced_stream(name: str, granularity_bytes: int) -> Accesses:
    """A lackey trace of the tests' data."""
    return whole_stream(lackey.read(TRACES / name), granularity_bytes)
