"""Which pieces are the runtime system's, and how long they take, by hand-written sequences of events."""

from __future__ import annotations

import numpy as np
import pytest
from rank_events import Recorder

from manyscale.models.node.program.build import build_program
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.predict.node.creation import LONG, as_traced, creation_pieces


def regions(laps: list[int], chunk_ps: int = 7, chunks: int = 2) -> Recorder:
    """Regions of one loop each: four laps up to its first chunk, then two of each chunk's work and of the end."""
    recorder = Recorder()
    for lap_ps in laps:
        recorder.lap_ps = lap_ps
        with recorder.parallel(), recorder.loop("dynamic", chunks, 1) as loop:
            recorder.chunk(loop, 0, 1)
            recorder.lap_ps = chunk_ps
            for first in range(1, chunks):
                recorder.chunk(loop, first, 1)
        recorder.operation()
    return recorder


def tasks(create_ps: int, work_ps: int) -> Recorder:
    recorder = Recorder()
    for _ in range(3):
        recorder.lap_ps = create_ps
        number = recorder.create()
        recorder.lap_ps = work_ps
        with recorder.execute(number):
            pass
    recorder.wait()
    return recorder


@pytest.mark.theory
def test_a_loop_is_entered_by_the_runtime_system_unless_that_takes_long():
    long_ps = 10 * LONG + 1
    workload = regions([10, 10, 10, long_ps]).workload()
    program = build_program(workload, 0, 2)
    found = creation_pieces(program, workload)
    kind = workload.column("events", "kind")
    assert program.piece_ps[found].tolist() == [40, 40, 40]
    assert (kind[program.piece_event[found]] == EventKind.loop_chunk).all()
    entered = (program.piece_instance == 0) & (program.piece_ps == 4 * long_ps)
    assert np.count_nonzero(entered) == 1
    assert not found[entered].any()


@pytest.mark.theory
def test_work_of_chunks_is_not_the_runtime_systems():
    """Chunks shorter than what enters a loop end where the next one begins."""
    workload = regions([10, 10], chunk_ps=1, chunks=4).workload()
    program = build_program(workload, 0, 2)
    found = creation_pieces(program, workload)
    assert np.count_nonzero(found) == 2
    assert (program.piece_instance[found] == 0).all()


@pytest.mark.theory
def test_creation_takes_its_time_without_recording():
    plain, detailed = tasks(10, 500).workload(), tasks(120, 4000).workload()
    program, base = (build_program(each, 0, 2) for each in (detailed, plain))
    creates, of_base = creation_pieces(program, detailed), creation_pieces(base, plain)
    found, which = as_traced(program, creates, detailed, base, of_base, plain)
    assert np.array_equal(which, creates)
    assert np.array_equal(found.piece_ps[which], base.piece_ps[of_base])
    assert np.array_equal(found.piece_ps[~which], program.piece_ps[~creates])
    assert found.piece_ps[which].sum() < program.piece_ps[creates].sum()


@pytest.mark.contract
def test_runs_that_differ_keep_their_times():
    plain, detailed = regions([10]).workload(), tasks(120, 4000).workload()
    program, base = (build_program(each, 0, 2) for each in (detailed, plain))
    creates = creation_pieces(program, detailed)
    found, which = as_traced(program, creates, detailed, base, creation_pieces(base, plain), plain)
    assert found is program
    assert which is creates
