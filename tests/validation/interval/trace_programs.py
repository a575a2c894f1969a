"""Detailed traces of the programs of cases.py.

``python -m interval.trace_programs OUT [--lulesh FOLDER] [--hydro FOLDER]`` in tests/validation, with manyscale
importable, clang and MPICH installed, writes the workload folders ``OUT/SUITE/PROGRAM``; ``--held-out`` those of
``held_out/``, which steered nothing, as a suite of that name. The folders are checkouts of
LULESH 2.0 (github.com/LLNL/LULESH, 3e01c40) and HYDRO (github.com/HydroBench/Hydro), whose OpenMP version
``HydroC/HydroC99_2Domp`` is built (libnuma needed), both unchanged.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from taskpoint import trace_kernels

from interval.cases import HYDRO, LULESH, SUITES
from manyscale.runner.tracers import build

INPUT: Final = """
&RUN
tend=200
nstepmax={nstepmax}
dtoutput=1000.
/

&MESH
nx={nx}
ny={ny}
nxystep={nxystep}
prt=0
dx=0.05
boundary_left=1
boundary_right=1
boundary_down=1
boundary_up=1
testcase=1
/

&HYDRO
courant_factor=0.8
niter_riemann=10
/
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--lulesh", type=Path)
    parser.add_argument("--hydro", type=Path)
    parser.add_argument("--held-out", action="store_true", help="only the programs of held_out")
    options = parser.parse_args(arguments)
    if options.held_out:
        output = options.output.absolute()
        for source in sorted((Path(__file__).parent / "held_out").glob("*.c")):
            marks = ["-DMARKS", f"-I{Path(build.__file__).parent / 'native'}"]
            command = ["clang", "-O2", "-fopenmp", *marks, str(source)]
            trace(output, source.stem, command, (), source.parent, suite="held_out")
        return 0
    trace_kernels.SUITES.clear()
    trace_kernels.SUITES.update(SUITES)
    output = options.output.absolute()
    trace_kernels.build_kernels(sorted({name for suite in SUITES.values() for name in suite}), output / "bin")
    for suite, programs in SUITES.items():
        for name in programs:
            trace_kernels.trace_kernel(suite, name, output)
    if options.lulesh is not None:
        sources = sorted(map(str, options.lulesh.absolute().glob("*.cc")))
        trace(output, "lulesh", ["clang++", "-O2", "-fopenmp", "-DUSE_MPI=0", *sources], LULESH, options.lulesh)
    if options.hydro is not None:
        folder = options.hydro.absolute() / "HydroC" / "HydroC99_2Domp" / "Src"
        sources = sorted(str(each) for each in folder.glob("*.c") if each.name != "bugrep.c")
        file = output / "hydro.nml"
        file.write_text(INPUT.format(**HYDRO))
        command = ["clang", "-O2", "-std=gnu99", "-fopenmp", "-w", *sources, "-lm", "-lnuma"]
        trace(output, "hydro", command, ("-i", str(file)), folder)
    return 0


def trace(
    output: Path, name: str, command: Sequence[str], arguments: Sequence[str], folder: Path, *, suite: str = "apps"
) -> None:
    """Build and trace a program from elsewhere, all its iterations, on one thread."""
    binaries = output / "bin"
    for variant in ("coverage", "counting"):
        (binaries / variant).mkdir(parents=True, exist_ok=True)
    stub = build.coverage_stub(binaries)
    for variant in ("coverage", "counting"):
        added = build.coverage_flags(stub, counting=variant == "counting")
        subprocess.run([*command, *added, "-o", str(binaries / variant / name)], check=True, cwd=folder)
    subprocess.run(
        [
            *trace_kernels.MANYSCALE, "trace", "--level", "detailed", "--iterations", "all", "--disk-gb", "20",
            "--counting", str(binaries / "counting" / name), "-o", str(output / suite / name),
            "--", str(binaries / "coverage" / name), *arguments,
        ],
        check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=sys.stderr, cwd=output,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
