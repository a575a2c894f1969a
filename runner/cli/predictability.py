"""``manyscale predictability``: how well a few task instances predict the others."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import (
    add_cache,
    add_format,
    add_notes,
    add_output,
    add_report,
    at,
    columns,
    print_notes,
)
from manyscale.runner.cli.progress import announce_compilation

if TYPE_CHECKING:
    from manyscale.runner.api.predictability import PredictabilityResult


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace", metavar="TRACE",
        help="trace with task instances (--level tasks), counted or not; or a run directory that simulated them",
    )  # fmt: skip
    parser.add_argument(
        "--of", default="auto", metavar="NAME",
        help="of traces, what is predicted: cycles, cpu-time or another counter (default: cycles where they were "
        "counted, else CPU time)",
    )  # fmt: skip
    parser.add_argument(
        "--by", default="auto", metavar="NAME",
        help="of traces, the size that predicts it: instructions or another counter (default: instructions, where they "
        "are known)",
    )  # fmt: skip
    add_output(parser, "runs/NAME-predictability-NNN")
    add_format(parser)
    add_json(parser)
    add_report(parser)
    add_cache(parser)
    add_notes(parser)


def run(options: argparse.Namespace) -> int:
    """Predict, write and print the table of errors."""
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.api.predictability import predictability

    announce_compilation()
    found = predictability(
        options.trace, options.output or NUMBERED, of=options.of, by=options.by, format=options.format,
        cache=options.cache, report=not options.no_report, accept=options.accept, strict=options.strict,
    )  # fmt: skip
    show(options, found)
    print(text(found))
    print(f"results: {at(found.directory)}")
    print_notes(found.notes)
    return 0


def text(found: PredictabilityResult) -> str:
    """The table to read: a line per type, a column per predictor, in brackets how many instances it measures."""
    from manyscale.runner.report.text import percent

    executed = found.executed
    names = executed.predictors
    cells: dict[str, dict[str, str]] = {}
    counts: dict[str, int] = {}
    for row in found.predictability.to_pylist():
        error = "-" if row["error"] is None else percent(row["error"])
        cells.setdefault(row["task_type"], {})[row["predictor"]] = f"{error} ({row['measured']:,})"
        counts[row["task_type"]] = row["instances"]
    lines = [("task type", "instances", *names)]
    for kind in sorted(cells, key=lambda each: (bool(each), -counts[each])):
        lines.append((kind or "all types", f"{counts[kind]:,}", *(cells[kind][name] for name in names)))
    what = f"{executed.of} by {executed.by}" if executed.by else executed.of
    return f"{executed.name}: error of {what}, of the instances in brackets\n{columns(lines)}"
