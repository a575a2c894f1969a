"""``manyscale trace``: run a program under the tracer and write the workload that the pipe reads.

Levels, each with what the one before it records: ``mpi``, ``tasks`` (the runtime system's events, one thread per rank),
``detailed`` (basic blocks and memory accesses of chosen ranks and iterations). The detailed level takes two runs, as
MUSA does (Grass, UPC 2017, section 6.4.3): the first one's times are the truth; it also tells where the iterations are
that the second one, many times slower, records. ``stacks`` is a profile of call stacks instead (SimProf).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from manyscale.models.workload import Workload
from manyscale.models.workload.quantities import parse_time_ps
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError
from manyscale.runner.readers import raw_trace as native
from manyscale.runner.readers import workload_folder
from manyscale.runner.readers.raw_trace import files as native_files
from manyscale.runner.run import directory as rundir
from manyscale.runner.study.traces import counted
from manyscale.runner.tracers import build, launch

LEVELS: Final = {"mpi": 1, "tasks": 2, "detailed": 3}
RAW: Final = "raw"
_GB = 10**9
_TARGETS: Final = ("laptop", "marenostrum3")  # suggested: the second has more than 8 cores


def trace(options: argparse.Namespace) -> int:
    """Run, read, write; the program's output is its own. Exit status 1 if the program failed."""
    cache = options.cache or default_cache()
    if options.flags:
        from manyscale.runner.tracers import coverage_flags

        print(shlex.join(coverage_flags.flags(build.coverage_stub(cache), counting=options.flags == "counting")))
        return 0
    if options.output is None:
        raise UserError("no folder to write; name it with -o DIR")
    command = _command(options)
    program = launch.find_program(command, options.mpi)
    _numbers(options.ranks, "--ranks", 0)
    _numbers(options.iterations, "--iterations", 1)
    if options.level == "stacks":
        return _stacks(options, command, program)
    if options.level == "detailed" and options.route != "coverage":
        from manyscale.runner.tracers import emulated

        emulated.check(command, program)
    directory = rundir.new_directory(options.output, "trace", resume=False)
    try:
        workload, status = _record(options, command, program, directory, cache)
    except UserError as error:
        if any((directory / RAW).rglob("*.trace")):
            raise UserError(f"{error} (what was recorded is kept in {directory / RAW})") from None
        shutil.rmtree(directory)
        raise
    return _write(workload, directory, status, options)


def _record(
    options: argparse.Namespace, command: Sequence[str], program: launch.Program, directory: Path, cache: Path
) -> tuple[Workload, int]:
    """The workload, and the program's exit status."""
    first, second = directory / RAW / "burst", directory / RAW / "detailed"
    level = "tasks" if options.level == "detailed" else options.level
    status = _run(command, program, first, level, options, cache)
    workload = native.read(first)
    if options.level != "detailed" or status:
        return workload, status
    if options.route != "coverage":
        from manyscale.runner.tracers import emulated

        limit = None if options.max_gb is None else int(options.max_gb * _GB)
        second.mkdir()
        return emulated.add_detail(workload, options.route, command, second, options.function, cache, limit)
    from manyscale.runner.tracers.detailed import add_detail, window_lines

    ranks = _numbers(options.ranks or "0", "--ranks", 0) or list(range(workload.num_ranks))
    windows = window_lines(workload, first, ranks, _numbers(options.iterations, "--iterations", 1))
    status = _run(command, program, second, "detailed", options, cache, windows)
    return add_detail(workload, first, second, directory / workload_folder.DETAIL, options.counting), status


def _write(workload: Workload, directory: Path, status: int, options: argparse.Namespace) -> int:
    workload_folder.write(workload, directory)
    if not options.keep_raw:
        shutil.rmtree(directory / RAW)
    _tell(workload, directory, options)
    if status:
        print(f"note: the program ended with {_ending(status)}; the trace holds what it did before", file=sys.stderr)
    return 1 if status else 0


