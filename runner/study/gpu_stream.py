"""The launches of a GPU's trace as phases of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from manyscale.models.workload import PHASES_SCHEMA, REGIONS_SCHEMA, PhaseKind, Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.runner.errors import UserError


def chosen_launches(workload: Workload, numbers: Sequence[int], place: str) -> Workload:
    """``workload`` with those launches alone, whatever its reader chose; all without ``numbers``. ``place``: its path,
    for errors. Raises UserError for one that it has not."""
    if not numbers:
        return workload
    known = workload.column("launches", "launch_id")
    if not len(known):
        raise UserError(f"{place}: has no kernel launches to choose from; leave --launch (workload.launches) out")
    missing = sorted(set(numbers) - set(known.tolist()))
    if missing:
        raise UserError(f"{place}: has no launch {missing[0]}; its launches are {known.min()} to {known.max()}")
    mine = np.isin(known, numbers)
    if mine.all():
        return workload
    was_stream = workload.tables["phases"].num_rows == len(known)
    workload = replace(workload, tables={**workload.tables, "launches": workload.tables["launches"].filter(mine)})
    return _as_phases(workload) if was_stream else workload


def with_phases(workload: Workload) -> Workload:
    """``workload``, or, if it has launches but knows no phases: one of which each launch is a compute phase of rank 0,
    in its kernel's region, before an operation ``other``. The trace does not say how long they took. O(launches)."""
    is_bare = not workload.tables["phases"].num_rows and workload.num_operations == 1
    return _as_phases(workload) if workload.tables["launches"].num_rows and is_bare else workload


def _as_phases(workload: Workload) -> Workload:
    count = workload.tables["launches"].num_rows
    kernels = workload.tables["launches"].column("kernel_name").to_pylist()
    regions = list(dict.fromkeys(kernels))
    number = {name: index for index, name in enumerate(regions)}
    phases: list[np.ndarray] = [
        np.zeros(count, np.int32),
        np.arange(count, dtype=np.int32),
        np.full(count, PhaseKind.compute, np.int8),
        np.array([number[name] for name in kernels], np.int32),
        np.zeros(count, np.int64),
    ]
    operation = workload.tables["operations"].slice(0, 1)
    tables = {
        **workload.tables,
        "operations": pa.concat_tables([operation] * count).combine_chunks(),
        "phases": pa.Table.from_arrays(list(map(to_arrow, phases)), schema=PHASES_SCHEMA),
        "regions": pa.Table.from_arrays([text_array(regions)], schema=REGIONS_SCHEMA),
    }
    return replace(workload, tables=tables)
