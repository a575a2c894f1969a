"""Task kernels that another tracer recorded: the same instances at the same lines, dependences and edges."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from task_traces import TaskTrace, check_invariants
from tracer_programs import need_libomp

from manyscale.models.workload.task_tables import TaskFlag

_DATA = os.environ.get("MANYSCALE_DATA")
pytestmark = [pytest.mark.golden, pytest.mark.skipif(_DATA is None, reason="needs MANYSCALE_DATA")]
_KERNELS = {
    "cholesky-4": "4",
    "cholesky-24": "24",
    "msort-32768": "32768",
    "spmv-256x8": "256 8",
    "hist-2048": "2048",
    "stencil-16x16x8": "16 16 8",
    "nbody-48": "48",
}


@pytest.mark.parametrize(("name", "compiler"), [*((name, "clang") for name in _KERNELS), ("cholesky-4", "gcc")])
def test_counts_are_those_of_the_other_tracer(
    name: str, compiler: str, compiled: Callable[..., Path], traced: Callable[..., Any]
) -> None:
    need_libomp()
    folder = Path(str(_DATA)) / "tasks"
    truth = json.loads((folder / "truth.json").read_text())[name]
    program = compiled(folder / "src" / f"{name.split('-')[0]}.c", compiler, "-O1", "-g", "-fopenmp")
    result = traced([program, *_KERNELS[name].split()], "--level", "tasks")
    assert result.status == 0, result.err
    check_invariants(result.workload)
    trace = TaskTrace(result.workload, {})
    types = trace.rows("task_types")
    explicit = [row for row in trace.rows("tasks") if not row["flags"] & (TaskFlag.initial | TaskFlag.implicit)]
    places = Counter(
        f"{os.path.basename(kind['file'])}:{kind['line']}" for kind in (types[row["task_type_id"]] for row in explicit)
    )
    assert len(explicit) == truth["tasks"]
    assert len(trace.rows("task_dependences")) == truth["dep_records"]
    assert len(trace.edges()) == truth["dependence_edges"]
    assert places == truth["tasks_per_creation_site"]