def _command(options: argparse.Namespace) -> list[str]:
    words = list(options.program)
    return words[1:] if words[:1] == ["--"] else words


def _numbers(text: str | None, option: str, least: int) -> list[int] | None:
    """A list like 0,5,8-11; None for "all" or none given."""
    if text is None or text == "all":
        return None
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(first) < least:
            raise UserError(
                f"{option} {text}: is no list of numbers from {least}, such as {least},{least + 3}-{least + 5}"
            )
        numbers += range(int(first), int(last if dash else first) + 1)
    return sorted(set(numbers))


def _run(
    command: Sequence[str],
    program: launch.Program,
    directory: Path,
    level: str,
    options: argparse.Namespace,
    cache: Path,
    windows: Sequence[str] | None = None,
) -> int:
    """Run the command once under the tracer; its exit status, negative for a signal."""
    directory.mkdir(parents=True)
    environment = {
        "MANYSCALE_TRACE_DIR": str(directory.resolve()),
        "MANYSCALE_TRACE_LEVEL": str(LEVELS[level]),
    }
    preloaded = [str(build.tracer(program.library, cache))]
    if LEVELS[level] >= LEVELS["tasks"]:
        environment |= launch.ONE_THREAD
        preloaded += [str(launch.libomp())] if program.runtime == "libgomp" else []
    if windows is not None:
        (directory / "windows").write_text("".join(f"{line}\n" for line in windows))
        environment["MANYSCALE_TRACE_WINDOWS"] = str((directory / "windows").resolve())
        environment |= {"MANYSCALE_TRACE_REGIONS": options.regions} if options.regions else {}
    if options.max_gb is not None:
        (directory / "budget").write_bytes(int(options.max_gb * _GB).to_bytes(8, "little"))
        environment["MANYSCALE_TRACE_BUDGET"] = str((directory / "budget").resolve())
    environment["LD_PRELOAD"] = ":".join([*preloaded, *filter(None, [os.environ.get("LD_PRELOAD")])])
    header: dict[str, Any] = {
        "format": native_files.FORMAT,
        "version": native_files.VERSION,
        "name": options.output.resolve().name,
        "level": level,
        "command": list(command),
        "library": program.library,
        "runtime": program.runtime,
    }
    rundir.write_atomically(directory / native_files.HEADER, json.dumps(header, indent=1) + "\n")
    run = launch.traced_command(command, program, environment)
    print(f"manyscale: tracing at level {level}: {shlex.join(command)}", file=sys.stderr, flush=True)
    child = subprocess.Popen(run)
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:  # the terminal told the program, too; what it did until then is the trace
            continue


def _stacks(options: argparse.Namespace, command: Sequence[str], program: launch.Program) -> int:
    """The level of call stacks: a profiler is put before the program."""
    from manyscale.runner.readers.stacks import folder as stack_folder
    from manyscale.runner.tracers import stacks

    try:
        sampling = stacks.Sampling(options.unit_instructions, parse_time_ps(options.unit_time), options.snapshots)
    except ValueError as error:
        raise UserError(f"command line: {error}") from None
    directory = rundir.new_directory(options.output, "trace", resume=False)
    raw = directory / RAW
    status = stacks.record(command, raw, options.source, sampling, program.words or (0,))
    workload = replace(stack_folder.read(raw), name=directory.resolve().name)
    return _write(workload, directory, status, options)


def _tell(workload: Workload, directory: Path, options: argparse.Namespace) -> None:
    for note in workload.notes:
        print(f"note: {note}")
    print(f"{counted(workload)}: {directory}")
    named = shlex.quote(str(directory))
    if options.level == "detailed" and options.route == "coverage" and workload.detail is not None:
        print(
            f"next: manyscale run --workload TRACE --set workload.detail={named} --model cpu=detailed "
            f"--target {_TARGETS[True]}, where TRACE is one at --level tasks of the usual build"
        )
        return
    print(f"next: manyscale run --workload {named} --target {_TARGETS[workload.num_ranks > 8]}")


def _ending(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"
