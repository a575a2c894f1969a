"""Detailed traces of the programs whose phases are found, each with a working set below and above the last cache.

``python -m phases.trace_programs OUT [NAME ...]`` in tests/validation, with manyscale importable and clang installed,
writes the workload folders ``OUT/NAME``; the binaries go to ``OUT/bin``.

Machines (machines.py) have a quarter of the thesis's caches, 2 MiB the largest; programs touch at most 0.9 MB
(``-below``) or at least 4 MB (``-above``) in an iteration. ``loops`` (loops.c), ``fft`` and ``k_means`` are data
parallel: one piece of code on all of the data, then the next; in ``loops`` each core has the same data each time.
``merge_sort`` and ``stencil`` (tests/programs/kernels, as fft and k_means) are task parallel: tasks that create tasks,
and tasks that wait for their neighbours' data.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from taskpoint.trace_kernels import MANYSCALE, build_kernels

from manyscale.runner import tracers
from manyscale.runner.tracers import build

# of each program its arguments, in their order
PROGRAMS: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "loops-below": ("loops", (160, 24)),
    "loops-above": ("loops", (512, 3)),
    "fft-below": ("fft", (12, 64, 16, 1, 6)),
    "fft-above": ("fft", (128, 64, 16, 1, 1)),
    "k_means-below": ("k_means", (1024, 16, 8, 4, 16, 32)),
    "k_means-above": ("k_means", (16384, 16, 8, 4, 2, 32)),
    "merge_sort-below": ("merge_sort", (65536, 16, 512, 4)),
    "merge_sort-above": ("merge_sort", (524288, 16, 512, 1)),
    "stencil-below": ("stencil", (6, 6, 6, 6, 12, 4)),
    "stencil-above": ("stencil", (14, 14, 14, 6, 2, 2)),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(PROGRAMS)}")
    options = parser.parse_args(arguments)
    names = options.names or list(PROGRAMS)
    unknown = sorted(set(names) - set(PROGRAMS))
    if unknown:
        parser.error(f"no program {unknown[0]}; there are {', '.join(PROGRAMS)}")
    binaries = options.output / "bin"
    kernels = {PROGRAMS[name][0] for name in names}
    build_kernels(sorted(kernels - {"loops"}), binaries)
    if "loops" in kernels:
        build_loops(binaries)
    for name in names:
        kernel, values = PROGRAMS[name]
        subprocess.run(
            [
                *MANYSCALE, "trace", "--level", "detailed", "--iterations", "all", "--max-gb", "20",
                "--counting", str(binaries / "counting" / kernel), "-o", str(options.output / name),
                "--", str(binaries / "coverage" / kernel), *map(str, values),
            ],
            check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    return 0


def build_loops(binaries: Path) -> None:
    """As ``build_kernels``."""
    stub, source = build.coverage_stub(binaries), Path(__file__).with_name("loops.c")
    for variant in ("coverage", "counting"):
        flags = build.coverage_flags(stub, counting=variant == "counting")
        marks = ["-DMARKS", f"-I{Path(tracers.__file__).parent / 'native'}"]
        (binaries / variant).mkdir(parents=True, exist_ok=True)
        command = ["clang", "-std=c11", "-O2", "-g", "-fopenmp", *marks, source, "-o", binaries / variant / "loops"]
        subprocess.run([*map(str, command), *flags, "-lm"], check=True)


if __name__ == "__main__":
    sys.exit(main())
