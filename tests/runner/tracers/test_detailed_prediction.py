"""From a program to its prediction by ``model: {cpu: amm}``: traced here in detail, compared with a plain run here."""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
import pyarrow.parquet as pq
import pytest
from tracer_programs import PROGRAMS, need, need_libomp

from manyscale.models.workload import Workload
from manyscale.runner.tracers import build
from manyscale.runner.tracers.build import NATIVE

pytestmark = [pytest.mark.slow, pytest.mark.peer]

LAUNCH = ["mpiexec.mpich", "-bind-to", "none", "-n", 1]
ARGUMENTS = [4, 128, 6]  # blocks, points along a block's edge, iterations
DETAILED = 2  # iteration
UP_TO_TIMES = 3.0  # as far as the prediction may be off; the measured time itself varies by 1.6 on a shared machine


@pytest.fixture(scope="module")
def jacobi(tmp_path_factory, tracer_cache):
    """The marked Jacobi, built as it is, for the detailed level and for counting."""
    need("clang", "mpicc.mpich", "mpiexec.mpich")
    need_libomp()
    pytest.importorskip("capstone")
    folder = tmp_path_factory.mktemp("jacobi")
    stub = build.coverage_stub(tracer_cache)
    added = {
        "plain": [],
        "detailed": build.coverage_flags(stub),
        "counting": build.coverage_flags(stub, counting=True),
    }
    for variant, flags in added.items():
        words = [
            "mpicc.mpich", "-O2", "-fopenmp", "-DMARKS", f"-I{NATIVE}", f"-I{PROGRAMS}",
            str(PROGRAMS / "apps" / "jacobi.c"), "-lm", "-o", str(folder / variant), *flags,
        ]  # fmt: skip
        subprocess.run(words, env={**os.environ, "MPICH_CC": "clang"}, check=True)
    return folder


def iterations_ns(workload: Workload) -> np.ndarray:
    """Compute time of each iteration of rank 0, between its marks."""
    operation, lap = workload.column("events", "operation_id"), workload.column("events", "cpu_ps")
    of_phase, duration = workload.column("phases", "operation_id"), workload.column("phases", "duration_ps")

    def before(event: int) -> int:
        same = operation[: event + 1] == operation[event]
        return int(duration[of_phase < operation[event]].sum() + lap[: event + 1][same].sum())

    marks = [before(int(event)) for event in workload.column("iterations", "first_event_id")]
    return np.diff(marks) / 1000


def test_a_detailed_iteration_takes_about_what_it_takes_in_a_plain_run(jacobi, traced, cli, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    plain = traced([*LAUNCH, jacobi / "plain", *ARGUMENTS])
    assert plain.status == 0, plain.err
    measured = float(np.median(iterations_ns(plain.workload)[1:]))
    options = ["--level", "detailed", "--iterations", DETAILED + 1, "--counting", jacobi / "counting"]
    detailed = traced([*LAUNCH, jacobi / "detailed", *ARGUMENTS], *options)
    assert detailed.status == 0, detailed.err
    instrumented = iterations_ns(detailed.workload)[DETAILED]

    words = ("--workload", detailed.folder, "--target", "epyc-zen4", "--model", "cpu=amm", "--no-report")
    outcome = cli("run", *words, "-o", tmp_path / "run")
    assert outcome.status == 0, outcome.err
    figures = json.loads((tmp_path / "run" / "stats.json").read_text())
    share = {
        name: figures[f"application.compute_{name}"]["value"] for name in ("detailed", "same_place", "same_region")
    }
    assert share["detailed"] > 0.05  # most of an iteration of six
    assert share["same_place"] > share["detailed"]  # the other five
    states = pq.read_table(tmp_path / "run" / "timeline" / "ranks.parquet").to_pandas()
    iteration = detailed.workload.tables["iterations"].to_pylist()[DETAILED]
    inside = states["operation_id"].between(iteration["first_operation_id"], iteration["end_operation_id"] - 1)
    mine = states[inside & (states["state"] == "compute")]
    predicted = (mine["end_ps"] - mine["start_ps"]).sum() / 1000
    assert measured / UP_TO_TIMES < predicted < measured * UP_TO_TIMES
    assert instrumented > UP_TO_TIMES * measured  # what the burst model would take
