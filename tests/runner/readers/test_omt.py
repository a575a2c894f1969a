"""Traces of OpenMP tasks with their accesses."""

from __future__ import annotations

import json
import lzma
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyscale.models.workload import Workload
from manyscale.models.workload.task_tables import DependenceKind, EventKind, TaskFlag
from manyscale.runner.errors import UserError
from manyscale.runner.readers import omt
from manyscale.runner.readers.omt.reader import _ARRAYS

DATA = Path(__file__).parents[2] / "data" / "detail"
SHARED = os.environ.get("MANYSCALE_DATA")

# (kind, a, b, c, x, records before it, ns since the event before) of a task that creates another one and waits for it
EVENTS = [
    (1, 1, 1, 1, 0, 0, 0),  # initial task
    (7, 0, 1, 0, 0, 0, 100),  # parallel
    (1, 2, 1, 2, 0, 0, 10),  # implicit task
    (2, 1, 0, 3, 1, 0, 7),  # task 3 by
    (102, 0, 0, 2, 0x28000004, 0, 3),  # task 2, final
    (3, 1, 2, 3, 4096, 0, 1),  # in
    (3, 3, 2, 3, 8192, 0, 1),  # inout
    (4, 7, 0, 2, 3, 0, 2),
    (2, 0, 0, 4, 2, 2, 20),
    (102, 0, 0, 3, 0x08000004, 0, 0),
    (4, 7, 0, 3, 4, 0, 1),
    (4, 1, 0, 4, 3, 3, 30),
    (5, 5, 0, 3, 3, 3, 9),  # taskwait
    (6, 5, 0, 3, 3, 0, 1),
    (4, 1, 0, 3, 2, 0, 5),
    (5, 2, 0, 2, 4, 0, 6),  # barrier
    (6, 2, 0, 2, 4, 0, 1),
    (1, 3, 0, 2, 0, 0, 1),
    (8, 0, 0, 0, 0, 0, 1),
]
SITES = [["main", "x.c:1"], ["main", "x.c:2"], ["work", "x.c:3"], ["work", "x.c:4"], ["main", "x.c:5"]]
# task 3: block 1 (load 8), create 4: block 2 (store 4, load 8); then 3 goes on: load 8, block 1 again
RECORDS = [2, 12, 2, 9, 12, 12, 2, 12]
BLOCKS = [1, 2, 1]
DELTAS = [1000, 2000, 3000, 7, 16]


def content(**changes: Any) -> bytes:
    columns = zip(*changes.get("events", EVENTS), strict=True)
    names = ("ev_kind", "ev_a", "ev_b", "ev_c", "ev_x", "ev_dpos", "ev_dt")
    arrays = dict(zip(names, columns, strict=True))
    arrays |= {"block_instr": [0, 5, 3], "block_acc": [0, 2, 2], "rec_kind": RECORDS, "rec_block": BLOCKS}
    arrays |= {"rec_delta": DELTAS, **{key: value for key, value in changes.items() if key in _ARRAYS}}
    header = {"format": "omptask-trace-1", "program": "x", "sites": SITES}
    header |= {"arrays": [[name, kind, len(arrays[name])] for name, kind in _ARRAYS.items()]}
    header |= {key: value for key, value in changes.items() if key in ("format", "sites")}
    packed = b"".join(np.array(arrays[name]).astype(kind).tobytes() for name, kind in _ARRAYS.items())
    return json.dumps(header).encode() + b"\n" + packed + changes.get("more", b"")


def read(folder: Path, **changes: Any) -> Workload:
    path = folder / "x.omt"
    path.write_bytes(content(**changes))
    return omt.read(path)


def rows(workload: Workload, level: str, *names: str) -> list[tuple[Any, ...]]:
    table = workload.tables[level]
    return list(zip(*(table[name].to_pylist() for name in names or table.column_names), strict=True))


