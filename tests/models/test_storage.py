"""What accesses of files take of a storage, and what is said where a format has no word for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from manyscale.models.machine.storage import Storage, storage_times
from manyscale.runner.readers import simgrid_ti, workload_folder

MB = 1_000_000
STORAGE = {"latency": "2 ms", "bandwidth": "1 GB/s", "node_bandwidth": "0.25 GB/s"}


@pytest.fixture
def program(write_trace):
    """Four ranks write 3, 1, 2 and 2 MB together; then rank 0 reads 1 MB alone."""
    ranks = {rank: ["init", "barrier", "bcast 8 0 6", "bcast 8 0 6", "finalize"] for rank in range(4)}
    workload = simgrid_ti.read(write_trace(ranks))
    rows, seen = workload.tables["operations"].to_pylist(), set()
    for row in rows:
        if row["kind"] != "bcast":
            continue
        rank, is_first = row["rank"], row["rank"] not in seen
        seen.add(rank)
        size = (3, 1, 2, 2)[rank] * MB if is_first else MB * (rank == 0)
        row |= {"kind": "other", "peer": rank, "bytes": size * is_first, "communicator_id": int(is_first)}
        row["receive_bytes"] = 0 if is_first else size
    members = pa.Table.from_pylist([{"members": [0, 1, 2, 3]}] * 2, workload.tables["communicators"].schema)
    operations = pa.Table.from_pylist(rows, workload.tables["operations"].schema)
    return replace(workload, tables={**workload.tables, "operations": operations, "communicators": members})


@pytest.mark.theory
@pytest.mark.parametrize(
    ("nodes", "together_ms"),
    [
        ((0, 1, 2, 3), 2 + 12),  # 3 MB of the fullest node by 0.25 GB/s outlast all 8 MB by 1 GB/s
        ((0, 0, 1, 1), 2 + 16),  # 4 MB a node
        ((0, 0, 0, 1), 2 + 24),
    ],
)
def test_an_access_takes_latency_and_the_longer_of_both_ways(program, nodes, together_ms):
    found = storage_times(program, Storage(**STORAGE), np.array(nodes)).reshape(4, -1)
    assert (found[:, 2] == together_ms * 10**9).all()
    assert found[:, 3].tolist() == [(2 + 4) * 10**9, 0, 0, 0]
    assert not found[:, [0, 1, 4]].any()


@pytest.mark.theory
def test_the_storage_in_all_bounds_where_nodes_do_not(program):
    storage = Storage(**{name: value for name, value in STORAGE.items() if name != "node_bandwidth"})
    found = storage_times(program, storage, np.zeros(4, np.int64)).reshape(4, -1)
    assert (found[:, 2] == (2 + 8) * 10**9).all()
    assert found[0, 3] == (2 + 1) * 10**9


def test_another_format_says_nothing_of_files(program, cli, tmp_path):
    workload_folder.write(program, tmp_path / "w")
    told = {
        form: cli("convert", tmp_path / "w", "--to", form, "-o", tmp_path / form).out for form in ("goal", "workload")
    }
    assert "[accesses-left-out] format goal says nothing of files: 8 accesses take no time there" in told["goal"]
    assert "accesses-left-out" not in told["workload"]
