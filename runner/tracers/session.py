"""From a command line to a workload in a folder: the program runs under a tracer, once or twice.

Levels, each with what the one before it records: ``mpi``, ``tasks`` (the runtime system's events, one thread per rank),
``detailed`` (basic blocks and memory accesses of chosen ranks and iterations). The detailed level takes two runs, as
MUSA does (Grass, UPC 2017, section 6.4.3): the first one's times are the truth; it also tells where the iterations are
that the second one, many times slower, records. ``stacks`` is a profile of call stacks instead (SimProf).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from manyscale.models.workload import Workload
from manyscale.runner.errors import TerminationError, UserError
from manyscale.runner.readers import raw_trace, workload_folder
from manyscale.runner.readers.raw_trace.header import FORMAT, HEADER, VERSION
from manyscale.runner.readers.stacks import folder as stack_folder
from manyscale.runner.readers.workload_folder.layout import DETAIL, RAW
from manyscale.runner.system import require_linux
from manyscale.runner.tracers import build, counters, emulated, launch, stacks
from manyscale.runner.tracers.detailed import add_detail, check_recorded, window_lines

LEVELS: Final = {"mpi": 1, "tasks": 2, "detailed": 3}


@dataclass(frozen=True)
class Recording:
    """What is recorded. Of the detailed level: of ``ranks`` and ``iterations`` (from 1; None: all), within ``regions``
    (names, with commas) or a ``function``; ``route``: coverage (the program is built for it), qemu or valgrind;
    ``counting``: the program built to count. Of call stacks: ``source``, the profiler, and ``sampling``.
    ``counters``: names of those that are read (None: the usual ones, at MPI calls only). ``max_bytes`` on disk.
    ``announces``: a line on standard error says what is run."""

    level: str = "mpi"
    ranks: Sequence[int] | None = (0,)
    iterations: Sequence[int] | None = (2,)
    regions: str | None = None
    route: str = "coverage"
    function: str | None = None
    counting: Path | None = None
    source: str = "auto"
    sampling: stacks.Sampling = stacks.DEFAULT_SAMPLING
    counters: tuple[str, ...] | None = None
    max_bytes: int | None = None
    announces: bool = False

    @property
    def is_emulated(self) -> bool:
        """Whether the program as it is runs under an emulator."""
        return self.level == "detailed" and self.route != "coverage"


def find_program(command: Sequence[str], what: Recording, library: str | None = None) -> launch.Program:
    """The program of a command, with MPI ``library`` (default: found out). Raises UserError where it cannot be recorded
    so."""
    require_linux("trace", "record the program there and bring its trace")
    foreign = emulated.foreign_program(command)
    if foreign is not None:
        if what.level != "detailed" or what.route != "qemu":
            raise UserError(
                f"{command[0]}: is a program of AArch64, which this machine does not run; record it on one that does, "
                "or here with --level detailed --route qemu"
            )
        return foreign
    program = launch.find_program(command, library)
    if what.is_emulated:
        emulated.check(command, program, what.route, what.function)
    return program


def trace(
    command: Sequence[str],
    program: launch.Program,
    what: Recording,
    directory: Path,
    cache: Path,
    *,
    keep_raw: bool = False,
) -> tuple[Workload, int]:
    """Run, read and write into ``directory``, an existing folder that is taken away where nothing was recorded. The
    workload, and the program's exit status, negative for a signal. Raises UserError."""
    if what.level == "stacks":
        status = stacks.record(command, directory / RAW, what.source, what.sampling, program.words or (0,))
        workload = replace(stack_folder.read(directory / RAW), name=directory.resolve().name)
    else:
        try:
            workload, status = _record(command, program, what, directory, cache)
        except UserError as error:
            if any((directory / RAW).rglob("*.trace")):
                raise UserError(f"{error} (what was recorded is kept in {directory / RAW})") from None
            shutil.rmtree(directory)
            raise
    workload_folder.write(workload, directory)
    if not keep_raw:
        shutil.rmtree(directory / RAW)
    return workload, status