def test_tasks(tmp_path):
    workload = read(tmp_path)
    assert rows(workload, "tasks", "task_instance_id", "parent_id", "task_type_id", "flags", "cpu_ps") == [
        (0, -1, -1, TaskFlag.initial, 111_000),
        (1, 0, 0, TaskFlag.implicit, 22_000),
        (2, 1, 1, TaskFlag.final, 36_000),
        (3, 2, 2, 0, 30_000),
    ]
    assert rows(workload, "task_types", "construct", "function", "file", "line") == [
        ("parallel", "main", "x.c", 1),
        ("task", "main", "x.c", 2),
        ("task", "work", "x.c", 3),
        ("taskwait", "work", "x.c", 4),
        ("barrier", "main", "x.c", 5),
    ]
    assert rows(workload, "task_dependences") == [
        (0, 2, DependenceKind.depend_in, 4096),
        (0, 2, DependenceKind.depend_inout, 8192),
    ]


def test_events(tmp_path):
    kind = EventKind
    workload = read(tmp_path)
    assert rows(workload, "events", "kind", "task_instance_id", "task_type_id", "value", "cpu_ps") == [
        (kind.parallel_begin, 0, 0, 1, 100_000),
        (kind.implicit_begin, 0, -1, 1, 10_000),
        (kind.task_create, 1, 1, 2, 7_000),
        (kind.task_begin, 1, -1, 2, 7_000),
        (kind.task_create, 2, 2, 3, 20_000),
        (kind.task_begin, 2, -1, 3, 1_000),
        (kind.task_end, 3, -1, 2, 30_000),
        (kind.taskwait_begin, 2, 3, -1, 9_000),
        (kind.taskwait_end, 2, 3, 0, 1_000),
        (kind.task_end, 2, -1, 1, 5_000),
        (kind.barrier_begin, 1, 4, 0, 6_000),
        (kind.barrier_end, 1, 4, 0, 1_000),
        (kind.implicit_end, 1, -1, 1, 1_000),
        (kind.parallel_end, 0, 0, 0, 1_000),
    ]
    assert workload.column("phases", "duration_ps").tolist() == [199_000]


def test_a_task_s_stream_is_cut_at_its_events(tmp_path):
    workload = read(tmp_path)
    names = ("event_id", "task_instance_id", "num_blocks", "num_accesses", "num_instructions")
    assert rows(workload, "segments", *names) == [(4, 2, 1, 1, 5), (6, 3, 1, 2, 3), (7, 2, 2, 2, 5)]
    assert workload.detail is not None
    batch = workload.detail.read(0, 3)
    # the third access of block 2 in the format's count is what task 3 does behind its child
    assert batch.addresses.tolist() == [1000, 2000, 3000, 7, 1016]
    assert batch.block_ids.tolist() == [0, 1, 2, 0]
    assert rows(workload, "blocks", "num_instructions") == [(5,), (3,), (0,)]
    assert rows(workload, "block_accesses") == [
        (0, -1, False, 8),
        (1, -1, True, 4),
        (1, -1, False, 8),
        (2, -1, False, 8),
    ]


def test_a_suspended_task_is_switched_to(tmp_path):
    events = [*EVENTS[:11], (4, 7, 0, 4, 3, 0, 0), (4, 7, 0, 3, 4, 0, 0), *EVENTS[11:]]
    kinds = [row[0] for row in rows(read(tmp_path, events=events), "events", "kind")]
    assert kinds[5:9] == [EventKind.task_begin, EventKind.task_switch, EventKind.task_switch, EventKind.task_end]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"format": "omptask-trace-2"}, "omptask-trace-2"),
        ({"more": b"x"}, "goes on at byte"),
        ({"rec_block": [1, 2, 9]}, "names block 9 of 3"),
        ({"rec_delta": [1, 2]}, "not as many"),
        ({"sites": SITES[:2]}, "names site 4 of 2"),
        ({"events": [*EVENTS, (9, 0, 0, 0, 0, 0, 0)]}, "event 19 is of kind 9"),
        ({"events": [*EVENTS[:7], (4, 7, 0, 3, 4, 0, 0), *EVENTS[8:]]}, "event 7 does not follow"),
        ({"events": [*EVENTS[:4], *EVENTS[5:]]}, "not followed by its flags"),
        ({"events": [*EVENTS[:5], (3, 9, 2, 3, 4096, 0, 1), *EVENTS[6:]]}, "event 5 is a dependence of kind 9"),
        ({"events": [*EVENTS[:12], (5, 9, 0, 3, 3, 3, 9), *EVENTS[13:]]}, "event 12 does not follow"),
        ({"events": [*EVENTS[:18], (8, 0, 0, 0, 0, 9, 0)]}, "beyond the last, 8"),
        ({"rec_kind": [12, 2, 2, 9, 12, 12, 2, 12]}, "begins with an access"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path, changes, what):
    with pytest.raises(UserError, match=what):
        read(tmp_path, **changes)


