"""Which pieces of a detailed trace an iteration holds, by hand-written sequences of events."""

from __future__ import annotations

import pytest
from rank_events import Recorder

from manyscale.models.workload import detail_tables, task_tables
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.errors import UserError
from manyscale.runner.predict.node.cells.cell_units import check_machine
from manyscale.runner.predict.node.cells.plan import WHOLE, detailed_segments, plan_cells
from manyscale.runner.predict.node.rank_part import _BY_RANK, _INSTRUCTIONS, _STATIC
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import build_machine, target_named


def region(recorder: Recorder) -> None:
    """Two events and an operation, with instructions before each."""
    recorder.event(EventKind.parallel_begin, segment=True)
    recorder.event(EventKind.parallel_end, segment=True)
    recorder.segment(len(recorder.rows["events"]))  # the tracer names the next event, wherever the piece ends
    recorder.operation()


def iterations_of(recorder: Recorder, operations: list[int], events: list[int], annotated: bool) -> list[int]:
    recorder.rows["iterations"] = [
        {
            "iteration": number, "first_operation_id": operations[number], "end_operation_id": operations[number + 1],
            "first_event_id": events[number], "end_event_id": events[number + 1], "annotated": annotated,
        }
        for number in range(len(operations) - 1)
    ]  # fmt: skip
    return detailed_segments(recorder.workload())[1].tolist()


@pytest.mark.theory
def test_an_iteration_found_by_its_calls_begins_right_after_the_call_before():
    recorder = Recorder()
    recorder.operation(segment=True)
    for _ in range(3):
        region(recorder)
    found = iterations_of(recorder, [1, 2, 3, 4], [0, 2, 4, 6], annotated=False)
    assert found == [WHOLE, 0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.theory
def test_what_precedes_a_mark_is_of_the_iteration_before():
    recorder = Recorder()
    recorder.operation(segment=True)
    for number in range(2):
        recorder.event(EventKind.iteration, number, segment=True)
        region(recorder)
    found = iterations_of(recorder, [1, 2, 3], [0, 3, 6], annotated=True)
    assert found == [WHOLE, WHOLE, 0, 0, 0, 0, 1, 1, 1]


@pytest.mark.theory
def test_an_iteration_without_calls_begins_behind_its_first_event():
    """Found by what the runtime system was asked to do: the piece before a region is of the iteration before."""
    recorder = Recorder()
    for _ in range(3):
        recorder.event(EventKind.parallel_begin, segment=True)
        recorder.event(EventKind.parallel_end, segment=True)
    found = iterations_of(recorder, [0, 0, 0], [2, 4, 6], annotated=False)
    assert found == [WHOLE, WHOLE, WHOLE, 0, 0, 1]


@pytest.mark.contract
def test_a_function_traced_alone_has_no_place_and_is_refused():
    recorder = Recorder()
    recorder.operation(segment=True)
    recorder.rows["segments"][0]["operation_id"] = -1
    workload = recorder.workload()
    study = parse_study({"workload": {"path": "a"}, "target": "laptop", "model": {"cpu": "detailed"}}, "study")
    with pytest.raises(UserError, match=r"no place between operations.*--sampling intervals=full"):
        plan_cells(workload, workload, study, "a")


def test_cores_with_several_threads_are_refused():
    _, content = target_named("marenostrum3")
    check_machine(build_machine(dict(content), "marenostrum3"))
    content["node"]["core"]["hardware_threads"] = 2
    with pytest.raises(UserError, match=r"one thread each, not 2 \(node.core.hardware_threads\)"):
        check_machine(build_machine(dict(content), "marenostrum3"))


@pytest.mark.contract
def test_a_rank_s_part_has_every_table_of_its_tasks_and_code():
    """One that is forgotten is empty in its units, and nothing says so. Counters are read by no model of a node."""
    every = {*task_tables.SCHEMAS, *detail_tables.SCHEMAS}
    assert every - {*_BY_RANK, *_STATIC, *_INSTRUCTIONS} == {"task_counters", "chunk_counters"}
