"""Speed of GPUMech's extended form against the cycle-level model, as a ratio in the same run, on launches of a million
warp instructions, made of the blocks of real ones again and again.

Goals: the first configuration 20 times faster, each further one that the launch's profile serves 50 times. What is
reached stands in tests/validation/gpu/RESULTS-GPUMECH.md; the bound is a part of the least of it.

Ratios hold for a processor. Those of ffmakernel were 17 and 77 on the machine of that file: 110 ms of the cycle-level
model, 6.4 and 1.4 ms of GPUMech. The same sources (170d16b6) take 95, 8.8 and 2.1 ms on an Intel Xeon with 2 MB of L2,
10.8 and 45 times; today's take 89, 8.5 and 2.0 ms there, 10.5 and 45 times: neither model has become slower.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import gpu_programs
import pytest
from cpu_time import least_cpu, once

from manyscale.models.gpu import detailed
from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.study.targets import shipped_targets

sys.path.insert(0, str(Path(__file__).parents[1] / "validation"))
from tbpoint.populations import Population

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "gpu"
pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces"),
]
BOUND = 0.7  # of the least that was measured, at loads of 8 to 14


@pytest.mark.parametrize(("folder", "launch", "rounds", "least_first", "least_further"), [
    ("misc/rodinia-b+tree-128-1000", 1, 50, 9, 60), ("bfs", 9, 30, 7.5, 52),
    ("misc/simple-trace-example", 1, 40, 10, 70), ("misc/simple-trace-example", 1, 100, 13, 82),
    ("misc/simtune-ffmakernel-4096-16", 1, 24, 10.5, 44),
])  # fmt: skip
def test_against_the_cycle_level_model(
    folder: str, launch: int, rounds: int, least_first: float, least_further: float
) -> None:
    trace = Population(folder, folder, (launch,), rounds, "in_grid_order", True, is_shifted=False).trace(DATA)
    assert trace.num_instructions >= 1_000_000
    gpu = Gpu.model_validate(load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"])
    profile = gpumech.collect(trace, gpu, representative=False)
    detailed.simulate(gpu_programs.launch([[[gpu_programs.integer(1)]]]), gpu)  # compiles
    exact = once(lambda: detailed.simulate(trace, gpu))
    collected = least_cpu(lambda: gpumech.collect(trace, gpu, representative=False), runs=10)
    predicted = least_cpu(lambda: gpumech.predict(profile, gpu), runs=10)
    first, further = exact / (collected + predicted), exact / predicted
    print(
        f"{folder} x{rounds}: {trace.num_instructions} warp instructions; first configuration {first:.1f} x, further"
        f" ones {further:.1f} x; {exact:.2f}, {collected:.3f} and {predicted:.3f} CPU s"
    )
    assert first >= BOUND * least_first
    assert further >= BOUND * least_further
