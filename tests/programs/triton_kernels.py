"""Triton's tutorial kernels without PyTorch: vector addition, softmax, a product of matrices in FP16, with and without
tensor maps, and the forward pass of flash attention, each held against NumPy. Memory is of CUDA's driver. The argument
chooses one of them."""

import ctypes
import sys

import numpy as np
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

cuda = ctypes.CDLL("libcuda.so.1")


def need(result):
    if result:
        sys.exit(f"the driver gives error {result}")


class OnDevice:
    """An array on the device, as Triton takes arrays: with an address and a type."""

    def __init__(self, values):
        self.shape, self.dtype = values.shape, values.dtype
        self._place = ctypes.c_uint64()
        need(cuda.cuMemAlloc_v2(ctypes.byref(self._place), ctypes.c_size_t(values.nbytes)))
        values = np.ascontiguousarray(values)
        need(cuda.cuMemcpyHtoD_v2(self._place, ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)))

    def data_ptr(self):
        return self._place.value

    def values(self):
        found = np.empty(self.shape, self.dtype)
        need(cuda.cuMemcpyDtoH_v2(ctypes.c_void_p(found.ctypes.data), self._place, ctypes.c_size_t(found.nbytes)))
        return found


@triton.jit
def add_kernel(x, y, out, n, block: tl.constexpr):
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, block: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, block)
    values = tl.load(x + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    exponentials = tl.exp(values - tl.max(values, axis=0))
    result = exponentials / tl.sum(exponentials, axis=0)
    tl.store(out + row * columns + offsets, result, mask=offsets < columns)


@triton.jit
def matmul_kernel(a, b, c, m, n, k, block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr):
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    inner = tl.arange(0, block_k)
    total = tl.zeros((block_m, block_n), tl.float32)
    for start in range(0, k, block_k):
        left = tl.load(a + rows[:, None] * k + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16))


@triton.jit
def boxes_kernel(a, b, c, k, block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr):
    row, column = tl.program_id(0) * block_m, tl.program_id(1) * block_n
    total = tl.zeros((block_m, block_n), tl.float32)
    for start in range(0, k, block_k):
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def attention_kernel(q, k, v, out, length, scale, block_m: tl.constexpr, block_n: tl.constexpr, width: tl.constexpr):
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    inner = tl.arange(0, width)
    queries = tl.load(q + rows[:, None] * width + inner[None, :])
    highest = tl.full((block_m,), -float("inf"), tl.float32)
    sums = tl.zeros((block_m,), tl.float32)
    total = tl.zeros((block_m, width), tl.float32)
    for start in range(0, length, block_n):
        columns = start + tl.arange(0, block_n)
        keys = tl.load(k + columns[None, :] * width + inner[:, None])
        scores = tl.dot(queries, keys) * scale
        newest = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp(scores - newest[:, None])
        shrink = tl.exp(highest - newest)
        sums = sums * shrink + tl.sum(weights, axis=1)
        values = tl.load(v + columns[:, None] * width + inner[None, :])
        total = tl.dot(weights.to(tl.float16), values, total * shrink[:, None])
        highest = newest
    tl.store(out + rows[:, None] * width + inner[None, :], (total / sums[:, None]).to(tl.float16))


def add(rng):
    x, y = rng.random(5000, np.float32), rng.random(5000, np.float32)
    out = OnDevice(np.zeros_like(x))
    add_kernel[(triton.cdiv(len(x), 1024),)](OnDevice(x), OnDevice(y), out, len(x), block=1024)
    return out.values(), x + y


def softmax(rng):
    x = rng.standard_normal((61, 781)).astype(np.float32)
    out = OnDevice(np.zeros_like(x))
    softmax_kernel[(x.shape[0],)](OnDevice(x), out, x.shape[1], block=1024)
    exponentials = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return out.values(), exponentials / exponentials.sum(axis=1, keepdims=True)


def matmul(rng):
    m, n, k = 256, 256, 256
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    out = OnDevice(np.zeros((m, n), np.float16))
    matmul_kernel[(m // 64, n // 64)](OnDevice(a), OnDevice(b), out, m, n, k, block_m=64, block_n=64, block_k=32)
    return out.values(), a.astype(np.float64) @ b.astype(np.float64)


def boxes(rng):
    """The same product, by tensor maps (compute capability 9.0)."""
    m, n, k = 256, 256, 256
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    out = OnDevice(np.zeros((m, n), np.float16))
    maps = (
        TensorDescriptor(each, list(each.shape), [each.shape[1], 1], [64, 64])
        for each in (OnDevice(a), OnDevice(b), out)
    )
    boxes_kernel[(m // 64, n // 64)](*maps, k, block_m=64, block_n=64, block_k=64)
    return out.values(), a.astype(np.float64) @ b.astype(np.float64)


def attention(rng):
    length, head = 256, 64
    q, k, v = (rng.standard_normal((length, head)).astype(np.float16) for _ in range(3))
    out, scale = OnDevice(np.zeros((length, head), np.float16)), head**-0.5
    arrays = (OnDevice(q), OnDevice(k), OnDevice(v), out)
    attention_kernel[(length // 64,)](*arrays, length, scale, block_m=64, block_n=64, width=head)
    scores = q.astype(np.float64) @ k.astype(np.float64).T * scale
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return out.values(), weights / weights.sum(axis=1, keepdims=True) @ v.astype(np.float64)


def main():
    need(cuda.cuInit(0))
    context = ctypes.c_void_p()
    need(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    need(cuda.cuCtxSetCurrent(context))
    name = sys.argv[1]
    # of the results' types: half a unit in the last place of FP16 is 2^-11 of a number, and weights are rounded to it
    tolerances = {
        "add": (0, 0),
        "softmax": (1e-6, 1e-8),
        "matmul": (1e-3, 2e-3),
        "boxes": (1e-3, 2e-3),
        "attention": (2e-3, 1e-3),
    }
    found, expected = globals()[name](np.random.default_rng(20))
    relative, absolute = tolerances[name]
    print(f"{name}: largest difference {np.abs(found - expected).max():.3g}")
    sys.exit(not np.allclose(found, expected, relative, absolute))


main()
