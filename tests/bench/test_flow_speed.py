"""Speed of the flow network: kernel times of all-to-all patterns, and whole runs against SimGrid's replay.

The bounds of the kernel are CPU seconds relative to a fixed amount of work measured in the same process (a sort), so
that they move with the machine: `UNIT` sorts took one second where they were set. Every figure is printed, so that
`pytest -m bench -s` is a report.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
import zstandard
from cpu_time import cpu_of, second
from halo_program import halo
from halo_program import target as wide
from simgrid_platform import CONTENTION_FREE

from manyscale.models.network import latency_bandwidth
from manyscale.models.network.flow import model as flow
from manyscale.models.network.flow.parameters import Flow
from manyscale.models.network.program import Program, build_program
from manyscale.models.network.replay.strand_state import new_state
from manyscale.models.network.routes import routes
from manyscale.models.workload import Workload
from manyscale.runner import shipped
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.study.targets import build_machine, shipped_targets

pytestmark = pytest.mark.bench

NOISE = 1.3  # by which a kernel may be disturbed on a shared machine
platforms = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "mpi"


def kernel_seconds(
    workload: Workload, target: str | dict[str, Any], runs: int, step: str = "0 s"
) -> tuple[float, Program]:
    """Least CPU seconds of the kernel alone, after a run that compiles. ``target``: a shipped one, or its content."""
    machine = build_machine(load_yaml(shipped_targets()[target]) if isinstance(target, str) else target, "target")
    network = machine.network.model_copy(update={"flow": Flow(step=step)})
    program = build_program(workload, network.collectives)
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps")).astype(np.float64)
    node = np.arange(workload.num_ranks, dtype=np.int32)
    law = latency_bandwidth.message_law(program, network, node)
    source, destination = program.source, program.destination
    ways = routes(network, machine.num_nodes, node[source], node[destination], source == destination)
    taken = []
    for _ in range(runs):
        traffic, sharing = flow.traffic_of(program, network, ways)
        no_delay = np.zeros(program.num_messages)
        steps, state = new_state(program, compute, law.is_eager, no_delay, law.gate_cost_ps.astype(np.float64))
        begin = time.process_time()
        flow.run(steps, state, traffic, sharing, law.eager_start)
        taken.append(time.process_time() - begin)
        assert state.finished.all()
    return min(taken), program


def check(what: str, seconds: float, bound_s: float, program: Program) -> None:
    speed, unit = program.num_messages / seconds / 1e6, second()
    print(f"\n{what}: {seconds:.3f} CPU s, {speed:.2f} M messages/s (bound {bound_s:.3g} s x {unit:.2f})")
    assert seconds <= bound_s * unit


@pytest.mark.parametrize("target", ["crossbar256", "fattree256"])
@pytest.mark.parametrize("name", ["nas-cg-A-64", "hpcg-64"])
def test_point_to_point(name: str, target: str) -> None:
    """At least 1.2 M messages per CPU second on the crossbar, 1.0 M on the fat tree."""
    seconds, program = kernel_seconds(simgrid_ti.read(shipped.folder() / f"{name}.tar.zst"), target, 9)
    bound_s = program.num_messages / (1.2e6 if target == "crossbar256" else 1.0e6)
    check(f"{name}, {target}", seconds, NOISE * bound_s, program)


@pytest.mark.parametrize(("target", "bound_s"), [("crossbar256", 0.5), ("fattree256", 1.2)])
def test_all_to_all_of_64_ranks(target: str, bound_s: float) -> None:
    seconds, program = kernel_seconds(simgrid_ti.read(shipped.folder() / "nas-is-A-64.tar.zst"), target, 4)
    check(f"nas-is-A-64, {target}", seconds, bound_s, program)


def all_to_all(path: Path, num_ranks: int, skew: float) -> Workload:
    """An all-to-all-v with blocks of 100,000 B, each changed at random by up to ``skew``."""
    blocks = np.rint(1e5 * (1 + skew * (2 * np.random.default_rng(7).random((num_ranks, num_ranks)) - 1))).astype(int)
    lines = []
    for rank in range(num_ranks):
        sent, received = (" ".join(map(str, part.tolist())) for part in (blocks[rank], blocks[:, rank]))
        action = f"alltoallv {blocks[rank].sum()} {sent} {blocks[:, rank].sum()} {received} 6 6"
        lines += [f"{rank} init", f"{rank} compute {10 * rank}", f"{rank} {action}", f"{rank} finalize"]
    path.write_text("".join(f"{line}\n" for line in lines))
    return simgrid_ti.read(path)


@pytest.mark.parametrize(("num_ranks", "skew", "bound_s", "target"), [
    (128, 0.5, 2.0, "crossbar256"), (256, 0.0, 2.0, "crossbar256"), (256, 0.5, 25.0, "crossbar256"),
    (128, 0.5, 2.0, "fattree256"), (256, 0.0, 2.0, "fattree256"),
])  # fmt: skip
def test_all_to_all_v(num_ranks: int, skew: float, bound_s: float, target: str, tmp_path: Path) -> None:
    workload = all_to_all(tmp_path / "trace.txt", num_ranks, skew)
    seconds, program = kernel_seconds(workload, target, 1)
    check(f"all-to-all-v of {num_ranks} ranks, skew {skew}, {target}", seconds, NOISE * bound_s, program)


def test_uneven_messages_against_even_ones(tmp_path: Path) -> None:
    """Each end of a message changes the rates of most others: of 128 ranks, at most 40 times the CPU of even ones, and
    5 times with rates solved in steps of a route's latency."""
    even, uneven = (all_to_all(tmp_path / f"{skew}.txt", 128, skew) for skew in (0.0, 0.5))
    base = kernel_seconds(even, "crossbar256", 3)[0]
    for step, bound in (("0 s", 40.0), ("10 us", 5.0)):
        seconds, _ = kernel_seconds(uneven, "crossbar256", 2, step)
        print(f"\nuneven to even, steps of {step}: {seconds / base:.1f} (bound {bound})")
        assert seconds <= NOISE * bound * base


