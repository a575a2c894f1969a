"""Groups of SMs side by side: CPU time of the slower of two against that of one that simulates all SMs.

Goal: 1.6 times shorter on launches of two million warp instructions, made of the blocks of real ones again and again.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

import pytest

from manyscale.models.gpu.groups import simulate_in_groups
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.kernels.team import Team
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.problems import load_yaml
from manyscale.runner.run.execute.teams import in_threads
from manyscale.runner.study.targets import shipped_targets

sys.path.insert(0, str(Path(__file__).parents[1] / "validation"))
from tbpoint.populations import Population

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "gpu"
pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces"),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="members that wait for a processor wait for each other"),
]
ROUNDS = 2  # the least of each count
GOAL = 1.6
BOUND = 0.65  # of the goal: others use this machine too, and who waits for the other counts that as its own


@pytest.mark.parametrize(("folder", "launch", "rounds"), [
    ("misc/rodinia-b+tree-128-1000", 1, 92), ("bfs", 9, 50), ("misc/simtune-ffmakernel-4096-16", 1, 60),
])  # fmt: skip
def test_two_groups_on_two_processors(folder: str, launch: int, rounds: int) -> None:
    population = Population(folder, folder, (launch,), rounds, "in_grid_order", True, is_shifted=False)
    trace = population.trace(DATA)
    gpu = Gpu.model_validate(load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"])
    cpu: dict[int, list[float]] = {1: [], 2: []}
    wall: dict[int, list[float]] = {1: [], 2: []}
    in_threads(2, lambda team: _cpu_of_member(trace, gpu, team))  # compiles
    for _ in range(ROUNDS):
        for count in cpu:
            begin = time.perf_counter()
            members = in_threads(count, lambda team: _cpu_of_member(trace, gpu, team))
            wall[count].append(time.perf_counter() - begin)
            cpu[count].append(max(members))
    ratio = min(cpu[1]) / min(cpu[2])
    print(
        f"{folder}, launch {launch} x{rounds}: {trace.num_instructions} warp instructions, {trace.num_blocks} blocks;"
        f" critical path {ratio:.2f} x shorter ({min(cpu[1]):.2f} and {min(cpu[2]):.2f} CPU s),"
        f" wall {statistics.median(wall[1]) / statistics.median(wall[2]):.2f} x"
    )
    assert trace.num_instructions >= 1_900_000
    assert ratio >= BOUND * GOAL


def _cpu_of_member(trace: LaunchTrace, gpu: Gpu, team: Team) -> float:
    begin = time.thread_time()
    simulate_in_groups(trace, gpu, None, team)
    return time.thread_time() - begin
