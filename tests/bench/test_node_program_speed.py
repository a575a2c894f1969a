"""Speed of building node programs, as a ratio of CPU time to hashing the same tables, which every study does once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from cpu_time import least_cpu

from manyscale.models.node.program.build import build_program
from manyscale.models.workload import KIND_NAMES, SCHEMAS, OperationKind, Workload
from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag

pytestmark = pytest.mark.bench

_PHASES, _TASKS, _LAP_PS = 64, 5200, 1000


def _table(level: str, **columns: object) -> pa.Table:
    """``columns`` broadcast to the longest; what is not given is 0."""
    length = max(np.size(each) for each in columns.values())
    arrays = [
        pa.array(np.broadcast_to(columns.get(field.name, 0), length).astype(field.type.to_pandas_dtype()))
        for field in SCHEMAS[level]
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMAS[level])


def _workload() -> Workload:
    """Each phase is a parallel region whose master creates tasks, each with two dependences; one operation follows."""
    kind = np.concatenate(
        (
            [EventKind.parallel_begin, EventKind.implicit_begin],
            np.tile([EventKind.task_create, EventKind.task_begin, EventKind.task_end], _TASKS),
            [EventKind.implicit_end, EventKind.parallel_end],
        )
    )
    phase = np.arange(_PHASES)
    implicit = phase * (_TASKS + 1) + 1
    tasks = implicit[:, None] + 1 + np.arange(_TASKS)
    running, value = (np.zeros((_PHASES, len(kind)), np.int64) for _ in range(2))
    running[:, 2:-1] = value[:, 1:-1] = implicit[:, None]
    running[:, 4:-2:3] = value[:, 2:-2:3] = value[:, 3:-2:3] = tasks
    events = _table(
        "events", operation_id=np.repeat(phase, len(kind)), kind=np.tile(kind, _PHASES),
        task_instance_id=running.ravel(), value=value.ravel(), cpu_ps=_LAP_PS,
    )  # fmt: skip
    parent = np.repeat(implicit[:, None], _TASKS + 1, axis=1)
    parent[:, 0] = 0
    flags = np.zeros(_PHASES * (_TASKS + 1) + 1, np.int64)
    flags[0], flags[implicit] = TaskFlag.initial, TaskFlag.implicit
    table = _table(
        "tasks", task_instance_id=np.arange(len(flags)), parent_id=np.append(-1, parent.ravel()), flags=flags,
        operation_id=np.append(0, np.repeat(phase, _TASKS + 1)),
    )  # fmt: skip
    place = np.arange(tasks.size) % 64
    dependences = _table(
        "task_dependences", task_instance_id=np.repeat(tasks.ravel(), 2),
        address=np.stack((place, place + 1), 1).ravel(),
        kind=np.tile([DependenceKind.depend_inout, DependenceKind.depend_in], tasks.size),
    )  # fmt: skip
    row = {"rank": 0, "kind": OperationKind.other.name, "peer": -2, "source": -2, "tag": 0, "bytes": 0, "request": -1}
    row |= {"receive_bytes": 0, "communicator_id": 0}
    assert row["kind"] in KIND_NAMES.to_pylist()
    tables = {
        "events": events,
        "tasks": table,
        "task_dependences": dependences,
        "task_types": pa.Table.from_pylist(
            [{"construct": "task", "function": "f", "file": "f.c", "line": 1, "module": "f", "offset": 0}],
            schema=SCHEMAS["task_types"],
        ),
        "operations": pa.Table.from_pylist([row] * _PHASES, schema=SCHEMAS["operations"]),
        "phases": _table("phases", operation_id=phase, region_id=-1, duration_ps=len(kind) * _LAP_PS),
        "regions": SCHEMAS["regions"].empty_table(),
        "communicators": pa.Table.from_pylist([{"members": [0]}], schema=SCHEMAS["communicators"]),
    }
    return Workload("phases of tasks", 1, tables)


def test_program_is_built_about_as_fast_as_its_tables_are_hashed() -> None:
    workload = _workload()
    program = build_program(workload, 0, 64)
    assert program.num_instances == 1 + _PHASES * _TASKS
    assert program.num_phases == _PHASES
    hashing = least_cpu(lambda: Workload("again", 1, workload.tables).digest)
    building = least_cpu(lambda: build_program(workload, 0, 64))
    rate = program.num_instances / building
    print(f"{rate / 1e6:.1f} million instances per CPU second, {building / hashing:.1f} times as long as hashing")
    assert building <= 5 * hashing
