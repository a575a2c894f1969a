"""Counters that a native trace read at the runtime system's events, by task instance and chunk; which ones it could not
read, and why (``runner/tracers/native/counters.c``)."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import Note, informs
from manyscale.models.workload.task_tables import CHUNK_COUNTERS_SCHEMA, TASK_COUNTERS_SCHEMA
from manyscale.runner.readers.raw_trace.files import Process
from manyscale.runner.readers.raw_trace.task_events import RankEvents

_HARDWARE: Final = "the machine, or its hypervisor, has no such counter"
_FORBIDDEN: Final = "the kernel forbids it (kernel.perf_event_paranoid, or a filter of system calls)"
_REASONS: Final = {
    errno.ENOENT: _HARDWARE, errno.EOPNOTSUPP: _HARDWARE, errno.ENODEV: _HARDWARE, errno.ENXIO: _HARDWARE,
    errno.EACCES: _FORBIDDEN, errno.EPERM: _FORBIDDEN, errno.ENOSYS: "the kernel has no perf_event_open",
    errno.EINVAL: "the processor cannot count it beside the others",
    errno.EMFILE: "the program may open no more files", errno.ENOMEM: "the kernel has no memory left for it",
}  # fmt: skip


def build(ranks: Sequence[RankEvents]) -> tuple[dict[str, pa.Table], list[Note]]:
    """(the tables of counters, what was not counted all the time)."""
    names = list(dict.fromkeys(name for rank in ranks for name in rank.counter_names))
    parts: dict[str, list[tuple[np.ndarray, ...]]] = {"tasks": [], "chunks": []}
    notes: list[Note] = []
    lost = total = 0
    for number, rank in enumerate(ranks):
        code = np.array([names.index(name) for name in rank.counter_names], np.int64)
        for what, values in (("tasks", rank.task_counts), ("chunks", rank.chunk_counts)):
            row, column = np.nonzero(values >= 0)
            of = (row,) if what == "tasks" else (rank.chunk_loop[row], rank.first_iteration[row])
            parts[what].append((np.full(len(row), number), *of, code[column], values[row, column]))
        if rank.counter_names:
            total += len(rank.task_counts)
            lost += int(np.count_nonzero(rank.task_counts[:, 0] < 0))
    if lost:
        text = f"{lost:,} of {total:,} task instances have no counters: these did not count all the time"
        notes.append(informs("counters-interrupted", text, count=lost))
    if not names:
        return {}, notes
    tables = {
        "task_counters": _table(TASK_COUNTERS_SCHEMA, names, parts["tasks"]),
        "chunk_counters": _table(CHUNK_COUNTERS_SCHEMA, names, parts["chunks"]),
    }
    return tables, notes


def unavailable(processes: Iterable[Process]) -> list[Note]:
    """A note per reason: counters that were asked for and could not be opened."""
    found: dict[int, dict[str, int]] = {}
    for process in processes:
        for each in process.definitions:
            if "uncounted" in each:
                names = found.setdefault(int(each.get("error", 0)), {})
                names[str(each["uncounted"])] = names.get(str(each["uncounted"]), 0) + 1
    notes = []
    for error, names in found.items():
        reason = _REASONS.get(error, f"the kernel says {errno.errorcode.get(error, str(error))}")
        text = f"{', '.join(names)} not counted: {reason}"
        notes.append(informs("counters-unavailable", text, count=max(names.values())))
    return notes


def _table(schema: pa.Schema, names: list[str], parts: list[tuple[np.ndarray, ...]]) -> pa.Table:
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    arrays = [
        pa.DictionaryArray.from_arrays(to_arrow(column.astype(np.int16)), text_array(names))
        if field.name == "counter"
        else to_arrow(column.astype(field.type.to_pandas_dtype()))
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
