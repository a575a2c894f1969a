"""``manyscale report``: timeline traces and the report of a finished run."""

from __future__ import annotations

import argparse
from pathlib import Path

from manyscale.runner.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, help="run directory")


def run(options: argparse.Namespace) -> int:
    """The study again, with every output; what is stored is not simulated again."""
    from manyscale.runner.run import directory as rundir
    from manyscale.runner.run import study_runs

    manifest = rundir.read_manifest(options.directory)
    if manifest["status"] != "complete":
        raise UserError(f"{options.directory}: the run is {manifest['status']}; finish it with run --resume -o DIR")
    content = rundir.read_resolved(options.directory)
    place = str(options.directory / rundir.RESOLVED)
    chosen = study_runs.Options(output=options.directory, executor="local", resume=True)
    finished = study_runs.run_study(content, place, None, chosen)
    print(f"report: {finished.directory}/report.html")
    return 0
