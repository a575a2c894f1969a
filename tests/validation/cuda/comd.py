"""CoMD-CUDA, molecular dynamics with MPI, traced and run on machines without a GPU, against CoMD's version for CPUs.

    python tests/validation/cuda/comd.py SOURCES [--scratch FOLDER]

SOURCES is a folder that holds a checkout of NVIDIA's CoMD-CUDA under this name; if it is not there, it is cloned. The
commit stands below. What CUDA no longer has is replaced: warp functions without a mask, and CUB as it was in 2013. An
option to which the program gives no value is set to 0. The program computes 5,488 atoms of copper (EAM) for two steps
on 1, 2 and 4 ranks; its energies are compared with those that the OpenMP version in the same repository computes on one
CPU. Its section of ``RESULTS-RANKS.md`` is written. Every rank must have interior cells (see there).
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
from tracing import MANYSCALE, called, checkout, first_error, nvcc, write_section

from manyscale.models.workload import OperationKind
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.readers import workload_folder

URL = "https://github.com/NVIDIA/CoMD-CUDA"
CHECKOUT = "CoMD-CUDA"
COMMIT = "c3b39ed58c8c5a307e6600902979c290a4ad27c4"
GRIDS = ((1, 1, 1), (2, 1, 1), (2, 2, 1))
ARGUMENTS = ["-e", "-x", "14", "-y", "14", "-z", "7", "-N", "2", "-n", "1"]
MASKED = """// Warp functions that CUDA removed, by those that stand for them.
#ifdef __CUDACC__
#define BY(old, new) \\
    template <typename T> static __device__ __forceinline__ T old(T value, int lane, int width = 32) { \\
        return new (__activemask(), value, lane, width); \\
    }
BY(__shfl, __shfl_sync)
BY(__shfl_xor, __shfl_xor_sync)
BY(__shfl_down, __shfl_down_sync)
BY(__shfl_up, __shfl_up_sync)
#endif
"""
SCAN = """#include <stdlib.h>
static void must(cudaError_t error) {
  if (error != cudaSuccess) { fprintf(stderr, "error: scan: %s\\n", cudaGetErrorString(error)); exit(1); }
}
void scan(int *data, int n, int *partial_sums, cudaStream_t stream) {
  static void *room;
  static size_t had;
  size_t bytes = 0;
  must(cub::DeviceScan::ExclusiveSum(nullptr, bytes, data, data, n, stream));
  if (bytes > had) { cudaFree(room); must(cudaMalloc(&room, had = bytes)); }
  must(cub::DeviceScan::ExclusiveSum(room, bytes, data, data, n, stream));
}

#endif
"""
INFO = "".join(
    f'#define CoMD_{name} ""\n'
    for name in ("VARIANT", "HOSTNAME", "KERNEL_NAME", "KERNEL_RELEASE", "PROCESSOR", "COMPILER", "COMPILER_VERSION",
                 "CFLAGS", "LDFLAGS")
)  # fmt: skip
WITHOUT_VALUE = ("   cmd.spline = 0;\n", "   cmd.spline = 0;\n   cmd.usePairlist = 0;\n")
ABOUT_PROGRAM = """
The program leaves two things to chance, on a GPU as here:

- `parseCommandLine` (`src-mpi/mycommand.c`, lines 187 to 256) gives every option a value but `usePairlist`, which then
  is what the stack held: 0 on one rank and on rank 0 of two; 21884, the upper half of an address, on rank 1. Before
  `comd.py` set it to 0, rank 1 therefore added the skin to its cells (4 x 9 x 4 for 5 x 10 x 5), launched
  `UpdateLinkCells<1>` and sent other atoms: an energy of -3.5005 for -3.4605 eV, then divergence, with
  *cuda-outside-allocation* in the notes.
- A rank without interior cells launches `UpdateBoundaryList` with no blocks (`src-mpi/gpu_kernels.cu`, line 441), which
  is an error that the program, compiled with `NDEBUG`, does not ask for. Today's CUB finds it in its next call
  (`CubDebug` asks `cudaGetLastError`) and returns without a scan, and atoms are missing from the next message. The
  scan that `comd.py` puts in ends the program there (6 x 6 x 6 cells of the lattice show it).
