"""The detailed level of programs that are not built again: one process under QEMU or Valgrind.

The program runs twice, as for the other route: the first run's times are the truth, the emulated one gives blocks and
accesses, of the whole program or of one function. A program with MPI or OpenMP runs under QEMU with the tracer inside,
which tells the emulator where its calls and events are; else tasks and calls are not told apart.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.notes import Errs, changes
from manyscale.runner.errors import UserError
from manyscale.runner.readers import lackey, qemu_trace
from manyscale.runner.tracers import build, launch
from manyscale.runner.tracers.launch import Program

ROUTES: Final = ("qemu", "valgrind")
EMULATOR: Final = "qemu-x86_64"
ARM_EMULATOR: Final = "qemu-aarch64"
# the processor that QEMU shows: of x86-64 the most capable one, since programs may use AVX2; of AArch64 one without
# SVE, whose loads and stores QEMU before 8.2 makes without telling plugins
_PROCESSORS: Final = {EMULATOR: "max", ARM_EMULATOR: "neoverse-n1"}
_LATER_INTERFACE: Final = 9  # QEMU 9.0 takes no plugins of interface version 1 any more
_EM_AARCH64: Final = 183
_ARM_LIBRARIES: Final = Path("/usr/aarch64-linux-gnu")  # Debian's, of its cross compiler
# The dynamic linker looks all functions up when the program starts, not inside what is measured.
ENVIRONMENT: Final = {"LD_BIND_NOW": "1"}
# QEMU does not know process_vm_readv, by which Open MPI copies between processes
OF_MPI: Final = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
# Valgrind loads programs that can be loaded anywhere to this address (its own choice on amd64, for 3.10 to 3.24)
_LOADED_AT: Final = 0x108000
_EXECUTABLE: Final = 1  # flag of a segment
_LEVELS: Final = ("blocks", "instructions", "block_accesses", "segments")


def is_of_arm(path: Path) -> bool:
    """Whether a program is AArch64's, which another machine cannot run by itself."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError:
        return False
    return head[:5] == b"\x7fELF\x02" and int.from_bytes(head[18:20], "little") == _EM_AARCH64


def foreign_program(command: Sequence[str]) -> Program | None:
    """The program of a command that begins with one of AArch64, on another machine; else None."""
    if not command or platform.machine() == "aarch64":
        return None
    found = shutil.which(command[0])
    return Program((0,), Path(found), None, None) if found and is_of_arm(Path(found)) else None


