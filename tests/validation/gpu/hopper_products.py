"""Products of matrices by TMA, mbarrier and wgmma beside an H100 SXM: prints the table of RESULTS.md.

    PYTHONPATH=tests/validation/cuda python tests/validation/gpu/hopper_products.py FOLDER [KERNEL ...]

FOLDER holds a checkout of github.com/pranjalssh/fast.cu (MIT), which is cloned if it is missing; nvcc is that of the
extra ``cuda``. Kernels are traced at two depths K, which gives cycles at the depth that was measured: blocks do the
same at each step of it. Zeros are multiplied, since times here do not depend on data (the clock of hardware does).
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

from tracing import called, checkout, traced

from manyscale.models.gpu import detailed
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.targets import shipped_content
from manyscale.runner.tracers.cuda.compiler import toolkit

HERE = Path(__file__).parent
SOURCE, COMMIT = "https://github.com/pranjalssh/fast.cu", "a1bb7b2"
DEPTHS = (512, 1536)
CLOCK = 1.83e9
"""Hz: NVIDIA's data sheet has the rates of tensor cores at it; that of the measurement is not published."""
DRIVER = """
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda/barrier>
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <random>
#include <vector>
typedef __nv_bfloat16 bf16;
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
static void check(cudaError_t e) { if (e != cudaSuccess) { puts(cudaGetErrorString(e)); exit(1); } }
#define cudaCheck(e) check(e)
#include "examples/matmul/matmul_2.cuh"
#include "examples/matmul/matmul_4.cuh"
#include "examples/matmul/matmul_5.cuh"
#include "examples/matmul/matmul_6.cuh"
#include "examples/matmul/matmul_7.cuh"
#include "examples/matmul/matmul_11.cuh"
int main(int argc, char **argv) {
    const long n = atol(argv[1]), k = atol(argv[2]);
    bf16 *a, *b, *c;
    int *none = nullptr;
    check(cudaMalloc(&a, 2 * n * k)), check(cudaMalloc(&b, 2 * n * k)), check(cudaMalloc(&c, 2 * n * n));
    check(cudaMemset(a, 0, 2 * n * k)), check(cudaMemset(b, 0, 2 * n * k));
    for (int i = 3; i < argc; i++) {
        switch (atoi(argv[i])) {
        case 2: runKernel2(n, n, k, a, b, c); break;
        case 4: runKernel4(n, n, k, a, b, c, none); break;
        case 5: runKernel5(n, n, k, a, b, c, none); break;
        case 6: runKernel6(n, n, k, a, b, c, none); break;
        case 7: runKernel7(n, n, k, a, b, c, none); break;
        case 11: runKernel11(n, n, k, a, b, c, none); break;
        }
        check(cudaDeviceSynchronize());
    }
}
"""


def compiled(folder: Path) -> Path:
    """The driver's calls of libcuda are linked against a library that has their names alone."""
    stub = folder / "libcuda.so"
    (folder / "stub.c").write_text("int cuTensorMapEncodeTiled(void) { return 0; }\n")
    called(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "stub.c", "-o", str(stub)], folder)
    (folder / "products.cu").write_text(DRIVER)
    library = subprocess.run(
        [sys.executable, "-m", "manyscale", "trace", "--nvcc"], capture_output=True, text=True, check=True
    ).stdout.split()
    options = ["-std=c++17", "-O3", "-DNDEBUG", "-w", "--expt-relaxed-constexpr", "--expt-extended-lambda",
               "--use_fast_math", "-gencode", "arch=compute_90a,code=sm_90a", "-I."]  # fmt: skip
    status, _, told = called(
        [str(toolkit().tool("nvcc")), *options, "products.cu", "-o", "products", *library, "-L.", "-lcuda"], folder
    )
    if status:
        sys.exit(told)
    return folder / "products"


def trace_of(program: Path, size: int, depth: int, kernel: str) -> LaunchTrace:
    folder = program.with_name(f"trace-{kernel}-{size}-{depth}")
    if not folder.exists():
        words = [str(program), str(size), str(depth), kernel]
        status, _, told = traced(["--level", "gpu", "--as", "h100", "-o", str(folder), "--", *words], HERE, 3600)
        if status:
            sys.exit(told)
    streams = workload_folder.read(folder).gpu
    assert streams is not None
    return streams.trace(1)


def models() -> list[Gpu]:
    """The target by control bits and by the scoreboard."""
    content = shipped_content("h100")["node"]["gpu"]
    return [Gpu.model_validate(content), Gpu.model_validate(content | {"core": None})]


def main(folder: Path, kernels: list[str]) -> None:
    place = checkout(folder, "fast.cu", SOURCE)
    called(["git", "checkout", COMMIT], place)
    with (HERE / "hardware_fast_cu.csv").open() as stream:
        measured = {row["kernel"]: row for row in csv.DictReader(stream)}
    program = compiled(place)
    told = f"cycles at K = {DEPTHS[0]}, {DEPTHS[1]}"
    print(f"| kernel | hardware, us | control bits: {told} | us | error | scoreboard: {told} | us | error |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    errors = []
    for kernel in kernels or list(measured):
        size, hardware = int(measured[kernel]["size"]), float(measured[kernel]["microseconds"])
        texts = [kernel, f"{hardware:.0f}"]
        off = []
        for gpu in models():
            first, second = (
                detailed.simulate(trace_of(program, size, depth, kernel), gpu)[0].busy_cycles for depth in DEPTHS
            )
            whole = first + (second - first) / (DEPTHS[1] - DEPTHS[0]) * (size - DEPTHS[0])
            time = whole / CLOCK * 1e6
            off.append(time / hardware - 1)
            texts += [f"{first:,}, {second:,}", f"{time:.0f}", f"{off[-1]:+.1%}"]
        errors.append(off)
        print("| " + " | ".join(texts) + " |", flush=True)
    bits, board = (sum(abs(off[k]) for off in errors) / len(errors) for k in range(2))
    print(f"| mean absolute error |  |  |  | {bits:.1%} |  |  | {board:.1%} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
