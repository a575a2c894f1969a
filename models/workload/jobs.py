"""Programs that share a machine, as one workload: ranks of a job follow those of the job before.

Nothing of what jobs do refers to another one's ranks: communicators, regions, kernels and groups have numbers of their
own behind those of the jobs before, and communicator 0 has the ranks of all. What slows them is what the machine
shares: the links of the network, where its model has some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    COLLECTIVES,
    KIND_NAMES,
    NO_RANK,
    NO_REQUEST,
    SCHEMAS,
    Note,
    OperationKind,
    Workload,
    WorkloadError,
)
from manyscale.models.workload.columns import text_array, to_arrow, to_numpy
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.operation_tables import JOBS_SCHEMA
from manyscale.models.workload.rules import RULES, Rules
from manyscale.models.workload.task_tables import EventKind

LEVELS: Final = (  # that jobs may have; the others are of one program, or name what is kept beside the tables
    "operations", "phases", "regions", "communicators", "counters", "measured", "dependencies", "task_types", "events",
    "tasks", "task_dependences", "loops", "loop_chunks", "task_counters", "chunk_counters", "page_faults", "iterations",
    "gpu_operations", "kernels", "traced_gpus", "groups", "steps", "measured_steps",
    "trained_models", "gpu_memory",
)  # fmt: skip
_OF_ALL: Final = ("regions", "communicators", "task_types", "kernels", "groups", "traced_gpus")  # of a job that idles
_MARKS: Final = (int(EventKind.mark_begin), int(EventKind.mark_end))


def joined(jobs: Sequence[Workload], alone: int | None = None) -> Workload:
    """The workload of ``jobs`` that run at the same time. ``alone``: the only one that does, while ranks of the
    others idle at their places. O(rows). Raises WorkloadError for jobs that cannot share a machine."""
    for job in jobs:
        _check(job)
    if len({job.tables["dependencies"].num_rows > 0 for job in jobs}) > 1:
        raise WorkloadError("operations of some of the jobs are a graph (GOAL), and those of others run one by one")
    has_all_times = all(job.is_measured for job in jobs)
    before: Counter[str] = Counter({"communicators": 1})
    parts: dict[str, list[pa.Table]] = {level: [] for level in LEVELS}
    first_ranks = np.cumsum([0, *(job.num_ranks for job in jobs)])
    everyone = np.arange(first_ranks[-1], dtype=np.int32)
    world = pa.ListArray.from_arrays(to_arrow(np.array([0, len(everyone)], np.int32)), to_arrow(everyone))
    parts["communicators"].append(pa.Table.from_arrays([world], schema=SCHEMAS["communicators"]))
    for number, job in enumerate(jobs):
        tables = dict(job.tables) if alone in (None, number) else _idle(job)
        if not has_all_times:
            tables["measured"] = SCHEMAS["measured"].empty_table()
        tables["groups"] = _renamed(tables["groups"], number + 1)
        for level in LEVELS:
            parts[level].append(_moved(level, tables[level], before))
        before.update({level: tables[level].num_rows for level in LEVELS} | {"ranks": job.num_ranks})
    found = {level: pa.concat_tables(each).unify_dictionaries().combine_chunks() for level, each in parts.items()}
    names = [job.name for job in jobs]
    found["jobs"] = pa.Table.from_arrays(
        [text_array(names), *(to_arrow(each.astype(np.int32)) for each in (first_ranks[:-1], np.diff(first_ranks)))],
        schema=JOBS_SCHEMA,
    )
    notes = [_placed(note, number) for number, job in enumerate(jobs, 1) for note in job.notes]
    formats = {job.source_format for job in jobs}
    return Workload(" + ".join(names), len(everyone), found, tuple(notes), formats.pop() if len(formats) == 1 else "")


def _check(job: Workload) -> None:
    wrong = [level for level, table in job.tables.items() if level not in LEVELS and table.num_rows]
    if job.detail is not None or job.gpu is not None or wrong:
        what = wrong[0] if wrong else "instructions"
        raise WorkloadError(
            f"{job.name}: holds {what}, and jobs that share a machine have times of operations, tasks and kernels alone"
        )


def _placed(note: Note, number: int) -> Note:
    return replace(note, where=": ".join(filter(None, (f"job {number}", note.where))))


def _idle(job: Workload) -> dict[str, pa.Table]:
    """Tables of the job's ranks where they do nothing, but have their GPUs: they set no bytes of these, in no time."""
    found = {level: job.tables[level] if level in _OF_ALL else SCHEMAS[level].empty_table() for level in LEVELS}
    kind = job.column("gpu_operations", "kind")
    runs = (kind <= int(GpuOperationKind.set)) | (kind == int(GpuOperationKind.communication))  # on its device
    pairs = np.stack([job.column("gpu_operations", name)[runs] for name in ("rank", "device")])
    used, device = np.unique(pairs, axis=1)  # of each rank, by device
    rank = np.concatenate((used, np.setdiff1d(np.arange(job.num_ranks), used)))
    order = np.argsort(rank, kind="stable")
    place = np.empty(len(rank), np.int64)
    place[order] = np.arange(len(rank)) - np.searchsorted(rank[order], rank[order])
    found["operations"] = _filled(
        "operations", len(rank), rank=rank[order], kind=int(OperationKind.other), peer=NO_RANK, source=NO_RANK,
        request=NO_REQUEST,
    )  # fmt: skip
    if job.is_measured:
        found["measured"] = _filled("measured", len(rank))
    found["gpu_operations"] = _filled(
        "gpu_operations", len(used), rank=used, operation_id=place[: len(used)], kind=int(GpuOperationKind.set),
        device=device, peer=-1, kernel_id=-1,
    )  # fmt: skip
    return found


