"""Workload tables: schemas are enforced, digests depend on content alone."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from manyscale.models import workload as workloads
from manyscale.models.workload import OPTIONAL_LEVELS, SCHEMAS, Workload, WorkloadError
from manyscale.runner import shipped
from manyscale.runner.readers import simgrid_ti

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def workload():
    return simgrid_ti.read(shipped.folder() / "comd-8.tar.zst")


def with_table(workload: Workload, level: str, table: pa.Table) -> Workload:
    return Workload(workload.name, workload.num_ranks, {**workload.tables, level: table})


def test_digest_ignores_chunking(workload):
    table = workload.tables["operations"]
    pieces = pa.concat_tables([table.slice(0, 100), table.slice(100, 1), table.slice(101)])
    assert with_table(workload, "operations", pieces).digest == workload.digest


def test_digest_sees_one_changed_value(workload):
    table = workload.tables["phases"]
    durations = table.column("duration_ps").to_pylist()
    durations[7] += 1
    changed = table.set_column(4, table.schema.field(4), pa.array(durations, pa.int64()))
    assert with_table(workload, "phases", changed).digest != workload.digest


@pytest.mark.parametrize("is_copied", [True, False])
def test_a_workload_that_is_sent_is_the_same(workload, is_copied, monkeypatch):
    """Small tables, a part of another in several pieces among them, without the rest of that; larger ones."""
    monkeypatch.setattr(workloads, "MOST_COPIED_BYTES", 1 << 26 if is_copied else 0)
    table = workload.tables["regions"]
    pieces = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    sent = Workload(workload.name, workload.num_ranks, {**workload.tables, "regions": pieces}, workload.notes)
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(sent, protocol=5, buffer_callback=buffers.append)
    got = pickle.loads(content, buffers=buffers)
    assert (got, got.digest, got.tables.keys()) == (sent, workload.digest, sent.tables.keys())
    assert all(got.tables[level].schema.equals(SCHEMAS[level]) for level in SCHEMAS)
    assert got.rank_offsets.tolist() == workload.rank_offsets.tolist()


@pytest.mark.parametrize("level", list(SCHEMAS))
def test_refuses_a_missing_or_misshapen_table(workload, level):
    tables = {name: table for name, table in workload.tables.items() if name != level}
    if level in OPTIONAL_LEVELS:
        assert Workload("x", 8, tables).tables[level].num_rows == 0
    else:
        with pytest.raises(WorkloadError, match=f"no table '{level}'"):
            Workload("x", 8, tables)
    with pytest.raises(WorkloadError, match="declared schema"):
        with_table(workload, level, pa.table({"other": [1]}))


def test_refuses_senseless_rank_counts(workload):
    for count in (0, -1, 2**20 + 1):
        with pytest.raises(WorkloadError, match="ranks"):
            Workload("x", count, workload.tables)


def test_batches_cover_the_table(workload):
    batches = list(workload.batches("operations", max_rows=1000))
    assert [batch.num_rows for batch in batches] == [1000, 1000, 272]
    assert pa.Table.from_batches(batches).equals(workload.tables["operations"])


def test_measured_times_are_those_of_all_operations(workload):
    one = pa.table({"start_ps": [0], "end_ps": [1]}, schema=SCHEMAS["measured"])
    with pytest.raises(WorkloadError, match="'measured' does not have one row per operation"):
        with_table(workload, "measured", one)
