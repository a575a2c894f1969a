"""Speed as ratios of CPU time to SimGrid's replay of the same trace, measured in the same run.

SimGrid 3.32 replays nas-cg-A-64 (1,288,702 actions, 808,256 MPI operations) in 3.57 CPU seconds on the machine on which
the bounds were set. The bounds below are absolute goals divided by that time: they move with the machine.
Every figure is printed, so that `pytest -m bench -s` is a report.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard
from cpu_time import cpu_of, median_cpu
from simgrid_platform import CONTENTION_FREE, write_platform

from manyscale.models.network import latency_bandwidth
from manyscale.models.network.program import Program, build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.workload import Workload
from manyscale.runner import shipped
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target

pytestmark = pytest.mark.bench

SIMGRID_SECONDS = 3.57  # where the bounds were set
RUNS = 3  # of whole processes, beside SimGrid's
KERNEL_RUNS = 25  # of some milliseconds each: a shared machine disturbs single ones twofold


@pytest.fixture(scope="module")
def archive() -> Path:
    return shipped.folder() / "nas-cg-A-64.tar.zst"


@pytest.fixture(scope="module")
def simgrid(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], float]:
    """CPU seconds of one SimGrid replay of nas-cg-A-64."""
    if shutil.which("smpirun") is None:
        pytest.skip("SimGrid is not installed (Debian: libsimgrid-dev)")
    folder = tmp_path_factory.mktemp("simgrid")
    with (
        archive.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as stream,
        tarfile.open(fileobj=stream, mode="r|") as content,
    ):
        content.extractall(folder)
    trace = folder / "nas-cg-A-64"
    command = ["smpirun", *write_platform(trace, 64), "-replay", "ti.txt", *CONTENTION_FREE]
    return lambda: cpu_of(command, cwd=trace)


@dataclass(frozen=True)
class Round:
    """CPU seconds of whole processes one after the other: SimGrid's replay, and `run` by what its cache keeps."""

    simgrid: float
    ours: dict[str, float]

    def ratio(self, keeps: str) -> float:
        return self.ours[keeps] / self.simgrid


@pytest.fixture(scope="module")
def rounds(simgrid: Callable[[], float], tmp_path_factory: pytest.TempPathFactory) -> list[Round]:
    folder = tmp_path_factory.mktemp("runs")

    def taken(keeps: str, output: str) -> float:
        """With traces and page, whose cache is one of its own; else without."""
        own = ("pages",) if keeps == "pages" else ("cache", "--no-report")
        command = [sys.executable, "-m", "manyscale", "run", "nas-cg-A-64", "--executor", "local", *own[1:]]
        return cpu_of([*command, "--cache", str(folder / own[0]), "-o", str(folder / output)])

    taken("pages", "first")
    found = []
    for index in range(RUNS):
        ours = {}
        for keeps in ("nothing", "workload", "everything", "pages"):
            if keeps in ("nothing", "workload"):
                shutil.rmtree(folder / "cache" / ("units" if keeps == "workload" else ""), ignore_errors=True)
            ours[keeps] = taken(keeps, f"{keeps}{index}")
        found.append(Round(simgrid(), ours))
    return found


@pytest.fixture(scope="module")
def simgrid_cpu(rounds: list[Round]) -> float:
    return statistics.median(each.simgrid for each in rounds)


@pytest.fixture(scope="module")
def workload(archive: Path) -> Workload:
    return simgrid_ti.read(archive)


def network(name: str = "crossbar256"):  # type: ignore[no-untyped-def]
    study = parse_study({"workload": {"path": "none"}, "target": name}, "bench")
    return resolve_target(study)[0].network


def replay_of(workload: Workload) -> tuple[Program, Callable[[], object]]:
    program = build_program(workload, "simgrid-3.32")
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    placement = Placement.one_per_node(workload.num_ranks)
    return program, lambda: latency_bandwidth.replay(program, compute, network(), placement)


def show(what: str, seconds: float, amount: float, unit: str, ratio: float, bound: float) -> None:
    print(
        f"\n{what}: {seconds:.4f} CPU s, {amount / seconds / 1e6:.1f} M {unit}/s, {ratio:.4f} of SimGrid's "
        f"(bound {bound:.4f})"
    )


