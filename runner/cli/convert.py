"""``manyscale convert``: any format that is read, in any that is written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyscale.runner.cli.options import add_time
from manyscale.runner.cli.progress import progress_bar

if TYPE_CHECKING:
    from manyscale.models.workload import Workload
    from manyscale.models.workload.notes import Note


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", help="the trace")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="folder to write")
    parser.add_argument("--format", default="auto", metavar="NAME", help="format of the trace (default: found out)")
    parser.add_argument("--to", default="workload", metavar="NAME", help="format to write (default: workload)")
    parser.add_argument("--flop-rate", default="1 Gflop/s", metavar="RATE", help="speed behind a trace's flop counts")
    parser.add_argument("--time-unit", default="1 ns", metavar="TIME", help="unit of a format that names none (goal)")
    parser.add_argument("--target", metavar="NAME", help="machine whose collectives are written as messages (goal)")
    parser.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE",
        help="settle what the trace leaves open, e.g. workload.polls=keep",
    )  # fmt: skip
    add_time(parser)
    parser.add_argument("--application", type=int, default=1, metavar="N", help="which one of a trace with several")


def run(options: argparse.Namespace) -> int:
    """Read, write and count."""
    from inspect import signature

    from manyscale.runner.errors import UserError
    from manyscale.runner.registry import lookup
    from manyscale.runner.run import directory as rundir
    from manyscale.runner.study import assign, parse_assignment, parse_study
    from manyscale.runner.study.targets import resolve_target
    from manyscale.runner.study.traces import counted, read_recorded, read_workload

    choice = {
        "path": options.trace,
        "format": options.format,
        "flop_rate": options.flop_rate,
        "time_unit": options.time_unit,
        "application": options.application,
        "time": options.time or "auto",
    }
    content: dict[str, Any] = {"workload": choice, "target": options.target or "laptop"}
    for text in options.assignments:
        content = assign(content, *parse_assignment(text))
    study = parse_study(content, "command line")
    write_trace = lookup("trace-writer", options.to)
    further = {}
    if options.target:
        if "collectives" not in signature(write_trace).parameters:
            raise UserError(f"--target: format {options.to} names collectives, whatever the machine; leave it out")
        further["collectives"] = resolve_target(study)[0].network.collectives
    with progress_bar() as progress:
        progress(0, 0, "reading")
        # a workload alone can tell what only polling did, and what other clocks show
        workload = (read_recorded if options.to == "workload" else read_workload)(study.workload)
        progress(0, 0, "writing")
        with rundir.new_results(options.output, workload.name) as directory:
            write_trace(workload, directory, **further)
    for note in (*workload.notes, *_left_out(workload, options.to)):
        print(f"note: {note}")
    print(f"{counted(workload)}: {directory}")
    return 0


def _left_out(workload: Workload, form: str) -> list[Note]:
    """What of the workload takes time, and no format but its own can say."""
    from manyscale.models.machine.storage import accesses
    from manyscale.models.workload.notes import Errs, changes

    count = 0 if form == "workload" else len(accesses(workload).row)
    text = f"format {form} says nothing of files: {count} accesses take no time there"
    return [changes("accesses-left-out", text, count=count, errs=Errs.short)] if count else []
