"""Device code of several units, linked with ``-rdc=true``: what the programs print is what C++ says."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyscale.runner.readers import workload_folder

PROGRAMS = Path(__file__).parents[3] / "programs"
FIRST, SECOND = PROGRAMS / "cuda_linked.cu", PROGRAMS / "cuda_linked_second.cu"


@pytest.mark.slow
def test_calls_variables_and_pointers_cross_units(nvcc, trace, shown):
    codes = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in (75, 80, 86, 90)]
    program = nvcc("linked", FIRST.read_text(), "-rdc=true", *codes, str(SECOND))
    step = [lambda x: x + 1, lambda x: x - 1, lambda x: 3 * x + 5]
    expected = [f"{3 * i + 5} {step[(2 + i) % 3](i)} {i * i if i % 2 else 3 * i} {2 * i}" for i in range(32)]
    expected += ["132 26 6", "132 68 6", "cudaSuccess", "cudaSuccess"]  # 100 + 32 threads; 7 * 3 + 5; 7 * 9 + 5
    for architecture in (75, 80, 86, 90):
        status, printed, told, folder = trace([str(program)], "--as", shown(architecture))
        assert status == 0, told
        assert printed[: len(expected)] == expected
        workload = workload_folder.read(folder)
        assert workload.column("launches", "binary_version").tolist() == [architecture] * 5
        first = workload.gpu.trace(1)
        assert first.num_instructions == workload.column("launches", "warp_instructions")[0]
        folder.rename(folder.with_name(str(architecture)))


CONSTANTS = r"""
#include <cstdio>
#include <cuda_runtime.h>
__device__ int before;
__constant__ int table[6] = {10, 11, 12, 13, 14, 15};
__global__ void take(const int **address, int *out, int place) {
    const int *own = &table[place];
    *address = own;
    *out = own[1];
}
__global__ void use(const int *address, int *out) { *out = *address + before; }
int main() {
    const int **address;
    int *out;
    cudaMallocManaged(&address, 8);
    cudaMallocManaged(&out, 8);
    for (int place = 0; place < 3; place++) {
        take<<<1, 1>>>(address, out, place);
        cudaDeviceSynchronize();
        printf("%d ", *out);
        use<<<1, 1>>>(*address, out);
        cudaDeviceSynchronize();
        printf("%d\n", *out);
    }
}
"""


@pytest.mark.slow
def test_addresses_of_constants_are_those_of_memory(nvcc, trace, shown):
    codes = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in (75, 80, 90)]
    program = nvcc("constants", CONSTANTS, *codes)
    for architecture in (75, 80, 90):
        status, printed, told, folder = trace([str(program)], "--as", shown(architecture))
        assert status == 0, told
        assert printed[:3] == ["11 10", "12 11", "13 12"]
        folder.rename(folder.with_name(str(architecture)))


@pytest.mark.slow
def test_code_that_is_not_optimised_is_linked_too(nvcc, trace):
    program = nvcc("linked-O0", FIRST.read_text(), "-rdc=true", "-G", "-arch=sm_90", str(SECOND))
    status, printed, told, _ = trace([str(program)], "--as", "h100")
    assert status == 0, told
    assert printed[32:36] == ["132 26 6", "132 68 6", "cudaSuccess", "cudaSuccess"]


RECURSIVE = """
#include <cstdio>
#include <cuda_runtime.h>
__device__ __noinline__ int depth(int n, int *seen) {
    volatile int kept[16];
    for (int k = 0; k < 16; k++) kept[k] = n + k;
    int below = n ? depth(n - 1, seen) : 0;
    for (int k = 0; k < 16; k++) if (kept[k] != n + k) atomicAdd(seen, 1);
    return below + 1;
}
__global__ void call(int n, int *out, int *seen) { out[threadIdx.x] = depth(n + threadIdx.x, seen); }
int main() {
    int *out;
    cudaMallocManaged(&out, 33 * sizeof(int));
    for (int k = 0; k < 33; k++) out[k] = 0;
    cudaDeviceSetLimit(cudaLimitStackSize, 64 * 1024);
    call<<<1, 32>>>(200, out, out + 32);
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    for (int k = 0; k < 32; k++) if (out[k] != 201 + k) return printf("wrong at %d: %d\\n", k, out[k]), 1;
    return out[32] ? 1 : printf("PASSED\\n") < 0;
}
"""


@pytest.mark.slow
def test_a_function_that_calls_itself_has_the_stack_that_the_program_asks_for(nvcc, trace):
    status, out, told, _ = trace([str(nvcc("recursive", RECURSIVE, "-arch=sm_80"))], "--as", "a100")
    assert (status, out[0]) == (0, "PASSED"), told
