"""``manyscale convert``: any format that is read, in any that is written."""

from __future__ import annotations

import argparse

from manyscale.runner.cli.options import add_format, add_output, add_set, add_time
from manyscale.runner.cli.progress import progress_bar


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", help="the trace")
    add_output(parser, None)
    add_format(parser)
    parser.add_argument("--to", default="workload", metavar="NAME", help="format to write (default: workload)")
    parser.add_argument("--flop-rate", default="1 Gflop/s", metavar="RATE", help="speed behind a trace's flop counts")
    parser.add_argument("--time-unit", default="1 ns", metavar="TIME", help="unit of a format that names none (goal)")
    parser.add_argument(
        "--target", metavar="NAME",
        help="machine whose collectives are written as messages (goal): a shipped name or a YAML file (default: none)",
    )  # fmt: skip
    add_set(parser, "workload.polls=keep", "of a study, to settle what the trace leaves open")
    add_time(parser)
    parser.add_argument("--application", type=int, default=1, metavar="N", help="which one of a trace with several")


def run(options: argparse.Namespace) -> int:
    """Read, write and count."""
    from manyscale.runner.api.traces import convert
    from manyscale.runner.study import parse_assignment
    from manyscale.runner.study.traces import counted

    with progress_bar() as progress:
        found = convert(
            options.trace, options.output, to=options.to, format=options.format, flop_rate=options.flop_rate,
            time_unit=options.time_unit, time=options.time or "auto", application=options.application,
            target=options.target, set=dict(parse_assignment(text) for text in options.assignments), progress=progress,
        )  # fmt: skip
    for note in found.notes:
        print(f"note: {note}")
    print(f"{counted(found.workload)}: {found.path}")
    return 0
