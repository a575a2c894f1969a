"""``manyscale report``: the pages of a finished run, and its timeline for other tools."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Literal

from manyscale.runner.cli.options import add_cache, add_self_contained, at, place
from manyscale.runner.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=place, help="run directory, or with --trace a point of a sweep")
    parser.add_argument(
        "--trace", action="append", default=[], metavar="KIND",
        help="write the timeline for this tool (paraver, perfetto) into the directory, whatever its size, and nothing "
        "else; runs leave out what is large",
    )  # fmt: skip
    parser.add_argument(
        "--point", action="append", default=[], metavar="N",
        help="of a sweep: write the whole run directory of this point with traces and a page into points/N, or of all "
        "of them ('all')",
    )  # fmt: skip
    add_self_contained(parser)
    add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """The study again, with every output; what is stored is not simulated again."""
    from manyscale.runner.api.finished import report

    if options.trace:
        from manyscale.runner.run.questions.asked_traces import write_traces

        files = write_traces(options.directory, options.trace)
        print(f"traces: {', '.join(map(at, files))}")
        return 0
    points = _points(options.point)
    page = report(options.directory, points=points, self_contained=options.self_contained, cache=options.cache)
    print(f"report: {at(page)}")
    return 0


def _points(given: Sequence[str]) -> Sequence[int] | Literal["all"]:
    """Numbers of points, or ``all``. Raises UserError for what is neither."""
    if "all" in given:
        return "all"
    for text in given:
        if not text.isdecimal():
            raise UserError(f"--point {text}: is no number of a point, as 17 of points/0017; or say all")
    return [int(text) for text in given]
