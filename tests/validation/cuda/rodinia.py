"""Builds Rodinia's CUDA programs, runs them under ``manyscale trace --level gpu`` and compares what they compute.

    python tests/validation/cuda/rodinia.py SOURCES [--arch 75,80,86,90] [--only NAME] [--scratch FOLDER]

SOURCES is a checkout of github.com/yuhc/gpu-rodinia at ``COMMIT``. The programs are not changed; what CUDA 13 removed
is given other names by ``REMOVED``. ``RESULTS.md`` is written where all programs are run for all architectures.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import inputs
from programs import NOT_BUILT, NOT_RIGHT, PROGRAMS, Program, Ran
from references import Copies
from tracing import (
    HERE,
    MANYSCALE,
    REMOVED,
    SHOWN,
    called,
    children_seconds,
    first_error,
    nvcc,
    object_file,
    range_of,
    write_turing,
)

from manyscale.runner.readers import workload_folder

COMMIT = "9c10d3ea16ddba2ba057cc3951a9efc4c2cc18a4"
TEXTURE = (re.compile(r"^\s*texture\s*<([^>]*)>\s*(\w+)\s*;", re.MULTILINE), r"TEXTURE(\2, \1)")
"""A texture reference, which CUDA 12 removed, and what ``texture_references.h`` makes a texture object of."""
BY_NAME = ('cudaMemcpyToSymbol("c_clusters"', "cudaMemcpyToSymbol(c_clusters")
"""Of kmeans: a symbol that is named by a text, which CUDA 5 removed."""
SHORTER = ("#define iterations 2000", "#define iterations 20")
"""Of cfd, whose number of iterations is a constant; with 2,000 a run has 14,003 launches."""


@dataclass(frozen=True)
class Result:
    """``problem``: why there is no error, or None."""

    launches: int = 0
    instructions: int = 0
    error: float = float("inf")
    seconds: float = 0.0
    problem: str | None = None


def short_name(program: Program) -> str:
    return program.name.translate(str.maketrans("", "", "()")).replace(" ", "_")


def compiled(sources: Path, folder: str, files: str, words: str, architectures: list[int], made: Path) -> str | None:
    """Compiles a program, with machine code for each architecture; the first error, or None."""
    path, link = nvcc()
    codes = [f"-gencode=arch=compute_{each},code=sm_{each}" for each in architectures]
    named = [f"-D{old}={new}" for old, new in REMOVED.items()]
    command = [path, "-w", "-O2", *codes, *named, "-I.", *words.split(), *files.split()]
    command += [str(made.parent / "copies.o"), "-Xlinker", "--wrap=cudaMemcpy", "-o", str(made), *link]
    status, out, told = called(command, sources / "cuda" / folder)
    return first_error(told + out) if status else None


def run(program: Program, architecture: int, scratch: Path) -> Result:
    """Traces and checks one program, that is built, for one architecture."""
    short = short_name(program)
    made = scratch / "programs" / short
    folder = scratch / str(architecture) / short / ("run" if program.depth == 3 else "")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shown = str(scratch / "turing.yaml") if architecture == 75 else SHOWN[architecture]
    command = [*MANYSCALE, "trace", "--level", "gpu", "--as", shown, "-o", str(folder / "traced"), "--", str(made)]
    before = children_seconds()
    status, printed, told = called([*command, *program.arguments.format(scratch).split()], folder,
                                   COPIES=str(folder / "copies"))  # fmt: skip
    seconds = children_seconds() - before
    if status or "cuda-launch-stopped" in told:
        return Result(seconds=seconds, problem=next(iter(told.strip().splitlines()[::-1]), f"exit status {status}"))
    workload = workload_folder.read(folder / "traced")
    if set(workload.column("launches", "binary_version").tolist()) != {architecture}:
        return Result(seconds=seconds, problem="ran machine code of another architecture")
    copies = Copies.read(folder / "copies") if (folder / "copies").exists() else Copies([], [])
    error = program.check(Ran(scratch, folder, copies, printed, scratch / "peers" / short))
    problem = None if error <= program.limit else f"error {error:.2g} > {program.limit:.0g}"
    instructions = int(workload.column("launches", "warp_instructions").sum())
    return Result(workload.tables["launches"].num_rows, instructions, error, seconds, problem)


def run_peer(program: Program, sources: Path, scratch: Path) -> None:
    """Builds and runs the CPU version. Raises RuntimeError."""
    if program.peer is None:
        return
    files, words, arguments = program.peer
    short = short_name(program)
    folder = scratch / "peers" / short
    folder.mkdir(parents=True, exist_ok=True)
    made = str(scratch / "programs" / f"{short}.cpu")
    compiler = "g++" if files.split()[0].endswith("cpp") else "gcc"
    command = [compiler, "-w", "-O2", "-fopenmp", *words.split(), *files.split(), "-o", made, "-lm"]
    for step, place in ((command, sources / "openmp"), ([made, *arguments.format(scratch).split()], folder)):
        status, out, told = called(step, place, OMP_NUM_THREADS="1")
        if status:
            raise RuntimeError(f"{program.name}: CPU version: {first_error(told + out)}")


def prepare(sources: Path, scratch: Path) -> None:
    """Inputs, a copy of the sources, the object that stores copies, and a target of compute capability 7.5, as none is
    shipped."""
    inputs.make(scratch)
    for part in ("cuda", "openmp"):
        shutil.copytree(sources / part, scratch / "sources" / part, dirs_exist_ok=True)
    for path in (*(scratch / "sources" / "cuda" / "cfd").glob("*.cu"), *(scratch / "sources").glob("openmp/cfd/*.cpp")):
        path.write_text(path.read_text(errors="replace").replace(*SHORTER))
    for path in (scratch / "sources" / "cuda" / "kmeans").glob("*.cu"):
        declared, written = TEXTURE
        path.write_text(declared.sub(written, path.read_text(errors="replace")).replace(*BY_NAME))
    (scratch / "programs").mkdir(exist_ok=True)
    object_file("copies.c", scratch / "programs")
    write_turing(scratch)


def report(results: dict[str, dict[int, Result]], missing: dict[str, str], architectures: list[int]) -> str:
    """RESULTS.md."""
    right = [program for program in PROGRAMS if all(r.problem is None for r in results[program.name].values())]
    benchmarks = {program.benchmark for program in PROGRAMS} - {p.benchmark for p in PROGRAMS if p not in right}
    named = ", ".join(f"sm_{each}" for each in architectures)
    lines = [
        "# CUDA programs traced without a GPU: Rodinia",
        "",
        f"[Rodinia](https://github.com/yuhc/gpu-rodinia) at {COMMIT[:10]}, its CUDA programs compiled by NVIDIA's nvcc"
        f" for {named}, run under `manyscale trace --level gpu` on small inputs, and compared with an independent"
        f" result: **{len(benchmarks)} of the 23 programs are right on all of them.** Made by"
        " `python tests/validation/cuda/rodinia.py SOURCES`.",
        "",
        "The sources are unchanged; names that CUDA 13 removed are replaced when compiling ("
        + ", ".join(f"`{old}` by `{new}`" for old, new in REMOVED.items())
        + "), the texture references of kmeans, which CUDA 12 removed, are texture objects by"
        " [a header](texture_references.h), and its symbol that a text names, as before CUDA 5, is named itself; cfd"
        " makes 20 iterations instead of 2,000 (with 2,000 it is right, too: 14,003 launches, sm_80).",
        "",
        "*NumPy*: every copy between host and device is kept, and what came back is computed anew, in double precision,"
        " from what was sent; the error is the largest difference over the largest value, of integers the share that"
        " differs."
        " *OpenMP version*: the numbers in the two programs' files are compared, each relative to itself or to a"
        " thousandth of the largest; the files of cfd have six digits. Launches, warp instructions and CPU seconds"
        " (program, emulation and trace, on a machine that others use, too) are ranges over the architectures.",
        "",
        "| program | right on | launches | warp instructions | compared with | largest error | allowed | CPU s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for program in PROGRAMS:
        good = {arch: r for arch, r in results[program.name].items() if r.problem is None}
        place = "all" if len(good) == len(architectures) else ", ".join(f"sm_{arch}" for arch in good) or "none"
        cells = [program.name, place]
        if good:
            cells += [range_of([r.launches for r in good.values()]), range_of([r.instructions for r in good.values()]),
                      program.how, f"{max(r.error for r in good.values()):.2g}", f"{program.limit:.2g}",
                      range_of([r.seconds for r in good.values()], ".1f")]  # fmt: skip
        else:
            cells += ["", "", program.how, "", f"{program.limit:.2g}", ""]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Not right, or not run", ""]
    for program in PROGRAMS:
        lines += [f"- {program.name}, sm_{arch}: {r.problem}" for arch, r in results[program.name].items() if r.problem]
    lines += [f"- {name}: {reason}" for name, reason in NOT_RIGHT.items()]
    lines += [
        f"- {name}: uses texture references, which CUDA 12 removed, and is not taken up yet; first error: `{error}`"
        for name, error in missing.items()
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--arch", default="75,80,86,90")
    parser.add_argument("--only", help="names that contain this")
    parser.add_argument("--scratch", type=Path)
    options = parser.parse_args()
    architectures = [int(each) for each in options.arch.split(",")]
    scratch = (options.scratch or Path(tempfile.mkdtemp(prefix="rodinia-"))).resolve()
    prepare(options.sources, scratch)
    sources = scratch / "sources"
    results: dict[str, dict[int, Result]] = {}
    for program in PROGRAMS:
        if options.only and options.only not in program.name:
            continue
        run_peer(program, sources, scratch)
        results[program.name] = {}
        made = scratch / "programs" / short_name(program)
        problem = compiled(sources, program.folder, program.sources, program.words, architectures, made)
        for architecture in architectures:
            result = Result(problem=problem) if problem else run(program, architecture, scratch)
            results[program.name][architecture] = result
            state = result.problem or "right"
            print(f"{program.name} sm_{architecture}: {state}; error {result.error:.3g}, {result.launches} launches, "
                  f"{result.instructions} warp instructions, {result.seconds:.1f} CPU s", flush=True)  # fmt: skip
    if options.only is None and sorted(SHOWN) == sorted(architectures):
        missing = {}
        for name, (folder, files) in NOT_BUILT.items():
            error = compiled(sources, folder, files, "-I../hybridsort", [80], scratch / "programs" / name)
            missing[name] = error or "it compiles: take it up"
        (HERE / "RESULTS.md").write_text(report(results, missing, architectures))
    return int(any(result.problem for each in results.values() for result in each.values()))


if __name__ == "__main__":
    sys.exit(main())
