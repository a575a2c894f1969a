"""Speed of GPUMech's extended form against the cycle-level model, as a ratio in the same run.

Goals: the first configuration 6 times faster, each further one 10 times: one that the launch's profile serves, and one
for which caches are gone through again, here four SMs.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from cpu_time import least_cpu

from manyscale.models.gpu import detailed
from manyscale.models.gpu.gpumech import model as gpumech
from manyscale.models.gpu.gpumech.outline import outline_of
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import accelsim
from manyscale.runner.study.targets import shipped_targets

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
    taken: Counter[str] = Counter()
    for launch_id in launches.launch_ids:
        trace = launches.trace(launch_id)
        l2, l2_of_fewer = gpumech.l2_of(gpu), gpumech.l2_of(fewer)
        outline = outline_of(trace, gpu, instructions=False)
        profile = gpumech.profile_of(outline, gpu, l2)
        calls = {
            "detailed": lambda trace=trace: detailed.simulate(trace, gpu),
            "first": lambda trace=trace, l2=l2: gpumech.predict(
                gpumech.collect(trace, gpu, l2, representative=False), gpu
            ),
            "predict": lambda profile=profile: gpumech.predict(profile, gpu),
            "detailed, four SMs": lambda trace=trace: detailed.simulate(trace, fewer),
            "again": lambda outline=outline, l2=l2_of_fewer: gpumech.predict(
                gpumech.profile_of(outline, fewer, l2), fewer
            ),
        }
        for name, call in calls.items():
            taken[name] += least_cpu(call, runs=5 if name.startswith("detailed") else 20)
    first = taken["detailed"] / taken["first"]
    served = taken["detailed"] / taken["predict"]
    again = taken["detailed, four SMs"] / taken["again"]
    print(
        f"{path}: first configuration {first:.1f} x; further ones {served:.1f} x where the profile serves, {again:.1f}"
        " x where caches are gone through again"
    )
    assert first >= 6 * BOUND
    assert min(served, again) >= 10 * BOUND
