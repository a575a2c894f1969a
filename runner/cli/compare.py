"""``manyscale compare``: where two runs differ."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import (
    add_cache,
    add_format,
    add_notes,
    add_report,
    add_table_output,
    at,
    columns,
    output_folder,
    print_notes,
    write_table_file,
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="run directory, or a trace with measured times")
    parser.add_argument(
        "b", metavar="B", nargs="?", help="the other; without it A, a run, is compared with what its trace measured"
    )
    add_table_output(parser, "differences.parquet and their page (report.html)")
    add_report(parser)
    add_json(parser)
    parser.add_argument("--top", type=int, default=10, metavar="N", help="rows shown of each group (default: 10)")
    add_format(parser)
    add_cache(parser)
    add_notes(parser)


def run(options: argparse.Namespace) -> int:
    """Compare, write what is asked for, and print."""
    from manyscale.runner.api.comparisons import compare

    found = compare(
        options.a, options.b, output_folder(options), format=options.format, cache=options.cache,
        report=not options.no_report, accept=options.accept, strict=options.strict,
    )  # fmt: skip
    write_table_file(options, found.differences)
    show(options, found)
    has_ranks = "rank" in found.differences.column("group").to_pylist() or set(found.num_ranks) != {1}
    ranks = [f", {each} ranks" if has_ranks else "" for each in found.num_ranks]
    print(f"A: {found.a}{ranks[0]}\nB: {found.b}{ranks[1]}; differences are B - A")
    _print(found.differences.to_pylist(), options.top)
    if found.step_errors is not None:
        count = found.step_errors.count
        print(f"{count} step{'s' * (count != 1)}: {found.step_errors.text}")
    if found.directory is not None:
        print(f"\nresults: {at(found.directory)}")
    print_notes(found.notes)
    return 0


def _print(rows: Sequence[Mapping[str, Any]], top: int) -> None:
    """The ``top`` rows of each group that differ; of the whole run all."""
    from manyscale.runner.run.questions.compare import TITLES

    for group, title in TITLES.items():
        mine = [row for row in rows if row["group"] == group]
        if not mine:
            continue
        is_whole = group in ("figure", "gpu")
        shown = [row for row in mine if row["difference"] != 0 or is_whole][: None if is_whole else top]
        print(f"\n{title}" + ("" if shown else ": no difference"))
        lines = [
            (row["item"], _shown(row["a"], row["unit"]), _shown(row["b"], row["unit"]), _difference(row))
            for row in shown
        ]
        if lines:
            print(columns([("", "A", "B", "difference"), *lines]))
        left = sum(row["difference"] != 0 for row in mine) - len(shown)
        if left > 0:
            print(f"  and {left} smaller ones")


def _shown(value: float | None, unit: str) -> str:
    from manyscale.runner.report.text import duration

    if value is None:
        return "-"
    if unit == "s":
        return duration(value)
    if unit == "1" and abs(value) > 1.5 and value != round(value):
        return f"{value:,.4g}"
    return f"{value:,.0f}" + (" B" if unit == "B" else "") if abs(value) > 1.5 or unit == "B" else f"{value:.4f}"


def _difference(row: Mapping[str, Any]) -> str:
    from manyscale.runner.report.text import signed_duration

    value = row["difference"]
    if value is None:
        return "-"
    share = f" ({100 * value / row['a']:+.1f} %)" if row["a"] and row["unit"] in ("s", "cycles") else ""
    return (signed_duration(value) if row["unit"] == "s" else f"{value:+,.4g}") + share
