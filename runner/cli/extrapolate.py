"""``manyscale extrapolate``: a workload for more ranks than were traced: from traces of one program on fewer, or from
one trace of ranks that drive GPUs."""

from __future__ import annotations

import argparse

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import add_format, add_output, add_seed
from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError

SPREADS = ("fitted", "measured", "none")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", nargs="+", metavar="TRACE", help="traces of different numbers of ranks, or one of GPUs"
    )
    parser.add_argument(
        "--ranks", type=int, metavar="N", help="ranks of the workload that is made (with --groups: by these)"
    )
    parser.add_argument(
        "--grid", metavar="XxYxZ", help="its grid, the first number varies fastest (default: as the largest trace's)"
    )
    parser.add_argument(
        "--groups",
        metavar="NAME=N,...",
        help="of a trace of GPUs: sizes of its groups, e.g. tp=8,dp=64,pp=4; the first varies fastest, what is not "
        "named keeps its size",
    )
    parser.add_argument(
        "--traced", metavar="NAME=N,...", help="groups of that trace (default: as its communicators say)"
    )
    parser.add_argument(
        "--role",
        action="append",
        default=[],
        metavar="RANK=OTHER",
        help="a missing rank of that trace behaves as another one: 3=0, or 4-7=0; may be repeated",
    )
    parser.add_argument(
        "--spread",
        choices=SPREADS,
        default="fitted",
        help="speeds of new ranks: drawn from what was fitted to like ranks (default), from those measured, or none",
    )
    add_seed(parser)
    add_format(parser)
    add_output(parser, None)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Read the traces, write the workload and its figures, and print the table."""
    from manyscale.runner.api.traces import EXTRAPOLATION, extrapolate
    from manyscale.runner.run.extrapolation.roles.layout import parsed
    from manyscale.runner.run.extrapolation.roles.wanted import parsed_roles

    shape = None if options.grid is None else _shape(options.grid)
    groups = None if options.groups is None else parsed(options.groups, "--groups")
    traced = None if options.traced is None else parsed(options.traced, "--traced")
    with progress_bar() as progress:
        found = extrapolate(
            options.traces,
            options.ranks,
            options.output,
            grid=shape,
            groups=groups,
            traced=traced,
            roles=parsed_roles(options.role),
            spread=options.spread,
            seed=options.seed or 0,
            format=options.format,
            progress=progress,
        )
    show(options, found)
    print(found.summary())
    print(f"workload: {found.path}; figures: {found.path / EXTRAPOLATION}")
    return 0


def _shape(given: str) -> list[int]:
    parts = given.lower().split("x")
    if not 1 <= len(parts) <= 3 or not all(part.isdecimal() and part.isascii() and int(part) for part in parts):
        raise UserError(f"--grid {given}: write one to three positive numbers, e.g. 6x6x6 (the first varies fastest)")
    return [int(part) for part in parts]
