"""``manyscale evaluate``: samples of profiles, or of task instances, against what they stand for; predicted launches
against measured ones."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import (
    add_cache,
    add_notes,
    add_output,
    add_report,
    add_set,
    add_target,
    at,
    print_notes,
)
from manyscale.runner.cli.parser import Parser
from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError
from manyscale.runner.input_kinds import evaluate_table

FORMER_TARGET: Final = "grass-high-performance"


def arguments(parser: Parser) -> None:
    parser.add_argument(
        "traces", nargs="+", metavar="TRACE",
        help="traces with tasks and their detailed level; or profiles of intervals, call stacks or kernel launches "
        "with known cycles; or run directories, whose launches are compared with measured ones (--cycles)",
    )  # fmt: skip
    add_target(parser, "of traces with tasks, the machine", former=FORMER_TARGET)
    parser.add_argument("--cores", default="8,16,32,64", metavar="LIST", help="cores of a rank (default: 8,16,32,64)")
    parser.add_argument(
        "--method", dest="methods", metavar="LIST",
        help="methods to judge, separated by commas (see below; default: those that fit the input)",
    )  # fmt: skip
    parser.add_former("--methods", "--method")
    parser.table = evaluate_table
    parser.add_argument(
        "--on", action="append", metavar="OTHER",
        help="of profiles: judge by this machine's profile, or table of counters, of the same intervals",
    )  # fmt: skip
    parser.add_argument(
        "--cycles", type=Path, metavar="FILE",
        help="of kernel launches: table with launch_id and cycles (CSV, Parquet); of run directories: that, or what "
        "Nsight Compute (ncu --csv) or nvprof (--csv --print-gpu-trace) measured of the same launches",
    )  # fmt: skip
    parser.add_argument(
        "--draws", type=int, default=10, metavar="N",
        help="draws of each method on a profile, with seeds from 0 (default: 10)",
    )  # fmt: skip
    parser.add_former("--seeds", "--draws")
    parser.add_argument(
        "--sampling", action="append", default=[], metavar="LEVEL=METHOD",
        help="of traces with tasks, which iterations are simulated (default: iterations=joined)",
    )  # fmt: skip
    parser.add_former("--iterations", "--sampling", "iterations=")
    add_set(parser, "taskpoint.history=8", "of the studies of traces with tasks")
    add_output(parser, "runs/evaluation-NNN")
    add_cache(parser)
    add_notes(parser)
    add_report(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Evaluate, write and print."""
    from manyscale.runner.api.evaluations import evaluate
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.run.directory import is_run
    from manyscale.runner.run.evaluation.profiles import is_profile
    from manyscale.runner.study import parse_assignment

    are_runs = any(is_run(Path(each)) for each in options.traces)
    are_profiles = are_runs or all(map(is_profile, options.traces))
    if are_profiles and (options.assignments or options.sampling):
        what = "runs" if are_runs else "profiles"
        raise UserError(f"--set, --sampling: are of traces with tasks; these are {what}")
    if options.target is None and not are_profiles:
        options.told.append(f"no --target: {FORMER_TARGET}, as before; name it from the next release on")
    target = options.target or FORMER_TARGET
    with progress_bar() as progress:
        found = evaluate(
            options.traces, options.output or NUMBERED, target=target, cores=_cores(options.cores),
            methods=options.methods.split(",") if options.methods else None, on=options.on, cycles=options.cycles,
            draws=options.draws, iterations=_iterations(options.sampling),
            set=dict(parse_assignment(text) for text in options.assignments), cache=options.cache,
            report=not options.no_report, accept=options.accept, strict=options.strict, progress=progress,
        )  # fmt: skip
    show(options, found)
    print(found.summary, end="")
    print(f"results: {at(found.directory)}")
    print_notes(found.notes)
    return 0


def _iterations(given: Sequence[str]) -> str:
    """What ``--sampling`` says of iterations. Raises UserError for another level."""
    from manyscale.runner.study import parse_assignment

    chosen = "joined"
    for text in given:
        level, method = parse_assignment(text, "--sampling")
        if level != "iterations":
            raise UserError(f"--sampling {text}: evaluate samples tasks by --method; choose iterations=METHOD here")
        chosen = str(method)
    return chosen


def _cores(text: str) -> list[int]:
    numbers = [int(each) if each.strip().isdigit() else 0 for each in text.split(",")]
    if not all(numbers):
        raise UserError(f"--cores {text!r}: write numbers of at least 1, such as 8,16,32,64")
    return numbers
