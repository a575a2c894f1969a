"""The applications of chapter 6's case studies: fetched from their public repositories, marked, and built.

``python chapter6_programs.py SOURCES BINARIES [NAME...]`` clones each program's repository at the commit below to
SOURCES (``--from NAME=DIRECTORY`` takes a local clone instead), writes a copy of its sources with one line more, and
builds it three times into BINARIES: ``NAME`` as users would, ``NAME.detailed`` and ``NAME.counting`` for the detailed
level.

The line that is put into each main loop is ``MPI_Pcontrol(1000 + step)``, which does nothing but for the tracer and for
``iteration_clock.c``; the NAS benchmarks, which with one process call nothing of MPI in their loop, get a barrier of
MPI_COMM_SELF beside it (0.1 us), so that a trace has an operation in each iteration. ``lulesh.threads`` is LULESH with
its ``numthreads > 1`` taken for granted: it asks how many threads there are and does other work on several, which a
trace of one thread cannot know. Nothing else is changed.

Fortran is compiled to LLVM's intermediate language by flang 19, and that by clang 19, whose instrumentation knows no
language. Needed: MPICH, clang, libomp, libnuma, and for the NAS benchmarks ``flang-19`` and ``clang-19`` (Debian's
names).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

FLAVOURS: Final = ("", ".detailed", ".counting")
MPICH: Final = "/usr/include/x86_64-linux-gnu/mpich"
FORTRAN_MARK: Final = """
       call mpi_pcontrol(1000 + step)
       call mpi_barrier(MPI_COMM_SELF, ierror)
