"""Ready views of Paraver traces: what their files hold, and what Paraver's own kernel makes of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from manyscale.runner.report.paraver import ranks as paraver
from manyscale.runner.report.paraver.views import View
from manyscale.runner.run.results import Result

from . import tiny
from .test_cores_timelines import IN_COMPUTE, counted, table

PARAMEDIR = shutil.which("paramedir")  # of bsc-performance-tools/paraver-kernel


def of_cores() -> Result:
    return tiny.two_ranks(cores=table(IN_COMPUTE), task_instances=counted())


@pytest.mark.contract
def test_a_trace_has_the_views_that_it_has_something_for(tmp_path: Path) -> None:
    names = []
    for number, result in enumerate((tiny.two_ranks(), tiny.two_ranks(cores=table(IN_COMPUTE)), of_cores())):
        (tmp_path / str(number)).mkdir()
        paraver.write(result, tmp_path / str(number))
        names.append(sorted(path.name.split(".")[1] for path in (tmp_path / str(number)).glob("*.cfg")))
    assert names == [["timeline"], ["task-times", "timeline"], ["task-counters", "task-ipc", "task-times", "timeline"]]
    for path in tmp_path.glob("*/*.task-times.cfg"):
        text = path.read_text()
        assert all(f"window_filter_module evt_type 1 {kind}\n" in text for kind in (63910004, 63910005))


@pytest.mark.contract
def test_windows_are_numbered_and_tables_are_of_windows(tmp_path: Path) -> None:
    """The kernel counts the windows that the head announces, and knows them by the numbers that they give."""
    paraver.write(of_cores(), tmp_path)
    labelled = {int(each) for each in re.findall(r"^\d +(\d+) ", (tmp_path / "trace.pcf").read_text(), re.M)}
    for path in tmp_path.glob("*.cfg"):
        text = path.read_text()
        assert text.startswith("#ParaverCFG\nConfigFile.Version: 3.4\n")
        numbers = [int(each) for each in re.findall(r"^window_id (\d+)$", text, re.M)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert f"ConfigFile.NumWindows: {len(numbers)}\n" in text
        for used in re.findall(r"^(?:Analyzer2D\.\w*Window:|window_identifiers) ([\d ]+)$", text, re.M):
            assert {int(each) for each in used.split()} <= set(numbers)
        for kinds in re.findall(r"^window_filter_module evt_type (.*)$", text, re.M):
            count, *types = map(int, kinds.split())
            assert count == len(types)
            assert set(types) <= labelled


@pytest.mark.golden
@pytest.mark.skipif(PARAMEDIR is None, reason="needs paramedir")
def test_paraver_s_kernel_finds_what_the_tables_say(tmp_path: Path) -> None:
    """Time in us and bursts of each task type, instructions and IPC, as derived by hand from IN_COMPUTE."""
    paraver.write(of_cores(), tmp_path)
    expected = {
        ("Time", "type"): {'solve"fast"': 0.5, "sweep": 0.8, "initial": 1.0},
        ("# Bursts", "type"): {'solve"fast"': 1, "sweep": 1, "initial": 1},
        ("Sum bursts", "instructions"): {'solve"fast"': 800},
        ("Average value != 0", "ipc"): {'solve"fast"': 0.8},
    }
    for (statistic, window), wanted in expected.items():
        view = View()
        numbers = {"type": view.events("type", (60000023,))}
        numbers["instructions"] = view.events("instructions", (42000050,), "Next Evt Val", color=False)
        numbers["ipc"] = view.events("ipc", (63910003,), factor=0.001, color=False)
        view.table("table", numbers["type"], numbers[window], statistic)
        (tmp_path / "one.cfg").write_text(view.text())
        assert {name: value for name, value in summed(tmp_path).items() if value} == wanted, statistic


def summed(directory: Path) -> dict[str, float]:
    """What paramedir prints of ``one.cfg``: each column, over all threads."""
    command = [str(PARAMEDIR), "trace.prv", "one.cfg", "out.txt"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=60)
    head, *rows = (directory / "out.txt").read_text().splitlines()
    names = head.strip("\t").split("\t")
    found = dict.fromkeys(names, 0.0)
    for row in rows:
        name, *values = row.rstrip("\t").split("\t")
        if name.startswith("THREAD"):
            for key, value in zip(names, values, strict=True):
                found[key] += float(value)
    return found
