"""Traces of tools that record no times: where all of a program is simulated, none are needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manyscale.runner.readers.drmemtrace.files import RECORD

LOAD, PLAIN, THREAD, PROCESS, HEADER, FOOTER, MARKER = 0, 10, 22, 24, 25, 26, 28
TIME, KIND = 2, 9


def trace(path: Path, process: int, *times: int) -> None:
    """4,096 instructions, of which every fourth loads from a line of its own."""
    code = [record for each in range(4096) for record in (
        [(PLAIN, 4, 0x1000 + 4 * (each % 64)), *([(LOAD, 8, 0x100000 + 64 * each)] if each % 4 == 0 else [])]
    )]  # fmt: skip
    clock = [(MARKER, TIME, time) for time in times]
    head = [(HEADER, 0, 6), (MARKER, KIND, 0x40), (THREAD, 4, process), (PROCESS, 4, process)]
    path.write_bytes(np.array([*head, *clock[:1], *code, *clock[1:], (FOOTER, 0, 0)], RECORD).tobytes())


@pytest.mark.theory
@pytest.mark.parametrize("model", ["detailed", "interval"])
def test_what_is_simulated_as_a_whole_needs_no_times(cli: Callable[..., Any], tmp_path: Path, model: str) -> None:
    """The same program with and without times, in one process and in two: as long each time, for each rank."""
    for folder, processes, times in (("timed", 1, (100, 160)), ("untimed", 1, (100,)), ("two", 2, ())):
        (tmp_path / folder).mkdir()
        for each in range(processes):
            trace(tmp_path / folder / f"{each}.trace", 7 + each, *times)
    makespans = {}
    for folder in ("timed", "untimed", "two"):
        done = cli(
            "run", "--workload", folder, "--target", "marenostrum3", "--model", f"cpu={model}", "--no-report",
            "-o", f"{folder}-{model}",
        )  # fmt: skip
        assert done.status == 0, done.err
        stats = json.loads((tmp_path / f"{folder}-{model}" / "stats.json").read_text())
        makespans[folder] = stats["application.makespan"]["value"]
    assert makespans["timed"] > 0
    assert makespans["untimed"] == makespans["timed"] == makespans["two"]


def test_what_is_not_simulated_needs_times(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    for each in range(2):
        trace(tmp_path / "two" / f"{each}.trace", 7 + each)
    words = ("run", "--workload", "two", "--target", "marenostrum3", "--model", "cpu=detailed", "-o", "out")
    sampled = cli(*words, "--sampling", "ranks=[0]")
    assert sampled.status == 2
    assert "has no times, from which those of what is not simulated follow" in sampled.err