def _record(
    command: Sequence[str], program: launch.Program, what: Recording, directory: Path, cache: Path
) -> tuple[Workload, int]:
    first, second = directory / RAW / "burst", directory / RAW / "detailed"
    if emulated.foreign_program(command) is not None:
        second.mkdir(parents=True)
        return emulated.record_foreign(command, second, what.function, cache, what.max_bytes)
    level = "tasks" if what.level == "detailed" else what.level
    status = _run(command, program, what, level, first, directory, cache)
    workload = raw_trace.read(first)
    if what.level != "detailed" or status:
        return workload, status
    is_inside = what.is_emulated and emulated.is_told_apart(program, what.route, what.function)
    if what.is_emulated and not is_inside:
        second.mkdir()
        return emulated.add_detail(workload, what.route, command, second, what.function, cache, what.max_bytes)
    ranks = list(range(workload.num_ranks)) if what.ranks is None else what.ranks
    # under QEMU all of a program that neither marks its iterations nor has MPI, whose calls tell them
    is_marked = any(workload.tables["iterations"].column("annotated").to_pylist())
    iterations = what.iterations if program.library or is_marked or not is_inside else None
    windows = window_lines(workload, first, ranks, iterations)
    status = _run(command, program, what, "detailed", second, directory, cache, windows)
    workload = add_detail(workload, first, second, directory / DETAIL, what.counting, is_emulated=is_inside)
    check_recorded(workload, iterations, what.regions)
    return workload, status


def write_header(raw: Path, name: str, level: str, command: Sequence[str], program: launch.Program) -> None:
    """Say in the folder ``raw`` what is recorded there, and under which name its workload is read."""
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "level": level,
        "command": list(command),
        "library": program.library,
        "runtime": program.runtime,
    }
    (raw / HEADER).write_text(json.dumps(header, indent=1) + "\n")


def _run(
    command: Sequence[str],
    program: launch.Program,
    what: Recording,
    level: str,
    raw: Path,
    directory: Path,
    cache: Path,
    windows: Sequence[str] | None = None,
) -> int:
    """Run the command once under the tracer, which writes into ``raw``; its exit status, negative for a signal."""
    raw.mkdir(parents=True)
    environment = {"MANYSCALE_TRACE_DIR": str(raw.resolve()), "MANYSCALE_TRACE_LEVEL": str(LEVELS[level])}
    if program.library or what.counters:
        environment |= counters.environment(what.counters, at_events=LEVELS[level] == LEVELS["tasks"])
    tracer = build.tracer(program.library, cache)
    preloaded = [str(tracer)]
    if LEVELS[level] >= LEVELS["tasks"]:
        environment |= launch.ONE_THREAD
        preloaded += [str(launch.libomp())] if program.runtime == "libgomp" else []
    if windows is not None:
        (raw / "windows").write_text("".join(f"{line}\n" for line in windows))
        environment["MANYSCALE_TRACE_WINDOWS"] = str((raw / "windows").resolve())
        environment |= {"MANYSCALE_TRACE_REGIONS": what.regions} if what.regions else {}
    if what.max_bytes is not None:
        (raw / "budget").write_bytes(what.max_bytes.to_bytes(8, "little"))
        environment["MANYSCALE_TRACE_BUDGET"] = str((raw / "budget").resolve())
    preloaded += filter(None, [os.environ.get("LD_PRELOAD")])
    before: list[str] = []
    if level == "detailed" and what.is_emulated:
        environment |= emulated.ENVIRONMENT | emulated.OF_MPI | {"MANYSCALE_TRACE_EMULATED": "1"}
        before = emulated.emulator_words(raw, preloaded, cache, what.max_bytes, tracer)
    else:
        environment["LD_PRELOAD"] = ":".join(preloaded)
    write_header(raw, directory.resolve().name, level, command, program)
    if what.announces:
        print(f"manyscale: tracing at level {level}: {shlex.join(command)}", file=sys.stderr, flush=True)
    child = subprocess.Popen(launch.traced_command(command, program, environment, before))
    while True:
        try:
            return child.wait()
        except TerminationError:
            child.terminate()
        except KeyboardInterrupt:  # the terminal told the program, too; what it did until then is the trace
            continue
