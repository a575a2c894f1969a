"""Addresses of threads that ``--keep-addresses`` keeps, against those that the program computes itself."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from manyscale.runner.cli import main
from manyscale.runner.readers import cuda
from manyscale.runner.readers.cuda.lanes import LanesFile

PROGRAM = """
#include <cstdio>
#include <cuda_runtime.h>
typedef unsigned long long word;
__global__ void touch(int *in, int *counts, word *out, int n) {
    __shared__ int tile[256], votes[64];
    const int t = threadIdx.x;
    int own[16];
    votes[t] = votes[t + 32] = 0;
    __syncwarp();
    int *from = &in[(t * 7 + 3) % 100];
    word *mine = &out[t];
    // cp.async: 4 bytes from global to shared memory
    int *to = &tile[t ^ 5];
    unsigned to_shared = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to_shared), "l"(&in[t ^ 9]));
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
    int sum = *(volatile int *)from;
    ((volatile int *)tile)[(t * 3) % 64 + 64] = sum;
    sum += ((volatile int *)tile)[(t * 5) % 32];
    for (int k = 0; k < 16; k++) own[k] = in[k + t];
    own[n + t % 4] = sum;
    sum += ((volatile int *)own)[n + t % 8];
    sum += atomicExch(&counts[(t * 11) % 50], t);
    sum += atomicExch(&votes[(t * 9) % 33], t);
    ((volatile word *)mine)[32 * 0] = (word)from;
    mine[32 * 1] = (word)&in[t ^ 9];
    mine[32 * 2] = __cvta_generic_to_shared(&tile[(t * 3) % 64 + 64]);
    mine[32 * 3] = __cvta_generic_to_shared(&tile[(t * 5) % 32]);
    mine[32 * 4] = __cvta_generic_to_local(&own[n + t % 4]);
    mine[32 * 5] = __cvta_generic_to_local(&own[n + t % 8]);
    mine[32 * 6] = (word)&counts[(t * 11) % 50];
    mine[32 * 7] = __cvta_generic_to_shared(&votes[(t * 9) % 33]);
    mine[32 * 8] = (word)mine;
    mine[32 * 9] = sum;
}
int main() {
    int *in, *counts;
    word *out, found[320];
    cudaMalloc(&in, 512), cudaMalloc(&counts, 256), cudaMalloc(&out, sizeof found);
    touch<<<1, 32>>>(in, counts, out, 3);
    if (cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost)) return 1;
    for (int k = 0; k < 9 * 32; k++) printf("%llx\\n", found[k]);
}
"""
WHERE = ("LDG", "LDGSTS", "STS", "LDS", "STL", "LDL", "ATOMG", "ATOMS", "STG")
WINDOW = (1 << 24) - 1  # of local memory: an address of it may stand with or without the window's base


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "target"), [(80, "a100"), (90, "h100")])
def test_they_are_those_that_the_program_computes(architecture, target, nvcc, tracer_cache, tmp_path, capfd):
    program = nvcc(f"touch{architecture}", PROGRAM, f"-arch=sm_{architecture}")
    words = ["--as", target, "--keep-addresses", "--cache", str(tracer_cache), "-o", str(tmp_path / "kept")]
    capfd.readouterr()
    assert main(["trace", "--level", "gpu", *words, "--", str(program)]) == 0
    printed = [int(line, 16) for line in capfd.readouterr().out.splitlines()[: 9 * 32]]
    raw = tmp_path / "kept" / "raw"
    trace = cuda.read(raw).gpu.trace(1)
    (lanes,) = LanesFile(next(raw.glob("process-*/launch-1.lanes"))).blocks()
    ends = np.cumsum(lanes.count, dtype=np.int64)
    found = defaultdict(list)
    for place, row in enumerate(trace.instruction.tolist()):
        if lanes.count[place] == 32:
            root = trace.static.opcodes[trace.static.opcode[row]].split(".")[0]
            addresses = lanes.address[int(ends[place]) - 32 : int(ends[place])]
            found[root].append((addresses & WINDOW if root in ("STL", "LDL") else addresses).tolist())
    for number, root in enumerate(WHERE):
        expected = printed[32 * number : 32 * number + 32]
        assert len(set(expected)) > 3
        if root in ("STL", "LDL"):
            expected = [each & WINDOW for each in expected]
        if root == "STG":
            expected = [each + 8 * 32 * 8 for each in expected]
        assert expected in found[root], root
