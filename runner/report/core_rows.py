"""What cores executed, row by row, with what is known of each task instance: what timelines show beside its time.

Instructions, cycles and misses are those of ``task_instances``, which joins by ``instance_id``. An instance that was
suspended has several rows: each has the share of its time. Misses are known of instances that were
simulated in detail as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.machine.processor import data_caches
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.predict.node.tables import codes_and_names
from manyscale.runner.run.results import Result

UNKNOWN: Final = -1


@dataclass(frozen=True)
class CoreRows:
    """Columns of ``cores``; ``kind`` and ``model`` index ``types`` and ``models``. ``instructions``, ``cycles`` and
    each of ``misses``, by level of the caches from 1 on, int64 per row, UNKNOWN where they are not known. ``ipc``
    float64 of the whole instance, NaN where it is not."""

    rank: np.ndarray
    core: np.ndarray
    start_ps: np.ndarray
    end_ps: np.ndarray
    created_ps: np.ndarray
    ready_ps: np.ndarray
    task_instance_id: np.ndarray
    instance_id: np.ndarray
    creator_id: np.ndarray
    kind: np.ndarray
    types: list[str]
    model: np.ndarray
    models: list[str]
    instructions: np.ndarray
    cycles: np.ndarray
    ipc: np.ndarray
    misses: dict[int, np.ndarray]

    def __len__(self) -> int:
        return len(self.rank)


def core_rows(result: Result) -> CoreRows | None:
    """None where no cores were simulated. O(rows log rows)."""
    cores = result.cores
    if cores is None or not cores.num_rows:
        return None
    times = ("start_ps", "end_ps", "created_ps", "ready_ps")
    names = ("rank", "core", *times, "task_instance_id", "instance_id", "creator_id")
    columns = {name: to_numpy(cores.column(name)).astype(np.int64, copy=False) for name in names}
    (kind, types), (model, models) = (codes_and_names(cores.column(name)) for name in ("task_type", "model"))
    unknown = np.full(cores.num_rows, UNKNOWN, np.int64)
    found = {"instructions": unknown, "cycles": unknown, "ipc": np.full(cores.num_rows, np.nan)}
    misses: dict[int, np.ndarray] = {}
    if result.task_instances is not None and result.task_instances.num_rows:
        levels = len(data_caches(result.machine.node.caches))
        found, misses = _counted(columns, result.task_instances, levels)
    return CoreRows(**columns, kind=kind, types=types, model=model, models=models, **found, misses=misses)


def _counted(
    columns: dict[str, np.ndarray], instances: pa.Table, levels: int
) -> tuple[dict[str, np.ndarray], dict[int, np.ndarray]]:
    """Instructions, cycles, IPC; misses by level."""
    known = to_numpy(instances.column("instance_id"))
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], columns["instance_id"]), len(order) - 1)
    row = np.where(known[order][at] == columns["instance_id"], order[at], -1)
    since, until = _shares(columns)

    def of_rows(total: np.ndarray, is_known: np.ndarray) -> np.ndarray:
        """Of each row its share, so that those of an instance add up."""
        mine = total[row].astype(np.float64)
        share = np.rint(mine * until) - np.rint(mine * since)
        return np.where((row >= 0) & is_known[row], share, UNKNOWN).astype(np.int64)

    instructions, cycles = (to_numpy(instances.column(name)) for name in ("instructions", "cycles"))
    timed = cycles > 0
    ipc = np.divide(instructions, cycles, out=np.full(len(cycles), np.nan), where=timed)
    every = np.ones(len(cycles), np.bool_)
    found = {"instructions": of_rows(instructions, every), "cycles": of_rows(cycles, timed)}
    found["ipc"] = np.where(row >= 0, ipc[row], np.nan)
    by_level = {1: "first_cache_misses", 2: "second_cache_misses"} if levels > 1 else {1: "first_cache_misses"}
    if levels > 2:
        by_level[levels] = "last_cache_misses"
    is_known = to_numpy(instances.column("first_cache_misses").is_valid())
    misses = {level: to_numpy(instances.column(name).fill_null(0)) for level, name in by_level.items()}
    return found, {level: of_rows(each, is_known) for level, each in misses.items() if is_known.any()}


def _shares(columns: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Which part of its instance's time lies before each row, and before its end."""
    instance, start = columns["instance_id"], columns["start_ps"]
    order = np.lexsort((start, instance))
    taken = (columns["end_ps"] - start)[order]
    until = np.cumsum(taken)
    first = np.flatnonzero(np.append(True, np.diff(instance[order]) != 0))
    number = np.cumsum(np.append(False, np.diff(instance[order]) != 0))
    before = (until - taken)[first][number]
    total = (np.append(until[first[1:] - 1], until[-1]) - (until - taken)[first])[number]
    ends = np.ones(len(order))
    np.divide(until - before, total, out=ends, where=total > 0)
    begins = np.zeros(len(order))
    np.divide(until - taken - before, total, out=begins, where=total > 0)
    found = np.empty((2, len(order)))
    found[:, order] = begins, ends
    return found[0], found[1]