def record_foreign(
    command: Sequence[str], raw: Path, function: str | None, cache: Path, limit: int | None
) -> tuple[Workload, int]:
    """(the workload of a program that only the emulator runs, its exit status). Its time is the emulator's CPU time.
    ``raw``: an existing folder."""
    output = raw / "emulated.trace"
    words = qemu_command(command, output, function, cache=cache, limit_bytes=limit)
    print(f"manyscale: recording blocks and accesses by {ARM_EMULATOR}", file=sys.stderr, flush=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.run(words, env={**os.environ, **ENVIRONMENT}, check=False).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not output.is_file():
        raise UserError(
            f"{output}: {ARM_EMULATOR} left no trace (exit status {status}); does {words[0]} run {command[0]}?"
        )
    if status == -signal.SIGILL:
        raise UserError(
            f"{command[0]}: has instructions that a Neoverse N1 does not have, such as SVE's, whose accesses QEMU does "
            "not tell; build it without, or record it where it runs by DynamoRIO (format drmemtrace)"
        )
    seen = qemu_trace.read(output)
    time_ps = round((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e12)
    phases = seen.tables["phases"]
    place = phases.schema.get_field_index("duration_ps")
    timed = phases.set_column(place, phases.schema.field(place), to_arrow(np.full(phases.num_rows, time_ps, np.int64)))
    text = "times are of the run that recorded accesses, many times slower than the program by itself"
    notes = (*seen.notes, changes("times-of-instrumented-run", text, errs=Errs.long))
    return replace(seen, tables={**seen.tables, "phases": timed}, notes=notes), status


def check(command: Sequence[str], program: Program, route: str, function: str | None) -> None:
    """Raises UserError for what the routes cannot run: several processes, or a program inside another command."""
    if is_told_apart(program, route, function):
        return
    if program.library is not None and function is not None:
        raise UserError(
            f"--function {function}: of a program with MPI, iterations or marked regions are recorded; choose them by "
            "--iterations and --regions"
        )
    if program.library is not None or program.words != (0,):
        other = "" if route == "qemu" else ", or take --route qemu"
        raise UserError(
            f"{command[0]}: --route {route} runs one program that stands in the command itself"
            f"{'' if route == 'qemu' else ', without MPI'}; build it with --flags detailed instead{other}"
        )


def is_told_apart(program: Program, route: str, function: str | None) -> bool:
    """Whether the program runs under the emulator with the tracer inside: with MPI or OpenMP, as a whole."""
    known = platform.machine() == "x86_64"  # MS_TELL of native/trace.h
    return (
        route == "qemu" and function is None and known and bool(program.words and (program.library or program.runtime))
    )


def emulator_words(
    folder: Path, preloaded: Sequence[str], cache: Path, limit_bytes: int | None, tracer: Path
) -> list[str]:
    """The words before a program that run it under QEMU with the tracer inside. ``folder``: for a file of each process;
    ``preloaded``: libraries of the program, of which the ``tracer`` and OpenMP's runtime systems are not recorded.
    Raises UserError where QEMU or a compiler is missing."""
    words = [str(build.qemu_plugin(cache)), f"folder={folder.resolve()}", "marks=1"]
    # wherever a program finds its runtime system: several may be installed
    words += [f"skip={each}" for each in (os.path.realpath(tracer), *launch.RUNTIME_FILES)]
    words += [] if limit_bytes is None else [f"limit={limit_bytes}"]
    plugin = ",".join(word.replace(",", ",,") for word in words)
    return [
        _emulator(EMULATOR),
        "-cpu",
        _PROCESSORS[EMULATOR],
        "-plugin",
        plugin,
        "-E",
        f"LD_PRELOAD={':'.join(preloaded)}",
    ]


def add_detail(
    workload: Workload,
    route: str,
    command: Sequence[str],
    raw: Path,
    function: str | None,
    cache: Path,
    limit: int | None,
) -> tuple[Workload, int]:
    """(the workload with what the emulated run recorded, that run's exit status). ``raw``: an existing folder;
    ``limit``: bytes of the trace."""
    output = raw / "emulated.trace"
    if route == "qemu":
        words = qemu_command(command, output, function, cache=cache, limit_bytes=limit)
    else:
        words = lackey_command(command, output, function)
    print(f"manyscale: recording blocks and accesses by {route}", file=sys.stderr, flush=True)
    status = subprocess.run(words, env={**os.environ, **ENVIRONMENT}, check=False).returncode
    if not output.is_file():
        raise UserError(f"{output}: {route} left no trace (exit status {status}); does {' '.join(words[:3])} run?")
    if route == "qemu":
        seen = qemu_trace.read(output)
    else:
        entry = None if function is None else lackey_entry(command, function)
        seen = lackey.read(output, entry=entry)
    tables = {**workload.tables, **{level: seen.tables[level] for level in _LEVELS}}
    if function is not None:  # it is not what precedes an operation, but a part of it
        segments = tables["segments"]
        place = segments.schema.get_field_index("operation_id")
        unknown = to_arrow(np.full(segments.num_rows, -1, np.int32))
        tables["segments"] = segments.set_column(place, segments.schema.field(place), unknown)
    return replace(workload, tables=tables, notes=(*workload.notes, *seen.notes), detail=seen.detail), status


def qemu_command(
    program: Sequence[str], output: Path, region: str | None = None, *, cache: Path, limit_bytes: int | None = None
) -> list[str]:
    """The words that run a command under QEMU's user-mode emulation with a plugin (``native/qemu_plugin.c``), and leave
    its trace in ``output``, which must not exist. Some hundred times as fast as lackey.

    ``region``: record only while this function of the program runs. ``cache`` keeps the plugin. Recording stops when
    the file has ``limit_bytes``. Raises UserError where QEMU or a compiler is missing.
    """
    if not program:
        raise UserError("no program to trace; give its words behind --")
    found = shutil.which(program[0])
    name = ARM_EMULATOR if found and is_of_arm(Path(found)) else EMULATOR
    emulator = _emulator(name)
    path = _path_of(program[0])
    libraries = ["-L", str(_ARM_LIBRARIES)] if name == ARM_EMULATOR and _ARM_LIBRARIES.is_dir() else []
    words = [str(build.qemu_plugin(cache)), f"out={output.absolute()}"]
    if region is not None:
        entry = _entry(path, region)
        words.append(f"entry={entry.address - entry.code:#x}")
    if limit_bytes is not None:
        words.append(f"limit={limit_bytes}")
    plugin = ",".join(word.replace(",", ",,") for word in words)
    return [emulator, "-cpu", _PROCESSORS[name], *libraries, "-plugin", plugin, str(path), *program[1:]]


def _emulator(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise UserError(f"{name} is not installed; install it (Debian: qemu-user) or use another route")
    version = re.search(r" version (\d+)\.(\d+)", _told(found, "--version"))
    if version and int(version[1]) >= _LATER_INTERFACE:
        raise UserError(
            f"{found}: is QEMU {version[1]}.{version[2]}, whose plugins have a later interface than is known here; "
            "install QEMU 6.0 to 8.2 (Debian 12: qemu-user), or use another route"
        )
    if "-plugin" not in _told(found, "-h"):
        raise UserError(f"{found}: is built without plugins; install one that has them, or use another route")
    return found


def _told(program: str, option: str) -> str:
    done = subprocess.run([program, option], capture_output=True, text=True, errors="replace", check=False)
    return done.stdout


def lackey_command(program: Sequence[str], output: Path, region: str | None = None) -> list[str]:
    """The words that run a command under Valgrind's lackey, and leave its trace in ``output``; about 0.3 M accesses per
    CPU second. Lackey cannot record a part of the run: the reader keeps what a function does, by ``lackey_entry``.

    ``region``: checked to be a function of the program. Raises UserError where Valgrind is missing.
    """
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise UserError("valgrind is not installed; install it (Debian: valgrind) or use another route")
    if not program:
        raise UserError("no program to trace; give its words behind --")
    if region is not None:
        lackey_entry(program, region)
    # in the name of a log file % begins what Valgrind fills in
    log = str(output.absolute()).replace("%", "%%")
    return [valgrind, "--tool=lackey", "--trace-mem=yes", f"--log-file={log}", *program]


def lackey_entry(program: Sequence[str], region: str) -> int:
    """Where the function begins when Valgrind runs the program."""
    entry = _entry(_path_of(program[0]), region)
    return entry.address + (_LOADED_AT if entry.is_movable else 0)


@dataclass(frozen=True)
class _Entry:
    """Of a function, by its symbol: ``address`` in the program's file; ``code``: where the program's first segment of
    code begins; ``is_movable``: whether the program is loaded anywhere."""

    address: int
    code: int
    is_movable: bool


def _path_of(name: str) -> Path:
    """The program that a command's first word names. Raises UserError if there is none."""
    found = shutil.which(name)
    if found is None:
        raise UserError(f"{name}: is no program that can be run; give its path")
    return Path(found)


def _entry(program: Path, function: str) -> _Entry:
    """The function's entry. Raises UserError for a program without it, naming what is alike."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
        from elftools.elf.sections import SymbolTableSection
    except ImportError:
        raise UserError("--function needs pyelftools; pip install 'manyscale[trace]'") from None
    try:
        with program.open("rb") as file:
            elf = ELFFile(file)
            tables = [section for section in elf.iter_sections() if isinstance(section, SymbolTableSection)]
            functions = {
                symbol.name: int(symbol["st_value"])
                for table in tables
                for symbol in table.iter_symbols()
                if symbol["st_info"]["type"] in ("STT_FUNC", "STT_GNU_IFUNC") and symbol["st_shndx"] != "SHN_UNDEF"
            }
            code = [int(each["p_vaddr"]) for each in elf.iter_segments("PT_LOAD") if each["p_flags"] & _EXECUTABLE]
            is_movable = elf.header["e_type"] == "ET_DYN"
    except OSError as error:
        raise UserError(f"{program}: cannot be read ({error.strerror or error})") from None
    except ELFError as error:
        raise UserError(f"{program}: is no program that a function could be found in ({error})") from None
    if function not in functions or not code:
        alike = sorted(name for name in functions if function in name)[:4]
        hint = f"; alike are {', '.join(alike)}" if alike else "; is it stripped, or was the function inlined?"
        raise UserError(f"{program}: has no function {function!r}{hint}")
    return _Entry(functions[function], min(code), is_movable)
