"""``manyscale scaling``: how the time of a program changes with the number of its cores or ranks."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import (
    add_cache,
    add_changes,
    add_executor,
    add_notes,
    add_output,
    add_report,
    add_seed,
    at,
    columns,
    parse_numbers,
    print_notes,
)
from manyscale.runner.cli.progress import announce_compilation, progress_bar
from manyscale.runner.errors import UserError

OF_RANKS: Final = ("parallel_efficiency", "load_balance", "communication_efficiency")
OF_CORES: Final = (
    "parallel_efficiency", "process_efficiency", "thread_efficiency", "serial_efficiency", "thread_load_balance",
    "scheduling_efficiency",
)  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "studies", nargs="+", metavar="STUDY",
        help="one study, shipped example, or trace with --target, of which --cores or --axis is varied; or several of "
        "them, run directories or measured traces, on different numbers of ranks",
    )  # fmt: skip
    parser.add_argument("--cores", metavar="LIST", help="cores of each rank to predict, such as 1,2,4,8 or 1-16")
    parser.add_argument(
        "--axis", metavar="KEY=LIST", help="another key to vary, such as mapping.ranks_per_node=1,2,4 or target=a,b"
    )
    parser.add_argument("--weak", action="store_true", help="the work per rank was meant to stay (default: all work)")
    add_changes(parser)
    add_seed(parser)
    add_output(parser, "runs/NAME-scaling-NNN")
    add_json(parser)
    add_report(parser)
    add_executor(parser)
    add_cache(parser)
    add_notes(parser)


def run(options: argparse.Namespace) -> int:
    """Predict, write, and print the table."""
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.api.scaling import scaling
    from manyscale.runner.study import parse_assignment

    announce_compilation()
    with progress_bar() as progress:
        found = scaling(
            options.studies, options.output or NUMBERED,
            cores=None if options.cores is None else parse_numbers(options.cores, "--cores"),
            axis=None if options.axis is None else axis(options.axis), weak=options.weak, target=options.target,
            format=options.format, time=options.time,
            model=dict(parse_assignment(text, "--model") for text in options.model),
            sampling=dict(parse_assignment(text, "--sampling") for text in options.sampling),
            set=dict(parse_assignment(text) for text in options.assignments), seed=options.seed,
            executor=options.executor, address=options.address, workers=options.workers, cache=options.cache,
            report=not options.no_report, accept=options.accept, strict=options.strict, progress=progress,
        )  # fmt: skip
    show(options, found)
    print(text(found.table().to_pylist()))
    print(f"results: {at(found.directory)}")
    print_notes(found.notes)
    return 0


def axis(given: str) -> tuple[str, list[Any]]:
    """The key and the values of KEY=V1,V2 or of KEY=[V1, V2]. Raises UserError."""
    import yaml

    key, separator, values = given.partition("=")
    if not separator or not key.strip() or not values.strip():
        raise UserError(f"--axis {given!r}: write KEY=V1,V2, for example mapping.ranks_per_node=1,2,4")
    whole = values if values.strip().startswith("[") else f"[{values}]"
    try:
        found = yaml.safe_load(whole)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UserError(f"--axis {given!r}: the values are not valid YAML") from None
    return key.strip(), list(found)


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table to read, a line per run; ratios that no run tells are left out. Of ranks with several cores, the
    efficiency of processes stands for its factors."""
    from manyscale.runner.report.text import duration, percent
    from manyscale.runner.run.questions.factors import THREAD, pop_factors

    known = pop_factors(rows)
    wanted = OF_CORES if any(each.name == THREAD for each in known) else OF_RANKS
    names = {each.name: each.alone for each in known if each.name in wanted}
    names = {"efficiency": "efficiency", **names, "computation_scaling": "computation"}
    shown = [name for name in names if any(row[name] is not None for row in rows)]
    lines = [("run", "ranks", "cores", "time", "speed-up", *(names[name] for name in shown))]
    for row in rows:
        ratios = ("-" if row[name] is None else percent(row[name]) for name in shown)
        cores = "-" if row["num_cores"] is None else f"{row['num_cores']:,}"
        speed_up = f"{row['speed_up']:.3f}"
        lines.append((row["label"], f"{row['num_ranks']:,}", cores, duration(row["makespan_s"]), speed_up, *ratios))
    return columns(lines)
