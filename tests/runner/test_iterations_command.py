"""What ``manyscale iterations`` says of each iteration, by hand-written sequences of events."""

from __future__ import annotations

import pyarrow as pa
import pytest
from rank_events import Recorder

from manyscale.models.workload import Workload
from manyscale.models.workload.iterations import find_iterations
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.cli.iterations import summary
from manyscale.runner.run.questions.iterations import iteration_figures

MS = 10**9


def marked(laps_ms: list[int], *, calls: bool, rank: int = 0) -> Workload:
    """Iterations of a mark and a region, after a start of 10 ms. The region's two events, the piece to its call, if it
    makes one, and that to the next mark take a lap each."""
    recorder = Recorder(lap_ps=10 * MS)
    for number, lap_ms in enumerate(laps_ms):
        recorder.event(EventKind.iteration, number)
        recorder.lap_ps = lap_ms * MS
        recorder.event(EventKind.parallel_begin)
        recorder.event(EventKind.parallel_end)
        if calls:
            recorder.operation()
    recorder.lap_ps = 0
    recorder.operation()
    return recorder.workload(rank)


def compute_ms(workload: Workload) -> list[float]:
    rows = [line.split() for line in summary(workload.name, iteration_figures(workload, find_iterations(workload)))[2:]]
    assert all(row[3] == "ms" for row in rows)
    return [float(row[2]) for row in rows]


@pytest.mark.theory
def test_iterations_without_calls_take_the_time_of_their_events():
    """The last one's end comes at once."""
    assert compute_ms(marked([1, 2, 3], calls=False)) == [3, 6, 6]


@pytest.mark.theory
def test_what_precedes_the_first_mark_is_of_no_iteration():
    assert compute_ms(marked([1, 2, 3], calls=True)) == [4, 8, 9]


@pytest.mark.theory
def test_ranks_do_not_run_into_each_other():
    """The first rank ends where the second one's first mark stands."""
    one, other = marked([1, 2], calls=True), marked([1, 2], calls=True, rank=1)
    tables = {
        level: pa.concat_tables([one.tables[level], table]) if "rank" in table.column_names else table
        for level, table in other.tables.items()
    }
    assert compute_ms(Workload("two", 2, tables)) == [4, 6]
