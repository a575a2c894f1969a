"""Run directories with timelines of any size, made up so that what each part of them shows follows from a formula."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.runner.run.results import MESSAGES_SCHEMA, RANKS_SCHEMA, STATES

SEGMENT_PS = 1_000_000  # every segment takes 1 us


def made_run(directory: Path, ranks: int, segments_each: int, shift: int = 0) -> Path:
    """A run directory in which segment k of rank r is in state (r + k + shift) mod 5, from k us to k + 1 us."""
    folder = directory / "timeline"
    folder.mkdir(parents=True)
    step = np.arange(segments_each, dtype=np.int64)
    names = pa.array(STATES)
    with pq.ParquetWriter(folder / "ranks.parquet", RANKS_SCHEMA, compression="lz4", use_dictionary=False) as writer:
        for rank in range(ranks):
            state = pa.DictionaryArray.from_arrays(pa.array(((rank + step + shift) % 5).astype(np.int8)), names)
            columns = [np.full(segments_each, rank, np.int32), step * SEGMENT_PS, (step + 1) * SEGMENT_PS, state]
            columns.append(step.astype(np.int32))
            table = pa.Table.from_arrays([pa.array(column) for column in columns], schema=RANKS_SCHEMA)
            writer.write_table(table)
    made_messages(folder / "messages.parquet", ranks, segments_each)
    seconds = segments_each * SEGMENT_PS / 1e12
    statistics = {"application.makespan": {"value": seconds, "unit": "s", "kind": "total"}}
    (directory / "stats.json").write_text(json.dumps(statistics))
    (directory / "manifest.json").write_text(json.dumps({"status": "complete", "command": "manyscale run made-up"}))
    (directory / "resolved.yaml").write_text("name: made-up\ntarget:\n  name: nowhere\n")
    return directory


def made_messages(path: Path, ranks: int, segments_each: int) -> None:
    """Every hundred segments each rank sends to the next one, which has it two segments later."""
    rank, step = (
        part.ravel() for part in np.meshgrid(np.arange(ranks), np.arange(0, segments_each, 100), indexing="ij")
    )
    count = len(rank)
    columns = [
        np.arange(count), rank.astype(np.int32), ((rank + 1) % ranks).astype(np.int32), step * SEGMENT_PS,
        (step + 2) * SEGMENT_PS, np.full(count, 8), np.zeros(count, np.int32), np.zeros(count, np.int32),
    ]  # fmt: skip
    pq.write_table(pa.table([pa.array(column) for column in columns], schema=MESSAGES_SCHEMA), path)
