"""The shipped example of kernel launches, by the models themselves."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from manyscale import run
from manyscale.runner import shipped
from manyscale.runner.study import load_study_content

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def bfs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bfs")
    return run(shipped.studies()["bfs-16"], folder / "run", executor="local", cache=folder / "cache", report=False)


def test_every_launch_and_instruction_is_there(bfs):
    assert bfs.launches.num_rows == 16
    assert bfs.statistics["gpu.warp_instructions"].value == 159_509
    assert bfs.statistics["gpu.thread_instructions"].value == 1_280_630
    assert sum(bfs.blocks.column("warp_instructions").to_pylist()) == 159_509
    assert sum(bfs.gpu_ipc.column("warp_instructions").to_pylist()) == 159_509


def test_stacks_sum_to_the_cycles_of_each_launch(bfs):
    stacks = bfs.gpu_cpi_stacks.group_by("launch_id").aggregate([("cycles", "sum")]).sort_by("launch_id")
    inside = np.array(bfs.launches.column("cycles")) - np.array(bfs.launches.column("launch_latency_cycles"))
    assert np.allclose(stacks.column("cycles_sum"), inside)


def test_blocks_run_inside_their_launch(bfs):
    inside = np.array(bfs.launches.column("cycles")) - np.array(bfs.launches.column("launch_latency_cycles"))
    of_launch = dict(zip(bfs.launches.column("launch_id").to_pylist(), inside.tolist(), strict=True))
    for row in bfs.blocks.to_pylist():
        assert 0 <= row["start_cycle"] < row["end_cycle"] <= of_launch[row["launch_id"]]
        assert 0 <= row["sm"] < 46


def test_launches_after_what_those_before_accessed_are_as_if_they_had_run(bfs, tmp_path):
    """All of it fits into L2, so that what accesses leave there is all that matters."""
    options = {"executor": "local", "cache": tmp_path / "cache", "report": False}
    study = {**load_study_content(shipped.studies()["bfs-16"]), "gpu": {"caches": "warm"}}
    warm, cold = (
        run({**study, "gpu": {"caches": caches}}, tmp_path / caches, **options) for caches in ("warm", "cold")
    )
    kept = np.array(bfs.launches.column("cycles"))
    assert np.abs(np.array(warm.launches.column("cycles")) / kept - 1).max() < 0.002
    assert np.array(cold.launches.column("cycles"))[10] > 1.1 * kept[10]


@pytest.mark.slow
def test_ray_gives_the_same_bytes(cli, tmp_path):
    for where, more in (("local", ()), ("ray", ("--workers", 2))):
        options = ("--set", "gpu.caches=warm", "--executor", where, *more, "--cache", f"cache-{where}", "--no-report")
        assert cli("run", "bfs-16", "--launch", "1-4", "-o", where, *options).status == 0
    for name in ("launches", "blocks", "gpu_ipc", "gpu_cpi_stacks"):
        one, other = (pq.read_table(tmp_path / where / "timeline" / f"{name}.parquet") for where in ("local", "ray"))
        assert one.equals(other)
