"""Real traces: makespans against SimGrid 3.32's contention-free replay, and the shipped validation cases.

Reference values: seconds printed by ``smpirun -replay`` on a full mesh of unshared links (10 us, 1.25 GB/s; 5 us to
oneself) with all factors of the network model off. LULESH's and miniFE's come from copies that SimGrid can replay: the
waitall written out, the wildcard re-coded. Tolerance: 1e-6 s, the last digit printed. The traces are those of the
folder ``mpi`` in $MANYSCALE_DATA; without it these tests are skipped, and only the shipped cases are compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from simgrid.comparison import CONTRACT_S, assert_same_times
from simgrid.prediction import Prediction, predict_workload

from manyscale.models.workload import Workload
from manyscale.runner import shipped
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.run.questions.accuracy import evaluate_cases

MAKESPAN_S = {
    "comd-8": 0.064999,
    "hpcg-8": 0.033816,
    "hpcg-64": 0.047090,
    "lulesh-8": 0.037532,
    "lulesh-8-explicitwait": 0.037532,
    "lulesh-64": 0.036962,
    "lulesh-64-explicitwait": 0.036962,
    "lulesh-216": 0.008110,
    "lulesh-imb-64": 0.067899,
    "minife-64": 0.074216,
    "nas-cg-A-8": 0.256213,
    "nas-cg-A-64": 0.133166,
    "nas-is-A-8": 0.147645,
    "nas-is-A-64": 0.026198,
}
# with --cfg=smpi/async-small-thresh:65536: small messages travel before their receive is posted
EAGER_MAKESPAN_S = {"comd-8": 0.063868, "hpcg-64": 0.047071, "nas-cg-A-64": 0.121425}

traces = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "mpi"
needs_traces = pytest.mark.skipif(not traces.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")


@lru_cache(maxsize=2)
def workload(name: str) -> Workload:
    return simgrid_ti.read(traces / name / "trace.tar.zst")


@pytest.fixture(scope="module", autouse=True)
def _forget_workloads() -> Iterator[None]:
    yield
    workload.cache_clear()


def predicted(name: str, eager: bool = False) -> Prediction:
    return predict_workload(workload(name), eager)


@pytest.mark.peer
@needs_traces
@pytest.mark.parametrize("name", MAKESPAN_S)
def test_makespans_are_simgrids(name: str) -> None:
    assert_same_times({name: predicted(name).makespan_s}, {name: MAKESPAN_S[name]}, CONTRACT_S)


@pytest.mark.peer
@needs_traces
@pytest.mark.parametrize("name", EAGER_MAKESPAN_S)
def test_eager_makespans_are_simgrids(name: str) -> None:
    assert_same_times({name: predicted(name, True).makespan_s}, {name: EAGER_MAKESPAN_S[name]}, CONTRACT_S)


@pytest.mark.golden
@needs_traces
@pytest.mark.parametrize("name", ["lulesh-8", "lulesh-64"])
def test_a_waitall_covers_what_no_later_wait_names(name: str) -> None:
    """The waitall of these traces, written out by hand as the waits it covers, gives the same end of each rank."""
    ours = np.array(predicted(name).rank_ends_s)
    explicit = np.array(predicted(f"{name}-explicitwait").rank_ends_s)
    assert len(ours) == int(name.rsplit("-", 1)[1])
    assert np.array_equal(ours, explicit)


def test_the_folder_holds_no_trace_that_is_not_compared() -> None:
    if not traces.is_dir():
        pytest.skip("MANYSCALE_DATA does not name the folder of the traces")
    assert {path.parent.name for path in traces.glob("*/trace.tar.zst")} - {"native-lulesh-8-otf2"} == set(MAKESPAN_S)


@pytest.mark.peer
def test_the_shipped_cases_hold(tmp_path: Path) -> None:
    rows = evaluate_cases([], tmp_path / "cache")
    assert {row.name for row in rows} == set(shipped.validation_cases())
    assert rows
    for row in rows:
        assert row.tolerance <= CONTRACT_S, f"{row.name} allows {row.tolerance} s"
        assert row.holds, f"{row.name}: {row.predicted} s predicted, {row.reference} s in the reference"
