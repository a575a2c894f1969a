"""Blocks that run side by side: programs whose blocks need each other compute right results, and records keep the order
of the grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyscale.models.workload.launch_trace import Access, Space
from manyscale.runner.readers import workload_folder

SOURCE = (Path(__file__).parents[3] / "programs" / "cuda_side_by_side.cu").read_text()
HEAP = 0x200000000000  # where the first allocation stands
RIGHT = ["sums 0", "cudaErrorCooperativeLaunchTooLarge", "last 0", "back 0", "turns 192"]


@pytest.mark.parametrize("architecture", [80, pytest.param(90, marks=pytest.mark.slow)])
def test_blocks_wait_for_each_other(nvcc, trace, architecture):
    words = ["-DCLUSTERS"] if architecture == 90 else []
    program = nvcc(f"side-by-side-{architecture}", SOURCE, f"-arch=sm_{architecture}", *words)
    status, printed, told, folder = trace([str(program)], "--as", "h100" if words else "a100")
    assert status == 0, told
    expected = RIGHT + (["ring 0", "shape 0", *["cudaErrorInvalidClusterSize"] * 2] if words else [])
    assert printed[: len(expected)] == expected
    gpu = workload_folder.read(folder).gpu
    # the last block ends first, and still stands last: thread 0 of each stores one sector of its own at the end
    launch = gpu.trace(2)
    stores = (launch.static.access == Access.store) & (launch.static.space == Space.global_)
    sectors = launch.sector[np.repeat(stores[launch.instruction], launch.accesses)]
    at_place = sectors[sectors < HEAP // 32 + 64]
    assert at_place.tolist() == [HEAP // 32 + block for block in range(50)]


@pytest.mark.slow
def test_a_launch_that_waits_for_ever_is_told(nvcc, trace):
    program = nvcc("side-by-side-80", SOURCE, "-arch=sm_80")
    _, printed, told, folder = trace([str(program), "never"], "--as", "a100")
    assert printed[: len(RIGHT) + 1] == [*RIGHT, "cudaErrorLaunchTimeout"]
    lines = [line for line in told.splitlines() if line.startswith("manyscale: _Z5neverPVi")]
    assert len(lines) == 1
    assert "block (0,0,0) waits for ever: warp 0 asks again and again" in lines[0]
    assert len(workload_folder.read(folder).column("launches", "launch_id")) == 4
