"""Other systems than Linux, as far as they can be played here: what they lack is taken away, what they say is said."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from manyscale.runner import system
from manyscale.runner.errors import UserError
from manyscale.runner.run.calibration.node import calibrate_node
from manyscale.runner.run.execute.host_time import HostTime
from manyscale.runner.run.execute.teams import ProcessTeam
from manyscale.runner.tracers import session


@pytest.fixture
def on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Darwin", machine="arm64"))
    for name in ("sched_getaffinity", "posix_fallocate"):
        monkeypatch.delattr(os, name)


@pytest.mark.usefixtures("on_a_mac")
def test_a_mac_names_all_its_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert system.usable_cpus() == {0, 1, 2}
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert system.usable_cpus() == {0}


def test_linux_names_those_that_a_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 5}, raising=False)
    assert system.usable_cpus() == {1, 5}


def test_a_mac_gives_the_peak_of_memory_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # getrusage(2): kilobytes on Linux, bytes on macOS
    usage = resource.struct_rusage((0.0, 0.0, 5_000_000, *[0] * 13))
    monkeypatch.setattr(resource, "getrusage", lambda who: usage)
    assert HostTime().figures()["peak_memory_bytes"] == 5_000_000 * 1024
    monkeypatch.setattr(sys, "platform", "darwin")
    assert HostTime().figures()["peak_memory_bytes"] == 5_000_000


@pytest.mark.usefixtures("on_a_mac")
def test_what_rests_on_linux_says_so_in_one_line() -> None:
    with pytest.raises(UserError) as refused:
        calibrate_node()
    line = "calibrate --node works on Linux only, and this is Darwin; calibrate there, or write a machine file"
    assert str(refused.value) == line
    with pytest.raises(UserError) as refused:
        session.find_program(["true"], session.Recording())
    line = "trace works on Linux only, and this is Darwin; record the program there and bring its trace"
    assert str(refused.value) == line


@pytest.mark.usefixtures("on_a_mac")
def test_processes_share_memory_on_a_mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyscale.runner.run.execute.teams._MEMORY_FOLDER", tmp_path)  # there is no /dev/shm
    team = ProcessTeam("mac", 0, 1)
    shared = team.arrays("words", {"a": ((3,), np.int64)})
    assert shared["a"].tolist() == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []
