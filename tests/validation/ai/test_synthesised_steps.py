"""Replays of synthesised steps against the closed forms of the papers that the schedules are from."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

import manyscale
from manyscale.runner.study.targets import target_named

pytestmark = [pytest.mark.theory, pytest.mark.slow]
SHAPE = {"layers": 16, "hidden": 4096, "heads": 32, "sequence": 2048, "vocabulary": 1000, "global_batch": 8}


@pytest.fixture(scope="module")
def quick_hosts(tmp_path_factory) -> Path:
    """A machine whose hosts and launches take no time."""
    _, content = target_named("dgx-a100", "test")
    node = content["node"]
    gpu = {**node["gpu"], "start_latency": "0 ps", "stream_gap": "0 ps"}
    none = {"host_launch": "1 ns", "host_collective": "0 ps", "host_message": "0 ps", "host_tensor": "0 ps"}
    path = tmp_path_factory.mktemp("machine") / "machine.yaml"
    path.write_text(yaml.safe_dump({**content, "node": {**node, "gpu": gpu, "framework": none}}, sort_keys=False))
    return path


def step_s(folder: Path, target: Path, **keys: object) -> tuple[float, float]:
    """The longest step of a rank, and the pipeline's bubble as the run tells it."""
    made = manyscale.synthesise(target=target, output=folder / "step", **{**SHAPE, **keys})
    result = manyscale.run({"workload": {"path": str(made.path)}, "target": str(target)}, folder / "run", report=False)
    steps = pq.read_table(folder / "run" / "timeline" / "steps.parquet")
    bubble = result.statistics.get("step.pipeline_bubble")
    longest = float((steps.column("end_ps").to_numpy() - steps.column("start_ps").to_numpy()).max()) / 1e12
    return longest, 0.0 if bubble is None else float(bubble.value)


@pytest.mark.parametrize("interleaved", [1, 2, 4])
def test_the_bubble_of_a_replay_is_narayanans(tmp_path, quick_hosts, interleaved):
    """(p - 1) / (v m) of the time that one GPU takes for the same, over p stages (section 2.2). Messages, the
    optimiser, and the ends of the model, which only some stages have, are the rest. Of the whole step the bubble is
    (p - 1) / (v m + p - 1)."""
    whole, none = step_s(tmp_path / "one", quick_hosts)
    found, bubble = step_s(tmp_path / "four", quick_hosts, pp=4, interleaved=interleaved)
    assert found / (whole / 4) - 1 == pytest.approx(3 / (8 * interleaved), abs=0.02)
    assert none == 0
    assert bubble == pytest.approx(3 / (8 * interleaved + 3), abs=0.02)
