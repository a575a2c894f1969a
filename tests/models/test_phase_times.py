"""The choice of a clock for the phases of a workload."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from manyscale.models.workload import PHASE_TIMES_SCHEMA, Workload, WorkloadError
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.notes import Note
from manyscale.models.workload.phase_times import by_clock, notes_on_clocks, without_clocks
from manyscale.runner import shipped
from manyscale.runner.readers import simgrid_ti

pytestmark = pytest.mark.theory


@cache
def traced() -> Workload:
    return simgrid_ti.read(shipped.folder() / "comd-8.tar.zst")


def clocked(thread: float, process: float, wall: float) -> Workload:
    """A workload whose clocks show so many times what its phases take."""
    plain = traced()
    duration = plain.column("phases", "duration_ps")
    assert duration.sum()
    columns = [to_arrow(np.rint(duration * factor).astype(np.int64)) for factor in (thread, process, wall)]
    times = pa.Table.from_arrays(columns, schema=PHASE_TIMES_SCHEMA)
    return replace(plain, tables={**plain.tables, "phase_times": times})


def told(notes: list[Note] | tuple[Note, ...]) -> list[str]:
    return [note.severity for note in notes if note.code.endswith("clocks-differ")]


def test_each_clock_can_be_chosen() -> None:
    workload = clocked(0.5, 4, 2)
    was = workload.column("phases", "duration_ps")
    for clock, factor in (("cpu", 0.5), ("process", 4), ("wall", 2)):
        chosen = by_clock(workload, clock)
        assert chosen.column("phases", "duration_ps").tolist() == np.rint(was * factor).tolist()
        assert chosen.tables["phase_times"].num_rows == 0
        assert told(chosen.notes) == ["changes"]
    assert without_clocks(workload).digest == traced().digest
    with pytest.raises(WorkloadError, match=r"one clock only .*; leave the choice of a clock \(time\) out"):
        by_clock(without_clocks(workload), "wall")


@pytest.mark.parametrize(
    ("clocks", "severity"),
    [((1, 1, 1), []), ((0.96, 1, 1.04), []), ((0.94, 1, 1), ["changes"]), ((1, 1.06, 1), ["informs"]),
     ((1, 1, 1.07), ["informs"])],
)  # fmt: skip
def test_a_difference_of_five_percent_is_told(clocks: tuple[float, float, float], severity: list[str]) -> None:
    assert told(notes_on_clocks(clocked(*clocks))) == severity


def test_a_table_that_lacks_phases_is_refused() -> None:
    workload = clocked(1, 1, 1)
    short = {**workload.tables, "phase_times": workload.tables["phase_times"].slice(1)}
    with pytest.raises(WorkloadError, match="one row per phase"):
        replace(workload, tables=short)
