"""``manyscale evaluate``: samples of profiles, or of task instances, against what they stand for."""

from __future__ import annotations

import argparse
from pathlib import Path

from manyscale.runner.cli.options import add_cache, add_notes, print_notes
from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", nargs="+", metavar="TRACE",
        help="traces with tasks and their detailed level; or profiles of intervals, call stacks or kernel launches "
        "with known cycles",
    )  # fmt: skip
    parser.add_argument(
        "--target", default="grass-high-performance", metavar="NAME", help="machine (default: grass-high-performance)"
    )
    parser.add_argument("--cores", default="8,16,32,64", metavar="LIST", help="cores of a rank (default: 8,16,32,64)")
    parser.add_argument(
        "--methods", metavar="LIST",
        help="lazy or periodic, with any of +source (its parameters), +types, +classes, +model, +stale, +warm, "
        "+settle, +unsettled; or interval. Of profiles: those of plan --method",
    )  # fmt: skip
    parser.add_argument(
        "--on", action="append", metavar="OTHER",
        help="of profiles: judge by this machine's profile, or table of counters, of the same intervals",
    )  # fmt: skip
    parser.add_argument(
        "--cycles", type=Path, metavar="FILE", help="of kernel launches: table with launch_id and cycles (CSV, Parquet)"
    )
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="draws of each method on a profile (10)")
    parser.add_argument(
        "--iterations", default="joined", metavar="METHOD", help="what is simulated, as sampling.iterations says"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE",
        help="replace one key of the studies, e.g. taskpoint.history=8",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder (default: runs/evaluation-NNN)")
    add_cache(parser)
    add_notes(parser)
    parser.add_argument("--no-report", action="store_true", help="leave out the page, report.html")


def run(options: argparse.Namespace) -> int:
    """Evaluate, write and print."""
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.api.plans import evaluate
    from manyscale.runner.study import parse_assignment

    with progress_bar() as progress:
        found = evaluate(
            options.traces, options.output or NUMBERED, target=options.target, cores=_cores(options.cores),
            methods=options.methods.split(",") if options.methods else None, on=options.on, cycles=options.cycles,
            seeds=options.seeds, iterations=options.iterations,
            set=dict(parse_assignment(text) for text in options.assignments), cache=options.cache,
            report=not options.no_report, accept=options.accept, strict=options.strict, progress=progress,
        )  # fmt: skip
    print(found.summary, end="")
    print(f"results: {found.directory}")
    print_notes(found.notes)
    return 0


def _cores(text: str) -> list[int]:
    numbers = [int(each) if each.strip().isdigit() else 0 for each in text.split(",")]
    if not all(numbers):
        raise UserError(f"--cores {text!r}: write numbers of at least 1, such as 8,16,32,64")
    return numbers
