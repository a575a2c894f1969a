"""The page and the traces of steps with traced times."""

from __future__ import annotations

import gzip
import html
import json
from pathlib import Path

import pytest
from gpu_steps import US, Steps

import manyscale
from manyscale.models.workload import OperationKind


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks: a kernel of 10 us, and an all-reduce behind it of 20 us."""
    folder = tmp_path_factory.mktemp("steps")
    steps = Steps(2, {"dp": [0, 1]})
    for rank in (0, 1):
        first = steps.mark(rank)
        steps.launch(rank, 10 * US, name="forward<float>")
        steps.collective(rank, OperationKind.allreduce, 4096, "dp", 20 * US, stream=20)
        steps.synchronize(rank)
        steps.step(rank, 7, first, steps.mark(rank))
    workload = steps.workload()
    target = {"name": "v100", "nodes": 1, "node": {"gpus": 4, "gpu": {"start_latency": "0 us", "stream_gap": "0 us"}}}
    content = {"schema": 1, "workload": {"path": "steps"}, "target": target}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manyscale.runner.run.study_runs.read_workload", lambda choice, cache=None: workload)
        manyscale.run(content, output=folder / "run", executor="local", cache=folder / "cache")
    return folder / "run"


def test_the_page_says_where_the_gpus_time_goes(page):
    text = html.unescape((page / "report.html").read_text())
    for words in (
        "Where the GPUs' time goes",
        "Groups that communicate",
        "forward<float>",
        "GPUs compute",
        "Critical path",
    ):
        assert words in text
    assert "33.3 %" in text  # 10 of 30 us
    assert "66.7 %" in text
    assert "MPI calls<" not in text.split("Groups that communicate")[0]  # a step has no calls of MPI to count
    assert "Parallel efficiency" not in text


def test_traces_name_kernels_on_their_streams(page):
    events = json.loads(gzip.decompress((page / "trace.json.gz").read_bytes()))["traceEvents"]
    mine = [each for each in events if each.get("name", "").startswith("forward")]
    assert [(each["ts"], each["dur"]) for each in mine] == [(0, 10), (0, 10)]
    assert "forward" in (page / "trace.pcf").read_text()
