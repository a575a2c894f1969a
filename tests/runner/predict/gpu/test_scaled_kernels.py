"""Times of kernels and copies on a GPU that is not the trace's, or not as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from gpu_steps import US, G, Steps

import manyscale
from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_step_tables import SYNTHESISED, KernelClass
from manyscale.runner.study.targets import shipped_content

A100 = "NVIDIA A100-SXM4-40GB"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, float], dict[str, Any]]]:
    """``run(workload, target)``: times by kernel or operation in us, and notes by their codes."""

    def of(workload: Workload, target: str | dict[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
        monkeypatch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
        content = {"schema": 1, "workload": {"path": "steps"}, "target": target}
        result = manyscale.run(content, executor="local", cache=tmp_path, report=False)
        rows = result.gpu_streams.to_pylist()
        took = {row["kernel_name"] or row["operation"]: (row["end_ps"] - row["start_ps"]) / US for row in rows}
        return took, {note.code: note for note in result.notes}

    return of


def launches(gpu_name: str = "Tesla V100-SXM2-32GB") -> Steps:
    steps = Steps(gpu_name=gpu_name)
    steps.launch(0, 100 * US, name="add", of=KernelClass.elementwise)
    steps.launch(0, 100 * US, name="product", of=KernelClass.matrix, precision="fp16")
    steps.launch(0, 4 * US, name="small", of=KernelClass.elementwise)
    steps.copy(0, G.copy_to_device, 1 << 20, takes=100 * US)
    return steps


@pytest.mark.theory
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, {"add": 100, "product": 100, "copy_to_device": 100}),
        ({"dram": {"bandwidth": "449.024 GB/s"}}, {"add": 200, "product": 100, "copy_to_device": 100}),
        ({"frequency": "3060 MHz"}, {"add": 100, "product": 50, "copy_to_device": 100}),
        ({"matrix": {"rates": {"fp16": 1024}}}, {"add": 100, "product": 50, "copy_to_device": 100}),
        ({"host_link": {"bandwidth": "24 GB/s"}}, {"add": 100, "product": 100, "copy_to_device": 50}),
        ({"start_latency": "9 us"}, {"add": 100, "product": 100, "copy_to_device": 100}),
    ],
)
def test_a_gpu_that_the_study_changes_is_not_that_of_the_trace(run, changed, expected):
    took, notes = run(launches().workload(), {"name": "dgx1-v100", "node": {"gpu": changed}})
    assert {name: took[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert ("kernels-scaled" in notes) == ({*expected.values()} != {100})
    if "dram" in changed:
        assert notes["short-kernels-scaled"].count == 1


def test_a_gpu_of_ones_own_that_the_study_changes_is_told(run, tmp_path):
    own = {**(shipped_content("dgx1-v100") or {}), "name": "ours"}
    path = tmp_path / "ours.yaml"
    path.write_text(yaml.safe_dump(own))
    changed = {"name": str(path), "node": {"gpu": {"dram": {"bandwidth": "449.024 GB/s"}}}}
    took, notes = run(launches().workload(), changed)
    assert took["add"] == 100
    assert "node.gpu.dram" in notes["gpu-change-unread"].text
    assert "gpu-change-unread" not in run(launches().workload(), str(path))[1]


def test_what_ratios_do_not_tell_is_told(run):
    """Of an A100's step on a V100 whose link to the host is not known, and of one that was made for an A100."""
    content = shipped_content("dgx1-v100") or {}
    gpu = {key: value for key, value in content["node"]["gpu"].items() if key not in ("host_link", "stream_gap")}
    target = {**content, "node": {**content["node"], "gpu": gpu}}
    workload = launches(A100).workload()
    took, notes = run(workload, target)
    assert took["copy_to_device"] == 100
    assert "stream-gap-assumed" in notes
    assert (notes["copies-as-traced"].count, notes["short-kernels-scaled"].count) == (1, 1)
    _, notes = run(replace(workload, source_format=SYNTHESISED), target)
    assert A100 in notes["synthesised-elsewhere"].text
