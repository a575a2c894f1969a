"""Cores in Perfetto's and Paraver's timelines: text derived by hand, and traces taken apart again."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.runner.predict.node.tables import MODELS, cores_table
from manyscale.runner.readers import paraver as paraver_reader
from manyscale.runner.report import text_columns
from manyscale.runner.report.paraver import cores as paraver_cores
from manyscale.runner.report.perfetto import ranks as perfetto
from manyscale.runner.report.perfetto.ranks import write_cores

from . import tiny

NAMES = ['solve"fast"', "sweep", "initial"]
# rank, core, start, end, instance, type, model: ranks 1 and 4; rank 1's core 1 does nothing; times in ps
ROWS = [
    (1, 0, 0, 1_500_000, 0, -1, "burst"),
    (1, 0, 1_500_000, 2_000_499, 3, 0, "detailed"),
    (1, 2, 1_600_001, 1_600_301, 4, 1, "detailed"),  # less than half a nanosecond
    (4, 1, 999_999, 9_000_500, -1, 1, "burst"),
]

TRACK = """\
{"ph":"X","pid":11,"tid":1,"ts":0.000000,"dur":1.500000,"name":"initial","args":{"task_instance_id":0,"model":"burst"}},
{"ph":"X","pid":11,"tid":1,"ts":1.500000,"dur":0.500499,"name":"solve\\"fast\\"","args":{"task_instance_id":3,"model":"detailed"}},
{"ph":"X","pid":11,"tid":3,"ts":1.600001,"dur":0.000300,"name":"sweep","args":{"task_instance_id":4,"model":"detailed"}},
{"ph":"X","pid":14,"tid":2,"ts":0.999999,"dur":8.000501,"name":"sweep","args":{"task_instance_id":-1,"model":"burst"}},
{"ph":"M","pid":11,"tid":1,"name":"process_name","args":{"name":"cores of rank 1"}},
{"ph":"M","pid":11,"tid":1,"name":"process_sort_index","args":{"sort_index":11}},
{"ph":"M","pid":14,"tid":1,"name":"process_name","args":{"name":"cores of rank 4"}},
{"ph":"M","pid":14,"tid":1,"name":"process_sort_index","args":{"sort_index":14}},
{"ph":"M","pid":11,"tid":1,"name":"thread_name","args":{"name":"core 0"}},
{"ph":"M","pid":11,"tid":1,"name":"thread_sort_index","args":{"sort_index":0}},
{"ph":"M","pid":11,"tid":3,"name":"thread_name","args":{"name":"core 2"}},
{"ph":"M","pid":11,"tid":3,"name":"thread_sort_index","args":{"sort_index":2}},
{"ph":"M","pid":14,"tid":2,"name":"thread_name","args":{"name":"core 1"}},
{"ph":"M","pid":14,"tid":2,"name":"thread_sort_index","args":{"sort_index":1}},
"""

# Rank 1 is task 1 of three cores (CPUs 1 to 3), rank 4 task 2 of two (CPUs 4 and 5). The run ends at 10,000.4 ns. At
# equal times states come first, then the end of one instance, then the begin of the next; instance 4 rounds to nothing.
PRV = """\
#Paraver (01/01/2000 at 00:00):10000_ns:2(3,2):1:2(3:1,2:2)
1:1:1:1:1:0:1500:1
2:1:1:1:1:0:60000023:3
1:5:1:2:2:1000:9001:1
2:5:1:2:2:1000:60000023:2
1:1:1:1:1:1500:2000:1
2:1:1:1:1:1500:60000023:0
2:1:1:1:1:1500:60000023:1
2:1:1:1:1:2000:60000023:0
2:5:1:2:2:9001:60000023:0
"""

CORES_OF_RANKS = "rank 1 core 0\nrank 1 core 1\nrank 1 core 2\nrank 4 core 0\nrank 4 core 1\n"
ROW = f"""\
LEVEL CPU SIZE 5
{CORES_OF_RANKS}
LEVEL NODE SIZE 2
rank 1
rank 4

LEVEL THREAD SIZE 5
{CORES_OF_RANKS}"""


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(6)]
    model, number = np.array([MODELS.index(row[6]) for row in rows], np.int64), np.arange(len(rows))
    return cores_table(NAMES, *columns, model, number, np.full(len(rows), -1))


def in_paraver(cores: pa.Table | None, directory: Path) -> list[str]:
    """Names of the files written."""
    paraver_cores.write(tiny.two_ranks(cores=cores), directory)
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.golden
def test_tracks_derived_by_hand() -> None:
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb") as file:
        write_cores(file, table(ROWS))
    assert gzip.decompress(raw.getvalue()).decode() == TRACK


@pytest.mark.contract
def test_the_whole_trace_is_json_with_the_tracks_in_it(tmp_path: Path) -> None:
    perfetto.write(tiny.two_ranks(cores=table(ROWS)), tmp_path)
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    # (processes 1 to 3 are the application, its critical path and its links)
    assert Counter(event["pid"] for event in events if event["ph"] == "X") == {1: 8, 11: 3, 14: 1}
    assert sum(event["name"] == 'solve"fast"' for event in events) == 1


@pytest.mark.golden
def test_paraver_files_derived_by_hand(tmp_path: Path) -> None:
    assert in_paraver(table(ROWS), tmp_path) == ["cores.pcf", "cores.prv", "cores.row"]
    assert (tmp_path / "cores.prv").read_text() == PRV
    assert (tmp_path / "cores.row").read_text() == ROW
    labels = (tmp_path / "cores.pcf").read_text()
    assert "\n1    Running\n" in labels
    types = labels[labels.index("EVENT_TYPE") :]
    assert types.split("\n")[1:] == [
        "0    60000023    Task type", "VALUES", "0    End", '1    solve"fast"', "2    sweep", "3    initial", ""
    ]  # fmt: skip


@pytest.mark.contract
def test_paraver_s_reader_takes_the_trace(tmp_path: Path) -> None:
    """It reads each task's first thread: 2,000 ns of rank 1's core 0, nothing of rank 4's."""
    in_paraver(table(ROWS), tmp_path)
    assert paraver_reader.can_read(tmp_path / "cores.prv")
    workload = paraver_reader.read(tmp_path / "cores.prv")
    assert workload.num_ranks == 2
    computing = np.bincount(workload.column("phases", "rank"), workload.column("phases", "duration_ps"), minlength=2)
    assert computing.tolist() == [2_000_000, 0]


