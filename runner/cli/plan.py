"""``manyscale plan``: which elements a study, or a method on a profile or trace, would simulate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from manyscale.runner.cli.options import add_notes, add_study, admit, launch_numbers, print_notes, study_content
from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    add_notes(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="folder for plan.parquet")
    parser.add_argument(
        "--method", metavar="NAME",
        help="choose of a profile, named instead of a study, what to simulate: intervals by simpoint, simprof, code, "
        "random, systematic, second, full or sbbv+ccv (and the like); kernel launches by tbpoint, tbpoint:auto or the "
        "baselines; task instances by taskpoint. --set KEY=VALUE then sets a rule of the method, and -o may name a "
        ".parquet file",
    )  # fmt: skip
    parser.add_argument(
        "--cycles", type=Path, metavar="FILE", help="of kernel launches: table with launch_id and cycles (CSV, Parquet)"
    )
    parser.add_argument(
        "--export", metavar="LIST", help="of --method: write it for gem5, pinpoints, sniper; bb, projection: its input"
    )
    parser.add_argument(
        "--warmup", type=int, default=0, metavar="N", help="intervals that exports run before each one for its caches"
    )
    parser.add_argument(
        "--sensitivity", action="append", default=[], metavar="PROFILE",
        help="of --method simprof: a profile on another input; which phases change, and what stands for it",
    )  # fmt: skip
    parser.add_argument(
        "--measured", type=Path, metavar="FILE",
        help="of --method simprof: CSV of unit,cpi that were simulated; whether they are enough, and which are next",
    )  # fmt: skip
    parser.add_argument(
        "--projection", type=Path, metavar="FILE", help="of --method: SimPoint's projection matrix to use"
    )
    parser.add_argument("--no-report", action="store_true", help="leave out the page, report.html")


def run(options: argparse.Namespace) -> int:
    """Plan, write and print."""
    if options.method is not None:
        return _by_method(options)
    if options.export or options.projection or options.warmup:
        raise UserError("--export, --projection, --warmup: are for intervals; choose them with --method")
    if options.sensitivity or options.measured:
        raise UserError("--sensitivity, --measured: are of --method simprof")
    if options.cycles:
        raise UserError("--cycles: is of kernel launches; choose some with --method tbpoint")
    import pyarrow as pa

    from manyscale.runner.report import plan_page
    from manyscale.runner.run import directory as rundir
    from manyscale.runner.run.parquet import write_table
    from manyscale.runner.run.preview import prepared

    with progress_bar() as progress:
        progress(0, 0, "reading")
        workload, points = prepared(*study_content(options), options.cache, options.yes)
        progress(0, 0, "planning")
        point = next(points)
    admit(point.notes, options)
    plans = point.plans
    table = pa.concat_tables([each.table() for each in plans])
    with rundir.new_results(options.output, workload.name) as directory:
        write_table(table, directory / "plan.parquet")
        if not options.no_report:
            title = f"Plan of {workload.name} on {point.case.machine.name}"
            rundir.write_page(directory, plan_page.page(table, title, "", point.notes))
    counts = []
    for each in plans:  # weights of intervals are shares, so that the population is not known
        of = "" if each.element_kind == "interval" else f" of {each.population}"
        ending = "es" if each.element_kind.endswith("ch") else "s"
        counts.append(f"{len(each.element_id)}{of} {each.element_kind}{ending}")
    print(f"{' and '.join(counts)} would be simulated: {directory}/plan.parquet")
    print_notes(point.notes)
    return 0


def _by_method(options: argparse.Namespace) -> int:
    from manyscale.runner.report import plan_page
    from manyscale.runner.run import directory as rundir
    from manyscale.runner.run.plans import launches, methods, stacks, tasks
    from manyscale.runner.run.plans.request import PlanRequest
    from manyscale.runner.study import assign, parse_assignment

    path = options.study or options.workload
    if path is None:
        is_special = options.method in (tasks.TASKPOINT, stacks.SIMPROF) or launches.is_tbpoint(options.method)
        what = "workload" if is_special else "profile"
        raise UserError(f"--method needs a {what}: manyscale plan --method {options.method} {what.upper()} -o DIR")
    rules: dict[str, Any] = {}
    for text in options.assignments:
        rules = assign(rules, *parse_assignment(text))
    request = PlanRequest(
        method=options.method,
        path=path,
        form=options.format or "auto",
        rules=rules,
        seed=options.seed or 0,
        cache=options.cache,
        target=options.target,
        launches=None if options.launch is None else launch_numbers(options.launch),
        cycles=options.cycles,
        exports=options.export.split(",") if options.export is not None else (),
        warmup=options.warmup,
        projection=options.projection,
        stem=options.output.stem if options.output.suffix == ".parquet" else None,
        sensitivity=options.sensitivity,
        measured=options.measured,
    )
    with progress_bar() as progress:
        progress(0, 0, "reading and choosing")
        planned = methods.by_method(request)
    notes = [*planned.notes, *planned.choice.notes]
    admit(notes, options)
    file = methods.write(planned, options.output)
    if not options.no_report and options.output.suffix != ".parquet":
        title = f"{planned.method} on {planned.name}"
        rundir.write_page(file.parent, plan_page.page(planned.plan.table(), title, planned.summary, notes))
    print(f"{planned.summary}\nresults: {file}")
    print_notes(notes)
    return 0
