"""Which block follows which: by hand, and from real traces."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.memory.access_stream import executions_per_block
from manyscale.models.memory.amm.block_probabilities import count_transitions, parts_of_stream
from manyscale.models.workload import SCHEMAS, Workload, WorkloadError
from manyscale.models.workload.detail_tables import BLOCKS_SCHEMA
from manyscale.runner.readers import lackey, omt, sancov_npz
from manyscale.runner.readers.stores.detail_store import DetailWriter

DATA = Path(__file__).parents[2] / "data" / "detail"
TRACES = {
    "bs16_O0.lk.xz": lackey,
    "matmul25_O1.lk.xz": lackey,
    "bs16_clangO1_sancov.npz": sancov_npz,
    "cholesky-4.omt.xz": omt,  # several tasks, so several runs
}


def read(name: str) -> Workload:
    return TRACES[name].read(DATA / name)


def made(folder: Path, num_blocks: int, *segments: list[int]) -> Workload:
    """A workload of blocks without accesses, whose segments execute them as listed."""
    writer = DetailWriter(folder / "stream")
    for blocks in segments:
        writer.add(np.array(blocks, np.int32), np.zeros(len(blocks), np.int32), np.empty(0, np.uint64))
        writer.end_segment(0, 0, 0, -1, -1)
    table, detail = writer.close()
    rows = [["f"] * num_blocks, ["f.c"] * num_blocks, [0] * num_blocks, ["m"] * num_blocks]
    rows += [list(range(num_blocks)), [False] * num_blocks, [-1] * num_blocks]
    blocks_table = pa.table(
        [pa.array(r, f.type) for r, f in zip(rows, BLOCKS_SCHEMA, strict=True)], schema=BLOCKS_SCHEMA
    )
    levels = ("operations", "phases", "regions", "communicators")
    tables = {level: pa.Table.from_batches([], SCHEMAS[level]) for level in levels}
    return Workload("made", 1, {**tables, "blocks": blocks_table, "segments": table}, detail=detail)


@pytest.mark.contract
@pytest.mark.parametrize("name", TRACES)
def test_counts_from_transitions_are_those_of_the_trace(name):
    workload = read(name)
    transitions = count_transitions(workload)
    batches = (batch.block_ids for batch in parts_of_stream(workload))
    counted = executions_per_block(batches, workload.tables["blocks"].num_rows)
    assert transitions.executions.tolist() == counted.tolist()
    segments = workload.column("segments", "num_blocks")
    assert counted.sum() == segments.sum()
    assert transitions.entries.sum() == transitions.exits.sum() == (segments > 0).sum()
    pi, ends = transitions.probabilities()
    assert transitions.entries + pi.T @ counted == pytest.approx(counted, rel=1e-12)  # eq. 2
    ran = counted > 0
    assert (pi.sum(axis=1) + ends)[ran] == pytest.approx(np.ones(ran.sum()))


def test_transitions_do_not_cross_segments(tmp_path):
    transitions = count_transitions(made(tmp_path, 4, [0, 1, 1, 2], [1, 2], [2]))
    rows = zip(transitions.source.tolist(), transitions.target.tolist(), transitions.count.tolist(), strict=True)
    assert list(rows) == [(0, 1, 1), (1, 1, 1), (1, 2, 2)]
    assert transitions.entries.tolist() == [1, 1, 1, 0]
    assert transitions.exits.tolist() == [0, 0, 3, 0]


@pytest.mark.property
@settings(deadline=None)  # the first example may compile
@given(st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=5), st.integers(1, 7))
def test_transitions_of_any_parts_are_those_of_the_whole(tmp_path_factory, segments, part):
    if not any(segments):
        return
    workload = made(tmp_path_factory.mktemp("w"), 4, *segments)
    whole = count_transitions(workload)
    assert workload.detail is not None
    total = int(workload.detail.execution_bounds()[-1])
    bounds = np.unique([*range(0, total, part), total])
    object.__setattr__(workload.detail, "execution_bounds", lambda: bounds)
    parts = count_transitions(workload)
    for name in ("source", "target", "count", "entries", "exits"):
        assert getattr(parts, name).tolist() == getattr(whole, name).tolist()
    expected = sorted((a, b) for each in segments for a, b in pairwise(each))
    pairs = np.repeat(np.stack([whole.source, whole.target], axis=1), whole.count, axis=0)
    assert [tuple(pair) for pair in pairs.tolist()] == expected


def test_a_workload_without_detailed_level_is_refused(tmp_path):
    workload = made(tmp_path, 1, [0])
    bare = Workload("bare", 1, {k: v for k, v in workload.tables.items() if k != "segments"})
    with pytest.raises(WorkloadError, match="bare: has no detailed level"):
        count_transitions(bare)
