"""What the detailed level records: windows, the traced thread only, whatever ends the process; and what it refuses."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from detail_programs import DETAIL
from told import told
from tracer_programs import need, need_libomp

from manyscale.runner.errors import UserError
from manyscale.runner.readers.raw_trace.files import read_processes
from manyscale.runner.readers.raw_trace.task_events import event_ids
from manyscale.runner.tracers import build


@pytest.mark.theory
@pytest.mark.parametrize("ending", ["exit", "fork"])
def test_iterations_are_segments_of_the_traced_thread(detail_programs, ending):
    """1000 loads and stores in each iteration; the second thread and the forked child make none."""
    raw, done = detail_programs.run(detail_programs.build("endings.c"), "10", ending)
    assert done.returncode == 0, done.stderr
    run = detail_programs.read(raw, detail_programs.build("endings.c", "counting"))
    assert (run.of("sweep")["loads"], run.of("sweep")["stores"]) == (10_000, 10_000)
    assert "other" not in set(run.blocks.function)
    assert run.notes == []
    segments = run.tables["segments"].to_pandas()
    marks = event_ids(run.process)  # between which records of page faults stand
    assert marks[segments.event_id].tolist() == [*range(10), -1]  # before each mark, and behind the last one
    assert (segments.num_accesses[1:] // 1000).tolist() == [2] * 10
    instructions = run.tables["blocks"]["num_instructions"].to_numpy()
    first = 0
    for segment in segments.itertuples():
        executed = run.block_ids[first : first + segment.num_blocks]
        assert instructions[executed].sum() == segment.num_instructions
        first += segment.num_blocks


@pytest.mark.theory
@pytest.mark.parametrize("windows", ["i 0 3 5", "i 0 3 4\ni 0 7 8", "i 1 0 10"])
def test_windows_record_their_iterations_only(detail_programs, windows):
    raw, _ = detail_programs.run(detail_programs.build("endings.c"), "10", windows=windows)
    run = detail_programs.read(raw)
    expected = 0 if windows.startswith("i 1") else 2000
    assert (run.of("sweep")["loads"], run.of("sweep")["stores"]) == (expected, expected)


@pytest.mark.theory
def test_frames_of_tasks_and_chunks_are_told_from_those_of_their_creator(detail_programs):
    """What fill() stores lies in frames of its own instance, what it loads in main's: four tasks and one chunk."""
    need_libomp()
    program = detail_programs.build("task_locals.c", "detailed", "-fopenmp")
    raw, done = detail_programs.run(program, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    run = detail_programs.read(raw)
    of_task = run.tables["task_stacks"].to_pandas().set_index("task_instance_id")
    ends = np.cumsum(run.tables["segments"].column("num_accesses").to_numpy())
    task = (
        run.tables["segments"]
        .column("task_instance_id")
        .to_numpy()[np.searchsorted(ends, np.arange(len(run.addresses)), "right")]
    )
    filling = (run.blocks.function == "fill").to_numpy()[run.access_blocks]
    assert np.count_nonzero(filling) == 8 * 256 * 2
    bounds = of_task.loc[task[filling]]
    address = run.addresses[filling].astype(np.int64)
    is_own = (address >= bounds.first_address.to_numpy()) & (address < bounds.end_address.to_numpy())
    assert np.array_equal(is_own, np.arange(len(is_own)) % 2 == 1)  # each load before its store
    assert len(np.unique(task[filling])) == 5
    assert (of_task.index > 0).all()


@pytest.mark.theory
def test_a_killed_program_leaves_whole_chunks_and_a_note(detail_programs):
    raw, done = detail_programs.run(detail_programs.build("endings.c"), "1000", "kill")
    assert done.returncode == -9
    run = detail_programs.read(raw)
    assert any("are lost" in note for note in told(run.notes))
    mine = run.of("sweep")
    assert 500_000 < mine["stores"] <= mine["loads"] <= 1_000_000
    cells = (run.blocks.function == "sweep").to_numpy()[run.access_blocks]
    addresses = run.addresses[cells].astype(np.int64)
    assert np.array_equal(addresses - addresses[0], np.arange(len(addresses)) // 2 % 1000 * 4)


@pytest.mark.theory
def test_a_limit_of_bytes_stops_recording_and_not_the_program(detail_programs, tmp_path):
    budget = tmp_path / "budget"
    budget.write_bytes(struct.pack("<Q", 9000))
    raw, done = detail_programs.run(detail_programs.build("endings.c"), "2000", MANYSCALE_TRACE_BUDGET=str(budget))
    assert done.returncode == 0
    (process,) = read_processes(raw)
    assert "disk-gb" in process.stopped
    run = detail_programs.read(raw)
    assert 0 < run.of("sweep")["stores"] < 2_000_000


@pytest.mark.theory
def test_programs_run_untraced(detail_programs):
    for kind in ("detailed", "counting"):
        done = subprocess.run([detail_programs.build("calls.c", kind)], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("177 365 ")


@pytest.mark.contract
@pytest.mark.parametrize("counting", [False, True])
def test_flags_serve_compiling_and_linking_without_a_warning(detail_programs, tmp_path, counting):
    need("clang", "cc")
    words = ["clang", "-Wall", "-Werror", *build.coverage_flags(build.coverage_stub(detail_programs.cache), counting)]
    subprocess.run([*words, "-c", str(DETAIL / "mm50.c"), "-o", str(tmp_path / "mm50.o")], check=True)
    subprocess.run([*words, str(tmp_path / "mm50.o"), "-o", str(tmp_path / "mm50")], check=True)
    assert subprocess.run([tmp_path / "mm50"], capture_output=True, text=True, check=True).stdout == "49\n"


@pytest.mark.theory
def test_without_a_counting_build_the_instrumented_ones_instructions_are_noted(detail_programs):
    raw, _ = detail_programs.run(detail_programs.build("mm50.c"))
    plain = detail_programs.read(raw)
    assert any("--counting" in note for note in told(plain.notes))
    counted = detail_programs.read(raw, detail_programs.build("mm50.c", "counting"))
    assert counted.notes == []
    assert counted.of("multiply")["instructions"] < plain.of("multiply")["instructions"]
    assert np.array_equal(counted.addresses, plain.addresses)


@pytest.mark.theory
def test_accesses_wider_than_the_coverage_reports_are_noted(detail_programs):
    if "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no AVX2")
    words = ("-O3", "-mavx2", "-mprefer-vector-width=256")
    raw, _ = detail_programs.run(detail_programs.build("stream.c", "detailed", *words), "1000")
    assert any("-mprefer-vector-width=128" in note for note in told(detail_programs.read(raw).notes))


@pytest.mark.contract
def test_what_cannot_be_read_is_refused(detail_programs, tmp_path):
    """A program without coverage, another counting build, a program that has changed since."""
    raw, _ = detail_programs.run(detail_programs.build("mm50.c", "plain"))
    with pytest.raises(UserError, match=r"has no coverage.*--flags detailed"):
        detail_programs.read(raw)
    program = tmp_path / "program"
    shutil.copy(detail_programs.build("mm50.c"), program)
    raw, _ = detail_programs.run(program)
    with pytest.raises(UserError, match="are not those of the traced program"):
        detail_programs.read(raw, detail_programs.build("calls.c", "counting"))
    with pytest.raises(UserError, match="no table of basic blocks"):
        detail_programs.read(raw, detail_programs.build("mm50.c", "plain"))
    program.unlink()
    with pytest.raises(UserError, match="program: cannot be read"):
        detail_programs.read(raw)
    shutil.copy(detail_programs.build("calls.c"), program)
    with pytest.raises(UserError, match=r"has \d+ basic blocks, but had"):
        detail_programs.read(raw)
