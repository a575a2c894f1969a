"""``manyscale pop``: efficiencies of several runs side by side."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import (
    add_cache,
    add_table_output,
    columns,
    output_folder,
    print_notes,
    write_table_file,
)

# column, label, depth in the product; ratios are shown in per cent. Scalability, and with it global efficiency, may be
# above 100 %: a run that computes less, or faster, than the one on the fewest.
SCALING: Final = (
    ("computation_scaling", "Computation scalability", 1),
    ("instruction_scaling", "Instruction scalability", 2),
    ("ipc_scaling", "IPC scalability", 2),
    ("frequency_scaling", "Frequency scalability", 2),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directory, or a trace with measured times")
    parser.add_argument("--weak", action="store_true", help="the work per rank was meant to stay (default: all work)")
    parser.add_argument(
        "--target", metavar="NAME",
        help="machine whose protocol the ideal replay of a trace follows: a shipped name or a YAML file",
    )  # fmt: skip
    add_table_output(parser, "pop.parquet")
    add_json(parser)
    add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table, and write it with ``-o``."""
    from manyscale.runner.api.comparisons import pop

    found = pop(options.runs, output_folder(options), weak=options.weak, target=options.target, cache=options.cache)
    write_table_file(options, found.pop)
    show(options, found)
    print(_text(found.pop.to_pylist()))
    print_notes(found.notes)
    return 0


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table to read: a column per run, a line per metric; what no run tells is left out."""
    from manyscale.runner.run.questions.factors import pop_factors

    lines = [("run", *(Path(row["name"]).name or row["name"] for row in rows))]
    lines.append(("ranks", *(str(row["num_ranks"]) for row in rows)))
    if any(row["num_cores"] not in (None, row["num_ranks"]) for row in rows):
        lines.append(("cores", *("-" if row["num_cores"] is None else str(row["num_cores"]) for row in rows)))
    lines.append(("time (s)", *(f"{row['run_time_ps'] / 1e12:.6f}" for row in rows)))
    lines.append(("speed-up", *(f"{row['speedup']:.3f}" for row in rows)))
    own = [(each.name, each.label, each.depth + 1) for each in pop_factors(rows)]
    for name, label, depth in (("global_efficiency", "Global efficiency", 0), *own, *SCALING):
        if any(row[name] is not None for row in rows):
            shown = ("-" if row[name] is None else f"{100 * row[name]:.1f} %" for row in rows)
            lines.append(("  " * depth + label, *shown))
    if any(row["ipc"] is not None for row in rows):
        lines.append(("IPC", *("-" if row["ipc"] is None else f"{row['ipc']:.3f}" for row in rows)))
    return columns(lines)
