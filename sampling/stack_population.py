"""Sampling units of a run whose call stacks were taken: SimProf's population (Huang, Georgia Tech 2015, 5.3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from manyscale.models.columns import one_chunk, to_numpy
from manyscale.models.kernels import njit
from manyscale.models.workload import Workload


@dataclass(frozen=True)
class StackPopulation:
    """``row`` int64[n], of the table ``stack_units``; ``vectors`` float64[n, methods]: the share of a unit's snapshots
    that a method is on the stack of; ``methods``, their names; ``snapshots`` float64[n]; ``cpi`` float64[n], or None
    where cycles or instructions were not measured of all units."""

    row: np.ndarray
    vectors: np.ndarray
    methods: list[str]
    snapshots: np.ndarray
    cpi: np.ndarray | None

    def __len__(self) -> int:
        return len(self.row)


def stack_units_of(workload: Workload) -> StackPopulation:
    """Units with snapshots; those without are left out, nothing being known of them. Raises ValueError if there are
    none. O(frames of all snapshots)."""
    units, samples = workload.tables["stack_units"], workload.tables["stack_samples"]
    if not samples.num_rows:
        raise ValueError("has no call stacks of sampling units; record them with manyscale trace --level stacks")
    key = _key(units)
    at = np.searchsorted(key, _key(samples))
    frames = one_chunk(workload.tables["stacks"].column("frames"))
    begin = to_numpy(frames.offsets).astype(np.int64)
    frame = to_numpy(frames.values).astype(np.int64)
    methods = workload.tables["frames"].column("name").to_pylist()
    vectors, snapshots = _shares(
        at.astype(np.int64), to_numpy(samples.column("stack_id")).astype(np.int64),
        to_numpy(samples.column("weight")).astype(np.float64), begin, frame, units.num_rows, len(methods),
    )  # fmt: skip
    row = np.flatnonzero(snapshots > 0)
    cycles = _cycles(workload, key)
    instructions = to_numpy(units.column("num_instructions")).astype(np.float64)
    cpi = None
    if cycles is not None and np.all(instructions[row] > 0) and not np.any(np.isnan(cycles[row])):
        cpi = cycles[row] / instructions[row]
    return StackPopulation(row, vectors[row], methods, snapshots[row], cpi)


def _key(table: pa.Table) -> np.ndarray:
    """int64[rows]: ascending with (rank, thread, unit)."""
    rank, thread, unit = (to_numpy(table.column(name)).astype(np.int64) for name in ("rank", "thread", "unit_id"))
    return np.asarray((rank << 16 | thread) << 31 | unit)


def _cycles(workload: Workload, key: np.ndarray) -> np.ndarray | None:
    table = workload.tables["unit_counters"]
    if not table.num_rows:
        return None
    named = one_chunk(table.column("counter"))
    names = named.dictionary.to_pylist()
    if "cycles" not in names:
        return None
    mine = to_numpy(named.indices) == names.index("cycles")
    found = np.full(len(key), np.nan)
    found[np.searchsorted(key, _key(table)[mine])] = to_numpy(table.column("value"))[mine]
    return found


@njit(cache=True, nogil=True)
def _shares(unit, stack, weight, begin, frame, num_units, num_methods):  # type: ignore[no-untyped-def]
    found = np.zeros((num_units, num_methods))
    total = np.zeros(num_units)
    seen = np.full(num_methods, -1, np.int64)
    for i in range(unit.shape[0]):
        total[unit[i]] += weight[i]
        for at in range(begin[stack[i]], begin[stack[i] + 1]):
            if seen[frame[at]] != i:  # once for each snapshot, however often it recurs
                seen[frame[at]] = i
                found[unit[i], frame[at]] += weight[i]
    for row in range(num_units):
        if total[row] > 0:
            found[row] /= total[row]
    return found, total
