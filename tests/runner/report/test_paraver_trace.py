"""Measured workloads written as Paraver traces: what is read back, and what the file says."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from manyscale.models.workload import SCHEMAS, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.readers import paraver
from manyscale.runner.report.traces.paraver import write_trace

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
