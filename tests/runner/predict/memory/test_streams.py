"""The streams of a detailed trace: of each thread of each rank, in order, however it is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from manyscale.models.memory.amm.block_probabilities import count_transitions
from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.predict.memory.streams import streams_of
from manyscale.runner.readers.stores import detail_store
from manyscale.runner.readers.stores.detail_store import DetailWriter
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload

TRACE = Path(__file__).parents[3] / "data" / "detail" / "bs16_O1.lk.xz"


def shared_out(folder: Path, threads: list[tuple[int, int]], num_segments: int) -> Workload:
    """A trace whose executions are dealt out to threads in turn, in ``num_segments`` pieces."""
    workload = read_workload(WorkloadChoice(path=str(TRACE)))
    batch = workload.detail.read_executions(0, int(workload.detail.execution_bounds()[-1]))
    counts = np.bincount(workload.column("block_accesses", "block_id"), minlength=workload.tables["blocks"].num_rows)
    counts = counts[batch.block_ids].astype(np.int32)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    writer = DetailWriter(folder / "detail.stream")
    cuts = np.linspace(0, len(batch.block_ids), num_segments + 1).astype(int)
    for index, (first, end) in enumerate(pairwise(cuts)):
        writer.add(batch.block_ids[first:end], counts[first:end], batch.addresses[offsets[first] : offsets[end]])
        rank, thread = threads[index % len(threads)]
        writer.end_segment(rank, thread, 0, -1, -1)
    segments, store = writer.close()
    ranks = 1 + max(rank for rank, _ in threads)
    tables = {**workload.tables, "segments": segments}
    for level in ("operations", "phases"):  # every rank does what the traced one did
        place = tables[level].schema.get_field_index("rank")
        column = tables[level].schema.field("rank")
        each = [pa.array(np.full(tables[level].num_rows, rank, np.int32)) for rank in range(ranks)]
        tables[level] = pa.concat_tables([tables[level].set_column(place, column, numbers) for numbers in each])
    world = pa.array([list(range(ranks))], pa.list_(pa.int32()))
    tables["communicators"] = pa.Table.from_arrays([world], schema=tables["communicators"].schema)
    return replace(workload, num_ranks=ranks, tables=tables, detail=store)


@pytest.mark.contract
@pytest.mark.parametrize("chunks", [1, 3, 1000])
def test_every_thread_has_its_own_executions_in_order(tmp_path, monkeypatch, chunks):
    monkeypatch.setattr(detail_store, "CHUNK_SIZE", 200)
    threads = [(0, 0), (1, 0), (0, 1)]
    workload = shared_out(tmp_path, threads, 20)
    whole = workload.detail.read(0, 20)
    streams, sites = streams_of(workload, "trace")
    assert [(stream.rank, stream.thread) for stream in streams] == [(0, 0), (0, 1), (1, 0)]
    assert sum(stream.num_accesses for stream in streams) == len(whole.addresses)
    for stream in streams:
        mine = [i for i in range(20) if threads[i % 3] == (stream.rank, stream.thread)]
        parts = list(stream.batches(chunks))
        expected = [whole.addresses[whole.access_offsets[i] : whole.access_offsets[i + 1]] for i in mine]
        assert np.array_equal(np.concatenate([part[1] for part in parts]), np.concatenate(expected))
        blocks = [whole.block_ids[whole.block_offsets[i] : whole.block_offsets[i + 1]] for i in mine]
        assert np.array_equal(np.concatenate([part[0] for part in parts]), np.concatenate(blocks))
        assert sum(len(part[0]) for part in parts) == stream.num_blocks
    assert len(sites) == workload.tables["block_accesses"].num_rows


@pytest.mark.contract
def test_a_detailed_level_without_accesses_is_refused(tmp_path):
    workload = read_workload(WorkloadChoice(path=str(TRACE)))
    writer = DetailWriter(tmp_path / "s")
    writer.add(np.zeros(1, np.int32), np.zeros(1, np.int32), np.empty(0, np.uint64))
    writer.end_segment(0, 0, 0, -1, -1)
    segments, store = writer.close()
    with pytest.raises(UserError, match="it: its detailed level holds no access"):
        streams_of(replace(workload, tables={**workload.tables, "segments": segments}, detail=store), "it")


@pytest.mark.theory
def test_transitions_of_some_segments(tmp_path, monkeypatch):
    """Those of a thread's own segments, each a run for itself, whatever other threads do in between."""
    monkeypatch.setattr(detail_store, "CHUNK_SIZE", 200)
    workload = shared_out(tmp_path, [(0, 0), (1, 0), (0, 1)], 20)
    stream = streams_of(workload, "trace")[0][1]
    found = count_transitions(workload, stream.is_mine)
    expected: Counter[tuple[int, int]] = Counter()
    executions: Counter[int] = Counter()
    for segment in np.flatnonzero(stream.is_mine).tolist():
        block_ids = workload.detail.read(segment, segment + 1).block_ids.tolist()
        expected.update(pairwise(block_ids))
        executions.update(block_ids)
    pairs = zip(found.source.tolist(), found.target.tolist(), strict=True)
    assert dict(zip(pairs, found.count.tolist(), strict=True)) == expected
    assert {block: count for block, count in enumerate(found.executions.tolist()) if count} == executions
    assert found.entries.sum() == found.exits.sum() == stream.is_mine.sum()
