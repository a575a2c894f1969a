"""``manyscale trace``: run a program under the tracer and write the workload that the pipe reads."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from manyscale.runner.cli.options import add_cache, parse_numbers, parse_steps
from manyscale.runner.cli.parser import Parser
from manyscale.runner.errors import UserError

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

# suggested: the second has more than 8 cores, and what simulated cores need; the third is of AArch64
_LAPTOP, _CLUSTER, _ARM = "laptop", "marenostrum3", "altra-q80"


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "--level", default="mpi", choices=("mpi", "tasks", "detailed", "stacks", "gpu"),
        help="what is recorded (default: mpi)",
    )  # fmt: skip
    parser.add_argument("--ranks", metavar="LIST", help="ranks of the detailed level, such as 0,5 or all (default: 0)")
    parser.add_argument(
        "--iterations", default="2", metavar="LIST",
        help="iterations of the detailed level, from 1, or all (default: 2, the first is not representative)",
    )  # fmt: skip
    parser.add_argument(
        "--regions", metavar="LIST",
        help="marked regions of the detailed level, such as solve,halo; of --level gpu: NVTX ranges, or profiler "
        "(cudaProfilerStart to cudaProfilerStop)",
    )  # fmt: skip
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
    parser.add_argument(
        "--counters", metavar="LIST",
        help="hardware or software, or names such as instructions,cache-misses: counted in each phase, and from level "
        "tasks on in each task instance and chunk",
    )  # fmt: skip
    parser.add_argument(
        "--disk-gb", type=float, dest="max_gb", metavar="N", help="stop recording at N GB on disk (default: no limit)"
    )
    parser.add_former("--max-gb", "--disk-gb")
    parser.add_argument("--mpi", choices=("mpich", "openmpi"), help="the program's MPI (default: found out)")
    parser.add_argument("--keep-raw", action="store_true", help="keep the tracer's files, in raw/")
    parser.add_argument(
        "--as", dest="shown", default="rtx3070", metavar="TARGET",
        help="of --level gpu: the target whose GPU the CUDA program is shown (default: rtx3070)",
    )  # fmt: skip
    parser.add_argument(
        "--launches", metavar="LIST",
        help="of --level gpu: launches whose instructions are recorded, such as 1,5-8, or tbpoint: representatives "
        "(two runs); the others are counted, and predicted by these (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", type=int, metavar="N",
        help="of --level gpu: GPUs that the program is shown (default: those of a node of the target)",
    )  # fmt: skip
    parser.add_argument(
        "--blocks", metavar="LIST",
        help="of --level gpu: blocks of each launch whose instructions are recorded, such as 0-4095, or ::16 for each "
        "16th; the others are counted (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--check-memory", action="store_true",
        help="of --level gpu: stop at an access to what is not allocated, even where hardware would not notice",
    )  # fmt: skip
    parser.add_argument(
        "--keep-addresses", action="store_true",
        help="of --level gpu: keep the tracer's files, in raw/, and in them all addresses, for convert --to accelsim",
    )  # fmt: skip
    parser.add_argument(
        "--workers", type=int, default=1, metavar="N",
        help="of --level gpu: threads that run blocks of a launch; the trace is the same for any number (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--nvcc", nargs="?", const="flags", choices=("flags", "path"),
        help="print what nvcc needs to link a program that --level gpu can trace, or where nvcc is",
    )  # fmt: skip
    add_cache(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder to write")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to run")


def run(options: argparse.Namespace) -> int:
    """Run, read, write; the program's output is its own. Exit status 1 if the program failed."""
    from manyscale.runner.api.inputs import tools_folder
    from manyscale.runner.api.traces import trace
    from manyscale.runner.tracers import build

    if options.flags:
        stub = build.coverage_stub(tools_folder(options.cache))
        print(shlex.join(build.coverage_flags(stub, counting=options.flags == "counting")))
        return 0
    if options.nvcc:
        from manyscale.runner.tracers.cuda import compiler

        kit = compiler.toolkit()
        is_path = options.nvcc == "path"
        print(kit.tool("nvcc") if is_path else shlex.join(compiler.flags(kit, tools_folder(options.cache))))
        return 0
    if options.output is None:
        raise UserError("no folder to write; name it with -o DIR")
    command = options.program[1:] if options.program[:1] == ["--"] else options.program
    found = trace(
        command, options.output, level=options.level,
        ranks=_numbers(options.ranks or "0", "--ranks", 0), iterations=_numbers(options.iterations, "--iterations", 1),
        regions=options.regions, route=options.route, function=options.function, counting=options.counting,
        source=options.source, unit_instructions=options.unit_instructions, unit_time=options.unit_time,
        snapshots=options.snapshots, counters=options.counters,
        max_gb=options.max_gb, mpi=options.mpi, keep_raw=options.keep_raw,
        launches=_launches(options.launches),
        blocks=None if options.blocks is None else parse_steps(options.blocks, "--blocks"),
        shown=options.shown, gpus=options.gpus,
        check_memory=options.check_memory, keep_addresses=options.keep_addresses,
        workers=options.workers, cache=options.cache, progress=True,
    )  # fmt: skip
    from manyscale.runner.tracers.emulated import foreign_program

    target = options.shown if options.level == "gpu" else _ARM if foreign_program(command) else None
    is_built_so = options.level == "detailed" and options.route == "coverage"
    _tell(found.workload, found.path, is_built_so=is_built_so, target=target)
    if found.status:
        ending = f"signal {-found.status}" if found.status < 0 else f"exit status {found.status}"
        print(f"note: the program ended with {ending}; the trace holds what it did before", file=sys.stderr)
    return 1 if found.status else 0


def _numbers(text: str, option: str, least: int) -> list[int] | None:
    """A list like 0,5,8-11; None for "all"."""
    return None if text == "all" else sorted(set(parse_numbers(text, option, least)))


def _launches(text: str | None) -> list[int] | Literal["tbpoint"] | None:
    return "tbpoint" if text == "tbpoint" else None if text is None else _numbers(text, "--launches", 1)


def _tell(workload: Workload, directory: Path, *, is_built_so: bool, target: str | None) -> None:
    """``is_built_so``: the program was built for the detailed level; ``target``: the only one that suits it."""
    from manyscale.runner.study.traces import counted

    for note in workload.notes:
        print(f"note: {note}")
    print(f"{counted(workload)}: {directory}")
    named, behind = shlex.quote(str(directory)), ""
    words = f"--workload {named}"
    is_detailed = workload.detail is not None and workload.tables["instructions"].num_rows > 0
    if is_detailed and is_built_so:
        words = f"--workload TRACE --set workload.detail={named}"
        behind = ", where TRACE is one at --level tasks of the usual build"
    if is_detailed:
        words += " --model cpu=detailed"
    target = target or (_CLUSTER if is_detailed or workload.num_ranks > 8 else _LAPTOP)
    print(f"next: manyscale run {words} --target {shlex.quote(target)}{behind}")
