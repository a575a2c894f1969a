"""``manyscale extrapolate``: a workload for more ranks than were traced, from traces of one program on fewer."""

from __future__ import annotations

import argparse

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import add_format, add_output
from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="traces of different numbers of ranks")
    parser.add_argument("--ranks", type=int, metavar="N", required=True, help="ranks of the workload that is made")
    parser.add_argument(
        "--grid", metavar="XxYxZ", help="its grid, the first number varies fastest (default: as the largest trace's)"
    )
    add_format(parser)
    add_output(parser, None)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Read the traces, write the workload and its figures, and print the table."""
    from manyscale.runner.api.traces import EXTRAPOLATION, extrapolate

    shape = None if options.grid is None else _shape(options.grid)
    with progress_bar() as progress:
        found = extrapolate(
            options.traces, options.ranks, options.output, grid=shape, format=options.format, progress=progress
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
