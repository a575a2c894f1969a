"""``manyscale accuracy``: the shipped validation cases."""

from __future__ import annotations

import argparse

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import add_cache


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    add_json(parser)
    add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """Print a line for each case; exit status 1 if one is out of tolerance."""
    from manyscale.runner.api.catalogue import accuracy

    found = accuracy(options.cases, cache=options.cache)
    show(options, found)
    rows = found.cases
    width = max(len(row.name) for row in rows)
    print(f"{'case':<{width}} {'predicted s':>14} {'reference s':>14} {'error':>10} {'tolerance':>10}")
    for row in rows:
        verdict = "" if row.holds else "  OUT OF TOLERANCE"
        print(
            f"{row.name:<{width}} {row.predicted:>14.9f} {row.reference:>14.9f} {row.error:>10.1e} "
            f"{row.tolerance:>10.1e}{verdict}"
        )
    failed = sum(not row.holds for row in rows)
    errors = [abs(row.error) for row in rows]
    print(
        f"{len(rows)} cases, {failed} out of tolerance; "
        f"absolute error mean {sum(errors) / len(rows):.1e} s, max {max(errors):.1e} s"
    )
    return 1 if failed else 0
