"""``manyscale show``: what a trace holds, before anything is predicted."""

from __future__ import annotations

import argparse

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import add_cache, add_format, add_output, add_report, add_time, at, print_notes
from manyscale.runner.cli.progress import progress_bar


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", metavar="TRACE", help="the trace, of any kind that run takes")
    add_output(parser, "runs/NAME-show-NNN")
    add_format(parser)
    add_time(parser)
    add_cache(parser)
    add_report(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Read, count, write and print."""
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.api.shown_workload import show as shown

    with progress_bar() as progress:
        found = shown(
            options.workload, options.output or NUMBERED, format=options.format, time=options.time or "auto",
            cache=options.cache, report=not options.no_report, progress=progress,
        )  # fmt: skip
    show(options, found)
    print(found.summary())
    print(f"results: {at(found.directory)}")
    print_notes(found.notes)
    return 0
