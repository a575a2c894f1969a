"""Builds and runs of the programs in tests/programs, small enough for tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from programs import counts
from tracer_programs import MPI, need

BUILD = counts.PROGRAMS_FOLDER / "build.sh"
SMALL = {
    "cholesky": (7, 8, 2),
    "sparselu": (9, 8, 2),
    "jacobi": (3, 8, 3),
    "multizone": (2, 3, 1, 4, 5, 2, 3),
    "convolution_2d": (6, 5, 2, 2),
    "fft": (3, 16, 4, 2, 2),
    "histogram": (20, 100, 37, 2),
    "k_means": (30, 10, 3, 2, 2),
    "matrix_multiply": (4, 5, 2),
    "merge_sort": (1000, 16, 100, 2),
    "monte_carlo": (20, 100, 17, 2),
    "n_body": (9, 4, 2, 3),
    "reduction": (13, 3, 8, 2),
    "sparse_matrix_vector": (24, 3, 5, 50, 2),
    "stencil": (3, 2, 4, 3, 2),
    "vector_operation": (10, 33, 2),
}
# With the argument that follows the iterations, at a value other than its default.
LONGER = {
    program: (*SMALL[program], last)
    for program, last in {
        "convolution_2d": 3,
        "histogram": 4,
        "k_means": 4,
        "matrix_multiply": 7,
        "reduction": 8,
        "sparse_matrix_vector": 3,
        "stencil": 3,
        "vector_operation": 5,
    }.items()
}
KERNEL_CALLS = [*((program, SMALL[program]) for program in counts.KERNELS), *LONGER.items()]


def run(command: Sequence[str | Path], threads: int = 1) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "EXTRA_CFLAGS": "-Wall -Wextra"}
    return subprocess.run(
        [str(part) for part in command], env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def build(out: Path, compiler: str, library: str | None, *more: str) -> Path:
    """Builds programs in a folder; skips where a compiler or MPI is missing."""
    wrapper = "mpicc"
    if library is not None:
        wrapper, words = MPI[library]
        need(wrapper, words[0])
    need(compiler)
    done = run([BUILD, out, "--cc", compiler, "--mpicc", wrapper, *more])
    # GCC takes a variable of which only depend clauses speak for an unused one; Clang has no false warnings.
    assert done.returncode == 0, done.stderr
    assert compiler == "gcc" or done.stderr == ""
    return out
