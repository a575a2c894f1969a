"""What it costs to outgrow a cache, against a chase whose time is known: a load that waits for the one before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from manyscale.models.memory.access_stream import sites_of
from manyscale.models.memory.reuse_profile import COLD, ReuseProfile
from manyscale.models.workload import SCHEMAS, Workload
from manyscale.models.workload.detail_tables import InstructionClass as Kind
from manyscale.runner.predict.memory.outgrown import Outgrown, predict_outgrown
from manyscale.runner.predict.memory.stream_units import ProgramStreams

LOADS = 1000
COSTS = {kind.name: {"latency": "1 cycle", "reciprocal_throughput": "0.25 cycles"} for kind in Kind}


class Round:
    """A chase around 8 lines, as a traced stream."""

    num_accesses = LOADS

    def pieces(self, chunks: int) -> list[tuple[int, int]]:
        return [(0, LOADS // 2), (LOADS // 2, LOADS)]

    def read(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(end - first, np.int32), (np.arange(first, end) % 8 * 64).astype(np.uint64)


def chase() -> Workload:
    block = {"function": "f", "file": "", "line": 0, "module": "m", "offset": 0, "is_entry": False}
    rows: dict[str, list[dict[str, Any]]] = {
        "blocks": [block | {"num_instructions": 1}],
        "instructions": [
            {"block_id": 0, "instruction_class": int(Kind.move), "lanes": 1, "sources": (7,), "destinations": (7,)}
        ],
        "block_accesses": [dict(zip(SCHEMAS["block_accesses"].names, (0, 0, False, 8), strict=True))],
    }
    tables = {level: pa.Table.from_pylist(rows.get(level, []), schema) for level, schema in SCHEMAS.items()}
    return Workload("made", 1, tables)


def node() -> dict[str, Any]:
    """4, 14 and 50 cycles of 1 ns; caches of 64 and 1024 lines, each one set."""
    core = {
        "width": 4, "reorder_buffer": 64, "loads_per_cycle": 2.0, "stores_per_cycle": 1.0, "line_fill_buffers": 8,
        "store_to_load": "5 cycles", "instructions": COSTS,
    }  # fmt: skip
    caches = {
        name: {
            "line": "64 B",
            "ways": ways,
            "size": f"{64 * ways} B",
            "latency": f"{cycles} cycles",
            "bandwidth": "64 GB/s",
        }
        for name, ways, cycles in (("L1D", 64, 4), ("L2", 1024, 14))
    }
    return {
        "sockets": 1, "cores_per_socket": 1, "frequency": "1 GHz", "caches": caches, "core": core,
        "main_memory": {"latency": "50 ns", "bandwidth": "64 GB/s"},
    }  # fmt: skip


@pytest.mark.theory
@pytest.mark.parametrize(("distance", "added"), [(7, 0), (63, 0), (64, 14 - 4), (1023, 14 - 4), (1024, 46), (COLD, 46)])
def test_a_chase_that_outgrows_a_cache_takes_the_next_ones_latency(distance: int, added: float) -> None:
    program = chase()
    streams = ProgramStreams(program, sites_of(program), None, [(Round(), np.array([0], np.int32))])  # type: ignore[list-item]
    profiles = [
        ReuseProfile.of(64, np.array([0]), np.array([each]), np.array([float(LOADS)])) for each in (7, distance)
    ]
    parameters = {"run": 0, "steady": True, "node": node()}
    moved, as_traced = (
        predict_outgrown(parameters, {"streams": streams} | more)["parts_ps"]
        for more in ({"outgrown": Outgrown(*profiles, np.array([0]))}, {})
    )
    assert (moved - as_traced).sum() / 1000 == pytest.approx(added, rel=0.02, abs=1e-9)
