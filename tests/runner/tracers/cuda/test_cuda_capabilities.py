"""What a traced program is shown of an SM: NVIDIA's published limits, not those that a target simulates."""

from __future__ import annotations

import re

import pytest

from manyscale.models.gpu.parameters import Gpu
from manyscale.runner.cli import main
from manyscale.runner.errors import UserError
from manyscale.runner.study.shown_device import shown_device
from manyscale.runner.study.targets import target_named
from manyscale.runner.tracers.cuda.capabilities import capability

# CUDA Programming Guide, "Compute Capabilities", technical specifications: warps, blocks, KiB of an SM's shared memory
# and of a block's
GUIDE = {
    75: (32, 16, 64, 64), 80: (64, 32, 164, 163), 86: (48, 16, 100, 99), 87: (48, 16, 164, 163),
    89: (48, 24, 100, 99), 90: (64, 32, 228, 227), 100: (64, 32, 228, 227), 120: (48, 24, 100, 99),
}  # fmt: skip


@pytest.mark.parametrize("number", GUIDE)
def test_limits_are_those_of_the_guide(number):
    found = capability(number, "gpu")
    assert (found.warps, found.blocks, found.shared / 1024, found.shared_optin / 1024) == GUIDE[number]
    assert (found.threads, found.registers, found.register_unit) == (32 * GUIDE[number][0], 65536, 256)


def test_a_program_sees_hardware_while_the_target_stays_accel_sims():
    device = shown_device("rtx3070")
    assert (device.blocks_per_sm, device.register_unit, device.warps, device.shared_per_sm) == (16, 256, 48, 102400)
    gpu = Gpu.of(target_named("rtx3070", "test")[0].node)
    assert gpu is not None
    assert (gpu.blocks, gpu.register_unit) == (32, 128)


def test_a_capability_that_is_not_published_is_refused():
    with pytest.raises(UserError, match=r"--as mine: is of compute capability 8\.1; .*7\.5, 8\.0, 8\.6"):
        capability(81, "--as mine")


def test_cccl_says_the_same(kit):
    """NVIDIA's CCCL, which comes with the toolkit's headers, repeats the table."""
    found = sorted(kit.include.rglob("arch_traits.h"))
    if not found:
        pytest.skip("the toolkit's headers hold no arch_traits.h")
    text = found[0].read_text()
    for number, (warps, blocks, shared, _) in GUIDE.items():
        traits = re.search(rf"arch_traits<arch_id::sm_{number}>\(\)(.*?)\n}}", text, re.DOTALL)
        assert traits is not None, number
        values = dict(re.findall(r"__traits\.(\w+)\s*=\s*(\d+(?: \* 1024)?);", traits[1]))
        assert values["max_blocks_per_multiprocessor"] == str(blocks)
        assert values["max_threads_per_multiprocessor"] == str(32 * warps)
        assert values["max_shared_memory_per_multiprocessor"] == f"{shared} * 1024"


OCCUPANCY = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void small(int *out) { out[threadIdx.x] = threadIdx.x; }
__global__ void shared(int *out) {
    extern __shared__ int tile[];
    tile[threadIdx.x] = out[threadIdx.x];
    out[threadIdx.x] = tile[threadIdx.x ^ 1];
}
int main() {
    int blocks, attribute;
    cudaDeviceProp device;
    cudaGetDeviceProperties(&device, 0);
    cudaDeviceGetAttribute(&attribute, cudaDevAttrMaxBlocksPerMultiprocessor, 0);
    printf("%d %d %zu\\n", device.maxBlocksPerMultiProcessor, attribute, device.sharedMemPerMultiprocessor);
    for (int threads = 32; threads <= 1024; threads *= 2) {
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, threads, 0);
        printf("%d ", blocks);
    }
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shared, 32, 20 * 1024);
    printf("%d\\n", blocks);
    int *out;
    cudaMalloc(&out, 4);
    small<<<1, 1>>>(out);
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "architecture", "expected"),
    [  # the least of blocks of an SM, warps of an SM over those of a block, shared memory over 21 KiB of a block
        ("rtx3070", 86, ["16 16 102400", "16 16 12 6 3 1 4"]),
        ("a100", 80, ["32 32 167936", "32 32 16 8 4 2 7"]),
    ],
)
def test_programs_are_told_the_occupancy_of_hardware(
    target, architecture, expected, nvcc, tracer_cache, tmp_path, capfd
):
    program = nvcc(f"occupancy{architecture}", OCCUPANCY, f"-arch=sm_{architecture}")
    command = ["trace", "--level", "gpu", "--as", target, "--cache", str(tracer_cache), "-o", str(tmp_path / "traced")]
    capfd.readouterr()
    main([*command, "--", str(program)])
    assert capfd.readouterr().out.splitlines()[:2] == expected