def test_ranks_of_a_halo_with_a_reduction() -> None:
    """CPU per message of the kernel: 16 times the ranks, all of which send to one, at most 3 times as much (where each
    start and end went through all that share the link of that one, 1,024 ranks took 4 times as much, 4,096 ten)."""
    each = []
    for num_ranks in (64, 256, 1024):
        content = yaml.safe_load(wide(num_ranks))
        content["network"]["collectives"] = "simgrid-3.32"
        seconds, program = kernel_seconds(halo(num_ranks, 20, spread_ps=10_000_000), content, 3)
        each.append(seconds / program.num_messages * 1e6)
        print(f"\nhalo of {num_ranks} ranks: {seconds:.3f} CPU s, {each[-1]:.2f} us a message")
    assert each[2] <= NOISE * 3 * each[0]


@pytest.fixture
def simgrid(tmp_path: Path) -> Callable[[str, str], float]:
    """CPU seconds of SimGrid's own replay of a shipped trace on a platform, by its default (lazy) solver."""
    if shutil.which("smpirun") is None:
        pytest.skip("SimGrid is not installed (Debian: libsimgrid-dev)")
    if not platforms.is_dir():
        pytest.skip("MANYSCALE_DATA does not name the folder of the platforms")

    def replay(name: str, platform: str) -> float:
        with (
            (shipped.folder() / f"{name}.tar.zst").open("rb") as file,
            zstandard.ZstdDecompressor().stream_reader(file) as stream,
            tarfile.open(fileobj=stream, mode="r|") as content,
        ):
            content.extractall(tmp_path)
        files = ["-platform", str(platforms / f"{platform}.xml"), "-hostfile", str(platforms / "hosts256.txt")]
        command = ["smpirun", "-np", "64", *files, "-replay", "ti.txt", *CONTENTION_FREE]
        return cpu_of(command, cwd=tmp_path / name)

    return replay


@pytest.mark.parametrize(
    ("name", "target", "ratio"),
    [("nas-is-A-64", "crossbar256", 8), ("nas-cg-A-64", "fattree256", 1.2), ("hpcg-64", "fattree256", 1.0)],
)
def test_whole_process(
    name: str, target: str, ratio: float, simgrid: Callable[[str, str], float], tmp_path: Path
) -> None:
    """`manyscale run` with the trace cached as read: ``ratio`` times less CPU than SimGrid's replay.

    On the fat tree SimGrid stops nas-is-A-64 with a false deadlock; the others are mostly imports, reading and writing.
    """
    cache = tmp_path / "cache"
    command = [sys.executable, "-m", "manyscale", "run", "--workload", str(shipped.folder() / f"{name}.tar.zst")]
    command += ["--target", target, "--model", "network=flow", "--executor", "local", "--no-report"]
    ours = []
    for run in range(3):
        shutil.rmtree(cache / "units", ignore_errors=True)
        ours.append(cpu_of([*command, "--cache", str(cache), "-o", str(tmp_path / f"run{run}")]))
    theirs = simgrid(name, target)
    print(f"\n{name}, {target}: {min(ours):.2f} CPU s, SimGrid {theirs:.2f}, ratio {theirs / min(ours):.1f}")
    assert theirs >= ratio * min(ours)
