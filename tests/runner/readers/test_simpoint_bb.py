"""Basic-block vectors: the lines that tools write, and those that they read wrongly."""

from __future__ import annotations

import gzip
import lzma
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from told import told

from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers import simpoint_bb

DATA = Path(__file__).parents[2] / "data" / "detail"
SHARED = os.environ.get("MANYSCALE_DATA")


def read(folder: Path, text: str, name: str = "run.bb") -> Workload:
    path = folder / name
    path.write_bytes(text.encode())
    return simpoint_bb.read(path)


def pairs(workload: Workload) -> list[tuple[int, int, int, float]]:
    table = workload.tables["interval_blocks"]
    return [tuple(row.values()) for row in table.to_pylist()]


def intervals(workload: Workload) -> list[tuple[int, int, int]]:
    return [tuple(row.values()) for row in workload.tables["intervals"].to_pylist()]


def counters(workload: Workload) -> list[tuple[int, int, str, float]]:
    return [tuple(row.values()) for row in workload.tables["interval_counters"].to_pylist()]


def test_rows_become_intervals_sorted_by_block(tmp_path):
    workload = read(tmp_path, "T:7:3   :2:40   \nT:2:5   \n")
    assert pairs(workload) == [(0, 0, 2, 40.0), (0, 0, 7, 3.0), (1, 0, 2, 5.0)]
    assert intervals(workload) == [(0, 0, 43), (1, 0, 5)]
    assert workload.notes == ()
    assert workload.num_ranks == 1
    assert workload.num_operations == 1


def test_repeated_dimensions_are_added(tmp_path):
    assert pairs(read(tmp_path, "T:2:5 :3:1 :2:6\n")) == [(0, 0, 2, 11.0), (0, 0, 3, 1.0)]


def test_what_simpoint_loses_is_read_and_told(tmp_path):
    workload = read(tmp_path, "# a comment\n\nT\nT:1:2:3:4\r\nT:1:2.5e1 :2:.5\nT:9:1")
    assert pairs(workload) == [(1, 0, 1, 2.0), (1, 0, 3, 4.0), (2, 0, 1, 25.0), (2, 0, 2, 0.5), (3, 0, 9, 1.0)]
    assert [count for _, _, count in intervals(workload)] == [0, 6, 26, 1]
    words = " ".join(told(workload.notes))
    for part in ("a bare T", "carriage return", "2 counts are no integers", "no newline"):
        assert part in words


def test_pinplay_s_own_lines_are_left_out_and_told(tmp_path):
    text = (
        "I: 0\nS: 10 1\n# Slice ending at global 30\nT:1:4 :2:6\nM: 4198400 1\n"
        "Block id: 1 0x400:0x40a static instructions: 3\nDynamic instruction count 10\n"
    )
    workload = read(tmp_path, text)
    assert len(pairs(workload)) == 2
    assert "5 lines that are no vectors" in told(workload.notes)[0]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("T:0:4", "dimension"),
        ("T:2147483648:4", "dimension"),
        ("T:x:4", "dimension"),
        ("T:1:-4", "count"),
        ("T:1:", "count"),
        ("T:1", "pairs"),
        ("T:1:4,2:5", "pairs"),
        ("garbage", "no interval"),
        ("T1:4", "no interval"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, what):
    with pytest.raises(UserError, match=rf"run\.bb:3: .*{what}"):
        read(tmp_path, f"T:1:1\n\n{line}\nT:1:1\n")


def test_a_file_without_intervals_is_refused(tmp_path):
    with pytest.raises(UserError, match="no intervals"):
        read(tmp_path, "# nothing\n")


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bytes])
def test_compressed_files_are_known_by_their_content(tmp_path, pack):
    path = tmp_path / "run.bb"
    path.write_bytes(pack(b"T:1:1\n"))
    assert simpoint_bb.can_read(path)
    assert len(pairs(simpoint_bb.read(path))) == 1


@pytest.mark.parametrize(
    "text", ["", "a;b;c 4\n", "init\n0 send 1 5\n", "I  00401bcf,5\n", "Table: 4\n", "#DIMEMAS:x\n"]
)
def test_other_files_are_not_taken_for_vectors(tmp_path, text):
    path = tmp_path / "other"
    path.write_text(text)
    assert not simpoint_bb.can_read(path)


