"""Recording of call stacks with the profilers that the machine has: real programs, whose functions must show with the
shares of the CPU time that the programs measured themselves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import stack_programs
from told import told
from tracer_programs import Mpi, need

from manyscale.models.workload import Workload
from manyscale.runner.errors import RunError, UserError
from manyscale.runner.readers.stacks import folder as stack_folder
from manyscale.runner.readers.stacks.units import UnitRules
from manyscale.runner.tracers import stacks
from manyscale.runner.tracers.stacks import Sampling

OFTEN = Sampling(unit_ps=2 * 10**10)  # a snapshot each 2 ms
POINTS = 0.06  # of the share that a function takes


@cache
def why_not_perf() -> str:
    """What perf says where this user may not profile, else nothing."""
    command = ["perf", "record", "-q", "--no-bpf-event", "-e", "task-clock", "-o", os.devnull, "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return (tried.stderr.strip().splitlines() or ["no reason given"])[-1] if tried.returncode else ""


def need_perf() -> None:
    """Skip where perf is missing or this user may not profile."""
    need("perf")
    if why_not_perf():
        pytest.skip(f"perf cannot record here: {why_not_perf()}")


@pytest.fixture(scope="module")
def native(build_folder: Path) -> Path:
    need("cc")
    source = build_folder / "phases.c"
    source.write_text(stack_programs.C)
    program = build_folder / "phases"
    subprocess.run(["cc", "-O1", "-fno-omit-frame-pointer", source, "-o", program], check=True)
    return program


def split(printed: str) -> list[float]:
    """Shares of alpha in what each rank printed."""
    lines = [line.split() for line in printed.splitlines() if line[:1].isdigit()]
    return [float(first) / (float(first) + float(second)) for first, second in lines]


def share(workload: Workload, name: str, rank: int = 0) -> float:
    """Which part of a rank's snapshots has a frame of this name."""
    names = workload.tables["frames"].column("name").to_pylist()
    known = [{names[frame] for frame in stack} for stack in workload.tables["stacks"].column("frames").to_pylist()]
    samples = workload.tables["stack_samples"].to_pylist()
    mine = [name in known[row["stack_id"]] for row in samples if row["rank"] == rank]
    return sum(mine) / len(mine)


@pytest.mark.peer
@pytest.mark.parametrize("call_graph", ["dwarf", "fp"])
def test_a_native_program(native, tmp_path, capfd, call_graph):
    need_perf()
    sampling = Sampling(unit_ps=OFTEN.unit_ps, unit_instructions=20_000_000, call_graph=call_graph)
    status = stacks.record([str(native), "90", "30"], tmp_path / "out", sampling=sampling)
    assert status == 0
    workload = stack_folder.read(tmp_path / "out")
    (alpha,) = split(capfd.readouterr().out)
    assert share(workload, "alpha") == pytest.approx(alpha, abs=POINTS)
    assert share(workload, "beta") == pytest.approx(1 - alpha, abs=POINTS)
    if call_graph == "dwarf":
        assert share(workload, "main") > 0.95
    _, in_unit = np.unique(workload.column("stack_samples", "unit_id"), return_counts=True)
    assert set(in_unit[:-1].tolist()) == {10}


@pytest.mark.peer
def test_the_cpu_time_is_that_of_the_program(native, tmp_path, capfd):
    need_perf()
    stacks.record([str(native), "90", "30"], tmp_path / "out", "perf", OFTEN)
    workload = stack_folder.read(tmp_path / "out")
    if workload.column("stack_units", "cpu_ps")[0] < 0:
        pytest.skip("this machine counts instructions: there are no samples of time")
    total = sum(map(float, capfd.readouterr().out.split()))
    assert workload.column("stack_units", "cpu_ps").sum() / 1e12 == pytest.approx(total, rel=0.05, abs=0.02)
    assert workload.column("phases", "duration_ps").sum() / 1e12 == pytest.approx(total, rel=0.05, abs=0.02)


@pytest.mark.peer
def test_ranks_are_told_apart(mpi: Mpi, native, tmp_path, capfd):
    """The program knows nothing of MPI: its launcher's environment names the ranks. Both run alike."""
    need_perf()
    command = [*mpi.start(2), str(native), "60", "60"]
    stacks.record(command, tmp_path / "out", "perf", OFTEN, programs=[len(command) - 3])
    workload = stack_folder.read(tmp_path / "out")
    shares = split(capfd.readouterr().out)
    assert workload.num_ranks == len(shares) == 2
    assert workload.column("operations", "rank").tolist() == [0, 1]
    for rank in range(2):
        assert min(shares) - POINTS < share(workload, "alpha", rank) < max(shares) + POINTS


