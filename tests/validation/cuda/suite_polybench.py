"""PolyBench/GPU, as PolyBench-ACC has it: each program compares with its own version for the CPU."""

from __future__ import annotations

from self_checking import Program, Suite

_KERNELS = "CUDA/linear-algebra/kernels"
_SOLVERS = "CUDA/linear-algebra/solvers"
_STENCILS = "CUDA/stencils"
_MINING = "CUDA/datamining"
_UTILITIES = "CUDA/utilities"


def _kernel(folder: str, name: str, sizes: str, header: str = "", alike: float = 0.0, why: str = "") -> Program:
    """``sizes``: of MINI_DATASET in the header, and those that take their places (``128 96``)."""
    words = f"-I{{root}}/{_UTILITIES} -DcudaThreadSynchronize=cudaDeviceSynchronize -DMINI_DATASET"
    pairs = [each.split() for each in sizes.split(",")]
    edits = tuple((f"{header or name}.cuh", f" {old}\n", f" {new}\n") for old, new in pairs)
    return Program(name, f"{folder}/{name}", passes=r"(Non-Matching|mismatch|Number of misses).*: 0\b", fails=r"(?!)",
                   alike=alike, words=words, why=why, needs=(_UTILITIES,), edits=edits)  # fmt: skip


PROGRAMS = (
    _kernel(_MINING, "correlation", "512 256"),
    _kernel(_MINING, "covariance", "512 256"),
    _kernel(_KERNELS, "2mm", "256 96"),
    _kernel(_KERNELS, "3mm", "128 96"),
    _kernel(_KERNELS, "atax", "1024 256"),
    _kernel(_KERNELS, "bicg", "1024 256"),
    _kernel(_KERNELS, "doitgen", "32 24"),
    _kernel(_KERNELS, "gemm", "128 96"),
    _kernel(_KERNELS, "gemver", "1024 256"),
    _kernel(_KERNELS, "gesummv", "1024 256"),
    _kernel(_KERNELS, "syr2k", "256 96"),
    _kernel(_KERNELS, "syrk", "256 96"),
    _kernel(_SOLVERS, "gramschmidt", "512 48"),
    _kernel(_SOLVERS, "lu", "512 64"),
    _kernel(_STENCILS, "adi", "256 128"),
    _kernel(_STENCILS, "convolution-2d", "1024 192", "2DConvolution"),
    _kernel(_STENCILS, "convolution-3d", "64 48", "3DConvolution"),
    _kernel(_STENCILS, "fdtd-2d", "512 96,500 20", "fdtd2d"),
    _kernel(_STENCILS, "jacobi-1d-imper", "10000 100", "jacobi1D"),
    _kernel(_STENCILS, "jacobi-2d-imper", "256 96", "jacobi2D"),
)

_LEFT_OUT = {
    "mvt": "its blocks have 8 rows of threads, which all add the same products to the same elements (a race). Warps run"
    " one after the other here, so that each product is added eight times.",
}

SUITE = Suite(
    "PolyBench-ACC", "PolyBench-ACC", "https://github.com/cavazos-lab/PolyBench-ACC",
    "70ea4ca9047dc4ec9c3ca79b4c91b3b2cc1510e7", "BSD-3-Clause", PROGRAMS, unoptimised_every=8, left_out=_LEFT_OUT,
)  # fmt: skip
