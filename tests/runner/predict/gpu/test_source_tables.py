"""Lines of source and branches of launches whose counts are given."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu_launches import Launch, Streams, gpu_workload

from manyscale.models.workload.instruction_details import COLUMNS, LISTS, InstructionCounts, InstructionDetails
from manyscale.models.workload.launch_trace import MAX_OPERANDS, Access, StaticInstructions
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
         "kernel": "k"}
        for file, line, threads, memory in (
            (FILES[0], 7, 384, 12), (FILES[0], 8, 56, 0), (FILES[1], 2, 352, 0),
        )
    ]  # fmt: skip
    (branch,) = found["gpu_branches"].to_pylist()
    expected = {"pc": 32, "text": TEXTS[2], "file": FILES[0], "line": 8, "executed": 12, "diverged": 6}
    assert branch == {"kernel_name": "k", **expected, "active_threads": pytest.approx(56 / 12), "kernel": "k"}


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
