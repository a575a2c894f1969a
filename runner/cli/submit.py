"""``manyscale submit``: a study's run as a job of a Ray cluster, from a machine that need not be a node of it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from manyscale.runner.cli.options import (
    add_notes,
    add_report,
    add_self_contained,
    add_study,
    place,
    study_content,
)
from manyscale.runner.errors import TerminationError, UserError

_ON_THE_CLUSTER: Final = ("--executor", "ray", "--address", "auto")


def arguments(parser: argparse.ArgumentParser) -> None:
    _add_of_run(parser)
    parser.add_argument("--dashboard", required=True, metavar="URL", help="the cluster's dashboard: http://HEAD:8265")
    parser.add_argument(
        "-o", "--output", required=True, metavar="PLACE",
        help="run directory: object storage (s3://BUCKET/NAME), or a whole path that the cluster's head sees",
    )  # fmt: skip
    parser.add_argument("--no-wait", action="store_true", help="do not show what the job prints")


def _add_of_run(parser: argparse.ArgumentParser) -> None:
    """What is handed on to the command on the cluster as it was typed."""
    add_study(parser)
    add_notes(parser)
    parser.add_argument("--resume", action="store_true", help="continue the run in -o PLACE")
    add_report(parser)
    add_self_contained(parser)


def run(options: argparse.Namespace) -> int:
    """Check, send and follow."""
    from manyscale.runner.run.execute.ray_jobs import Jobs
    from manyscale.runner.storage.address import shown
    from manyscale.runner.study import parse_study

    folder = _folder(options)
    if not (options.resume and options.study is None and options.workload is None):
        asked = study_content(options)
        parse_study(asked.content, asked.place)
    words = ["manyscale", "run", *_handed_on(options, folder), "-o", _lasting("-o", options.output)]
    if options.cache:
        _lasting("--cache", shown(options.cache))
    jobs = Jobs(options.dashboard)
    job = jobs.submit([*words, *_ON_THE_CLUSTER], folder)
    later = f"look at it with: {jobs.look(job)}; end it with: {jobs.stop(job)}"
    print(f"job {job}, results: {options.output}", flush=True)
    if options.no_wait:
        print(later)
        return 0
    try:
        return jobs.follow(job, lambda text: print(text, end="", flush=True))
    except KeyboardInterrupt as error:
        print(f"manyscale: the job goes on; {later}", file=sys.stderr)
        return 143 if isinstance(error, TerminationError) else 130


def _folder(options: argparse.Namespace) -> Path | None:
    """The folder that is sent along: the study's. A shipped study is there already."""
    path = None if options.study is None else Path(options.study)
    return path.absolute().parent if path is not None and path.is_file() else None


def _handed_on(options: argparse.Namespace, folder: Path | None) -> list[str]:
    """The words of the command, each file by its path from the folder that is sent along."""
    from manyscale.runner.storage.address import shown

    parser = argparse.ArgumentParser(add_help=False)
    _add_of_run(parser)
    words: list[str] = []
    for action in parser._actions:
        value = getattr(options, action.dest)
        if value == action.default:
            continue
        name = action.option_strings[-1:]
        if action.nargs == 0:
            words += name
            continue
        for each in value if isinstance(value, list) else [value]:
            text = shown(each) if isinstance(each, Path) else str(each)
            words += [*name, _from(folder, " ".join([*name, text]), text)]
    return words


def _from(folder: Path | None, place: str, text: str) -> str:
    """Raises UserError for a file that is not sent along, unless it is named by its whole path, which may be the
    cluster's."""
    path = Path(text)
    if (path.is_absolute() and not (folder is not None and path.is_relative_to(folder))) or not path.exists():
        return text
    if folder is None or not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(
            f"{place}: only what lies beside the study travels with it; put it there, or name it by the whole path at "
            "which the cluster sees it"
        )
    return str(path.resolve().relative_to(folder.resolve()))


def _lasting(option: str, text: str) -> str:
    """A place that is there when the job has ended. Raises UserError."""
    place(text)
    if "://" not in text and not Path(text).is_absolute():
        raise UserError(
            f"{option} {text}: would lie in the job's own folder, which goes with it; name object storage "
            "(s3://BUCKET/NAME), or a whole path that the cluster's head sees"
        )
    return text
