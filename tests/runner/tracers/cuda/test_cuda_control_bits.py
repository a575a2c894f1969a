"""A traced program whose launches issue by the control bits that nvcc wrote."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from manyscale.runner.cli import main

PROGRAM = """#include <cuda_runtime.h>
template <int N> __global__ void chain(float *out, float a, float b) {
    float x = threadIdx.x;
#pragma unroll
    for (int i = 0; i < N; i++) x = fmaf(x, a, b);
    out[threadIdx.x] = x;
}
int main() {
    float *out;
    cudaMalloc(&out, 4000);
    chain<256><<<1, 32>>>(out, 0.5f, 1.5f);
    chain<768><<<1, 32>>>(out, 0.5f, 1.5f);
    return cudaDeviceSynchronize();
}
"""
LATENCY = 4  # of FFMA on Ampere: Huerta et al., MICRO 2025, section 4; what nvcc counts


@pytest.mark.slow
def test_a_compiled_chain_takes_the_latency_that_nvcc_counts(nvcc, tracer_cache, tmp_path, capfd):
    program = nvcc("chain", PROGRAM, "-arch=sm_86")
    folder, out = tmp_path / "trace", tmp_path / "out"
    assert main(["trace", "--level", "gpu", "--as", "rtx3080ti", "--cache", str(tracer_cache), "-o", str(folder), "--",
                 str(program)]) == 0  # fmt: skip
    assert main(["run", "--workload", str(folder), "--target", "rtx3080ti", "-o", str(out)]) == 0
    told = "".join(capfd.readouterr())
    assert "informs [control-bits]" in told
    assert "no-control-bits" not in told
    short, long = pq.read_table(out / "timeline" / "launches.parquet").column("cycles").to_pylist()
    assert long - short == 512 * LATENCY