"""


@dataclass(frozen=True)
class Program:
    """A program of a repository, and where its main loop begins."""

    repository: str
    commit: str
    licence: str
    folder: str
    """of its sources in the repository"""
    marked: str
    """the source file with the main loop, relative to the folder"""
    loop: str
    """the line of the main loop, up to the end of which the file is copied before the mark"""
    mark: str
    changed: tuple[str, str] = ("", "")
    """further text of its sources, and what stands in its place"""
    sources: tuple[str, ...] = ()
    """empty: a NAS benchmark, whose numbers of processes and class are compiled into it"""
    flags: tuple[str, ...] = ()
    compiler: str = "mpicc.mpich"
    libraries: tuple[str, ...] = field(default=("-lm",))


NAS: Final = {
    "repository": "https://github.com/gtcasl/hpc-benchmarks",
    "commit": "9b90582fed85a630ef286a8355574d2fbdacd8de",
    "licence": "NPB 3.3.1's own: free use, copy, distribution and change with reference to it",
    "folder": "NPB3.3.1-MZ/NPB3.3-MZ-MPI",
}
LULESH: Final = Program(
    repository="https://github.com/LLNL/LULESH",
    commit="3e01c40b3281aadb7f996525cdd4a3354f6d3801",
    licence="BSD 3-Clause",
    folder=".",
    marked="lulesh.cc",
    loop="while((locDom->time() < locDom->stoptime()) && (locDom->cycle() < opts.its)) {",
    mark=" MPI_Pcontrol(1000 + locDom->cycle());",
    sources=("lulesh.cc", "lulesh-comm.cc", "lulesh-viz.cc", "lulesh-util.cc", "lulesh-init.cc"),
    flags=("-O3", "-DUSE_MPI=1"),
    compiler="mpicxx.mpich",
)
LULESH_OF_THREADS: Final = replace(LULESH, changed=("numthreads > 1", "numthreads > 0"))
PROGRAMS: Final = {
    "hydro": Program(
        repository="https://github.com/HydroBench/Hydro",
        commit="614628c701e93b5c207ec8543d807790b89eee51",
        licence="CeCILL",
        folder="HydroC/HydroC99_2DMpi/Src",
        marked="main.c",
        loop="while ((H.t < H.tend) && (H.nstep < H.nstepmax)) {",
        mark=" MPI_Pcontrol(1000 + H.nstep);",
        sources=tuple(
            f"{name}.c"
            for name in (
                "SplitSurface",
                "cmpflx",
                "compute_deltat",
                "conservar",
                "constoprim",
                "equation_of_state",
                "hydro_funcs",
                "hydro_godunov",
                "hydro_utils",
                "main",
                "make_boundary",
                "parametres",
                "perfcnt",
                "qleftright",
                "riemann",
                "slope",
                "trace",
                "utils",
                "vtkfile",
                "hydro_numa",
                "cclock",
            )
        ),
        flags=("-std=gnu99", "-O3", "-DMPI", "-w"),
        libraries=("-lm", "-lrt", "-lnuma"),
    ),
    "lulesh": LULESH,
    "lulesh.threads": LULESH_OF_THREADS,
    "minife": Program(
        repository="https://github.com/Mantevo/miniFE",
        commit="c79e0f7f7afdd6c8191936efce7a668316159cc3",
        licence="LGPL 3",
        folder="openmp",
        marked="src/cg_solve.hpp",
        loop="for(LocalOrdinalType k=1; k <= max_iter && normr > tolerance; ++k) {",
        mark=" MPI_Pcontrol(1000 + k);",
        sources=(
            "src/main.cpp",
            "src/YAML_Doc.cpp",
            "src/YAML_Element.cpp",
            "utils/BoxPartition.cpp",
            "utils/mytimer.cpp",
            "utils/param_utils.cpp",
            "utils/utils.cpp",
        ),
        flags=(
            "-O3",
            "-w",
            "-Isrc",
            "-Iutils",
            "-Ifem",
            "-DHAVE_MPI",
            "-DMINIFE_NO_INFO",
            "-DMINIFE_SCALAR=double",
            "-DMINIFE_LOCAL_ORDINAL=int",
            "-DMINIFE_GLOBAL_ORDINAL=int",
            "-DMINIFE_CSR_MATRIX",
        ),
        compiler="mpicxx.mpich",
    ),
    "bt-mz": Program(marked="BT-MZ/bt.f", loop="do  step = 1, niter", mark=FORTRAN_MARK, **NAS),
    "sp-mz": Program(marked="SP-MZ/sp.f", loop="do  step = 1, niter", mark=FORTRAN_MARK, **NAS),
}


class BuildError(Exception):
    """A program could not be fetched or built; the message says why."""


def command(arguments: Sequence[str], at: Path, **environment: str) -> str:
    """Standard output of a command that has to succeed."""
    done = subprocess.run(
        arguments, cwd=at, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-12:]
        raise BuildError("\n".join([f"{' '.join(arguments)} in {at} ended with {done.returncode}:", *said]))
    return done.stdout


def fetched(name: str, sources: Path, local: Path | None) -> Path:
    """The program's folder in a new copy of its repository at its commit, with its loop marked."""
    program = PROGRAMS[name]
    copy = sources / name
    if not (copy / ".git").is_dir():
        copy.parent.mkdir(parents=True, exist_ok=True)
        origin = str(local) if local else program.repository
        command(["git", "clone", "--quiet", "--no-checkout", origin, str(copy.resolve())], sources)
    # the folder alone: repositories of many benchmarks are large
    command(["git", "checkout", "--force", program.commit, "--", program.folder], copy)
    folder = copy / program.folder
    marked = folder / program.marked
    text = marked.read_text()
    if text.count(program.loop) != 1:
        raise BuildError(f"{marked} has the line {program.loop!r} {text.count(program.loop)} times, not once")
    marked.write_text(text.replace(program.loop, program.loop + program.mark))
    former, new = program.changed
    for source in program.sources if former else ():
        (folder / source).write_text((folder / source).read_text().replace(former, new))
    return folder


def flags_of(flavour: str) -> list[str]:
    """What the compiler needs for a flavour, and what the linker needs."""
    if not flavour:
        return []
    told = command([sys.executable, "-m", "manyscale", "trace", "--flags", flavour.removeprefix(".")], Path.cwd())
    return told.split()


