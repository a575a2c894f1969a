"""``manyscale trace``: run a program under the tracer and write the workload that the pipe reads."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.cli.options import add_cache
from manyscale.runner.errors import UserError

if TYPE_CHECKING:
    from manyscale.models.workload import Workload
    from manyscale.runner.tracers.session import Recording

_GB: Final = 10**9
_TARGETS: Final = ("laptop", "marenostrum3")  # suggested: the second has more than 8 cores


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--level", default="mpi", choices=("mpi", "tasks", "detailed", "stacks", "gpu"),
        help="what is recorded (default: mpi)",
    )  # fmt: skip
    parser.add_argument("--ranks", metavar="LIST", help="ranks of the detailed level, such as 0,5 or all (default: 0)")
    parser.add_argument(
        "--iterations", default="2", metavar="LIST",
        help="iterations of the detailed level, from 1, or all (default: 2, the first is not representative)",
    )  # fmt: skip
    parser.add_argument("--regions", metavar="LIST", help="marked regions of the detailed level, such as solve,halo")
    parser.add_argument(
        "--route", default="coverage", choices=("coverage", "qemu", "valgrind"),
        help="how the detailed level records: the program built with --flags detailed (default), or as it is",
    )  # fmt: skip
    parser.add_argument("--function", metavar="NAME", help="what qemu and valgrind record (default: the whole program)")
    parser.add_argument("--counting", type=Path, metavar="FILE", help="the program built with --flags counting")
    parser.add_argument(
        "--flags", choices=("detailed", "counting"), help="print what clang needs to build a program for a level"
    )
    parser.add_argument(
        "--source", default="auto", choices=("auto", "perf", "py-spy", "jfr"), help="profiler of --level stacks"
    )
    parser.add_argument(
        "--unit-instructions", type=int, default=100_000_000, metavar="N", help="a sampling unit (default: 100 million)"
    )
    parser.add_argument(
        "--unit-time", default="100 ms", metavar="TIME",
        help="a unit where no instructions are counted (default: 100 ms)",
    )  # fmt: skip
    parser.add_argument("--snapshots", type=int, default=10, metavar="N", help="call stacks per unit (default: 10)")
    parser.add_argument("--max-gb", type=float, metavar="N", help="stop recording at N GB on disk (default: no limit)")
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), help="the program's MPI (default: found out)")
    parser.add_argument("--keep-raw", action="store_true", help="keep the tracer's files, in raw/")
    parser.add_argument(
        "--as", dest="shown", default="rtx3070", metavar="TARGET",
        help="of --level gpu: the target whose GPU the CUDA program is shown (default: rtx3070)",
    )  # fmt: skip
    parser.add_argument(
        "--check-memory", action="store_true",
        help="of --level gpu: stop at an access to what is not allocated, even where hardware would not notice",
    )  # fmt: skip
    parser.add_argument(
        "--nvcc", action="store_true", help="print what nvcc needs to link a program that --level gpu can trace"
    )
    add_cache(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder to write")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to run")


def run(options: argparse.Namespace) -> int:
    """Run, read, write; the program's output is its own. Exit status 1 if the program failed."""
    from manyscale.runner.cache import default_cache
    from manyscale.runner.run import directory as rundir
    from manyscale.runner.tracers import build, session

    cache = options.cache or default_cache()
    if options.flags:
        print(shlex.join(build.coverage_flags(build.coverage_stub(cache), counting=options.flags == "counting")))
        return 0
    if options.nvcc:
        from manyscale.runner.tracers.cuda import compiler

        print(shlex.join(compiler.flags(compiler.toolkit(), cache)))
        return 0
    if options.output is None:
        raise UserError("no folder to write; name it with -o DIR")
    command = options.program[1:] if options.program[:1] == ["--"] else options.program
    if options.level == "gpu":
        return _run_on_gpu(options, command, options.output, cache)
    what = _recording(options)
    program = session.find_program(command, what, options.mpi)
    directory = rundir.new_directory(options.output, "trace", resume=False)
    workload, status = session.trace(command, program, what, directory, cache, keep_raw=options.keep_raw)
    _tell(workload, what, directory)
    return _ended(status)


def _run_on_gpu(options: argparse.Namespace, command: list[str], output: Path, cache: Path) -> int:
    from manyscale.runner.run import directory as rundir
    from manyscale.runner.study.shown_device import shown_device
    from manyscale.runner.study.traces import counted
    from manyscale.runner.tracers.cuda import session

    device = shown_device(options.shown)
    program, kit = session.find_program(command)
    directory = rundir.new_directory(output, "trace", resume=False)
    workload, status = session.trace(
        command, program, kit, device, directory, cache,
        keep_raw=options.keep_raw, checks_memory=options.check_memory,
    )  # fmt: skip
    for note in workload.notes:
        print(f"note: {note}")
    print(f"{counted(workload)}: {directory}")
    print(f"next: manyscale run --workload {shlex.quote(str(directory))} --target {shlex.quote(options.shown)}")
    return _ended(status)


def _ended(status: int) -> int:
    """The exit status for that of the program."""
    if status:
        ending = f"signal {-status}" if status < 0 else f"exit status {status}"
        print(f"note: the program ended with {ending}; the trace holds what it did before", file=sys.stderr)
    return 1 if status else 0


def _recording(options: argparse.Namespace) -> Recording:
    from manyscale.models.workload.quantities import parse_time_ps
    from manyscale.runner.tracers.session import Recording
    from manyscale.runner.tracers.stacks import DEFAULT_SAMPLING, Sampling

    sampling = DEFAULT_SAMPLING
    if options.level == "stacks":
        try:
            sampling = Sampling(options.unit_instructions, parse_time_ps(options.unit_time), options.snapshots)
        except ValueError as error:
            raise UserError(f"command line: {error}") from None
    return Recording(
        level=options.level,
        ranks=_numbers(options.ranks or "0", "--ranks", 0),
        iterations=_numbers(options.iterations, "--iterations", 1),
        regions=options.regions,
        route=options.route,
        function=options.function,
        counting=options.counting,
        source=options.source,
        sampling=sampling,
        max_bytes=None if options.max_gb is None else int(options.max_gb * _GB),
    )


def _numbers(text: str, option: str, least: int) -> list[int] | None:
    """A list like 0,5,8-11; None for "all"."""
    if text == "all":
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


def _tell(workload: Workload, what: Recording, directory: Path) -> None:
    from manyscale.runner.study.traces import counted

    for note in workload.notes:
        print(f"note: {note}")
    print(f"{counted(workload)}: {directory}")
    named = shlex.quote(str(directory))
    if what.level == "detailed" and not what.is_emulated and workload.detail is not None:
        print(
            f"next: manyscale run --workload TRACE --set workload.detail={named} --model cpu=detailed "
            f"--target {_TARGETS[True]}, where TRACE is one at --level tasks of the usual build"
        )
        return
    print(f"next: manyscale run --workload {named} --target {_TARGETS[workload.num_ranks > 8]}")
