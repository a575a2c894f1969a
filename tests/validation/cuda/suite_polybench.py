"""PolyBench/GPU, as PolyBench-ACC has it: each program compares with its own version for the CPU."""

from __future__ import annotations

from self_checking import Program, Suite

_KERNELS = "CUDA/linear-algebra/kernels"
_SOLVERS = "CUDA/linear-algebra/solvers"
_STENCILS = "CUDA/stencils"
_MINING = "CUDA/datamining"
_UTILITIES = "CUDA/utilities"
_SQUARE = "-DNI=96 -DNJ=96 -DNK=96"


def _kernel(folder: str, name: str, sizes: str, alike: float = 0.0, numbers: str = "f4", why: str = "") -> Program:
    words = f"-I{{root}}/{_UTILITIES} -DcudaThreadSynchronize=cudaDeviceSynchronize {sizes}"
    passes = r"(Non-Matching|mismatch|Number of misses).*: 0\b"
    return Program(name, f"{folder}/{name}", passes=passes, fails=r"(?!)", alike=alike,
                   numbers=numbers, words=words, why=why, needs=(_UTILITIES,))  # fmt: skip


PROGRAMS = (
    _kernel(_MINING, "correlation", "-DM=64 -DN=64"),
    _kernel(_MINING, "covariance", "-DM=64 -DN=64"),
    _kernel(_KERNELS, "2mm", f"{_SQUARE} -DNL=96"),
    _kernel(_KERNELS, "3mm", f"{_SQUARE} -DNL=96 -DNM=96"),
    _kernel(_KERNELS, "atax", "-DNX=256 -DNY=256"),
    _kernel(_KERNELS, "bicg", "-DNX=256 -DNY=256"),
    _kernel(_KERNELS, "doitgen", "-DNQ=32 -DNR=32 -DNP=32"),
    _kernel(_KERNELS, "gemm", _SQUARE),
    _kernel(_KERNELS, "gemver", "-DN=256"),
    _kernel(_KERNELS, "gesummv", "-DN=256"),
    _kernel(_KERNELS, "mvt", "-DN=256"),
    _kernel(_KERNELS, "syr2k", "-DNI=96 -DNJ=96"),
    _kernel(_KERNELS, "syrk", "-DNI=96 -DNJ=96"),
    _kernel(_SOLVERS, "gramschmidt", "-DNI=48 -DNJ=48"),
    _kernel(_SOLVERS, "lu", "-DN=64"),
    _kernel(_STENCILS, "adi", "-DTSTEPS=1 -DN=128"),
    _kernel(_STENCILS, "convolution-2d", "-DNI=192 -DNJ=192"),
    _kernel(_STENCILS, "convolution-3d", "-DNI=48 -DNJ=48 -DNK=48"),
    _kernel(_STENCILS, "fdtd-2d", "-DTMAX=20 -DNX=96 -DNY=96"),
    _kernel(_STENCILS, "jacobi-1d-imper", "-DTSTEPS=100 -DN=1024"),
    _kernel(_STENCILS, "jacobi-2d-imper", "-DTSTEPS=20 -DN=96"),
)

SUITE = Suite(
    "PolyBench-ACC", "PolyBench-ACC", "https://github.com/cavazos-lab/PolyBench-ACC",
    "70ea4ca9047dc4ec9c3ca79b4c91b3b2cc1510e7", "BSD-3-Clause", PROGRAMS, unoptimised_every=3,
)  # fmt: skip
