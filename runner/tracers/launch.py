"""From a command line to a process that is traced: finds the program in it, its MPI library and its runtime system,
and puts the tracer before the program alone, not before the launcher.

    mpirun -n 4 ./app input  ->  mpirun -n 4 env LD_PRELOAD=... MANYSCALE_TRACE_DIR=... ./app input

A program inside a script is not seen: then the whole command runs under the tracer, which records those processes that
initialise MPI or OpenMP.
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError

# how the names of LLVM's OpenMP runtime begin, which runs GCC's programs, too
RUNTIME_FILES: Final = ("libomp.so", "libomp-", "libiomp5.so")
# a runtime system with these runs one thread, as MUSA traces
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OMP_THREAD_LIMIT": "1", "OMP_DYNAMIC": "false"}
_MPI_LAUNCHERS: Final = ("mpirun", "mpiexec", "orterun", "prterun", "srun", "aprun", "jsrun", "mpirun_rsh")
_SHELLS: Final = ("sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh", "fish", "make")
LAUNCHERS: Final = (
    *_MPI_LAUNCHERS, *_SHELLS, "env", "taskset", "numactl", "nice", "time", "timeout", "stdbuf", "setarch", "xargs",
)  # fmt: skip
# by the names that the libraries have in a program; libmpi.so.12 is the name of the common ABI of MPICH's kin
_LIBRARIES: Final = {"libmpich.so": "mpich", "libmpi.so.12": "mpich", "libmpi.so": "openmpi"}
_PT_INTERP = 3


@dataclass(frozen=True)
class Program:
    """``words``: where the command names it (several for several binaries). ``library``: its MPI, or None.
    ``runtime``: "libomp", "libgomp" or None."""

    words: tuple[int, ...]
    path: Path | None
    library: str | None
    runtime: str | None


def find_program(command: Sequence[str], library: str | None = None) -> Program:
    """The program that a command runs. ``library`` overrides what is found.

    Raises UserError for a command that cannot be run, and for a statically linked program.
    """
    if not command:
        raise UserError("no command to trace; give it after --, e.g. manyscale trace -o app -- mpirun -n 4 ./app")
    if shutil.which(command[0]) is None:
        raise UserError(f"{command[0]}: no such program; give its path or mend PATH")
    launched = _base(command[0]) in LAUNCHERS and not _is_mpi(Path(str(shutil.which(command[0]))))
    found = _launched(command) if launched else _alone(command[0])
    if not found:
        return Program((), None, library or _launcher_library(command), None)
    path = found[0][1]
    if is_static(path):
        raise UserError(f"{path}: is statically linked, so that no tracer can be loaded into it; link it dynamically")
    needed = _needed(path)
    runtimes = {"libomp": RUNTIME_FILES, "libgomp": ("libgomp.so",)}
    runtime = next((name for name, prefixes in runtimes.items() if _any(needed, *prefixes)), None)
    seen = next((name for prefix, name in _LIBRARIES.items() if _any(needed, prefix)), None)
    if seen is None and any(_base(word) in _MPI_LAUNCHERS for word in command[: found[0][0]]):
        seen = _launcher_library(command)  # an interpreter, say, that loads MPI later
    return Program(tuple(index for index, _ in found), path, library or seen, runtime)


def launches_mpi(command: Sequence[str]) -> bool:
    """Whether one of a command's words starts MPI programs."""
    return any(_base(word) in _MPI_LAUNCHERS for word in command)


def traced_command(
    command: Sequence[str], program: Program, environment: Mapping[str, str], emulator: Sequence[str] = ()
) -> list[str]:
    """The command with the tracer's environment, and the words of an ``emulator``, before each program; if there is
    none in it, the former before all."""
    if not program.words:
        return [*_environment(environment), *command]
    variables = {**environment, "MANYSCALE_TRACE_ALWAYS": "1"}
    asked = _preloaded(command[: program.words[0]])
    if asked:
        variables["LD_PRELOAD"] = ":".join([variables["LD_PRELOAD"], asked]) if "LD_PRELOAD" in variables else asked
    own = [each for each in (os.environ.get("LD_PRELOAD"), asked) if each]
    if own:  # for the programs that the traced one starts
        variables["MANYSCALE_TRACE_PRELOAD"] = ":".join(own)
    words: list[str] = []
    for index, word in enumerate(command):
        if index in program.words:
            words += _environment(variables, is_assignment="=" in word and not emulator)
            words += emulator
        words.append(word)
    return words