class TestThreads:
    TEXT = ("T:1:10\nT:1:11\nT:1:12\n", "T:1:20\n")

    def write(self, folder: Path, names: tuple[str, str]) -> Path:
        for name, text in zip(names, self.TEXT, strict=True):
            (folder / name).write_text(text)
        return folder / names[0]

    @pytest.mark.parametrize("names", [("run.bb", "run.bb.2"), ("run.T.0.bb", "run.T.1.bb")])
    def test_files_of_all_threads_are_found(self, tmp_path, names):
        workload = simpoint_bb.read(self.write(tmp_path, names))
        assert intervals(workload) == [(0, 0, 10), (0, 1, 20), (1, 0, 11), (2, 0, 12)]
        assert "different numbers of intervals" in told(workload.notes)[0]
        assert workload.name == "run"
        assert not simpoint_bb.reads_one_file(tmp_path / names[0])

    def test_a_table_says_which_interval_a_row_is(self, tmp_path):
        path = self.write(tmp_path, ("run.bb", "run.bb.2"))
        (tmp_path / "run.cpi.csv").write_text(
            "interval,tid,instrs,centicycles,misses\n0,1,100,5000,1\n1,2,200,7550,\n1,1,110,1,3\n2,1,120,2,4\n"
        )
        workload = simpoint_bb.read(path)
        assert intervals(workload) == [(0, 0, 100), (1, 0, 110), (1, 1, 200), (2, 0, 120)]
        assert (1, 1, 1, 20.0) in pairs(workload)
        found = counters(workload)
        assert found[:2] == [(0, 0, "cycles", 50.0), (0, 0, "misses", 1.0)]
        assert (1, 1, "cycles", 75.5) in found
        assert not any(row[:3] == (1, 1, "misses") for row in found)
        assert told(workload.notes) == ("the table tells 530 instructions, the vectors hold 53: the table is taken",)

    @pytest.mark.parametrize(
        ("table", "what"),
        [
            ("tid,instrs\n1,1\n", "run.cpi.csv:1: has no column 'interval'"),
            ("interval,tid\n0,1\n", "has 1 rows for the 3 intervals of run.bb"),
            ("interval,tid\n0,1\n1,1\n2,1\n0,2\n0,5\n", r"run.cpi.csv:6: names thread 5"),
            ("interval,tid\n0,1\n2,1\n1,1\n0,2\n", r"run.cpi.csv:4: .* 1 does not follow 2"),
            ("interval,tid\n0,1\n1,1\n-2,1\n0,2\n", r"run.cpi.csv:4: column 'interval' has -2"),
            ("interval,tid\nx,1\n", "no table of numbers"),
        ],
    )
    def test_a_table_that_does_not_fit_is_refused(self, tmp_path, table, what):
        path = self.write(tmp_path, ("run.bb", "run.bb.2"))
        (tmp_path / "run.cpi.csv").write_text(table)
        with pytest.raises(UserError, match=what):
            simpoint_bb.read(path)


def test_pieces_of_a_file_give_the_same_as_the_whole(tmp_path, monkeypatch):
    path = DATA / "phases.m.bb.xz"
    whole = simpoint_bb.read(path)
    monkeypatch.setattr("manyscale.runner.readers.simpoint_bb.reader.CHUNK_BYTES", 1000)
    assert simpoint_bb.read(path).digest == whole.digest


@pytest.mark.golden
def test_phases_with_what_was_counted_in_them():
    """446 intervals of a million instructions; 2.080 cycles per instruction in the first (208006075 centicycles)."""
    assert simpoint_bb.can_read(DATA / "phases.m.bb.xz")
    workload = simpoint_bb.read(DATA / "phases.m.bb.xz")
    assert workload.tables["intervals"].num_rows == 446
    instructions = workload.column("intervals", "num_instructions")
    assert instructions[0] == 1_000_001
    sums = np.bincount(workload.column("interval_blocks", "interval_id"), workload.column("interval_blocks", "count"))
    assert np.array_equal(sums, instructions)
    assert counters(workload)[0] == (0, 0, "cycles", 2_080_060.75)
    assert workload.tables["interval_counters"].num_rows == 446 * 9


@pytest.mark.golden
@pytest.mark.skipif(SHARED is None, reason="needs the collection of profiles (MANYSCALE_DATA)")
@pytest.mark.parametrize(
    ("name", "num_intervals", "num_threads"),
    [("gzip.m", 599, 1), ("sqlite.m", 916, 1), ("python.m", 798, 1), ("mt4g", 845, 4), ("mt4g.sbbv", 845, 1)],
)
def test_profiles_of_real_programs(name, num_intervals, num_threads):
    workload = simpoint_bb.read(Path(SHARED or "") / "phase" / f"{name}.bb.xz")
    assert len(np.unique(workload.column("intervals", "interval_id"))) == num_intervals
    assert len(np.unique(workload.column("intervals", "thread"))) == num_threads
    sums = np.bincount(workload.column("interval_blocks", "interval_id"), workload.column("interval_blocks", "count"))
    told = np.bincount(workload.column("intervals", "interval_id"), workload.column("intervals", "num_instructions"))
    assert np.array_equal(sums, told)


@pytest.mark.property
@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.tuples(st.integers(1, 2**31 - 1), st.floats(0, 1e15)), max_size=6), min_size=1, max_size=6))
def test_what_is_written_is_read(tmp_path_factory, rows):
    """Counts printed with all digits come back, to the rounding of a division."""
    text = "".join("T" + "".join(f":{block}:{count!r} " for block, count in row) + "\n" for row in rows)
    found = pairs(read(tmp_path_factory.mktemp("bb"), text))
    expected: dict[tuple[int, int], float] = {}
    for index, row in enumerate(rows):
        for block, count in row:
            expected[index, block] = expected.get((index, block), 0.0) + count
    assert [(interval, block) for interval, _, block, _ in found] == sorted(expected)
    assert [count for *_, count in found] == pytest.approx([expected[key] for key in sorted(expected)], rel=1e-14)


def test_no_other_test_data_is_taken_for_one():
    files = [path for path in DATA.parent.rglob("*") if path.is_file()]
    known = {path.name for path in files if simpoint_bb.can_read(path)}
    assert known == {path.name for path in files if ".bb" in path.name}
