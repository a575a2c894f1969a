"""What is read once is kept, but only while it says what the files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload

PRV = "#Paraver (01/01/2026 at 00:00):1000_ns:1(1):1:1(1:1),0\n1:1:1:1:1:0:1000:1\n2:1:1:1:1:1000:50000003:32\n"


def kept(cache: Path) -> int:
    return len(list((cache / "workloads").glob("*"))) if cache.exists() else 0


def read(path: Path, cache: Path) -> str:
    return read_workload(WorkloadChoice(path=str(path)), cache).digest


@pytest.mark.contract
def test_a_trace_in_one_file_is_kept_and_a_changed_one_read_again(tmp_path: Path) -> None:
    path, cache = tmp_path / "all.txt", tmp_path / "cache"
    path.write_text("0 init\n0 compute 5\n0 finalize\n")
    first = read(path, cache)
    assert kept(cache) == 1
    assert read(path, cache) == first
    assert kept(cache) == 1
    path.write_text("0 init\n0 compute 6\n0 finalize\n")
    assert read(path, cache) != first
    assert kept(cache) == 2


@pytest.mark.contract
def test_a_list_of_files_is_not_kept_for_the_files_may_change(tmp_path: Path) -> None:
    (tmp_path / "ti.txt").write_text("r0.txt\nr1.txt\n")
    for rank in range(2):
        (tmp_path / f"r{rank}.txt").write_text(f"{rank} init\n{rank} compute 5\n")
    cache = tmp_path / "cache"
    first = read(tmp_path / "ti.txt", cache)
    (tmp_path / "r1.txt").write_text("1 init\n1 compute 6\n")
    assert read(tmp_path / "ti.txt", cache) != first
    assert kept(cache) == 0


@pytest.mark.contract
def test_the_labels_beside_a_paraver_trace_belong_to_it(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (tmp_path / "a.prv").write_text(PRV)
    read(tmp_path / "a.prv", cache)
    (tmp_path / "a.pcf").write_text("EVENT_TYPE\n0 50000003 MPI Other\nVALUES\n32 MPI_Finalize\n")
    read(tmp_path / "a.prv", cache)
    assert kept(cache) == 2
