"""Speed of GPUMech's extended form against the cycle-level model, as a ratio in the same run.

Goals: the first configuration 6 times faster, each further one of the twelve of
tests/validation/gpu/test_gpumech_against_detailed.py 10 times on average: three of them change what profiles depend on.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cpu_time import least_cpu

from manyscale.models.gpu import detailed, gpumech
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import accelsim
from manyscale.runner.targets import shipped_targets

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "gpu"
pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces"),
]
BOUND = 0.7  # of a goal: the smallest launches take a millisecond in either model


@pytest.mark.parametrize(
    "path", ["bfs", "misc/rodinia-b+tree-128-1000", "misc/simple-trace-example", "misc/simtune-ffmakernel-4096-16"]
)
def test_against_the_cycle_level_model(path: str) -> None:
    content = load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"]
    gpu, fewer = Gpu.model_validate(content), Gpu.model_validate({**content, "sms": 4})
    launches = accelsim.read(DATA / path).gpu
    taken = {"detailed": 0.0, "collect": 0.0, "again": 0.0, "predict": 0.0}
    for launch_id in launches.launch_ids:
        trace = launches.trace(launch_id)
        l2 = gpumech.l2_of(gpu)
        profile = gpumech.collect(trace, gpu, l2, representative=False)
        calls = {
            "detailed": lambda trace=trace: detailed.simulate(trace, gpu),
            "collect": lambda trace=trace, l2=l2: gpumech.collect(trace, gpu, l2, representative=False),
            "again": lambda trace=trace, l2=l2, known=profile: gpumech.collect(
                trace, fewer, l2, known, representative=False
            ),
            "predict": lambda profile=profile: gpumech.predict(profile, gpu),
        }
        for name, call in calls.items():
            taken[name] += least_cpu(call)
    first = taken["detailed"] / (taken["collect"] + taken["predict"])
    further = taken["detailed"] / ((3 * taken["again"] + 11 * taken["predict"]) / 11)
    print(
        f"{path}: first configuration {first:.1f} x, further ones {further:.1f} x on average,"
        f" {taken['detailed'] / taken['predict']:.1f} x where the profile serves,"
        f" {taken['detailed'] / (taken['again'] + taken['predict']):.1f} x where caches are gone through again"
    )
    assert first >= 6 * BOUND
    assert further >= 10 * BOUND
