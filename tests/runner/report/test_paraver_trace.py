"""Measured workloads written as Paraver traces: what is read back, and what the file says."""

from __future__ import annotations

import os
from pathlib import Path

import paraver_check
import pyarrow as pa
import pytest

from manyscale.models.workload import SCHEMAS, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers import paraver
from manyscale.runner.readers.paraver.task_levels import LEVELS, STATIC
from manyscale.runner.report.traces.paraver import write_trace
from manyscale.runner.shipped import folder
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload

DATA = Path(__file__).parents[2] / "data" / "paraver"
FOLDER = Path(os.environ.get("MANYSCALE_DATA", "/nowhere")) / "formats" / "paraver" / "pypop-epoch"
HEAD = "#Paraver (01/01/2020 at 00:00):100_ns:1(2):1:2(1:1,1:1),2\nc:1:1:2:1:2\nc:1:2:2:2:1\n"
SMALL = (
    HEAD
    + """\
1:1:1:1:1:0:10:1
1:2:1:2:1:0:4:2
1:2:1:2:1:4:8:12
1:2:1:2:1:8:10:1
2:1:1:1:1:10:50000001:4:42000050:100
2:1:1:1:1:11:50000001:0
2:2:1:2:1:10:50000001:1
3:2:1:2:1:10:12:1:1:1:1:11:30:64:5
2:2:1:2:1:12:50000001:0
2:1:1:1:1:20:50000001:5
2:1:1:1:1:30:50000001:0
2:1:1:1:1:40:50000002:7:50100001:8:50100002:0:50100004:2:50100003:1
2:1:1:1:1:45:50000002:0
2:2:1:2:1:41:50000002:7:50100001:0:50100002:8:50100004:2
2:2:1:2:1:46:50000002:0
1:1:1:1:1:45:99:1
"""
)


def read(path: Path, text: str) -> Workload:
    path.write_text(text)
    return paraver.read(path)


def assert_round_trip(workload: Workload, path: Path) -> None:
    write_trace(workload, path)
    again = paraver.read(path)
    for level in SCHEMAS:
        assert again.tables[level].equals(workload.tables[level]), level


def test_what_is_written(tmp_path):
    workload = read(tmp_path / "in.prv", SMALL)
    write_trace(workload, tmp_path / "out.prv")
    assert (
        (tmp_path / "out.prv").read_text()
        == """\
#Paraver (01/01/2000 at 00:00):99_ns:1(2):1:2(1:1,1:1),2
c:1:1:2:1:2
c:1:2:2:2:1
1:1:1:1:1:0:10:1
1:2:1:2:1:0:4:15
1:2:1:2:1:4:8:7
1:2:1:2:1:8:10:1
1:1:1:1:1:10:11:11
1:2:1:2:1:10:12:4
2:1:1:1:1:10:50000001:4:42000050:100
2:2:1:2:1:10:50000001:1
1:1:1:1:1:11:20:15
2:1:1:1:1:11:50000001:0
1:2:1:2:1:12:41:15
2:2:1:2:1:12:50000001:0
3:2:1:2:1:10:12:1:1:1:1:11:30:64:5
1:1:1:1:1:20:30:8
2:1:1:1:1:20:50000001:5
1:1:1:1:1:30:40:15
2:1:1:1:1:30:50000001:0
1:1:1:1:1:40:45:13
2:1:1:1:1:40:50000002:7:50100001:8:50100002:0:50100004:2:50100003:1
1:2:1:2:1:41:46:13
2:2:1:2:1:41:50000002:7:50100001:0:50100002:8:50100004:2
1:1:1:1:1:45:99:1
2:1:1:1:1:45:50000002:0
2:2:1:2:1:46:50000002:0
2:1:1:1:1:99:50000003:1000
2:1:1:1:1:99:50000003:0
"""
    )
    assert "42000050    PAPI_TOT_INS" in (tmp_path / "out.pcf").read_text()
    assert "THREAD 1.2.1" in (tmp_path / "out.row").read_text()


@pytest.mark.property
def test_reading_it_back_gives_the_same(tmp_path):
    assert_round_trip(read(tmp_path / "in.prv", SMALL), tmp_path / "out.prv")