def build(name: str, folder: Path, output: Path, flavour: str) -> None:
    """One flavour of a program in C or C++."""
    program = PROGRAMS[name]
    arguments = [program.compiler, *program.flags, "-g", "-fopenmp", "-include", "mpi.h", *flags_of(flavour)]
    arguments.append(f"-ffile-prefix-map={folder.resolve()}=.")  # traces name files as the repository does
    command(
        [*arguments, "-o", str(output.resolve()), *program.sources, *program.libraries],
        folder,
        MPICH_CC="clang",
        MPICH_CXX="clang++",
    )


def build_nas(name: str, folder: Path, output: Path, flavour: str, size: str, ranks: int) -> None:
    """One flavour of a NAS benchmark of a class (``S``, ``W``) and number of processes."""
    # the same for all flavours: task types are matched by their files
    at = output.parent / f"{output.name.removesuffix(flavour) if flavour else output.name}.objects"
    shutil.rmtree(at, ignore_errors=True)
    place = at / name.upper()
    shutil.copytree(folder, at)
    command(["make", "all"], at / "sys")
    command([str(Path("..", "sys", "setparams")), name, str(ranks), size], place)
    made = (place / "Makefile").read_text().replace("\\\n", " ")
    line = next(line for line in made.splitlines() if line.startswith("OBJS"))
    sources = [
        each.removesuffix(".o").replace("$(VEC)", "").replace("${COMMON}", "../common")
        for each in line.partition("=")[2].split()
    ]
    flags = flags_of(flavour)
    cover = [each for each in flags if each.startswith("-fsanitize-coverage")]
    objects = []
    for source in sources:
        stem = Path(source).name
        flang = ["flang-new-19", "-g", "-O3", "-fopenmp", "-I.", f"-I{MPICH}", "-S", "-emit-llvm"]
        command([*flang, f"{source}.f", "-o", f"{stem}.ll"], place)
        command(["clang-19", "-O3", "-w", *cover, "-c", "-x", "ir", f"{stem}.ll", "-o", f"{stem}.o"], place)
        objects.append(f"{stem}.o")
    link = [each for each in flags if each.startswith(("-L", "-Wl", "-l"))]
    runtime = Path(command(["clang", "-print-resource-dir"], place).strip()).parents[1]  # the OpenMP of C and C++
    libraries = [f"-L{runtime}", "-lmpichfort", "-lmpich", "-lm"]
    command(["flang-new-19", "-fopenmp", *objects, "-o", str(output.resolve()), *link, *libraries], place)
    shutil.rmtree(at)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", type=Path, metavar="SOURCES")
    parser.add_argument("binaries", type=Path, metavar="BINARIES")
    parser.add_argument("names", nargs="*", metavar="NAME", help="hydro, lulesh, minife, bt-mz, sp-mz; default all")
    parser.add_argument("--from", dest="local", action="append", default=[], metavar="NAME=DIRECTORY")
    parser.add_argument("--classes", default="S,W", help="of the NAS benchmarks")
    parser.add_argument("--ranks", default="1,2,4,8,16", help="numbers of processes of the NAS benchmarks")
    parser.add_argument("--plain", action="store_true", help="nothing for the detailed level")
    options = parser.parse_args(arguments)
    local = dict(each.split("=", 1) for each in options.local)
    options.binaries.mkdir(parents=True, exist_ok=True)
    for name in options.names or PROGRAMS:
        if name not in PROGRAMS:
            parser.error(f"no program is called {name!r}: {', '.join(PROGRAMS)}")
        try:
            folder = fetched(name, options.sources, Path(local[name]) if name in local else None)
            for flavour in FLAVOURS[:1] if options.plain else FLAVOURS:
                if PROGRAMS[name].sources:
                    build(name, folder, options.binaries / f"{name}{flavour}", flavour)
                    continue
                for size in options.classes.split(","):
                    for ranks in map(int, options.ranks.split(",")):
                        output = options.binaries / f"{name}.{size}.{ranks}{flavour}"
                        if size == "S" and ranks > 4:
                            continue  # it has four zones
                        build_nas(name, folder, output, flavour, size, ranks)
        except BuildError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
        print(f"{name}: {PROGRAMS[name].repository} at {PROGRAMS[name].commit}, {PROGRAMS[name].licence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