def test_reader(archive: Path, workload: Workload, simgrid_cpu: float) -> None:
    """At least 5 M actions per CPU second, decompression included."""
    seconds = median_cpu(lambda: simgrid_ti.read(archive))
    bound = 1_288_702 / 5e6 / SIMGRID_SECONDS
    show("reader, nas-cg-A-64", seconds, 1_288_702, "actions", seconds / simgrid_cpu, bound)
    assert seconds / simgrid_cpu <= bound


def test_kernel_without_wildcards(workload: Workload, simgrid_cpu: float) -> None:
    """At least 30 M operations per CPU second."""
    _, run = replay_of(workload)
    seconds = median_cpu(run, KERNEL_RUNS)
    bound = workload.num_operations / 30e6 / SIMGRID_SECONDS
    show("replay, nas-cg-A-64", seconds, workload.num_operations, "operations", seconds / simgrid_cpu, bound)
    assert seconds / simgrid_cpu <= bound


def test_kernel_with_wildcards(simgrid_cpu: float) -> None:
    """At least 15 M operations per CPU second on miniFE, whose 401,792 operations include 936 wildcard receives."""
    workload = simgrid_ti.read(shipped.folder() / "minife-64.tar.zst")
    _, run = replay_of(workload)
    seconds = median_cpu(run, KERNEL_RUNS)
    bound = workload.num_operations / 15e6 / SIMGRID_SECONDS
    show("replay, minife-64", seconds, workload.num_operations, "operations", seconds / simgrid_cpu, bound)
    assert seconds / simgrid_cpu <= bound


def test_memory_per_operation(workload: Workload) -> None:
    """At most 40 bytes of arrays per operation: the program, the state of the replay, compute and end times."""
    program, _ = replay_of(workload)
    state = program.num_messages * (3 * 8 + 8 + 1) + workload.num_operations * 16
    per_operation = (program.num_bytes + state) / workload.num_operations
    print(f"\n{per_operation:.1f} B per operation")
    assert per_operation <= 40


def test_all_to_all_of_1024_ranks(tmp_path: Path, simgrid_cpu: float) -> None:
    """1,047,552 messages in at most 2 CPU seconds, from text to timeline."""
    path = tmp_path / "alltoall.txt"
    path.write_text(
        "".join(f"{r} init\n{r} compute {10 * r}\n{r} alltoall 4000 4000 6 6\n{r} finalize\n" for r in range(1024))
    )

    def run() -> None:
        program, replayed = replay_of(simgrid_ti.read(path))
        assert program.num_messages == 1024 * 1023
        replayed()

    seconds = median_cpu(run)
    bound = 2 / SIMGRID_SECONDS
    show("all-to-all of 1,024 ranks", seconds, 1024 * 1023, "messages", seconds / simgrid_cpu, bound)
    assert seconds / simgrid_cpu <= bound


@pytest.mark.parametrize(("keeps", "most"), [("nothing", 0.6), ("workload", 0.4), ("everything", 0.4), ("pages", 0.25)])
def test_whole_process(rounds: list[Round], keeps: str, most: float) -> None:
    """`run --no-report` of nas-cg-A-64 as a whole process against SimGrid, in turn: at most 40 % of its CPU time,
    whether the cache holds everything or only the trace as read; at most 60 % if it holds nothing and the trace is
    parsed too. With everything kept, and traces and report (``pages``), at most a quarter."""
    ours, theirs = (statistics.median(each) for each in zip(*((r.ours[keeps], r.simgrid) for r in rounds), strict=True))
    ratios = [each.ratio(keeps) for each in rounds]
    print(
        f"\nwhole process, {keeps}: {ours:.2f} CPU s, SimGrid {theirs:.2f}, ratio {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f})"
    )
    assert statistics.median(ratios) <= most


def test_first_run_ever(simgrid_cpu: float, tmp_path: Path) -> None:
    """With no compiled code and no cache at all: at most 20 CPU seconds."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    command = [sys.executable, "-m", "manyscale", "run", "nas-cg-A-64", "--executor", "local", "--no-report"]
    taken = cpu_of([*command, "--cache", str(tmp_path / "cache"), "-o", str(tmp_path / "run")], env=environment)
    bound = 20 / SIMGRID_SECONDS
    print(f"\nfirst run ever: {taken:.1f} CPU s, {taken / simgrid_cpu:.2f} of SimGrid's (bound {bound:.2f})")
    assert taken / simgrid_cpu <= bound