def idles(workload: Workload, first: int, end: int) -> bool:
    """Whether ranks ``first`` to ``end`` do nothing, as those of a job beside the one that runs alone."""
    own = slice(workload.rank_offsets[first], workload.rank_offsets[end])
    if np.any(workload.column("operations", "kind")[own] != int(OperationKind.other)):
        return False
    if workload.phase_offsets[end] > workload.phase_offsets[first]:
        return False
    rank, kind, size = (workload.column("gpu_operations", name) for name in ("rank", "kind", "bytes"))
    mine = slice(*np.searchsorted(rank, (first, end)))
    return bool(np.all(kind[mine] == int(GpuOperationKind.set)) and not np.any(size[mine]))


def _filled(level: str, count: int, **values: np.ndarray | int) -> pa.Table:
    """Rows whose other columns are 0, or lists without values."""
    columns = []
    for field in SCHEMAS[level]:
        column = np.broadcast_to(np.asarray(values.get(field.name, 0)), count)
        if pa.types.is_list(field.type):
            columns.append(pa.nulls(count, field.type))
        elif pa.types.is_dictionary(field.type):
            columns.append(pa.DictionaryArray.from_arrays(to_arrow(column.astype(np.int8)), KIND_NAMES))
        else:
            columns.append(to_arrow(column.astype(field.type.to_pandas_dtype())))
    return pa.Table.from_arrays(columns, schema=SCHEMAS[level])


def _renamed(groups: pa.Table, number: int) -> pa.Table:
    names = text_array([f"job{number}:{name}" for name in groups.column("group_name").to_pylist()])
    return groups.set_column(1, groups.schema.field(1), names)


def _moved(level: str, table: pa.Table, before: Mapping[str, int]) -> pa.Table:
    """A table with its ranks, and its rows of other tables, behind those of the jobs ``before``."""
    if not table.num_rows:
        return table
    shift = {rule.column: before[rule.end] for rule in RULES.get(level, Rules()).values
             if isinstance(rule.end, str) and not rule.per_rank and rule.end != level}  # fmt: skip
    if "rank" in table.schema.names:
        shift["rank"] = before["ranks"]
    moved = {name: _shifted(table.column(name).combine_chunks(), by) for name, by in shift.items() if by}
    if level == "operations":
        moved |= _of_operations(table, moved)
    elif level == "events":
        value, kind = (to_numpy(table.column(name)) for name in ("value", "kind"))
        moved["value"] = to_arrow(np.where(np.isin(kind, _MARKS), value + before["regions"], value))
    for name, column in moved.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), column)
    return table


def _of_operations(table: pa.Table, moved: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Columns that do not say the same in all rows: the root of a collective is a member of its group, and accesses of
    files by a rank alone are of communicator 0."""
    kind = to_numpy(table.column("kind"))
    found = {}
    if "peer" in moved:
        root = (kind >= COLLECTIVES.start) & (kind < COLLECTIVES.stop)
        peer = to_numpy(table.column("peer"))
        found["peer"] = to_arrow(np.where(root, peer, to_numpy(moved["peer"])))
    communicator = to_numpy(table.column("communicator_id"))
    own = (kind == int(OperationKind.other)) & (communicator == 0)
    found["communicator_id"] = to_arrow(np.where(own, 0, to_numpy(moved["communicator_id"])))
    return found


def _shifted(column: pa.Array, by: int) -> pa.Array:
    """What is not negative, or in lists is not, and ``by`` more."""
    if pa.types.is_list(column.type):
        values = _shifted(column.values, by)
        return pa.ListArray.from_arrays(column.offsets, values)
    values = to_numpy(column)
    return to_arrow(np.where(values >= 0, values + by, values).astype(values.dtype))