def _environment(variables: Mapping[str, str], *, is_assignment: bool = False) -> list[str]:
    """Words that set variables for the command after them. ``is_assignment``: env would take its name for one."""
    assigned = [f"{name}={value}" for name, value in variables.items()]
    if not is_assignment:
        return ["/usr/bin/env", *assigned]
    exported = " ".join(shlex.quote(each) for each in assigned)
    return ["/bin/sh", "-c", f'export {exported}; exec "$0" "$@"']


def libomp() -> Path:
    """LLVM's OpenMP runtime, on which GCC's programs run, too. Raises UserError where it is not installed."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout.splitlines()
    paths = [
        Path(line.rsplit("=> ", 1)[1]) for line in listed if line.strip().startswith("libomp.so") and "=> " in line
    ]
    paths += sorted(Path("/usr/lib").glob("llvm-*/lib/libomp.so*"))
    if not paths:
        raise UserError(
            "the program was built by GCC, whose OpenMP runtime tells nothing of its tasks; install LLVM's, which it "
            "can run on (Debian: libomp-dev), or trace with --level mpi"
        )
    return paths[0]


def is_static(path: Path) -> bool:
    """Whether an ELF file has no interpreter, so that nothing can be preloaded."""
    with path.open("rb") as file:
        header = file.read(64)
        if len(header) < 64 or header[4] != 2:
            return False
        offset, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
        for index in range(count):
            file.seek(offset + index * size)
            if struct.unpack("<I", file.read(4))[0] == _PT_INTERP:
                return False
    return True


def _alone(word: str) -> list[tuple[int, Path]]:
    """A command's first word, unless it is a script: what that starts is found at run time."""
    path = Path(str(shutil.which(word)))
    return [(0, path)] if _is_elf(path) else []


def _launched(command: Sequence[str]) -> list[tuple[int, Path]]:
    """Of a launcher's words those that are programs: of each part between colons the first MPI program; if there is
    none in the command, its first program, or nothing where that is in doubt."""
    candidates = []
    first_script = len(command)
    for index, word in enumerate(command):
        which = shutil.which(word)
        if which is None:
            continue
        path, is_launcher = Path(which), _base(word) in LAUNCHERS
        if index and _is_elf(path) and (not is_launcher or _is_mpi(path)):
            candidates.append((index, path))
        elif _base(word) in _SHELLS or (index and not _is_elf(path)):
            first_script = min(first_script, index)
    parts: dict[int, tuple[int, Path]] = {}
    for index, path in candidates:
        part = list(command[:index]).count(":")
        if part not in parts and _is_mpi(path):
            parts[part] = (index, path)
    if parts or not candidates or first_script < candidates[0][0]:
        return list(parts.values())
    index, path = candidates[0]
    # "--map-by node", "-p test": names of programs, too
    is_value = command[index - 1].startswith("-") and "/" not in command[index]
    return [] if is_value and _base(command[0]) in _MPI_LAUNCHERS else [(index, path)]


def _is_mpi(path: Path) -> bool:
    return any(_any(_needed(path), name) for name in _LIBRARIES)


def _preloaded(command: Sequence[str]) -> str | None:
    """What a command's own words (env LD_PRELOAD=..., -x LD_PRELOAD=..., -genv LD_PRELOAD ...) preload."""
    for word, following in pairwise([*command, ""]):
        if word.startswith("LD_PRELOAD="):
            return word.removeprefix("LD_PRELOAD=")
        if word == "LD_PRELOAD":
            return following
    return None


def _launcher_library(command: Sequence[str]) -> str | None:
    """The MPI library of a script, by the launcher that stands in the command or first on the PATH."""
    for name in (*command, "mpirun", "mpiexec"):
        path = shutil.which(name) if _base(name) in LAUNCHERS or name == "mpirun" else None
        if path is None:
            continue
        resolved = os.path.realpath(path)
        if "hydra" in resolved or "mpich" in resolved:
            return "mpich"
        if "orte" in resolved or "openmpi" in resolved or "prte" in resolved:
            return "openmpi"
    return None


def _base(word: str) -> str:
    return os.path.basename(word).split(".")[0]


def _is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _needed(path: Path) -> tuple[str, ...]:
    """Names of all shared libraries that the loader finds for a program."""
    listed = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
    return tuple(line.split()[0] for line in listed.splitlines() if line.strip())


def _any(names: Sequence[str], *prefixes: str) -> bool:
    return any(name.startswith(prefix) for name in names for prefix in prefixes)
