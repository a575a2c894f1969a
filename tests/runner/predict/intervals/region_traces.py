"""A detailed trace of one rank, made by hand: parallel loops one after the other."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3] / "models" / "node"))
from block_programs import LINE, alu, blocks, load
from rank_events import Recorder

from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.stores.detail_store import DetailWriter

CHUNKS = 4
EXECUTIONS = 50  # of a chunk's block
INSTRUCTIONS = 8  # of a block


def loops(place: Path, kinds: Sequence[int], *, lines: int = 0) -> Path:
    """Loops of CHUNKS chunks, that each execute block ``kinds[i]`` EXECUTIONS times: block 0 computes, block 1 also
    loads, from ``lines`` lines of its chunk's own, over and over."""
    record = Recorder()
    for _ in kinds:
        with record.parallel():
            number = len(record.rows["loops"])
            record.rows["loops"].append(
                {"loop_id": number, "task_type_id": 1, "schedule": "dynamic", "num_iterations": CHUNKS}
                | {"chunk_iterations": 1}
            )
            record.event(EventKind.loop_begin, number, task_type=1)
            for chunk in range(CHUNKS):
                record.event(EventKind.loop_chunk, chunk, segment=chunk > 0)
                record.rows["loop_chunks"].append(
                    {"loop_id": number, "first_iteration": chunk, "num_iterations": 1, "cpu_ps": 0}
                )
            record.event(EventKind.loop_end, number, task_type=1, segment=True)
            record.wait("barrier")
    workload = record.workload()
    code = blocks(alu(INSTRUCTIONS), [load(1), *alu(INSTRUCTIONS - 1)])
    writer = DetailWriter(place.with_suffix(".stream"))
    for row, segment in enumerate(record.rows["segments"]):
        kind, chunk = kinds[row // CHUNKS], row % CHUNKS
        ids = np.full(EXECUTIONS, kind, np.int32)
        addresses = ((1 << 20) * (chunk + 1) + LINE * (np.arange(EXECUTIONS * kind) % max(lines, 1))).astype(np.uint64)
        writer.add(ids, np.full(EXECUTIONS, kind, np.int32), addresses)
        writer.end_segment(0, 0, segment["operation_id"], segment["event_id"], segment["task_instance_id"])
    segments, store = writer.close()
    static = {level: code.tables[level] for level in ("blocks", "instructions", "block_accesses")}
    workload = replace(workload, tables={**workload.tables, **static, "segments": segments}, detail=store)
    workload_folder.write(workload, place)
    return place
