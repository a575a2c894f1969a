"""A page speaks of what was simulated: of a GPU's launches first, and of ranks only where ranks wait for each other."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import pyarrow as pa
import pytest

from manyscale.runner import shipped
from manyscale.runner.report import run_page
from manyscale.runner.run.results import Result
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload
from manyscale.testing.writers import result_of

from . import tiny
from .test_report import Outline, check_self_contained

pytestmark = pytest.mark.contract

RANKS = ("Parallel efficiency", "MPI calls", "Time of each rank", "Load balance", "Critical path", "Messages")


def page_of(result: Result, folder: Path) -> tuple[Outline, list[str]]:
    """The page, and its headings in order."""
    run_page.write(result, folder)
    html = (folder / "report.html").read_text(encoding="utf-8")
    page = check_self_contained(html) if "<script" in html else Outline(html)
    return page, [unescape(heading) for heading in re.findall(r"<h2>(.*?)</h2>", html)]


def alone(**given: object) -> Result:
    """One rank that computes 5 us."""
    load = tiny.workload(1, [tiny.operation(0, "init"), tiny.operation(0, "finalize")])
    ranks = tiny.states([(0, 0, 5_000_000, "compute", 1)])
    return tiny.result(load, ranks, tiny.messages([]), **given)


def test_of_one_rank_nothing_is_said_of_ranks(tmp_path: Path) -> None:
    result = alone()
    assert result.statistics["application.parallel_efficiency"].value == 1.0  # by definition, not as a finding
    page, headings = page_of(result, tmp_path)
    assert headings == ["How sure this is", "Target machine: pair", "Study"]
    never = (*RANKS, "100.0 %", "Network latency-bandwidth", "eager threshold")
    lines = page.text.split("\n")  # the burst model's limits speak of the time between MPI calls
    assert not [said for said in never if said in lines]
    assert "Network latency-bandwidth" not in page.text
    assert "Predicted run of one process." in page.text
    assert "5.000 us" in page.text.split("\n")
    assert not page.tags["script"], "there is nothing to draw"


def test_ranks_that_wait_are_shown(tmp_path: Path) -> None:
    page, headings = page_of(tiny.two_ranks(), tmp_path)
    assert headings[:3] == ["Where the time goes", "Timeline", "Time of each rank"]
    assert all(said in page.text for said in ("Parallel efficiency", "MPI calls", "Messages"))


def test_one_rank_with_messages_to_itself_has_ranks(tmp_path: Path) -> None:
    result = replace(alone(), messages=tiny.messages([(0, 0, 0, 0, 1, 8, 0, 0)]))
    assert "Where the time goes" in page_of(result, tmp_path)[1]


def test_of_a_gpu_the_launches_come_first(tmp_path: Path) -> None:
    workload = read_workload(WorkloadChoice(path=str(shipped.folder() / "bfs-16"), launches=(1,)))
    result = result_of(workload, target="rtx3070")
    page, headings = page_of(result, tmp_path)
    assert headings[:3] == ["Kernels", "Achieved against peak", "Streams and copies"]
    assert headings[3] == "Where the GPU's cycles go"
    assert not [said for said in RANKS if said in page.text]
    labels = re.findall(r'<div class="label">(.*?)</div>', (tmp_path / "report.html").read_text())
    assert labels == [
        "Predicted time", "In launches", "Cycles", "IPC", "Occupancy", "Of peak", "Launches", "Copies", "L1, L2 misses",
        "Target",
    ]  # fmt: skip
    assert f"{result.statistics['gpu.cycles'].value:,}" in page.text.split("\n")
    assert "46 SMs at" in page.text


def test_of_a_host_with_a_gpu_the_share_of_launches_is_told(tmp_path: Path) -> None:
    """Launches take a quarter of the time; of two at the same time, that time counts once."""
    workload = read_workload(WorkloadChoice(path=str(shipped.folder() / "bfs-16"), launches=(16,)))
    result = result_of(workload, target="rtx3070")
    makespan, time = (result.statistics[name] for name in ("application.makespan", "gpu.time"))
    (row,) = result.launches.to_pylist()
    one = (row["end_ps"] - row["start_ps"]) / 1e12
    for count in (1, 2):
        figures = {
            "application.makespan": replace(makespan, value=4 * one),
            "gpu.time": replace(time, value=count * one),
        }
        launches = pa.concat_tables([result.launches] * count)
        page, _ = page_of(replace(result, launches=launches, statistics=result.statistics | figures), tmp_path)
        assert "25.0 % of it; else host and copies" in page.text


def test_the_console_says_efficiencies_of_several_ranks_alone(cli: Callable, write_trace: Callable) -> None:
    one = write_trace({0: ["init", "compute 1e6", "finalize"]}, "one")
    outcome = cli("run", "--workload", one, "--target", "crossbar256", "--no-report", "-o", "a")
    assert outcome.status == 0, outcome.err
    assert "efficiency" not in outcome.out
    assert "ranks" not in outcome.out
    two = write_trace({0: ["init", "send 1 0 8 6", "finalize"], 1: ["init", "recv 0 0 8 6", "finalize"]}, "two")
    outcome = cli("run", "--workload", two, "--target", "crossbar256", "--no-report", "-o", "b")
    assert ", 2 ranks on crossbar256" in outcome.out
    assert "parallel efficiency" in outcome.out
