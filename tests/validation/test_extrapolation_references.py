"""Extrapolated workloads against real runs on those ranks that were not used.

Exact: operations of each kind, messages and bytes of every rank. Compute is CPU time of a shared machine, traced in one
session; it has to lie within the stated interval. Sources of the small traces: tests/data/extrapolation/SOURCES.md.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from manyscale.models.workload import OperationKind, Workload
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.run.extrapolation import extrapolation
from manyscale.runner.run.extrapolation.neighbours import edges_of, find_pattern
from manyscale.runner.run.extrapolation.workload import Ratios, extrapolate_workload

DATA = Path(__file__).parents[1] / "data" / "extrapolation"
traces = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "mpi"
needs_traces = pytest.mark.skipif(not traces.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")


def messages_and_bytes(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Sent by each rank."""
    rank = workload.column("operations", "rank")[workload.send_rows]
    sent = workload.column("operations", "bytes")[workload.send_rows]
    n = workload.num_ranks
    return np.bincount(rank, minlength=n), np.bincount(rank, weights=sent, minlength=n)


def pairs(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """The distinct (source, destination, bytes) of messages, and how many of each."""
    columns = [workload.column("operations", name)[workload.send_rows] for name in ("rank", "peer", "bytes")]
    return np.unique(np.column_stack([column.astype(np.int64) for column in columns]), axis=0, return_counts=True)


@pytest.mark.peer
def test_lulesh_on_125_ranks_from_8_27_and_64() -> None:
    paths = [DATA / f"lulesh-s3-i2-{ranks}.tar.zst" for ranks in (8, 27, 64)]
    real = json.loads((DATA / "lulesh-s3-i2-125.json").read_text())
    found = extrapolation([(path.name, simgrid_ti.read(path)) for path in paths], 125)
    made = found.result.workload
    counts = np.bincount(made.column("operations", "kind"), minlength=len(OperationKind))
    assert {OperationKind(i).name: int(count) for i, count in enumerate(counts) if count} == real["verbs"]
    messages, sent = messages_and_bytes(made)
    assert messages.tolist() == real["messages"]
    assert sent.tolist() == real["bytes"]
    for check in found.checks:
        assert check["predicted"] | {"compute_s": 0} == check["traced"] | {"compute_s": 0}
    seconds, low, high = found.compute
    assert low is not None
    assert high is not None
    compute = np.mean(real["compute_ns"]) * 1e-9
    assert low <= compute <= high
    assert seconds == pytest.approx(compute, rel=0.1)  # -3.4 % when the traces were made


@needs_traces
@pytest.mark.peer
@pytest.mark.parametrize(
    ("template", "real"),
    [
        (DATA / "lulesh-s6-i10-27.tar.zst", "lulesh-216"),
        (traces / "hpcg-64/trace.tar.zst", "hpcg-8"),
    ],
    ids=["LULESH 27 to 216", "HPCG 64 to 8"],
)
def test_operations_are_those_of_the_real_run(template: Path, real: str) -> None:
    """Kind, partner, tag and size of every operation of every rank, in order."""
    traced = simgrid_ti.read(template)
    expected = simgrid_ti.read(traces / real / "trace.tar.zst")
    pattern = find_pattern(edges_of(traced))
    made = extrapolate_workload(
        traced, pattern, pattern.resized(expected.num_ranks), Ratios.ones(traced), "made"
    ).workload
    for one, other in zip(pairs(made), pairs(expected), strict=True):
        assert np.array_equal(one, other)
    for name in ("rank", "kind", "peer", "tag", "bytes"):
        assert np.array_equal(made.column("operations", name), expected.column("operations", name)), name