@pytest.mark.contract
@pytest.mark.parametrize("cores", [None, table([])])
def test_without_cores_nothing_is_written(tmp_path: Path, cores: pa.Table | None) -> None:
    assert in_paraver(cores, tmp_path) == []
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb") as file:
        write_cores(file, cores)
    assert gzip.decompress(raw.getvalue()) == b""


@pytest.mark.contract
def test_equal_results_give_equal_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        in_paraver(table(ROWS), tmp_path / name)
        contents.append([path.read_bytes() for path in sorted((tmp_path / name).iterdir())])
    assert contents[0] == contents[1]


@st.composite
def tables_of_cores(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Stretches that follow each other on each core, in the order of the table (rank, time, core)."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        rank, core = int(generator.integers(5)), int(generator.integers(12))
        if any(row[:2] == (rank, core) for row in rows):
            continue
        times = np.sort(generator.integers(0, 20_000, 2 * draw(st.integers(1, 12)))).tolist()
        kinds = generator.integers(-1, 2, len(times)).tolist()
        rows += [
            (rank, core, start, end, 7, kind, "burst")
            for start, end, kind in zip(times[::2], times[1::2], kinds[::2], strict=True)
        ]
    return sorted(rows, key=lambda row: (row[0], row[2], row[1]))


@pytest.mark.property
@settings(max_examples=30, deadline=None)
@given(rows=tables_of_cores())
def test_slices_of_a_track_say_what_the_table_says_and_never_overlap(rows: list[tuple[Any, ...]]) -> None:
    raw = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_columns, "BATCH_ROWS", 7)
        with gzip.GzipFile(fileobj=raw, mode="wb") as file:
            write_cores(file, table(rows))
    text = gzip.decompress(raw.getvalue()).decode().removesuffix(",\n")
    events = json.loads(f"[{text}]", parse_float=Decimal)
    slices = [event for event in events if event["ph"] == "X"]
    found = sorted(
        (event["pid"] - 10, event["tid"] - 1, int(event["ts"] * 10**6), int((event["ts"] + event["dur"]) * 10**6),
         event["name"])
        for event in slices
    )  # fmt: skip
    assert found == sorted((*row[:4], NAMES[row[5]]) for row in rows)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert named == {(event["pid"], event["tid"]) for event in slices}
    ends: dict[tuple[int, int], int] = {}
    for event in slices:  # Perfetto cuts begin and duration to nanoseconds
        begin, duration = int(event["ts"] * 1000), int(event["dur"] * 1000)
        assert begin >= ends.get((event["pid"], event["tid"]), 0)
        ends[event["pid"], event["tid"]] = begin + duration


@pytest.mark.property
@settings(max_examples=30, deadline=None)
@given(rows=tables_of_cores())
def test_paraver_records_are_in_order_and_hold_the_time_of_every_type(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    directory = tmp_path_factory.mktemp("cores")
    in_paraver(table(rows), directory)
    head, *lines = (directory / "cores.prv").read_text().splitlines()
    match = re.fullmatch(r"#Paraver \(\S+ at \S+\):(\d+)_ns:(\d+)\(([\d,]+)\):1:(\d+)\(([\d:,]+)\)", head)
    assert match
    widths = list(map(int, match[3].split(",")))
    assert match[5] == ",".join(f"{width}:{task}" for task, width in enumerate(widths, start=1))
    ranks = sorted({row[0] for row in rows})
    assert int(match[2]) == int(match[4]) == len(widths) == len(ranks)
    times: list[int] = []
    running: dict[int, tuple[int, int]] = {}  # CPU: value, since
    spent: Counter[tuple[int, int, int]] = Counter()
    for line in lines:
        kind, cpu, application, task, thread, *rest = map(int, line.split(":"))
        assert application == 1
        assert 1 <= thread <= widths[task - 1]
        assert cpu == sum(widths[: task - 1]) + thread
        times.append(rest[0])
        assert 0 <= rest[0] <= int(match[1])
        if kind == 1:
            assert rest[0] < rest[1]
            continue
        assert (kind, rest[1]) == (2, 60000023)
        value, since = running.get(cpu, (0, 0))
        assert (value == 0) == (rest[2] != 0)  # begin and end take turns
        spent[ranks[task - 1], thread - 1, value] += rest[0] - since if value else 0
        running[cpu] = rest[2], rest[0]
    assert times == sorted(times)
    assert all(value == 0 for value, _ in running.values())
    expected: Counter[tuple[int, int, int]] = Counter()
    for rank, core, start, end, _, kind, _ in rows:
        expected[rank, core, kind % 3 + 1] += (end + 500) // 1000 - (start + 500) // 1000
    assert +spent == +expected
