"""The scripts of chapter 6's case studies: a program is marked once or refused, and an iteration's time is the one that
the replay gives."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import chapter6_programs as programs
from chapter6_cases import NATIVE, hydro
from native import iteration_ms

pytestmark = pytest.mark.theory


def repository(folder: Path, text: str) -> str:
    """A repository with one file of a program; its commit."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "main.c").write_text(text)
    for command in (
        ["init", "--quiet"], ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "one"],
    ):  # fmt: skip
        programs.command(["git", *command], folder)
    return programs.command(["git", "rev-parse", "HEAD"], folder).strip()


@pytest.mark.parametrize("loops", [1, 2])
def test_the_main_loop_is_marked(loops: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = repository(tmp_path / "origin", "x;\n" + loops * "while (n--) {\n}\n")
    program = replace(
        programs.LULESH, commit=commit, folder="src", marked="main.c", loop="while (n--) {", mark=" M(n);",
        sources=("main.c",), changed=("x;", "y;"),
    )  # fmt: skip
    monkeypatch.setitem(programs.PROGRAMS, "lulesh", program)
    if loops == 2:
        with pytest.raises(programs.BuildError, match="2 times, not once"):
            programs.fetched("lulesh", tmp_path / "copies", tmp_path / "origin")
        return
    found = programs.fetched("lulesh", tmp_path / "copies", tmp_path / "origin")
    assert (found / "main.c").read_text() == "y;\nwhile (n--) { M(n);\n}\n"


def test_a_command_that_fails_says_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(programs.BuildError, match="nowhere"):
        programs.command(["ls", "nowhere"], tmp_path)


def test_cases_write_what_their_programs_read(tmp_path: Path) -> None:
    hydro(1, nx=100, ny=50, steps=7).write_files(tmp_path)
    text = (tmp_path / "input.nml").read_text()
    assert all(f"{name}\n" in text for name in ("nx=100", "ny=50", "nxystep=50", "nstepmax=7"))
    assert all(case.ranks in (1, 2) for case in NATIVE.values())


def test_an_iteration_takes_the_time_between_the_operations_behind_two_marks() -> None:
    """Two ranks; iterations begin with operations 1, 2, 4 and 5. From the second to the last one: two iterations."""

    class Made:
        num_ranks = 2

        def column(self, _table: str, name: str) -> np.ndarray:
            return {
                "rank": np.repeat([0, 1], 4),
                "first_operation_id": np.tile([1, 2, 4, 5], 2),
            }[name]

    ends = {0: [10, 30, 40, 70, 130, 150], 1: [10, 20, 50, 60, 100, 140]}  # of each operation, ms
    rows = [(rank, operation, end * 10**9) for rank, times in ends.items() for operation, end in enumerate(times)]
    table = pa.table(
        {
            name: list(each)
            for name, each in zip(("rank", "operation_id", "end_ps"), zip(*rows, strict=True), strict=True)
        }
    )

    class Result:
        ranks = table

    assert iteration_ms(Result(), Made()) == pytest.approx(((150 - 40) / 2 + (140 - 50) / 2) / 2)  # type: ignore[arg-type]
