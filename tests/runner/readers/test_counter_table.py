"""Tables of counters of intervals: what is odd is told, what is no count is refused in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from told import told

from manyscale.models.workload.notes import Note
from manyscale.runner.errors import UserError
from manyscale.runner.readers import counter_table
from manyscale.runner.readers.counter_table import Measured

WORDS = [b"1", b"-1", b",", b"\n", b"\n1,1,1,1,1"]
TABLE = "interval,tid,instrs,centicycles,l2_miss\n0,1,10,500,1\n1,1,11,550,2\n1,2,12,600,4\n2,1,13,650,8\n"


def read(folder: Path, text: str | bytes, rows: tuple[int, ...] = (3, 1)) -> tuple[Measured, list[str]]:
    path = folder / "p.cpi.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    notes: list[Note] = []
    files = [folder / name for name in ("p.bb", "p.bb.2")[: len(rows)]]
    return counter_table.read(path, files, list(rows), notes), list(told(notes))


@pytest.mark.parametrize("text", [
    TABLE, TABLE.replace("\n", "\r\n"), TABLE.replace(",", ", "), "\ufeff" + TABLE, TABLE.replace("\n2,", "\n\n2,"),
    TABLE.replace("tid", '"tid"'), TABLE[:-1],
])  # fmt: skip
def test_rows_go_to_their_threads(tmp_path: Path, text: str) -> None:
    found, notes = read(tmp_path, text)
    assert [each.tolist() for each in found.intervals] == [[0, 1, 2], [1]]
    assert found.instructions is not None
    assert found.instructions.tolist() == [10, 11, 13, 12]
    assert {name: values.tolist() for name, values in found.counters.items()} == {
        "cycles": [5.0, 5.5, 6.5, 6.0], "l2_miss": [1.0, 2.0, 8.0, 4.0]
    }  # fmt: skip
    assert notes == []


def test_what_was_not_measured_is_told(tmp_path: Path) -> None:
    """In interval 1 of thread 2 alone, which thread 1 makes good; in interval 2 by no thread."""
    found, notes = read(tmp_path, TABLE.replace("12,600,4", "12,,nan").replace("13,650", "13,"))
    assert np.isnan(found.counters["cycles"]).tolist() == [False, False, True, True]
    assert notes == ["p.cpi.csv: cycles was not measured in 1 of 3 intervals"]


def test_a_table_without_cycles_is_told(tmp_path: Path) -> None:
    found, notes = read(tmp_path, TABLE.replace("centicycles", "cylces"))
    assert set(found.counters) == {"cylces", "l2_miss"}
    assert notes == [
        "p.cpi.csv: has no column 'cycles', so CPI is not known; it has interval, tid, instrs, cylces, l2_miss"
    ]


def test_intervals_without_a_row_are_told(tmp_path: Path) -> None:
    found, notes = read(tmp_path, TABLE.replace("\n2,", "\n7,"))
    assert found.intervals[0].tolist() == [0, 1, 7]
    assert notes == ["p.cpi.csv: 5 intervals before the last one have no row"]


@pytest.mark.parametrize(("old", "new", "line"), [
    ("l2_miss", "cycles", "p.cpi.csv:1: column 'cycles' stands there more than once"),
    ("l2_miss", "", "p.cpi.csv:1: a column has no name"),
    ("interval", "number", "p.cpi.csv:1: has no column 'interval'"),
    ("\n2,", "\n2.5,", "p.cpi.csv:5: column 'interval' has 2.5; it must be a whole number"),
    ("\n2,", "\n,", "p.cpi.csv:5: column 'interval' has nan"),
    ("\n2,", "\n3000000000,", "p.cpi.csv:5: column 'interval' has 3e\\+09"),
    ("\n2,1", "\n2,0", "p.cpi.csv:5: names thread 0, of which there are no vectors"),
    ("\n2,1,13", "\n2,1,1e300", "p.cpi.csv:5: column 'instrs' has 1e\\+300"),
    ("650,8", "650,-8", "p.cpi.csv:5: column 'l2_miss' has -8; a count must be 0 or more"),
    ("650,8", "650,inf", "p.cpi.csv:5: column 'l2_miss' has inf"),
    ("650,8", "650,many", "p.cpi.csv: is no table of numbers separated by commas"),
    ("650,8", "650", "p.cpi.csv: is no table of numbers separated by commas"),
    ("\n2,1", "\n2,2", "p.cpi.csv: has 2 rows for the 3 intervals of p.bb"),
])  # fmt: skip
def test_what_is_refused(tmp_path: Path, old: str, new: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        read(tmp_path, TABLE.replace(old, new))


@pytest.mark.parametrize("text", [b"", b"\n", TABLE.replace("tid", "t\xff").encode("latin-1"), b"\xff\xfe" * 50])
def test_files_of_something_else(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(UserError, match=r"p\.cpi\.csv: is no table of numbers"):
        read(tmp_path, text)


@pytest.mark.property
@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.tuples(st.integers(0, len(TABLE)), st.integers(0, 6), st.binary(max_size=6) | st.sampled_from(WORDS)),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_whatever_is_changed_is_read_whole_or_refused(tmp_path_factory, changes) -> None:
    text = TABLE.encode()
    for place, length, new in changes:
        text = text[:place] + new + text[place + length :]
    try:
        found, _ = read(tmp_path_factory.mktemp("table"), text)
    except UserError:
        return
    assert [len(each) for each in found.intervals] == [3, 1]
    assert all(len(values) == 4 and not np.any(values < 0) for values in found.counters.values())