"""
ENERGIES = re.compile(r"^ +\d+ +\d+\.\d+ +(-\d+\.\d+) +(-\d+\.\d+) +(\d+\.\d+) ", re.MULTILINE)


def edited(sources: Path) -> None:
    """Replaces what CUDA no longer has, and gives an option its value."""
    gpu = sources / "src-mpi"
    for path in (*gpu.glob("*.h"), *gpu.glob("*.cu")):
        text = path.read_text(errors="replace")
        masked = re.sub(r"\b(__ballot|__any)\(", r"\1_sync(__activemask(), ", text)
        path.write_text(masked.replace("../cub/cub/cub.cuh", "cub/cub.cuh"))
    scan = (gpu / "gpu_scan.h").read_text()
    (gpu / "gpu_scan.h").write_text(scan[: scan.index("void scan(")] + SCAN)
    (gpu / "masked.h").write_text(MASKED)
    command = (gpu / "mycommand.c").read_text()
    if command.count(WITHOUT_VALUE[0]) != 1:
        raise RuntimeError("mycommand.c is not as it was at the commit")
    (gpu / "mycommand.c").write_text(command.replace(*WITHOUT_VALUE))
    for folder in (gpu, sources / "src-openmp"):
        (folder / "CoMD_info.h").write_text(INFO)


def must(command: list[str], folder: Path) -> str:
    """What a command prints. Raises RuntimeError where it fails."""
    status, printed, told = called(command, folder, OMP_NUM_THREADS="1")
    if status:
        raise RuntimeError(first_error(told or printed))
    return printed


def built(sources: Path, scratch: Path) -> tuple[Path, Path]:
    """The program and its version for CPUs. Raises RuntimeError."""
    gpu, cpu = sources / "src-mpi", sources / "src-openmp"
    compiler, linked = nvcc()
    of_mpi = re.findall(r"(?<!\S)-[ILl]\S+", must(["mpicc.mpich", "-show"], scratch))
    include = Path(compiler).resolve().parent.parent / "include"
    words = ["-O2", "-DMAXATOMS=64", "-DCOMD_DOUBLE", "-DNDEBUG", "-DDO_MPI"]
    must([compiler, "-arch=sm_86", "-std=c++17", *words, *of_mpi, "-include", "masked.h", "-c", "gpu_kernels.cu"], gpu)
    for source in sorted(gpu.glob("*.c")):
        must(["gcc", "-w", "-std=gnu99", "-fcommon", *words, *of_mpi, f"-I{include}", "-c", source.name], gpu)
    objects = [each.name for each in sorted(gpu.glob("*.o"))]
    must([compiler, "-arch=sm_86", *objects, "-o", str(scratch / "comd"), *of_mpi, *linked, "-lm"], gpu)
    files = [each.name for each in sorted(cpu.glob("*.c"))]
    flags = ["-w", "-std=gnu99", "-fcommon", "-fopenmp", "-O2", "-DDOUBLE", "-DDO_MPI"]
    must(["mpicc.mpich", *flags, *files, "-o", str(scratch / "comd-cpu"), "-lm"], cpu)
    return scratch / "comd", scratch / "comd-cpu"


def energies(printed: str) -> list[tuple[float, ...]]:
    """Total, potential and kinetic energy of each step."""
    return [tuple(map(float, found)) for found in ENERGIES.findall(printed)]


def measured(
    grid: tuple[int, ...], program: Path, place: list[str], expected: list[tuple[float, ...]], scratch: Path
) -> tuple[float, str]:
    """The largest difference of an energy on a grid of ranks, eV per atom, and the line of the report.
    Raises RuntimeError."""
    ranks, trace = math.prod(grid), scratch / f"trace-{'x'.join(map(str, grid))}"
    of_grid = [word for name, count in zip(("-i", "-j", "-k"), grid, strict=True) for word in (name, str(count))]
    command = ["mpiexec.mpich", "-n", str(ranks), str(program), *ARGUMENTS, *place, *of_grid]
    traced = [*MANYSCALE, "trace", "--level", "gpu", "--as", "rtx3070", "-o", str(trace), "--", *command]
    found = energies(must(traced, scratch))
    if len(found) != len(expected):
        raise RuntimeError(f"{ranks} ranks: {len(found)} steps, not {len(expected)}")
    pairs = zip(found, expected, strict=True)
    difference = max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True))
    words = ["run", "--workload", str(trace), "--target", "rtx3070", "--set", f"target.nodes={ranks}", "--set",
             "mapping.ranks_per_node=1", "--no-report", "-o", f"{trace}-run"]  # fmt: skip
    must([*MANYSCALE, *words], scratch)
    time = json.loads(Path(f"{trace}-run", "stats.json").read_text())["application.makespan"]["value"]
    workload = workload_folder.read(trace)
    launches = int(np.count_nonzero(workload.column("gpu_operations", "kind") == GpuOperationKind.launch))
    messages = int(np.count_nonzero(workload.column("operations", "kind") == OperationKind.sendrecv))
    return difference, f"| {ranks} | {difference:.1e} | {launches} | {messages} | {1e3 * float(time):.2f} ms |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--scratch", type=Path)
    options = parser.parse_args()
    scratch = (options.scratch or Path(tempfile.mkdtemp(prefix="comd-"))).resolve()
    sources = scratch / "sources"
    sources.mkdir(parents=True, exist_ok=True)
    repository = checkout(options.sources, CHECKOUT, URL)
    must(["sh", "-c", f"git -C '{repository}' archive {COMMIT} | tar x -C '{sources}'"], scratch)
    edited(sources)
    program, peer = built(sources, scratch)
    place = ["-d", str(sources / "pots")]
    expected = energies(must(["mpiexec.mpich", "-n", "1", str(peer), *ARGUMENTS, *place], scratch))
    if not expected:
        raise RuntimeError("the version for CPUs prints no energies")
    lines = [
        f"Written by `comd.py` from {URL} at {COMMIT[:12]}:",
        f"`{' '.join(ARGUMENTS)}`, with MPICH, on rtx3070, a rank to a node. The difference is the largest of",
        "total, potential and kinetic energy per atom, in eV, before and after each step, from those of the OpenMP",
        f"version on one CPU, whose last total is {expected[-1][0]:.12f} (both print twelve digits). Sends and",
        "receives are the calls of MPI_Sendrecv of all ranks.",
        "",
        "| ranks | difference | launches | sends and receives | predicted |",
        "| --- | --- | --- | --- | --- |",
    ]
    worst = 0.0
    for grid in GRIDS:
        difference, line = measured(grid, program, place, expected, scratch)
        worst = max(worst, difference)
        lines.append(line)
        print(line, flush=True)
    write_section("RESULTS-RANKS.md", "CoMD-CUDA without a GPU", "\n".join(lines) + "\n" + ABOUT_PROGRAM)
    return int(worst > 1e-9)


if __name__ == "__main__":
    sys.exit(main())
