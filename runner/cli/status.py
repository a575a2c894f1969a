"""``manyscale status``: how far a run is."""

from __future__ import annotations

import argparse

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import at, place


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=place, help="run directory")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Count what the journal says, and tell what the run itself said last."""
    from manyscale.runner.api.finished import status

    found = status(options.directory)
    show(options, found)
    counted = ", ".join(f"{count} {state}" for state, count in found.counts.items())
    print(f"{at(options.directory)}: {found.state}; {len(found.units)} units finished ({counted})")
    if found.num_damaged:
        print(f"{found.num_damaged} damaged lines of units.jsonl are left out")
    if found.num_points:
        print(f"{found.num_points} sweep points written")
    for line in found.lines:
        print(line)
    return 0
