"""Kernels of Numba-CUDA, held against NumPy: a sum with atomics and shared memory, and a stencil on a grid."""

import sys

import numpy as np
from numba import cuda, float32


@cuda.jit
def scaled(x, out, factor):
    k = cuda.grid(1)
    if k < x.size:
        out[k] = factor * x[k]


@cuda.jit
def total(x, out):
    part = cuda.shared.array(128, float32)
    k, own = cuda.grid(1), cuda.threadIdx.x
    part[own] = x[k] if k < x.size else 0
    cuda.syncthreads()
    step = 64
    while step:
        if own < step:
            part[own] += part[own + step]
        cuda.syncthreads()
        step //= 2
    if own == 0:
        cuda.atomic.add(out, 0, part[0])


@cuda.jit
def smoothed(x, out):
    i, j = cuda.grid(2)
    if 0 < i < x.shape[0] - 1 and 0 < j < x.shape[1] - 1:
        out[i, j] = 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


def main():
    rng = np.random.default_rng(20)
    x = rng.integers(0, 100, 1000).astype(np.float32)
    out = cuda.device_array_like(x)
    scaled[8, 128](cuda.to_device(x), out, np.float32(3))
    assert (out.copy_to_host() == 3 * x).all()
    sums = cuda.to_device(np.zeros(1, np.float32))
    total[8, 128](cuda.to_device(x), sums)
    assert sums.copy_to_host()[0] == x.sum(dtype=np.float64)  # whole numbers: exact in every order
    grid = rng.integers(0, 100, (50, 70)).astype(np.float64)
    after = grid.copy()
    smoothed[(4, 5), (16, 16)](grid, after)  # arrays of the host are copied there and back
    expected = grid.copy()
    expected[1:-1, 1:-1] = 0.25 * (grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:])
    assert (after == expected).all()
    print("PASSED")


sys.exit(main())
