"""``manyscale extrapolate``: a workload for more ranks than were traced, from traces of one program on fewer."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

FIGURES: Final = "extrapolation.json"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="traces of different numbers of ranks")
    parser.add_argument("--ranks", type=int, metavar="N", required=True, help="ranks of the workload that is made")
    parser.add_argument(
        "--grid", metavar="XxYxZ", help="its grid, the first number varies fastest (default: as the largest trace's)"
    )
    parser.add_argument("--format", default="auto", metavar="NAME", help="format of the traces (default: found)")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="folder to write")


def run(options: argparse.Namespace) -> int:
    """Read the traces, write the workload and its figures, and print the table."""
    from manyscale.models.workload import MAX_RANKS
    from manyscale.runner.readers import workload_folder
    from manyscale.runner.run import directory as rundir
    from manyscale.runner.run.extrapolation import extrapolation
    from manyscale.runner.run.extrapolation.quality import figures, printed
    from manyscale.runner.study import WorkloadChoice
    from manyscale.runner.study.traces import read_workload

    if not 1 <= options.ranks <= MAX_RANKS:
        raise UserError(f"--ranks {options.ranks}: between 1 and {MAX_RANKS} can be replayed")
    if len(options.traces) < 2:
        raise UserError(f"{options.traces[0]}: one trace has no trend; give traces of two or more numbers of ranks")
    shape = None if options.grid is None else _shape(options.grid)
    read: list[tuple[str, Workload]] = []
    with progress_bar() as progress:
        for path in options.traces:
            progress(len(read), len(options.traces), "reading")
            read.append((path, read_workload(WorkloadChoice(path=path, format=options.format))))
        progress(0, 0, "extrapolating")
        found = extrapolation(read, options.ranks, shape)
    with rundir.new_results(options.output, "extrapolation") as directory:
        rundir.write_atomically(directory / FIGURES, json.dumps(figures(found), indent=1) + "\n")
        workload_folder.write(found.result.workload, directory)
    print(printed(found))
    print(f"workload: {directory}; figures: {directory / FIGURES}")
    return 0


def _shape(given: str) -> tuple[int, int, int]:
    parts = given.lower().split("x")
    if not 1 <= len(parts) <= 3 or not all(part.isdecimal() and part.isascii() and int(part) for part in parts):
        raise UserError(f"--grid {given}: write one to three positive numbers, e.g. 6x6x6 (the first varies fastest)")
    sizes = [*(int(part) for part in parts), 1, 1]
    return (sizes[0], sizes[1], sizes[2])
