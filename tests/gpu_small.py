"""A small GPU whose cycles can be worked out by hand, and launches for it."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpu_programs import (
    integer,
    launch,
    load,
    load_shared,
)

from manyscale.models.gpu import detailed
from manyscale.models.gpu.parameters import UNITS, Gpu

BEGIN, END = 2, 1
PIPELINE, FRONT = 4, 2  # of it before a unit
LATENCY = 6  # of a unit
DEPENDENT = LATENCY + PIPELINE
SHARED, L1, L2, DRAM = 20, 30, 100, 150  # latencies of the parameters
L1_HIT = FRONT + 1 + L1
MISS = L2 + 7  # from a miss in L1 to its fill: out 1, crossbar 2, lookup in L2 1, reply 1, in 2
WRITEBACK = 2  # from L1 to a register
L2_HIT = L1_HIT + MISS + WRITEBACK
DRAM_QUEUES = 4
FROM_DRAM = L2_HIT + DRAM + DRAM_QUEUES
PAST_L1 = L2_HIT - L1 - 1  # without its lookup
SCHEDULERS = 4
LINE = 4  # sectors


def gpu(**changes: Any) -> Gpu:
    """One SM; changes of a group are added to it."""
    content: dict[str, Any] = {
        "sms": 1, "frequency": "1 GHz", "compute_capability": 80, "warps": 32, "threads": 1024, "blocks": 8,
        "registers": 65536, "schedulers": SCHEDULERS, "pipeline": f"{PIPELINE} cycles",
        "units": {name: {"latency": f"{LATENCY} cycles", "interval": "1 cycle"} for name in UNITS},
        "shared_memory": {"size": "64 KiB", "latency": f"{SHARED} cycles"},
        "l1": {"size": "16 KiB", "ways": 4, "latency": f"{L1} cycles", "mshrs": 1024, "merges": 8, "banks": 4,
               "write": "through"},
        "l2": {"size": "256 KiB", "ways": 8, "latency": f"{L2} cycles", "mshrs": 1024, "merges": 8, "slices": 2,
               "write": "back", "kept_between_launches": True},
        "dram": {"channels": 1, "bandwidth": "32 GB/s", "latency": f"{DRAM} cycles"},
    }  # fmt: skip
    for name, value in changes.items():
        content[name] = {**content.get(name, {}), **value} if isinstance(value, dict) else value
    return Gpu.model_validate(content)


def run(blocks, target=None, memory=None, **of_launch):
    return detailed.simulate(launch(blocks, **of_launch), target or gpu(), memory)[0]


def cycles(blocks, target=None, memory=None, **of_launch):
    return run(blocks, target, memory, **of_launch).busy_cycles


def read_before(sectors, target):
    """L2 after a launch that read these."""
    return detailed.simulate(launch([[[load(10 + i % 100, sector) for i, sector in enumerate(sectors)]]]), target)[1]


def chain(count, of=integer):
    return [of(2, 2)] * count


def independent(count, of=integer):
    return [of(10 + i % 100, 200) for i in range(count)]


def lines(count, first=0):
    """A sector of each of so many lines, which fall into all banks of L1."""
    return [LINE * line + line % 4 for line in range(first, first + count)]


def chased(sectors, **more):
    """Loads whose address is what the one before read."""
    return [load(2, sector, source=2, **more) for sector in sectors]


def shared_chain(words, count):
    return [dataclasses.replace(load_shared(2, words), sources=(2,))] * count
