"""Page faults that are counted beside the events of a program, against the pages that it is the first to touch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from task_traces import FLAGS, SOURCES, TaskTrace, trace_of
from tracer_programs import need_libomp

from manyscale.models.workload.task_tables import EventKind

PAGES = 700
ELSEWHERE = 12  # of the runtime system, the stack and the program's own pages, in one loop

pytestmark = pytest.mark.theory


def faults_in_loop(trace: TaskTrace, label: str) -> int:
    """Those of the pieces between the loop's begin and its end."""
    loop, _ = trace.loop(label)
    begin, end = (
        next(
            number
            for number, event in enumerate(trace.rows("events"))
            if event["kind"] == kind and event["value"] == loop["loop_id"]
        )
        for kind in (EventKind.loop_begin, EventKind.loop_end)
    )
    return sum(row["num_faults"] for row in trace.rows("page_faults") if begin < row["event_id"] <= end)


def test_each_page_is_counted_where_it_is_first_touched(
    compiled: Callable[..., Path], traced: Callable[..., Any]
) -> None:
    need_libomp()
    program = compiled(SOURCES / "faults.c", "clang", *FLAGS)
    trace = trace_of(traced, program, "faults.c", str(PAGES))
    assert faults_in_loop(trace, "warm") <= ELSEWHERE
    for label in ("touch", "half"):
        assert PAGES <= faults_in_loop(trace, label) <= PAGES + ELSEWHERE
