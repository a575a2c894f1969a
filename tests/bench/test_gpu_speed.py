"""Speed of the cycle-level model of GPUs in strict order: warp instructions per CPU second, of whole traces.

Goals: 4 million for BFS and 1.5 for b+tree, on the machine where a second took so many sorts. The bound is relative to
sorts measured in the same process, as in test_node_detailed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cpu_time import UNIT, least_cpu, second

from manyscale.models.gpu import detailed
from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import accelsim
from manyscale.runner.targets import shipped_targets

DATA = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent")) / "gpu"
pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(not DATA.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces"),
]
NOISE = 1.3


@pytest.mark.parametrize(("name", "goal"), [("bfs", 4e6), ("misc/rodinia-b+tree-128-1000", 1.5e6)])
def test_strict_order(name: str, goal: float) -> None:
    """The launches of a trace one after another, once they are in memory; without compiling."""
    gpu = Gpu.model_validate(load_yaml(shipped_targets()["rtx3070"])["node"]["gpu"])
    launches = accelsim.read(DATA / name).gpu
    assert launches is not None
    traces = [launches.trace(launch_id) for launch_id in launches.launch_ids]

    def simulate() -> None:
        memory = None
        for trace in traces:
            _, memory = detailed.simulate(trace, gpu, memory)

    taken, unit = least_cpu(simulate), second()
    speed = sum(trace.num_instructions for trace in traces) / taken
    print(f"\n{name}: {speed / 1e6:.2f} M warp instructions a CPU s ({taken:.3f} s); {UNIT} sorts {unit:.2f} s")
    assert speed * unit >= goal / NOISE
