"""The reader of stacks in units, with their counters."""

from __future__ import annotations

import csv
import io
import lzma
from pathlib import Path

import numpy as np
import pytest
from stack_counts import counters, stacks
from told import told

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers.stacks import unit_counts as unit_stacks

CASES = Path(__file__).parents[2] / "data" / "stacks"
STACKS = "M\t0\tmain\nM\t7\tf\nS\t0\t1\t7,0\nS\t0\t1\t0\nM\t8\tg(int, char)\nS\t2\t1\t8,7,7,0\nS\t0\t3\t7,0\n"
TABLE = "interval,tid,instrs,centicycles,loads\n0,1,100,250,7\n1,1,100,300,8\n2,1,50,120,9\n0,3,100,199,1\n"


def read(folder: Path, text: str, table: str | None = None) -> Workload:
    path = folder / "a.stk"
    path.write_text(text)
    if table is not None:
        (folder / "a.cpi.csv").write_text(table)
    return unit_stacks.read(path)


def test_units_and_stacks(tmp_path):
    workload = read(tmp_path, STACKS)
    assert stacks(workload) == [("main", "f"), ("main",), ("main", "f", "f", "g(int, char)"), ("main", "f")]
    assert workload.column("stack_samples", "unit_id").tolist() == [0, 0, 2, 0]
    assert workload.column("stack_samples", "thread").tolist() == [0, 0, 0, 1]
    units = workload.tables["stack_units"].to_pylist()
    assert [(one["thread"], one["unit_id"], one["num_instructions"]) for one in units] == [
        (0, 0, -1),
        (0, 2, -1),
        (1, 0, -1),
    ]
    assert any("no counters" in note for note in told(workload.notes))


@pytest.mark.parametrize("suffix", ["", ".xz"])
def test_counters_beside(tmp_path, suffix):
    (tmp_path / f"a.cpi.csv{suffix}").write_bytes(lzma.compress(TABLE.encode()) if suffix else TABLE.encode())
    workload = read(tmp_path, STACKS)
    assert workload.column("stack_units", "num_instructions").tolist() == [100, 100, 50, 100]
    assert counters(workload) == {
        (0, 0, 0): {"cycles": 2.5, "loads": 7.0},
        (0, 0, 1): {"cycles": 3.0, "loads": 8.0},
        (0, 0, 2): {"cycles": 1.2, "loads": 9.0},
        (0, 1, 0): {"cycles": 1.99, "loads": 1.0},
    }
    assert any("1 units have no snapshot" in note for note in told(workload.notes))
    assert not unit_stacks.reads_one_file(tmp_path / "a.stk")


@pytest.mark.peer
def test_a_real_profile():
    """299 units with some 50 stacks each, and the mean CPI of the table."""
    path = CASES / "spstk.stk.xz"
    assert unit_stacks.can_read(path)
    workload = unit_stacks.read(path)
    text = lzma.decompress(path.read_bytes()).decode().splitlines()
    assert workload.tables["stack_samples"].num_rows == sum(line.startswith("S") for line in text)
    assert workload.tables["frames"].num_rows == sum(line.startswith("M") for line in text)
    units, count = np.unique(workload.column("stack_samples", "unit_id"), return_counts=True)
    assert len(units) == 299
    assert np.all(np.abs(count[:-1] - 50) <= 1)
    table = list(csv.DictReader(io.StringIO(lzma.decompress((CASES / "spstk.cpi.csv.xz").read_bytes()).decode())))
    cycles = sum(values["cycles"] for values in counters(workload).values())
    assert cycles == pytest.approx(sum(int(row["centicycles"]) for row in table) / 100, rel=1e-12)
    assert workload.column("stack_units", "num_instructions").sum() == sum(int(row["instrs"]) for row in table)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("text", "table", "said"),
    [
        (STACKS + "S\t1\t1\t5\n", None, r"a.stk:8: no line before names frame '5'"),
        (STACKS + "S\tx\t1\t7\n", None, r"a.stk:8: a snapshot is"),
        (STACKS + "Q\n", None, r"a.stk:8: is neither"),
        ("M\t0\tf\n", None, "has no snapshots"),
        (STACKS, "interval,tid\n", r"a.cpi.csv:1: a table of units"),
        (STACKS, TABLE + "3,1,x,1,1\n", r"a.cpi.csv:6: each column must have a number"),
        (STACKS, TABLE + "2,1,1,1,1\n", r"a.cpi.csv:6: unit 2 of thread 1 stands twice"),
        (STACKS, TABLE.replace("0,3,", "1,3,"), r"has no row for unit 0 of thread 3"),
    ],
)
def test_errors(tmp_path, text, table, said):
    with pytest.raises(UserError, match=said) as caught:
        read(tmp_path, text, table)
    assert "\n" not in str(caught.value)


def test_other_files_are_not_taken(tmp_path):
    path = tmp_path / "a"
    for text in ("", "M\t0\tf\n", "hello\n", "S\t1\tmain\t0\tSTATE_RUNNABLE\t0\n"):
        path.write_text(text)
        assert not unit_stacks.can_read(path), text
    path.write_text(STACKS)
    assert unit_stacks.can_read(path)
    assert not unit_stacks.can_read(tmp_path)
