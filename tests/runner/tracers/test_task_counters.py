"""Counters per task instance and chunk: counts that follow from the program's source; counters that are forbidden."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from task_traces import FLAGS, SOURCES
from tracer_programs import PROGRAMS, need, need_libomp

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.tracers import build, counters

SOURCE = "counted.c"
# forbids perf_event_open of all that this process starts: a filter of system calls (seccomp(2)), x86-64
FORBID = """
import ctypes, os, struct, sys
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 298), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def line_of(text: str) -> int:
    lines = (SOURCES / SOURCE).read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def of_lines(workload: Workload, counter: str) -> dict[int, list[int]]:
    """Counts of the task instances that each line creates (of GCC's programs the line behind, perhaps)."""
    line = workload.tables["task_types"].column("line").to_pylist()
    of_task = {
        row["task_instance_id"]: row["value"]
        for row in workload.tables["task_counters"].to_pylist()
        if row["counter"] == counter
    }
    found: dict[int, list[int]] = {}
    for row in workload.tables["tasks"].to_pylist()[1:]:
        found.setdefault(line[row["task_type_id"]], []).append(of_task[row["task_instance_id"]])
    return found


def test_faults_and_waits_of_each_task_and_chunk_are_counted(
    traced: Callable[..., Any], compiled: Callable[..., Path]
) -> None:
    need_libomp()
    program = compiled(SOURCES / SOURCE, "clang", *FLAGS)
    trace = traced([program], "--level", "tasks", "--counters", "software")
    assert trace.status == 0, trace.err
    workload = trace.workload
    if any(note.code == "counters-unavailable" for note in workload.notes):
        pytest.skip("perf_event_open does not work here (perf_event_paranoid)")
    counted = workload.tables["task_counters"].to_pylist()
    assert {row["counter"] for row in counted} == set(counters.GROUPS["software"])
    faults = of_lines(workload, "page-faults")
    touches, inside, waits = line_of("touches */"), line_of("inside */"), line_of("waits */")
    # 10 + i pages before the task's own child, which touches 3, and 2 behind it; whatever runs first for the first
    # time touches pages of its code and of the runtime, too
    assert faults[touches][1:] == [12 + i for i in range(1, 6)]
    assert faults[inside][1:] == [3] * 5
    assert min(of_lines(workload, "context-switches")[waits]) >= 5  # sleeps five times
    chunks = [row for row in workload.tables["chunk_counters"].to_pylist() if row["counter"] == "page-faults"]
    assert [(row["first_iteration"], row["value"]) for row in chunks][1:] == [(1, 40), (2, 60), (3, 80)]
    clock = sum(row["value"] for row in counted if row["counter"] == "task-clock")
    assert 0 < clock * 1000 <= 1.5 * sum(workload.column("tasks", "cpu_ps"))


@pytest.mark.parametrize("name", ["event_page.c", "counter_group.c"])
def test_counters_are_read_by_the_kernels_protocol(compiled: Callable[..., Path], name: str) -> None:
    """Against a processor and a kernel that are made up: one page; a group, its errors, and time off hardware."""
    program = compiled(PROGRAMS / "tracer" / name, "gcc", "-O1", f"-I{build.NATIVE}")
    done = subprocess.run([program], check=False)
    assert done.returncode == 0, f"{name}:{done.returncode}"


@pytest.mark.slow
def test_forbidden_counters_are_a_note(tmp_path: Path, tracer_cache: Path, compiled: Callable[..., Path]) -> None:
    need("gcc")
    program = compiled(PROGRAMS / "tracer" / "plain.c", "gcc")
    words = ["-m", "manyscale", "trace", "--counters", "software", "--cache", tracer_cache, "-o", tmp_path / "trace"]
    command = [sys.executable, "-c", FORBID, sys.executable, *map(str, words), "--", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "counters-unavailable" in done.stdout
    assert "the kernel forbids it" in done.stdout
    assert "task-clock, page-faults, context-switches, cpu-migrations" in done.stdout


def test_groups_and_names_of_counters() -> None:
    # enum perf_type_id, perf_hw_id and perf_sw_ids of linux/perf_event.h
    assert counters.chosen("cycles,PAPI_TOT_INS,r01c2") == ("PAPI_TOT_CYC", "PAPI_TOT_INS", "r01c2")
    told = counters.environment(counters.chosen("software"), at_events=True)
    listed = "task-clock=1:1:0,page-faults=1:2:0,context-switches=1:3:1,cpu-migrations=1:4:1"
    assert told == {"MANYSCALE_TRACE_COUNTERS": listed, "MANYSCALE_TRACE_COUNTERS_AT": "events"}
    told = counters.environment(("PAPI_L1_LDM", "r1c2"), at_events=False)
    assert told["MANYSCALE_TRACE_COUNTERS"] == "PAPI_L1_LDM=3:10000:0,r1c2=4:1c2:0"
    for wrong in ("nonsense", "", "cycles,PAPI_TOT_CYC", ",".join(f"r{i}" for i in range(9))):
        with pytest.raises(UserError, match="--counters"):
            counters.chosen(wrong)
