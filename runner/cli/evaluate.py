"""``manyscale evaluate``: samples of profiles, or of task instances, against what they stand for."""

from __future__ import annotations

import argparse
from pathlib import Path

from manyscale.runner.cli.options import add_cache, add_notes, admit, print_notes
from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", nargs="+", metavar="TRACE",
        help="traces with tasks and their detailed level; or profiles of intervals, call stacks or kernel launches "
        "with known cycles",
    )  # fmt: skip
    parser.add_argument(
        "--target", default="grass-high-performance", metavar="NAME", help="machine (default: grass-high-performance)"
    )
    parser.add_argument("--cores", default="8,16,32,64", metavar="LIST", help="cores of a rank (default: 8,16,32,64)")
    parser.add_argument(
        "--methods", metavar="LIST",
        help="lazy or periodic, with any of +source (its parameters), +types, +classes, +model, +stale, +warm, "
        "+settle, +unsettled; or interval. Of profiles: those of plan --method",
    )  # fmt: skip
    parser.add_argument(
        "--on", action="append", metavar="OTHER",
        help="of profiles: judge by this machine's profile, or table of counters, of the same intervals",
    )  # fmt: skip
    parser.add_argument(
        "--cycles", type=Path, metavar="FILE", help="of kernel launches: table with launch_id and cycles (CSV, Parquet)"
    )
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="draws of each method on a profile (10)")
    parser.add_argument(
        "--iterations", default="joined", metavar="METHOD", help="what is simulated, as sampling.iterations says"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE",
        help="replace one key of the studies, e.g. taskpoint.history=8",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder (default: runs/evaluation-NNN)")
    add_cache(parser)
    add_notes(parser)
    parser.add_argument("--no-report", action="store_true", help="leave out the page, report.html")


def run(options: argparse.Namespace) -> int:
    """Evaluate, write and print."""
    from manyscale.runner.report import evaluation_page
    from manyscale.runner.run import directory as rundir
    from manyscale.runner.run.evaluation import profiles, tasks
    from manyscale.runner.run.parquet import write_table
    from manyscale.runner.study import parse_assignment

    of_profiles = [path for path in options.traces if profiles.is_profile(path)]
    if len(of_profiles) == len(options.traces):
        if options.seeds < 1:
            raise UserError(f"--seeds {options.seeds}: at least one is needed")
        loaded = profiles.load(options.traces, options.methods, options.on, options.cycles, options.cache)
        notes = [note for profile, _ in loaded for note in profile.notes]
        admit(notes, options)
        directory = rundir.new_directory(options.output, "evaluation", resume=False)
        with progress_bar() as progress:
            found = profiles.evaluate(loaded, options.seeds, progress)
        table, text = profiles.table(found.rows), profiles.summary(found.rows)
        page = evaluation_page.profiles_page(found)
    elif of_profiles:
        raise UserError(
            f"{of_profiles[0]}: is a profile, others are traces with tasks; evaluate the two kinds one by one"
        )
    elif options.on or options.cycles is not None:
        raise UserError("--on and --cycles: judge profiles of intervals and launches; these are traces with tasks")
    else:
        methods = tasks.DEFAULT_METHODS if not options.methods else options.methods.split(",")
        for method in methods:
            tasks.changes_of(method)
        cores = _numbers(options.cores)
        changes = [parse_assignment(text) for text in options.assignments]
        directory = rundir.new_directory(options.output, "evaluation", resume=False)
        with progress_bar() as progress:
            rows = tasks.evaluate(
                options.traces, directory, methods, cores, target=options.target, iterations=options.iterations,
                changes=changes, accept=options.accept, strict=options.strict, progress=progress,
            )  # fmt: skip
        table = tasks.table(rows)
        notes = [note for row in rows for note in row["notes"]]
        text, page = tasks.summary(table), evaluation_page.tasks_page(rows, directory)
    write_table(table, directory / "evaluation.parquet")
    rundir.write_atomically(directory / "evaluation.txt", text)
    if not options.no_report:
        rundir.write_page(directory, page)
    print(text, end="")
    print(f"results: {directory}")
    print_notes(notes)
    return 0


def _numbers(text: str) -> list[int]:
    numbers = [int(each) if each.strip().isdigit() else 0 for each in text.split(",")]
    if not all(numbers):
        raise UserError(f"--cores {text!r}: write numbers of at least 1, such as 8,16,32,64")
    return numbers