@pytest.mark.peer
def test_a_python_program(tmp_path, capfd):
    need("py-spy")
    program = tmp_path / "phases.py"
    program.write_text(stack_programs.PYTHON)
    stacks.record([sys.executable, str(program)], tmp_path / "out", sampling=Sampling(unit_ps=5 * 10**10))
    assert json.loads((tmp_path / "out" / "stacks.json").read_text())["source"] == "py-spy"
    workload = stack_folder.read(tmp_path / "out")
    (alpha,) = split(capfd.readouterr().out)
    found = share(workload, "alpha (phases.py)"), share(workload, "beta (phases.py)")
    assert found[0] / sum(found) == pytest.approx(alpha, abs=3 * POINTS)  # on a busy machine samples come in bunches
    assert sum(found) > 0.5  # the rest is Python's start


@pytest.mark.peer
def test_a_java_program(tmp_path, capfd):
    need("java", "javac", "jfr")
    (tmp_path / "Phases.java").write_text(stack_programs.JAVA)
    subprocess.run(["javac", "Phases.java"], cwd=tmp_path, check=True)
    command = ["java", "-cp", str(tmp_path), "Phases"]
    assert stacks.record(command, tmp_path / "out", sampling=Sampling(unit_ps=10**11)) == 0
    assert json.loads((tmp_path / "out" / "stacks.json").read_text())["source"] == "jfr"
    workload = stack_folder.read(tmp_path / "out")
    (alpha,) = split(capfd.readouterr().out)
    assert share(workload, "Phases.alpha") == pytest.approx(alpha, abs=2 * POINTS)
    assert share(workload, "Phases.beta") == pytest.approx(1 - alpha, abs=2 * POINTS)


def test_the_exit_status_is_the_program_s(native, tmp_path):
    need_perf()
    assert stacks.record([str(native), "1", "1", "5"], tmp_path / "out", "perf", OFTEN) == 5


@pytest.mark.parametrize(
    ("name", "content", "source"),
    [
        ("java", "", "jfr"),
        ("python3.12", "", "py-spy"),
        ("tool", "#!/usr/bin/env python3\n", "py-spy"),
        ("tool", "#!/opt/python/bin/python -u\n", "py-spy"),
        ("tool", "#!/bin/sh\n", "perf"),
        ("tool", "\x7fELF", "perf"),
        ("pythonic", "", "perf"),
    ],
)
def test_the_profiler_follows_from_the_program(tmp_path, name, content, source):
    program = tmp_path / name
    program.write_text(content)
    program.chmod(0o755)
    assert stacks.choose_source(str(program)) == source


def test_where_instructions_can_be_counted_cycles_are_counted_too(tmp_path, monkeypatch):
    """A stand-in for perf on a machine with hardware counters."""
    perf = tmp_path / "perf"
    perf.write_text("#!/bin/sh\necho '4711,,instructions:u,812,100.00,,' >&2\n")
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    script = stacks.prefix(tmp_path / "out", "perf", Sampling())[2]
    assert "'instructions/period=10000000/u'" in script  # ten in SimProf's unit of 100 M
    assert "'cycles/period=1000000,call-graph=no/u'" in script
    assert "task-clock" not in script