def test_a_file_cut_short_is_refused(tmp_path):
    path = tmp_path / "x.omt"
    path.write_bytes(content()[:-1])
    with pytest.raises(UserError, match=r"byte [0-9]+: array 'rec_delta' is [0-9]+, but only [0-9]+ bytes are left"):
        omt.read(path)


@pytest.mark.parametrize("text", [b"", b"{}\n", b'{"format": "other"}\n', b"T:1:4\n"])
def test_other_files_are_not_taken_for_traces(tmp_path, text):
    path = tmp_path / "other"
    path.write_bytes(lzma.compress(text))
    assert not omt.can_read(path)


@pytest.mark.golden
def test_cholesky():
    """4 x 4 blocks: 4 potrf, 6 trsm, 6 syrk, 4 gemm; 40 dependences."""
    path = DATA / "cholesky-4.omt.xz"
    assert omt.can_read(path)
    check(
        omt.read(path),
        {
            "tasks": 20, "dep_records": 40, "accesses": 14_120, "stores": 1336, "instructions": 47_908,
            "tasks_per_creation_site": {"cholesky.c:14": 4, "cholesky.c:17": 6, "cholesky.c:20": 6, "cholesky.c:23": 4},
        },
    )  # fmt: skip


@pytest.mark.golden
@pytest.mark.skipif(SHARED is None, reason="needs the collection of traces (MANYSCALE_DATA)")
@pytest.mark.parametrize("name", ["msort-32768", "nbody-48", "spmv-256x8", "stencil-16x16x8"])
def test_task_programs(name):
    folder = Path(SHARED or "") / "tasks"
    truth = json.loads((folder / "truth.json").read_text())[name]
    check(omt.read(folder / f"{name}.omt.xz"), truth)


def check(workload: Workload, truth: dict[str, Any]) -> None:
    types = [f"{file}:{line}" for file, line in rows(workload, "task_types", "file", "line")]
    explicit = [row for row in rows(workload, "tasks", "task_type_id", "flags") if not row[1] & (32 | 64)]
    assert len(explicit) == truth["tasks"]
    assert Counter(types[one] for one, _ in explicit) == truth["tasks_per_creation_site"]
    assert workload.tables["task_dependences"].num_rows == truth["dep_records"]
    assert workload.column("segments", "num_accesses").sum() == truth["accesses"]
    assert workload.column("segments", "num_instructions").sum() == truth["instructions"]
    assert workload.detail is not None
    stores = np.bincount(
        workload.column("block_accesses", "block_id"),
        np.array(workload.tables["block_accesses"]["is_store"].to_pylist()),
        workload.tables["blocks"].num_rows,
    )
    executed = np.concatenate([batch.block_ids for batch in workload.detail.batches(1 << 20)])
    assert stores[executed].sum() == truth["stores"]
    own = np.bincount(workload.column("events", "task_instance_id"), workload.column("events", "cpu_ps"))
    assert np.array_equal(own, workload.column("tasks", "cpu_ps")[: len(own)])


def test_no_other_test_data_is_taken_for_one():
    files = [path for path in DATA.parent.rglob("*") if path.is_file()]
    assert {path.name for path in files if omt.can_read(path)} == {path.name for path in DATA.glob("*.omt.xz")}
