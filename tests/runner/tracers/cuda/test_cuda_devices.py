"""Programs of several GPUs: what CUDA documents of the memory, variables and streams of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyscale.runner.readers import workload_folder

PROGRAM = (Path(__file__).parents[3] / "programs" / "cuda_devices.cu").read_text()


@pytest.mark.slow
def test_each_gpu_has_its_own(nvcc, trace):
    program = nvcc("devices", PROGRAM, "-arch=sm_80")
    status, printed, told, folder = trace([str(program)], "--as", "a100", "--gpus", "2")
    assert status == 0, told
    # own is 1 + 1 on the first, 1 + 2 on the second; 10 or 100 times 0 and 31
    assert printed[:4] == ["cudaErrorInvalidResourceHandle", "cudaSuccess 2 312", "cudaSuccess 3 3103", "2 3 10"]
    workload = workload_folder.read(folder)
    streams = workload.column("launches", "stream").tolist()
    assert len(streams) == 4
    assert streams[0] == 0
    assert len(set(streams)) == 4  # the two default streams and one more of each
    device, launch = (workload.column("gpu_operations", name) for name in ("device", "launch_id"))
    assert sorted(device[launch > 0].tolist()) == [0, 0, 1, 1]
    assert "cuda-several-gpus" not in {note.code for note in workload.notes}  # a run takes two GPUs


@pytest.mark.slow
def test_memory_of_another_gpu_is_out_of_reach_until_access_is_enabled(nvcc, trace):
    program = nvcc("devices", PROGRAM, "-arch=sm_80")
    status, printed, told, _ = trace([str(program), "closed"], "--as", "a100", "--gpus", "2")
    assert status == 0
    assert printed[1].startswith("cudaErrorIllegalAddress")
    assert "thread (0,0,0) of block (0,0,0) accesses 4 bytes at global address 0x210000000000" in told
