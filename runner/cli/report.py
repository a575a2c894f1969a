"""``manyscale report``: the pages of a finished run, and its timeline for other tools."""

from __future__ import annotations

import argparse
from pathlib import Path

from manyscale.runner.cli.options import add_cache, add_self_contained


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, help="run directory, or with --trace a point of a sweep")
    parser.add_argument(
        "--trace", action="append", default=[], metavar="KIND",
        help="write the timeline for this tool (paraver, perfetto) into the directory, whatever its size, and nothing "
        "else; runs leave out what is large",
    )  # fmt: skip
    add_self_contained(parser)
    add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """The study again, with every output; what is stored is not simulated again."""
    from manyscale.runner.api.finished import report

    if options.trace:
        from manyscale.runner.run.questions.asked_traces import write_traces

        files = write_traces(options.directory, options.trace)
        print(f"traces: {', '.join(map(str, files))}")
        return 0
    print(f"report: {report(options.directory, self_contained=options.self_contained, cache=options.cache)}")
    return 0
