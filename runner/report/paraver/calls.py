"""On which thread of a Paraver trace MPI operations are, and when.

Where ranks call MPI inside tasks, the operation is on the thread of the core that waits in it, which is in the state of
its kind meanwhile, also while other cores compute. All others are on the first thread of their rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.readers.paraver import labels
from manyscale.runner.report.core_rows import CoreRows
from manyscale.runner.report.operation_times import operation_times
from manyscale.runner.report.paraver.hierarchy import Hierarchy
from manyscale.runner.report.paraver.records import Records, nanoseconds, states
from manyscale.runner.run.results import STATES, Result, states_array


@dataclass(frozen=True)
class Calls:
    """int64 per operation: ``thread`` (index among all), ``begin_ps``, ``end_ps``. ``first``: thread of each rank's
    states. ``of_cores`` bool[ranks]: whether the operations of a rank are on its cores. ``waits``: operations that a
    core waits in, ``state`` the number of the Paraver state of each."""

    rank: np.ndarray
    thread: np.ndarray
    begin_ps: np.ndarray
    end_ps: np.ndarray
    first: np.ndarray
    of_cores: np.ndarray
    waits: np.ndarray
    state: np.ndarray

    def with_waiting(self, rows: CoreRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rank, begin and end of what cores execute or wait for, by rank and begin."""
        own = (self.rank[self.waits], self.begin_ps[self.waits], self.end_ps[self.waits])
        rank, begin, end = (
            np.concatenate(both) for both in zip((rows.rank, rows.start_ps, rows.end_ps), own, strict=True)
        )
        order = np.lexsort((begin, rank))
        return rank[order], begin[order], end[order]


def calls_of(result: Result, threads: Hierarchy) -> Calls:
    """Of all operations of a result. O(operations + states)."""
    workload, table = result.workload, result.core_calls
    rank = workload.column("operations", "rank").astype(np.int64)
    begin, end = operation_times(workload, result.ranks)
    thread, first = threads.first[rank], threads.first[:-1]
    of_cores = np.zeros(workload.num_ranks, np.bool_)
    waits = np.empty(0, np.int64)
    if table is not None and table.num_rows:
        owner, operation, core, start, stop = (
            to_numpy(table.column(name)).astype(np.int64)
            for name in ("rank", "operation_id", "core", "start_ps", "end_ps")
        )
        row = workload.rank_offsets[owner] + operation
        begin[row], end[row], of_cores[owner] = start, stop, True
        thread = thread + 0
        thread[row] += np.maximum(core, 0)
        waits = row[(core >= 0) & (stop > start)]
    numbers = np.array([labels.STATE_NUMBERS[name] for name in STATES], np.int64)
    return Calls(rank, thread, begin, end, first, of_cores, waits, numbers[states_array(workload, waits)])


def waiting(calls: Calls, who: list[str]) -> Records:
    """States of the threads whose cores wait."""
    begin, end = nanoseconds(calls.begin_ps[calls.waits]), nanoseconds(calls.end_ps[calls.waits])
    return states(who, calls.thread[calls.waits], begin, end, calls.state)
