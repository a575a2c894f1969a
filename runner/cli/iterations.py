"""``manyscale iterations``: where the iterations of a trace's main loop begin and end."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import (
    add_cache,
    add_format,
    add_table_output,
    output_folder,
    write_table_file,
)
from manyscale.runner.cli.parser import Parser

if TYPE_CHECKING:
    from manyscale.runner.run.questions.iterations import IterationFigures

MOST_ROWS: Final = 20


def arguments(parser: Parser) -> None:
    parser.add_argument("workload", metavar="TRACE", help="the trace")
    add_table_output(parser, "iterations.parquet")
    add_format(parser)
    parser.add_argument("--min-repeats", type=int, default=3, metavar="N", help="rounds of a loop (default: 3)")
    parser.add_argument(
        "--depth", type=int, dest="level", default=0, metavar="N",
        help="0 the main loop, 1 the one inside, ... (default: 0)",
    )  # fmt: skip
    parser.add_former("--level", "--depth")
    add_json(parser)
    add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """Print what was found, and write the table with ``-o``. Exit status 0 also where there are none."""
    from manyscale.runner.api.repeats import iterations

    found = iterations(
        options.workload, output_folder(options), format=options.format, min_repeats=options.min_repeats,
        level=options.level, cache=options.cache,
    )  # fmt: skip
    show(options, found)
    write_table_file(options, found.iterations)
    print("\n".join(summary(found.workload.name, found.found)))
    return 0


def summary(name: str, found: IterationFigures | None) -> list[str]:
    """Lines to read of a trace called ``name``: how many iterations, what they hold, and the first of them one by one;
    means over ranks."""
    from manyscale.runner.report.text import duration, percent

    if found is None:
        return [f"{name}: no iterations; nothing repeats often and long enough, mark them in the source"]
    count = found.count_of_rank
    shown = f"{count.max()}" if (count == count.max()).all() else f"{count.min()} to {count.max()}"
    how = "marked in the source" if found.annotated else "found by their period"
    mean = found.compute_s
    lines = [
        f"{name}: {shown} iterations per rank, {how}; they hold {percent(found.operations_share)} of the "
        f"operations and {percent(found.compute_share)} of the compute time",
        f"{'iteration':>9}  {'operations':>10}  {'compute':>10}  {'of the mean':>11}",
    ]
    for i in range(min(len(mean), MOST_ROWS)):
        share = mean[i] / mean.mean() if mean.mean() else 1.0
        lines.append(f"{i:>9}  {found.operations[i]:>10,.1f}  {duration(mean[i]):>10}  {share:>11.3f}")
    if len(mean) > MOST_ROWS:
        rest = mean[MOST_ROWS:]
        lines.append(f"{len(rest)} more, {duration(rest.min())} to {duration(rest.max())} of compute")
    return lines
