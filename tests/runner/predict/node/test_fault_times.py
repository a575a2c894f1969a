"""Page faults of a trace as time beside simulated instructions: counts times cost, where the trace has them."""

from __future__ import annotations

import numpy as np
import pytest
from rank_events import Recorder
from told import told

from manyscale.models.node.program.build import build_program
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.predict.node.page_faults import PageFaults, page_faults_of

COST_PS = 1_000
pytestmark = pytest.mark.theory


def faults_of(cores: int, cost_ps: int = COST_PS) -> tuple[PageFaults, np.ndarray]:
    """A static loop of 8 iterations with 12 faults, and 5 faults before the operation after it, behind a sleep; and how
    many parts each piece is one of."""
    record = Recorder(lap_ps=100)
    with record.parallel(), record.loop("static", 8) as loop:
        record.chunk(loop, 0, 8)
    end = next(i for i, each in enumerate(record.rows["events"]) if each["kind"] == EventKind.loop_end)
    record.operation(sleep_ps=7_000)
    record.rows["page_faults"] = [
        {"operation_id": 0, "event_id": end, "num_faults": 12}, {"operation_id": 0, "event_id": -1, "num_faults": 5},
    ]  # fmt: skip
    workload = record.workload()
    program = build_program(workload, 0, cores)
    found = page_faults_of(program, workload, 0, cores, RuntimeSystem(), cost_ps, (0, program.num_phases))
    return found, program.num_parts


@pytest.mark.parametrize("cores", [1, 4])
def test_each_part_of_a_loop_has_its_share(cores: int) -> None:
    found, num_parts = faults_of(cores)
    of_loop = num_parts == cores if cores > 1 else found.piece_ps == 12 * COST_PS
    assert found.piece_ps[of_loop].tolist() == cores * [12 * COST_PS // cores]
    assert found.piece_ps.sum() == 17 * COST_PS
    assert [note for note in told(found.notes) if "17 page faults" in note]


def test_without_a_cost_they_take_no_time_and_that_is_told() -> None:
    found, _ = faults_of(2, cost_ps=0)
    assert not found.piece_ps.any()
    (note,) = found.notes
    assert (note.code, note.count, note.errs) == ("page-faults-free", 17, "too short")


def test_a_cell_without_faults_says_nothing() -> None:
    record = Recorder()
    record.operation()
    workload = record.workload()
    program = build_program(workload, 0, 1)
    found = page_faults_of(program, workload, 0, 1, RuntimeSystem(), COST_PS, (0, program.num_phases))
    assert not found.piece_ps.any()
    assert not found.notes