@pytest.mark.property
@pytest.mark.parametrize("name", ["test1.prv", "lulesh-7+1.prv.gz", "aliasing-lt_autoparallel.prv.gz"])
def test_real_traces(name, tmp_path):
    assert_round_trip(paraver.read(DATA / name), tmp_path / "out.prv")


@pytest.mark.property
@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the traces in $MANYSCALE_DATA")
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_epoch_with_regions_and_counters(num_ranks, tmp_path):
    assert_round_trip(paraver.read(FOLDER / f"epoch_{num_ranks}proc.prv.gz"), tmp_path / "out.prv")


def test_equal_workloads_give_equal_bytes(tmp_path):
    workload = paraver.read(DATA / "lulesh-7+1.prv.gz")
    for name in ("a.prv", "b.prv"):
        write_trace(workload, tmp_path / name)
    for ending in (".prv", ".pcf", ".row"):
        assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


def test_what_was_not_measured_and_other_names_are_refused(tmp_path):
    workload = paraver.read(DATA / "test1.prv")
    with pytest.raises(UserError, match=r"a Paraver trace is a \.prv file"):
        write_trace(workload, tmp_path / "out.txt")
    bare = {**workload.tables, "measured": pa.Table.from_pylist([], schema=SCHEMAS["measured"])}
    with pytest.raises(UserError, match="no timeline to write"):
        write_trace(Workload("bare", workload.num_ranks, bare), tmp_path / "out.prv")


# Of SMALL's rank 0, which runs from 0 to 10 ns before its first operation: a task is created after 3 ns, begins after
# 1 more and ends 4 later.
TASKS = {
    "task_types": [("task", "solve", "a b.c", 7, "app", 1234)],
    "events": [(0, 0, 2, 0, 0, 1, 3000), (0, 0, 3, 0, 0, 1, 1000), (0, 0, 4, 1, 0, 0, 4000)],
    "tasks": [(0, 0, -1, -1, 0, 64, 4000), (0, 1, 0, 0, 0, 0, 4000)],
    "task_dependences": [(0, 1, 1, 4096), (0, 1, 0, 8192)],
    "task_counters": [(0, 1, "page-faults", 5), (0, 1, "instructions", 500)],
    "iterations": [(0, 0, 0, 4, 0, 3, True)],
}
LINES = """\
2:1:1:1:1:0:63920100:1:63920101:0:63920102:0:63920103:1:63920104:65:63920105:4001
2:1:1:1:1:3:63920000:1:63920001:3:63920002:1:63920003:1:63920004:2:63920005:3001
2:1:1:1:1:3:63920100:2:63920101:1:63920102:1:63920103:1:63920104:1:63920105:4001
2:1:1:1:1:3:63920200:2:63920201:2:63920202:4097
2:1:1:1:1:3:63920200:2:63920201:1:63920202:8193
2:1:1:1:1:3:63920700:2:63920701:1:63920702:6
2:1:1:1:1:3:63920700:2:63920701:2:63920702:501
2:1:1:1:1:4:63920000:1:63920001:4:63920002:1:63920003:1:63920004:2:63920005:1001
2:1:1:1:1:4:60000023:1:60000028:2:63910001:1:63930000:5:63930001:500
2:1:1:1:1:8:63920000:1:63920001:5:63920002:2:63920003:1:63920004:1:63920005:4001
2:1:1:1:1:8:60000023:0:60000028:0:63910001:0:63930000:0:63930001:0
"""


def with_tasks(workload: Workload, **instead: list[tuple[object, ...]]) -> Workload:
    tables = {}
    for level, rows in {**TASKS, **instead}.items():
        columns = [pa.array([row[i] for row in rows]) for i in range(len(SCHEMAS[level]))]
        columns = [
            each.dictionary_encode().cast(field.type) if pa.types.is_dictionary(field.type) else each.cast(field.type)
            for each, field in zip(columns, SCHEMAS[level], strict=True)
        ]
        tables[level] = pa.Table.from_arrays(columns, schema=SCHEMAS[level])
    return Workload(workload.name, workload.num_ranks, {**workload.tables, **tables})


