"""``manyscale plan``: which elements a study, or a method on a profile or trace, would simulate."""

from __future__ import annotations

import argparse
from pathlib import Path

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import (
    add_notes,
    add_output,
    add_report,
    add_study,
    launch_numbers,
    print_notes,
    study_content,
)
from manyscale.runner.cli.parser import Parser
from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError
from manyscale.runner.input_kinds import plan_table


def arguments(parser: Parser) -> None:
    add_study(parser)
    add_notes(parser)
    add_output(parser, None, "folder for plan.parquet; with --method, too, a file that ends in .parquet")
    parser.add_argument(
        "--method", metavar="NAME",
        help="choose by this method of a profile or trace, named instead of a study (see below); --set KEY=VALUE then "
        "sets a rule of the method",
    )  # fmt: skip
    parser.table = plan_table
    parser.add_argument(
        "--cycles", type=Path, metavar="FILE", help="of kernel launches: table with launch_id and cycles (CSV, Parquet)"
    )
    parser.add_argument(
        "--export", metavar="LIST", help="of --method: write it for gem5, pinpoints, sniper; bb, projection: its input"
    )
    parser.add_argument(
        "--warmup", type=int, default=0, metavar="N", help="intervals that exports run before each one for its caches"
    )
    parser.add_argument(
        "--sensitivity", action="append", default=[], metavar="PROFILE",
        help="of --method simprof: a profile on another input; which phases change, and what stands for it",
    )  # fmt: skip
    parser.add_argument(
        "--measured", type=Path, metavar="FILE",
        help="of --method simprof: CSV of unit,cpi that were simulated; whether they are enough, and which are next",
    )  # fmt: skip
    parser.add_argument(
        "--projection", type=Path, metavar="FILE", help="of --method: SimPoint's projection matrix to use"
    )
    add_report(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Plan, write and print."""
    from manyscale.runner.api import plans
    from manyscale.runner.study import parse_assignment

    of_method = {
        "cycles": options.cycles, "exports": () if options.export is None else options.export.split(","),
        "warmup": options.warmup, "projection": options.projection, "sensitivity": options.sensitivity,
        "measured": options.measured,
    }  # fmt: skip
    if options.method is None:
        plans.refuse_without_method(**of_method)
        with progress_bar() as progress:
            found = plans.planned(
                study_content(options), options.output, cache=options.cache, report=not options.no_report,
                accept=options.accept, strict=options.strict, yes=options.yes, progress=progress,
            )  # fmt: skip
        show(options, found)
        print(f"{found.summary}: {found.directory}/plan.parquet")
    else:
        path = options.study or options.workload
        if path is None:
            what = plans.kind_of_input(options.method)
            raise UserError(f"--method needs a {what}: manyscale plan --method {options.method} {what.upper()} -o DIR")
        with progress_bar() as progress:
            found = plans.plan(
                path, options.method, options.output, target=options.target, format=options.format,
                launches=None if options.launch is None else launch_numbers(options.launch),
                set=dict(parse_assignment(text) for text in options.assignments), seed=options.seed,
                cache=options.cache, report=not options.no_report, accept=options.accept, strict=options.strict,
                progress=progress, **of_method,
            )  # fmt: skip
        show(options, found)
        print(f"{found.summary}\nresults: {found.file}")
    print_notes(found.notes)
    return 0
