"""Task instances on cores in the Chrome trace: a complete event per row of ``cores``, with what is known of the
instance as arguments, and an arrow from what created it; and calls of MPI inside tasks that a core waits in.

An arrow begins where the instance was created, in what its creator executed then. One whose creator is not shown there,
since only one of the two was simulated, is left out.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyscale.models.workload import OperationKind, Workload
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.readers.paraver.labels import call_name
from manyscale.runner.report.core_rows import CoreRows
from manyscale.runner.report.perfetto.tracks import inside, track_of_core
from manyscale.runner.report.text_columns import batches, contents, integers, join, microseconds, picked, where
from manyscale.runner.run.results import Result

_TRACED: Final = ("burst", "ratio")
_PER_UNIT: Final = 1000  # IPC is written with three decimals


def write_cores(file: gzip.GzipFile, rows: CoreRows) -> None:
    """A slice per row, named as its task type; those of a track never overlap, cut to nanoseconds neither."""
    head, track = _heads(rows, '{"ph":"X",')
    called = [f',"name":{json.dumps(name)},"args":{{"instance_id":' for name in rows.types]
    models = [f',"model":{json.dumps(name)}' for name in rows.models]
    counts = {"instructions": rows.instructions, "cycles": rows.cycles}
    counts |= {f"l{level}_misses": values for level, values in rows.misses.items()}
    for batch in batches(len(rows)):
        start, end = rows.start_ps[batch], rows.end_ps[batch]
        text = join(
            picked(head, track[batch]), ',"ts":', microseconds(start), ',"dur":', microseconds(end - start),
            picked(called, rows.kind[batch]), integers(rows.instance_id[batch]),
            ',"task_instance_id":', integers(rows.task_instance_id[batch]),
            ',"creator_id":', integers(rows.creator_id[batch]),
            _known(',"created_us":', rows.created_ps[batch] >= 0, microseconds, rows.created_ps[batch]),
            _known(',"ready_us":', rows.ready_ps[batch] >= 0, microseconds, rows.ready_ps[batch]),
            picked(models, rows.model[batch]),
            *(_known(f',"{name}":', values[batch] >= 0, integers, values[batch]) for name, values in counts.items()),
            _known(',"ipc":', ~np.isnan(rows.ipc[batch]), _thousandths, np.nan_to_num(rows.ipc[batch])), "}},\n",
        )  # fmt: skip
        file.write(contents(text))


def _known(key: str, has: np.ndarray, text: Callable[[np.ndarray], pa.Array], values: np.ndarray) -> pa.Array:
    """An argument of the slices that have it."""
    return where(has, join(key, text(values[has])))


def _thousandths(values: np.ndarray) -> pa.Array:
    whole, rest = np.divmod(np.rint(values * _PER_UNIT).astype(np.int64), _PER_UNIT)
    return join(integers(whole), ".", pc.ascii_lpad(integers(rest), 3, padding="0"))


@dataclass(frozen=True)
class Creations:
    """Rows of instances that an arrow leads to, the rows that it begins in, and what is left out."""

    row: np.ndarray
    creator: np.ndarray
    notes: list[str]


def creations(rows: CoreRows, most: int) -> Creations:
    """At most ``most`` arrows: every k-th of more. Of the creator's rows it is the last that begins before the instance
    is created. O(rows log rows)."""
    order = np.lexsort((rows.start_ps, rows.instance_id))
    instance = rows.instance_id[order]
    first = order[np.append(True, instance[1:] != instance[:-1])] if len(order) else order
    created = first[rows.creator_id[first] >= 0]
    moments, places = np.unique(np.concatenate([rows.start_ps[order], rows.created_ps[created]]), return_inverse=True)
    numbers = np.unique(instance)
    # (instance, time) as one integer: places instead of picoseconds keep it far from overflow
    known = np.searchsorted(numbers, instance) * len(moments) + places[: len(order)]
    owner = np.minimum(np.searchsorted(numbers, rows.creator_id[created]), len(numbers) - 1)
    found = np.searchsorted(known, owner * len(moments) + places[len(order) :], "right") - 1
    creator = order[np.maximum(found, 0)]
    is_traced = np.isin(np.arange(len(rows.models)), [n for n, name in enumerate(rows.models) if name in _TRACED])
    shown = (found >= 0) & (rows.instance_id[creator] == rows.creator_id[created])
    shown &= is_traced[rows.model[creator]] == is_traced[rows.model[created]]
    created, creator = created[shown], creator[shown]
    step = max(1, -(-len(created) // most))
    notes = [f"an arrow for one creation of a task instance in {step} of {len(created)}"] if step > 1 else []
    return Creations(created[::step], creator[::step], notes)


def write_creations(file: gzip.GzipFile, rows: CoreRows, found: Creations) -> None:
    """The arrows, known by the instance that they lead to."""
    shared = '"name":"creation","cat":"creation",'
    begin, track = _heads(rows, f'{{"ph":"s",{shared}')
    finish, _ = _heads(rows, f'{{"ph":"f","bp":"e",{shared}')
    for batch in batches(len(found.row)):
        row, creator = found.row[batch], found.creator[batch]
        begins = inside(rows.created_ps[row], rows.start_ps[creator], rows.end_ps[creator])
        number = integers(rows.instance_id[row])
        text = join(
            picked(begin, track[creator]), ',"id":', number, ',"ts":', microseconds(begins), "},\n",
            picked(finish, track[row]), ',"id":', number, ',"ts":', microseconds(rows.start_ps[row]), "},\n",
        )  # fmt: skip
        file.write(contents(text))


@dataclass(frozen=True)
class Waits:
    """MPI operations that cores wait in, int64 each."""

    rank: np.ndarray
    core: np.ndarray
    operation: np.ndarray
    start_ps: np.ndarray
    end_ps: np.ndarray


def waits_of(result: Result) -> Waits:
    """Of ranks that call MPI inside tasks; none of others."""
    table = result.core_calls
    names = ("rank", "core", "operation_id", "start_ps", "end_ps")
    if table is None:
        return Waits(*(np.empty(0, np.int64) for _ in names))
    columns = [to_numpy(table.column(name)).astype(np.int64) for name in names]
    shown = (columns[1] >= 0) & (columns[4] > columns[3])
    return Waits(*(each[shown] for each in columns))


def write_calls(file: gzip.GzipFile, workload: Workload, waits: Waits) -> None:
    """A slice of its core for each, named as the call."""
    called = [f',"name":"{call_name(kind)}","args":{{"operation_id":' for kind in OperationKind]
    kind = workload.column("operations", "kind")[workload.rank_offsets[waits.rank] + waits.operation]
    width = int(waits.core.max(initial=0)) + 1
    known, track = np.unique(waits.rank * width + waits.core, return_inverse=True)
    head = [f'{{"ph":"X",{track_of_core(*divmod(each, width))},"ts":' for each in known.tolist()]
    for batch in batches(len(waits.rank)):
        start, end = waits.start_ps[batch], waits.end_ps[batch]
        text = join(
            picked(head, track[batch]), microseconds(start), ',"dur":', microseconds(end - start),
            picked(called, kind[batch]), integers(waits.operation[batch]), "}},\n",
        )  # fmt: skip
        file.write(contents(text))


def _heads(rows: CoreRows, begin: str) -> tuple[list[str], np.ndarray]:
    """How events of each core begin, and which of these a row's does."""
    width = int(rows.core.max()) + 1
    known, track = np.unique(rows.rank * width + rows.core, return_inverse=True)
    return [f"{begin}{track_of_core(*divmod(each, width))}" for each in known.tolist()], track
