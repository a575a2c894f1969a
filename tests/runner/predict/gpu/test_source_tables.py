"""Lines of source and branches of launches whose counts are given."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu_launches import Launch, Streams, gpu_workload

from manyscale.models.gpu.launch_program import BARRIER, LOAD, MEMORY, SHARED, STATIC, STORE
from manyscale.models.gpu.roofline.counts import row_counts
from manyscale.models.gpu.roofline.waits import KINDS, row_weights
from manyscale.models.workload.instruction_details import COLUMNS, LISTS, InstructionCounts, InstructionDetails
from manyscale.models.workload.launch_trace import MAX_OPERANDS, Access, StaticInstructions
from manyscale.runner.predict.gpu.launch_results import LaunchResult, from_arrays, to_arrays
from manyscale.runner.predict.gpu.mapping import Executions
from manyscale.runner.predict.gpu.source_tables import source_tables
from manyscale.runner.report.sections.gpu_source import add_source

TEXTS = ("LDG.E R2, [R4.64]", "FMUL R2, R2, R2", "@P0 BRA 0x40", "EXIT")
PLACES = [(0, 7), (1, 2), (0, 8), (-1, 0)]  # (file, line)
FILES = ("/home/me/<app>.cu", "/home/me/square.cuh")


def static(*, with_details: bool) -> StaticInstructions:
    number = len(TEXTS)
    columns: dict[str, Any] = {name: np.zeros(number, kind) for name, kind in COLUMNS.items()}
    columns |= {name: np.full((number, most), -1, kind) for name, (kind, most) in LISTS.items()}
    columns["source_file"], columns["source_line"] = (np.array(each, np.int32) for each in zip(*PLACES, strict=True))
    details = InstructionDetails(text=TEXTS, listed=TEXTS, files=FILES, **columns)
    plain = np.zeros(number, np.uint8)
    access = np.array([Access.load, 0, 0, 0], np.uint8)
    registers = np.full((number, MAX_OPERANDS), -1, np.int16)
    names = ("LDG.E", "FMUL", "BRA", "EXIT")
    pc, order = np.arange(number, dtype=np.int64) * 16, np.arange(number, dtype=np.int32)
    return StaticInstructions(
        names, pc, order, plain, plain, access, order, plain.astype(np.bool_), registers, registers,
        details if with_details else None,
    )  # fmt: skip


@pytest.fixture
def launches(monkeypatch):
    """``launches(counts of each launch, executions)``: the second is run twice, say."""

    def make(counts: list[InstructionCounts], executed: list[int], *, with_details: bool = True) -> Any:
        workload = gpu_workload(*[Launch(kernel="k", blocks=(4,)) for _ in counts])
        of_launches = {number: (static(with_details=with_details), each) for number, each in enumerate(counts, 1)}
        monkeypatch.setattr(Streams, "instruction_counts", lambda self, launch_id: of_launches[launch_id])
        rows = np.array(executed)
        return SimpleNamespace(source=workload, executions=Executions(np.arange(len(rows)), rows))

    return make


def counts(executed: list[int], threads: list[int], diverged: list[int] | None) -> InstructionCounts:
    return InstructionCounts(
        np.array(executed), np.array(threads), None if diverged is None else np.array(diverged, np.int64)
    )


FIRST = counts([10, 10, 10, 10], [320, 320, 40, 320], [0, 0, 4, 0])
SECOND = counts([1, 1, 1, 0], [32, 16, 8, 0], [0, 0, 1, 0])


def test_lines_and_branches_of_launches_that_are_run_once_and_twice(launches):
    found = source_tables(launches([FIRST, SECOND], [0, 1, 1]))
    assert found["gpu_lines"].to_pylist() == [
        {"kernel_name": "k", "file": file, "line": line, "warp_instructions": 12, "thread_instructions": threads,
         "active_threads": pytest.approx(threads / 12), "memory_instructions": memory,
         "cycles": None, "waits_for": None, "kernel": "k"}
        for file, line, threads, memory in (
            (FILES[0], 7, 384, 12), (FILES[0], 8, 56, 0), (FILES[1], 2, 352, 0),
        )
    ]  # fmt: skip
    (branch,) = found["gpu_branches"].to_pylist()
    expected = {"pc": 32, "text": TEXTS[2], "file": FILES[0], "line": 8, "executed": 12, "diverged": 6}
    assert branch == {"kernel_name": "k", **expected, "active_threads": pytest.approx(56 / 12), "kernel": "k"}


CAUSES = ("issue", "dram", "barrier", "drain")


def predicted(*results: tuple[int, int, list[float], list[list[float]]]) -> Any:
    """Launches by (id, cycles of all executions each, stack, weights of instructions by (issue, memory))."""
    found = []
    for launch_id, _, stack, weights in results:
        rows = np.zeros((len(weights), len(KINDS)))
        rows[:, [KINDS.index("issue"), KINDS.index("memory")]] = weights
        cycles = round(sum(stack))
        found.append(LaunchResult(launch_id, cycles, 1, 1, CAUSES, np.array(stack), row_weights=rows))
    places = np.arange(len(found))
    cycles = np.array([each[1] for each in results]) + 5000
    return SimpleNamespace(
        plan=SimpleNamespace(row=places), result=found, cycles=cycles, latency_cycles=5000
    )  # fmt: skip


def test_cycles_of_a_line_are_those_of_its_instructions(launches):
    """Launch 1: 40 cycles of issue over 4 instructions alike, 60 of DRAM, all of the load in line 7, 10 of barriers
    that no instruction makes, 10 without work. Launch 2 is run twice, each twice as long as what was simulated of it:
    8 cycles of issue, of the first two."""
    found = source_tables(
        launches([FIRST, SECOND], [0, 1, 1]),
        predicted(
            (1, 120, [40.0, 60.0, 10.0, 10.0], [[10, 80], [10, 0], [10, 0], [10, 0]]),
            (2, 16, [8.0, 0.0, 0.0, 0.0], [[1, 1], [1, 0], [0, 0], [0, 0]]),
        ),
    )
    cycles = {row["line"]: (row["cycles"], row["waits_for"]) for row in found["gpu_lines"].to_pylist()}
    assert cycles == {7: (10 + 60 + 16, "dram"), 2: (10 + 16, "issue"), 8: (10, "issue")}
    sections: dict[str, str] = {}
    page = SimpleNamespace(add=lambda title, content, note: sections.update({title: content}))
    figures = {"gpu.cycles": SimpleNamespace(value=15152), "gpu.launch_latency": SimpleNamespace(value=15000)}
    add_source(page, SimpleNamespace(**found, statistics=figures))
    text = sections["Where cycles go by line"]
    assert text.index("app&gt;.cu:7") < text.index("square.cuh:2") < text.index("app&gt;.cu:8")
    assert "56.6 %" in text  # 86 of 152


def test_a_launch_that_another_one_stands_for_takes_its_share(launches):
    """Launch 2 was not simulated: its 50 cycles are spread as those of launch 1."""
    one = predicted((1, 100, [100.0, 0.0, 0.0, 0.0], [[1, 0], [3, 0], [0, 0], [0, 0]]))
    both = SimpleNamespace(
        plan=SimpleNamespace(row=np.arange(2)),
        result=one.result * 2,
        cycles=np.array([5100, 5050]),
        latency_cycles=5000,
    )
    found = source_tables(launches([FIRST, SECOND], [0, 1]), both)
    assert {row["line"]: row["cycles"] for row in found["gpu_lines"].to_pylist()} == {7: 37.5, 2: 112.5, 8: 0}


def test_what_the_trace_does_not_tell_is_left_out(launches):
    assert source_tables(launches([FIRST], [0], with_details=False)) == {}
    untold = replace(SECOND, diverged=None)
    assert set(source_tables(launches([FIRST, untold], [0, 1]))) == {"gpu_lines"}


def test_the_report_shows_them(launches):
    found = source_tables(launches([FIRST, SECOND], [0, 1]))
    sections: dict[str, str] = {}
    page = SimpleNamespace(add=lambda title, content, note: sections.update({title: content}))
    add_source(page, SimpleNamespace(**found))
    assert list(sections) == ["Lines of source", "Divergent branches"]
    assert "&lt;app&gt;.cu:7" in sections["Lines of source"]
    assert "0020 @P0 BRA 0x40" in sections["Divergent branches"]
    assert "45.5 %" in sections["Divergent branches"]  # 5 of 11
    sections.clear()
    add_source(page, SimpleNamespace(gpu_lines=None, gpu_branches=None))
    assert not sections


def test_weights_are_what_instructions_do():
    """Five instructions, the first twice by 32 threads: an FP32 one of 4 cycles that takes its unit for 2, a load of 3
    sectors, a store of 5, an access to shared memory of 7 words, a barrier."""
    rows = np.zeros(5, STATIC)
    rows["kind"] = [1, MEMORY, MEMORY, SHARED, BARRIER]
    rows["latency"], rows["interval"] = [4, 1, 1, 1, 1], [2, 1, 1, 1, 1]
    rows["access"] = [0, LOAD, STORE, LOAD, 0]
    trace = SimpleNamespace(
        static=SimpleNamespace(pc=np.zeros(5)), instruction=np.array([0, 1, 2, 3, 4, 0], np.int32),
        accesses=np.array([0, 3, 5, 7, 0, 0], np.uint8), active=np.array([32, 1, 2, 3, 4, 32], np.uint8),
    )  # fmt: skip
    counts = row_counts(trace)
    assert counts.threads.tolist() == [64, 1, 2, 3, 4]
    weights = dict(zip(KINDS, row_weights(rows, counts).T.tolist(), strict=True))
    assert weights == {
        "issue": [2, 1, 1, 1, 1], "unit": [4, 0, 0, 0, 0], "dependency": [8, 0, 0, 0, 0], "shared": [0, 0, 0, 7, 0],
        "memory": [0, 3, 0, 0, 0], "load_store": [0, 3, 5, 7, 0], "barrier": [0, 0, 0, 0, 1],
    }  # fmt: skip


def test_weights_are_kept_with_the_result():
    one, other = (
        LaunchResult(k, 5, 1, 1, ("issue",), np.ones(1), row_weights=np.full((rows, len(KINDS)), float(rows)))
        for k, rows in ((1, 2), (2, 3))
    )
    for before, after in zip((one, other), from_arrays(to_arrays([one, other])), strict=True):
        assert np.array_equal(after.row_weights, before.row_weights)