class TestErrors:
    @pytest.fixture
    def nothing(self, tmp_path, monkeypatch) -> Path:
        """A PATH with no profiler."""
        folder = tmp_path / "bin"
        folder.mkdir()
        true = shutil.which("true")
        assert true is not None
        (folder / "true").symlink_to(true)
        monkeypatch.setenv("PATH", str(folder))
        return folder

    @pytest.mark.parametrize(
        ("source", "package"), [("perf", "linux-perf"), ("py-spy", "PyPI: py-spy"), ("jfr", "default-jdk-headless")]
    )
    def test_a_missing_profiler(self, nothing, tmp_path, source, package):
        with pytest.raises(UserError, match=package):
            stacks.record(["true"], tmp_path / "out", source)
        assert not (tmp_path / "out").exists()

    def test_a_missing_program(self, tmp_path):
        with pytest.raises(UserError, match="no such program"):
            stacks.record([str(tmp_path / "none")], tmp_path / "out", "perf")

    def test_a_folder_with_something_in_it(self, tmp_path):
        (tmp_path / "a").write_text("")
        with pytest.raises(UserError, match="is not empty"):
            stacks.record(["true"], tmp_path, "perf")

    def test_an_unknown_profiler(self, tmp_path):
        with pytest.raises(UserError, match="known are perf, py-spy, jfr"):
            stacks.prefix(tmp_path, "gprof")

    def test_a_folder_that_java_cannot_take(self, tmp_path):
        need("java")
        with pytest.raises(UserError, match="no path with blanks"):
            stacks.prefix(tmp_path / "my folder", "jfr")

    def test_a_profiler_that_leaves_nothing(self, tmp_path):
        (tmp_path / "rank-0").mkdir()
        (tmp_path / "rank-0" / "perf.log").write_text("first\nfailed to open perf.data\n")
        with pytest.raises(RunError, match=r"failed to open perf\.data; .*perf_event_paranoid"):
            stacks.check(tmp_path, "perf")

    @pytest.mark.parametrize(
        "wrong", [{"snapshots": 0}, {"unit_ps": 10}, {"call_graph": "lbr"}, {"unit_instructions": 5, "snapshots": 10}]
    )
    def test_a_sampling_that_cannot_be(self, wrong):
        with pytest.raises(ValueError):
            Sampling(**wrong)


FRAMES = "\t  a0 inner (/app)\n\t  b0 main (/app)\n\n"


class TestFolder:
    @pytest.fixture
    def write(self, tmp_path) -> Callable[..., Path]:
        def make(*texts: str) -> Path:
            stacks.prepare(tmp_path, "perf", ["./app"], Sampling(snapshots=2))
            for rank, text in enumerate(texts):
                (tmp_path / f"rank-{rank}").mkdir()
                (tmp_path / f"rank-{rank}" / "perf.txt").write_text(text)
            return tmp_path

        return make

    def test_the_ranks_share_frames_and_clock(self, write):
        texts = [
            "".join(f"app {rank}/{rank} [0] 1.00{rank}{k}00: 5 task-clock:\n{FRAMES}" for k in range(3))
            for rank in (1, 2)
        ]
        folder = write(*texts)
        assert stack_folder.can_read(folder)
        workload = stack_folder.read(folder)
        assert workload.num_ranks == 2
        assert workload.tables["stacks"].num_rows == 1
        assert workload.column("stack_units", "rank").tolist() == [0, 0, 1, 1]
        assert workload.column("stack_units", "start_ps").tolist() == [0, 2 * 10**8, 10**9, 12 * 10**8]
        assert workload.column("phases", "duration_ps").tolist() == [15_000, 15_000]
        whole = stack_folder.read(folder, rules=UnitRules(snapshots=3))
        assert whole.tables["stack_units"].num_rows == 2

    def test_a_rank_without_samples_is_told_of(self, write):
        workload = stack_folder.read(write(f"app 1 1.000000: 5 task-clock:\n{FRAMES}", ""))
        assert workload.num_ranks == 2
        assert any("rank 1: has no samples" in note for note in told(workload.notes))

    @pytest.mark.contract
    def test_errors(self, write, tmp_path):
        folder = write(f"app 1 1.000000: 5 task-clock:\n{FRAMES}", "what\n")
        with pytest.raises(UserError, match=r"rank-1/perf\.txt:1: is neither"):
            stack_folder.read(folder)
        (folder / "rank-1" / "perf.txt").unlink()
        with pytest.raises(UserError, match="rank-1: holds nothing that perf wrote"):
            stack_folder.read(folder)
        (folder / "rank-1").rename(folder / "rank-2")
        with pytest.raises(UserError, match="rank 1 left no profile"):
            stack_folder.read(folder)
        header = folder / "stacks.json"
        for text, said in (
            (header.read_text().replace('"version": 1', '"version": 9'), "version 9 is not 1"),
            (header.read_text().replace('"snapshots": 2', '"snapshots": 0'), "is damaged"),
            ("{", "is damaged"),
        ):
            (tmp_path / "other").mkdir(exist_ok=True)
            (tmp_path / "other" / "stacks.json").write_text(text)
            with pytest.raises(UserError, match=said):
                stack_folder.read(tmp_path / "other")
        assert not stack_folder.can_read(tmp_path / "other")
        assert not stack_folder.can_read(header)