@pytest.mark.golden
def test_tasks_and_their_counters_derived_by_hand(tmp_path):
    workload = with_tasks(read(tmp_path / "in.prv", SMALL))
    write_trace(workload, tmp_path / "out.prv")
    ours = ("6392", "60000023")
    lines = (tmp_path / "out.prv").read_text().splitlines(keepends=True)
    found = [line for line in lines if any(line.split(":")[6].startswith(each) for each in ours if line[0] == "2")]
    assert "".join(line for line in found if ":63920500:" not in line) == LINES
    assert sum(":63920500:" in line for line in found) == 1  # the iteration
    names = (tmp_path / "out.pcf").read_text()
    assert "0    60000023    Task type\nVALUES\n0   End\n1   solve\n" in names
    assert "0    63930001    instructions of the task instance\n" in names
    paraver_check.check(tmp_path / "out.prv")
    assert_round_trip(workload, tmp_path / "again.prv")
    assert sorted(path.name for path in tmp_path.glob("out.*.cfg")) == ["out.task-times.cfg", "out.timeline.cfg"]


@pytest.mark.property
def test_values_may_be_numbers_of_types(tmp_path):
    """Type 63920100 begins the rows of ``tasks``, and is the length of a taskloop + 1 here."""
    loop = [(0, 0, 31, 0, 0, 63_920_099, 0), (0, 0, 32, 0, 0, 0, 0)]
    tables = {"events": [*TASKS["events"], *loop], "iterations": [(0, 0, 0, 4, 0, 5, True)]}
    assert_round_trip(with_tasks(read(tmp_path / "in.prv", SMALL), **tables), tmp_path / "out.prv")


@pytest.mark.slow
@pytest.mark.property
@pytest.mark.parametrize("name", ["cholesky-8", "multizone-8"])
def test_shipped_traces_keep_their_tasks(name, tmp_path):
    """And compute before an operation that takes at least as long as the events there."""
    workload = read_workload(WorkloadChoice(path=str(folder() / f"{name}.tar.zst")))
    write_trace(workload, tmp_path / "out.prv")
    again = paraver.read(tmp_path / "out.prv")
    for level in (*LEVELS, STATIC):
        assert again.tables[level].equals(workload.tables[level]), level
    spent = {}
    for which in (workload, again):
        for level, duration in (("phases", "duration_ps"), ("events", "cpu_ps")):
            columns = (which.column(level, each).tolist() for each in ("rank", "operation_id", duration))
            for rank, operation, time in zip(*columns, strict=True):
                key = (which is again, level, rank, operation)
                spent[key] = spent.get(key, 0) + time
    for (_, level, rank, operation), time in spent.items():
        if level == "events":
            assert spent[True, "phases", rank, operation] >= time
    paraver_check.check(tmp_path / "out.prv")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("out.prv", ":63920200:2:63920201:2:", ":63920200:2:63920209:2:", "have other types than convert writes"),
        ("out.prv", ":63920200:2:63920201:2:63920202:4097", ":63920200:2", "are not as convert writes them"),
        ("out.prv", ":63920001:5:", ":63920001:99:", "of kinds that are not known"),
        (
            "out.pcf",
            "0    63920701    task_counters: counter + 1\nVALUES",
            "STATES",
            "a counter of task_counters has no",
        ),
    ],
)
def test_damaged_tasks_are_refused(tmp_path, name, old, new, problem):
    write_trace(with_tasks(read(tmp_path / "in.prv", SMALL)), tmp_path / "out.prv")
    text = (tmp_path / name).read_text()
    assert text.count(old) == 1
    (tmp_path / name).write_text(text.replace(old, new))
    with pytest.raises(UserError, match=problem):
        paraver.read(tmp_path / "out.prv")


@pytest.mark.contract
def test_tasks_of_a_trace_that_was_cut_are_left_out(tmp_path):
    """Its events are gone, in which its iteration begins and ends."""
    workload = with_tasks(read(tmp_path / "in.prv", SMALL))
    write_trace(workload, tmp_path / "out.prv")
    lines = (tmp_path / "out.prv").read_text().splitlines(keepends=True)
    (tmp_path / "out.prv").write_text("".join(line for line in lines if ":63920000:" not in line))
    again = paraver.read(tmp_path / "out.prv")
    assert not any(again.tables[level].num_rows for level in LEVELS)
    assert again.tables["operations"].equals(workload.tables["operations"])
    assert [note.code for note in again.notes if "of tasks does not fit" in note.text] == ["trace-cut"]
