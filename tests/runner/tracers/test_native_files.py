"""The tracer's own files: whatever ends the process, what it recorded is read back; limits stop it cleanly."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tracer_programs import PROGRAMS, need

from manyscale.runner.errors import UserError
from manyscale.runner.readers.raw_trace.files import EVENT, OPERATION, read_processes
from manyscale.runner.tracers.build import NATIVE

UNFINISHED = 1


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that records by hand."""
    need("cc")
    program = tmp_path_factory.mktemp("records") / "records"
    sources = [str(PROGRAMS / "tracer" / "records.c"), str(NATIVE / "trace.c"), str(NATIVE / "threads.c")]
    flags = ["-std=gnu11", "-O1", f"-I{NATIVE}", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
    subprocess.run(["cc", *flags, *sources, "-o", str(program), "-ldl", "-lpthread"], check=True)
    return program


def run(records: Path, folder: Path, number: int, ending: str, **variables: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "MANYSCALE_TRACE_DIR": str(folder), "MANYSCALE_TRACE_LEVEL": "1", **variables}
    words = [str(records), str(number), ending]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.theory
@pytest.mark.parametrize("ending", ["exit", "_exit", "kill", "abort", "fork", "exec"])
@pytest.mark.parametrize("number", [0, 1, 2400, 2401, 20_000])
def test_nothing_is_lost_whatever_ends_the_process(records, tmp_path, number, ending):
    run(records, tmp_path / "t", number, ending)
    (process,) = read_processes(tmp_path / "t")
    assert process.is_finished == (ending in ("exit", "fork"))
    assert np.array_equal(process.operations["bytes"], np.arange(number))
    assert np.array_equal(process.operations["num_lists"], np.ones(number))
    assert np.array_equal(process.lists, 10 * np.arange(number))
    assert np.array_equal(process.events["value"], -np.arange(number))
    assert np.array_equal(process.operations["num_events"], np.arange(number))
    assert np.array_equal(process.events["num_operations"], np.arange(number) + 1)
    assert process.end.get("forks", 0) == (1 if ending == "fork" else 0)


@pytest.mark.theory
def test_the_call_that_a_process_died_in_is_known(records, tmp_path):
    run(records, tmp_path / "t", 5, "unfinished")
    (process,) = read_processes(tmp_path / "t")
    assert process.operations["call"].tolist() == [3, 3, 3, 3, 3, 7]
    assert process.operations["flags"].tolist() == [0, 0, 0, 0, 0, UNFINISHED]


@pytest.mark.theory
def test_cpu_time_is_that_of_the_process(records, tmp_path):
    """Bursts, events and the rest sum up to no more than the process used, and events lie inside bursts."""
    run(records, tmp_path / "t", 20_000, "exit")
    (process,) = read_processes(tmp_path / "t")
    bursts = int(process.operations["cpu_ns"].sum()) + process.end["rest_cpu_ns"]
    assert 0 < int(process.events["cpu_ns"].sum()) <= bursts
    elapsed = process.end["end_ns"] - int(process.operations["start_ns"][0])
    assert bursts < 1.05 * elapsed + 10**7


@pytest.mark.theory
def test_the_limit_stops_the_tracer_and_not_the_program(records, tmp_path):
    budget = tmp_path / "budget"
    budget.write_bytes((100_000).to_bytes(8, "little"))
    done = run(records, tmp_path / "t", 100_000, "exit", MANYSCALE_TRACE_BUDGET=str(budget))
    assert (done.returncode, done.stdout) == (0, "went on to the end\n")
    assert "the limit of --disk-gb was reached; the program goes on" in done.stderr
    (process,) = read_processes(tmp_path / "t")
    assert process.stopped == "the limit of --disk-gb was reached"
    number = len(process.operations)
    is_done = (process.operations["flags"] & UNFINISHED) == 0  # the call that it stopped in may lack values
    assert np.all(process.operations["num_lists"][is_done] == 1)
    assert 1000 < number < 100_000
    assert np.array_equal(process.operations["bytes"], np.arange(number))
    assert sum(path.stat().st_size for path in (tmp_path / "t").glob("*.trace")) <= 100_000


@pytest.mark.theory
def test_a_full_disk_stops_the_tracer_and_not_the_program(records, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=800k", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        done = run(records, disk, 200_000, "exit")
        assert (done.returncode, done.stdout) == (0, "went on to the end\n")
        assert "tracing of process" in done.stderr
        assert "stopped: the disk is full; the program goes on" in done.stderr
        (process,) = read_processes(disk)
        assert process.stopped == "the disk is full"
        assert np.array_equal(process.operations["bytes"], np.arange(len(process.operations)))
        assert len(process.operations) > 1000
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.theory
def test_no_room_for_a_trace_at_all(records, tmp_path):
    done = run(records, tmp_path / "t", 10, "exit", MANYSCALE_TRACE_DIR=str(tmp_path / "missing"))
    assert (done.returncode, done.stdout) == (0, "went on to the end\n")
    assert "is not traced" in done.stderr
    with pytest.raises(UserError, match="no process was traced"):
        read_processes(tmp_path / "t")


@pytest.fixture
def trace(records, tmp_path) -> Path:
    run(records, tmp_path / "t", 20_000, "exit")
    (path,) = (tmp_path / "t").glob("*.trace")
    return path


@pytest.mark.contract
@pytest.mark.parametrize("place", [0, 5, 12, 200, -1])
def test_a_damaged_file_is_refused_in_one_line(trace, place):
    content = bytearray(trace.read_bytes())
    content[place] ^= 0xFF
    trace.write_bytes(content)
    with pytest.raises(UserError, match=r"\.trace: .*(damaged|cut short|version)") as caught:
        [(each.operations, each.lists, each.events) for each in read_processes(trace.parent)]
    assert "\n" not in str(caught.value)


@pytest.mark.contract
@pytest.mark.parametrize("length", [1, 31, 33, 1000])
def test_a_file_cut_short_is_refused_in_one_line(trace, length):
    trace.write_bytes(trace.read_bytes()[:-length])
    with pytest.raises(UserError, match=r"\.trace: .*(cut short)"):
        read_processes(trace.parent)


@pytest.mark.contract
def test_records_are_those_of_the_header(tmp_path):
    """The structures of trace.h have the layout that the reader expects."""
    need("cc")
    fields = {"ms_operation": OPERATION, "ms_event": EVENT}
    lines = [
        f'printf("{structure} {name} %zu\\n", offsetof(struct {structure}, {name}));'
        for structure, dtype in fields.items()
        for name in dtype.names or ()
    ] + [f'printf("{structure} size %zu\\n", sizeof(struct {structure}));' for structure in fields]
    source = tmp_path / "layout.c"
    source.write_text('#include <stdio.h>\n#include "trace.h"\nint main(void) {' + "\n".join(lines) + "}\n")
    subprocess.run(
        ["cc", f"-I{NATIVE}", str(source), str(NATIVE / "trace.c"), str(NATIVE / "threads.c"), "-o",
         str(tmp_path / "layout")],
        check=True,
    )  # fmt: skip
    told = subprocess.run([str(tmp_path / "layout")], capture_output=True, text=True, check=True).stdout.split()
    layout = {(told[i], told[i + 1]): int(told[i + 2]) for i in range(0, len(told), 3)}
    for structure, dtype in fields.items():
        assert layout[structure, "size"] == dtype.itemsize
        assert {name: layout[structure, name] for name in dtype.names} == {
            name: dtype.fields[name][1] for name in dtype.names
        }
