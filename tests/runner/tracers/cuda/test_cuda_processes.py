"""Code that arrives late and programs of several processes: libraries that are loaded while the program runs, scripts
that start programs, and processes that are copied."""

from __future__ import annotations

import sys

import pytest

from manyscale.runner.readers import workload_folder

LIBRARY = r"""
#include <cuda_runtime.h>
__constant__ int factor = 3;
__global__ void scale(int *values) { values[threadIdx.x] *= factor; }
extern "C" int scaled(int value, int by) {
    int *memory;
    if (by) cudaMemcpyToSymbol(factor, &by, sizeof by);
    cudaMalloc(&memory, sizeof value);
    cudaMemcpy(memory, &value, sizeof value, cudaMemcpyHostToDevice);
    scale<<<1, 1>>>(memory);
    cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost);
    cudaFree(memory);
    return value;
}
"""
LOADS = r"""
#include <cstdio>
#include <dlfcn.h>
#include <cuda_runtime.h>
__global__ void own() {}
int main(int, char **words) {
    own<<<1, 32>>>();
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) return printf("%s\n", dlerror()), 1;
    int (*scaled)(int, int) = (int (*)(int, int))dlsym(library, "scaled");
    const int first = scaled(14, 0);
    printf("%d %d\n", first, scaled(14, 5));
    own<<<2, 32>>>();
}
"""
COPIED = r"""
#include <cstdio>
#include <sys/wait.h>
#include <unistd.h>
#include <cuda_runtime.h>
__global__ void own() {}
static const char *used() {
    void *memory;
    const cudaError_t error = cudaMalloc(&memory, 4);
    own<<<1, 1>>>();
    return cudaGetErrorName(error != cudaSuccess ? error : cudaGetLastError());
}
int main() {
    for (int is_used = 0; is_used < 2; is_used++) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) return printf("child %s\n", used()), 0;
        waitpid(child, nullptr, 0);
        printf("parent %s\n", used());
    }
}
"""


@pytest.fixture
def library(nvcc):
    return nvcc("late.so", LIBRARY, "-arch=sm_80", "-shared", "-Xcompiler", "-fPIC")


@pytest.mark.slow
def test_kernels_of_a_library_that_is_loaded_while_the_program_runs(nvcc, library, trace):
    program = nvcc("loads", LOADS, "-arch=sm_80", "-ldl")
    status, printed, told, folder = trace([str(program), str(library)], "--as", "a100")
    assert status == 0, told
    assert printed[0] == "42 70"
    names = workload_folder.read(folder).tables["launches"].column("kernel_name").to_pylist()
    assert names == ["_Z3ownv", "_Z5scalePi", "_Z5scalePi", "_Z3ownv"]


@pytest.mark.slow
def test_an_extension_of_python(library, trace, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"import ctypes\nprint(ctypes.CDLL({str(library)!r}).scaled(7, 0))\n")
    status, printed, told, folder = trace([sys.executable, str(script)], "--as", "a100")
    assert status == 0, told
    assert printed[0] == "21"
    assert workload_folder.read(folder).tables["launches"].num_rows == 1


@pytest.mark.slow
def test_programs_of_a_script_are_read_one_after_the_other(nvcc, library, trace, tmp_path):
    program = nvcc("loads", LOADS, "-arch=sm_80", "-ldl")
    script = tmp_path / "script.sh"
    script.write_text(f"{program} {library} && {program} {library} | cat\n")
    status, printed, told, folder = trace(["sh", str(script)], "--as", "a100")
    assert status == 0, told
    assert printed[:2] == ["42 70"] * 2
    workload = workload_folder.read(folder)
    assert workload.column("launches", "launch_id").tolist() == list(range(1, 9))
    # a copy before each launch of the library, and one of its constant before the second
    assert workload.column("copies", "before_launch_id").tolist() == [2, 3, 3, 6, 7, 7]
    note = next(note for note in workload.notes if note.code == "cuda-several-processes")
    assert "2 processes used the GPU" in note.text


@pytest.mark.slow
def test_a_copied_process_cannot_use_cuda_once_its_parent_did(nvcc, trace):
    program = nvcc("copied", COPIED, "-arch=sm_80")
    status, printed, told, folder = trace([str(program)], "--as", "a100")
    assert status == 0, told
    expected = ["child cudaSuccess", "parent cudaSuccess", "child cudaErrorInitializationError", "parent cudaSuccess"]
    assert printed[:4] == expected
    assert workload_folder.read(folder).tables["launches"].num_rows == 3  # of the first child, and two of the parent
