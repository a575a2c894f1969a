"""Builds the native tracer with the user's own compiler, against the user's own MPI, once: cached by content."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from manyscale.runner import kept
from manyscale.runner.errors import UserError

NATIVE: Final = Path(__file__).parent / "native"
FLAGS: Final = ("-std=gnu11", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
_PARTS: Final = (  # of every tracer
    "trace.c", "threads.c", "openmp.c", "openmp_entries.c", "coverage.c", "emulated.c", "gpu.c", "counters.c",
)  # fmt: skip
_MPI_PARTS: Final = ("mpi.c", "collectives.c", "requests.c", "windows.c")
_COMPILERS: Final = {
    "mpich": (("mpicc.mpich", "mpicc"), "libmpich-dev"),
    "openmpi": (("mpicc.openmpi", "mpicc"), "libopenmpi-dev"),
}
_COVERAGE: Final = "bb,no-prune,pc-table"
_INSTRUMENTED: Final = f"{_COVERAGE},trace-pc-guard,trace-loads,trace-stores"
_COUNTING: Final = f"{_COVERAGE},inline-8bit-counters"
_SHOWS: Final = {"mpich": "mpich", "openmpi": "openmpi"}


@dataclass(frozen=True)
class Compiler:
    """``command`` compiles C; ``identity`` names its version and what it links, and so belongs to what is cached."""

    command: tuple[str, ...]
    identity: str


def tracer(library: str | None, cache: Path) -> Path:
    """The tracer's shared library for programs of an MPI library ("mpich", "openmpi") or of none.

    Raises UserError, naming the package, where a compiler or MPI's headers are missing, and for a cache from which
    nothing can be preloaded.
    """
    cache = cache.resolve()  # the program may start in another folder
    if set(str(cache)) & set(" \t\n:"):
        raise UserError(f"{cache}: has a blank or a colon, at which the loader splits LD_PRELOAD; name another --cache")
    compiler = c_compiler() if library is None else mpi_compiler(library)
    from manyscale.runner.tracers import generate

    sources = {part: (NATIVE / part).read_text() for part in _PARTS}
    sources["names.c"] = generate.names()
    if library is not None:
        sources |= {part: (NATIVE / part).read_text() for part in _MPI_PARTS}
        sources["wrappers.c"] = generate.wrappers(library)
    return _built("libmanyscale_tracer.so", sources, compiler, cache, ("-ldl", "-lpthread"))


def coverage_stub(cache: Path) -> Path:
    """The library that programs built for the detailed level link: callbacks that do nothing."""
    sources = {"stub.c": (NATIVE / "stub.c").read_text()}
    return _built("libmanyscale_coverage.so", sources, c_compiler(), cache, ())


def coverage_flags(stub: Path, counting: bool = False) -> list[str]:
    """Words to add to a clang command that compiles, links, or both, a program for the detailed level; ``stub``: as
    ``coverage_stub`` builds it.

    The *instrumented* build calls the tracer at each basic block, load and store; the *counting* build only increments
    a counter in each block, and is disassembled, not run. Everything else about the two must be equal. ``no-prune``
    keeps the callbacks of blocks whose execution follows from others'.
    """
    return [
        "-g",
        f"-fsanitize-coverage={_COUNTING if counting else _INSTRUMENTED}",
        "-fno-sanitize-link-runtime",  # else clang links a runtime of its own, whose callbacks come before the tracer's
        "--start-no-unused-arguments",  # where nothing is linked, the rest is not used
        f"-L{stub.parent}",
        f"-Wl,-rpath,{stub.parent},--push-state,--no-as-needed",
        f"-l{stub.stem.removeprefix('lib')}",
        "-Wl,--pop-state",
        "--end-no-unused-arguments",
    ]


def qemu_plugin(cache: Path) -> Path:
    """The plugin of the QEMU route."""
    sources = {"qemu_plugin.c": (NATIVE / "qemu_plugin.c").read_text()}
    return _built("libmanyscale_qemu.so", sources, c_compiler(), cache, ("-ldl", "-lpthread"))


def c_compiler(built: str = "the tracer") -> Compiler:
    """The compiler of the environment variable CC, else cc, gcc or clang; ``built`` is named where there is none."""
    chosen = os.environ.get("CC")
    command = tuple(shlex.split(chosen)) if chosen else next(
        ((name,) for name in ("cc", "gcc", "clang") if shutil.which(name)), ()
    )  # fmt: skip
    if not command or shutil.which(command[0]) is None:
        wanted = chosen or "cc"
        raise UserError(f"no C compiler {wanted!r} to build {built}; install one (Debian: gcc libc6-dev) or set CC")
    return Compiler(command, _output([*command, "--version"]))


def mpi_compiler(library: str) -> Compiler:
    """The compiler wrapper of an MPI library: that of the environment variable MPICC, else the first on the PATH that
    compiles for this library."""
    candidates, package = _COMPILERS[library]
    chosen = os.environ.get("MPICC")
    for name in [chosen] if chosen else candidates:
        command = tuple(shlex.split(name))
        if not command or shutil.which(command[0]) is None:
            continue
        shown = _output([*command, "-show"])
        if _SHOWS[library] in shown.lower():
            c_compiler()
            return Compiler(command, f"{shown} {_output([*command, '--version'])}")
    raise UserError(
        f"no compiler wrapper ({' or '.join([chosen] if chosen else candidates)}) of {library}, with which the program "
        f"is linked, to build the tracer; install it (Debian: {package}) or name it in the variable MPICC"
    )


def _built(name: str, sources: dict[str, str], compiler: Compiler, cache: Path, libraries: Sequence[str]) -> Path:
    state = hashlib.blake2b(f"{name} {FLAGS} {libraries} {compiler}".encode(), digest_size=16)
    headers = sorted(NATIVE.glob("*.h"))
    for part in (*sources.values(), *(header.read_text() for header in headers)):
        state.update(f"{len(part)} {part}".encode())
    built = cache / "tracers" / state.hexdigest() / name
    if kept.mapped(built) is None:
        _compile(built, sources, compiler, libraries)
    return built


def _compile(built: Path, sources: dict[str, str], compiler: Compiler, libraries: Sequence[str]) -> None:
    """Compile into a folder of its own, then move: builds at the same time do not meet."""
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
            for name, text in sources.items():
                (Path(scratch) / name).write_text(text)
            files = [str(Path(scratch) / name) for name in sources]
            made = Path(scratch) / built.name
            command = [*compiler.command, *FLAGS, f"-I{NATIVE}", *files, "-o", str(made), *libraries]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
                told = lines[0].replace(scratch, "native") if lines else f"exit status {done.returncode}"
                raise UserError(f"the tracer does not build with {shlex.join(compiler.command)}: {told}")
            kept.seal(made)  # what loads a library looks at its begin
            made.replace(built)
    except OSError as error:
        raise UserError(f"{built.parent}: {error.strerror or error}; name another folder with --cache") from None


def _output(command: Sequence[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise UserError(f"{command[0]}: {error.strerror or error}; mend it or name another compiler") from None
