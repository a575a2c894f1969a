"""``manyscale what-if``: a study or a run, and every what-if, as points of a sweep."""

from __future__ import annotations

import argparse
from pathlib import Path

from manyscale.runner.cli.options import add_notes, add_study, check_executor, columns, print_notes, study_content
from manyscale.runner.cli.progress import progress_bar
from manyscale.runner.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="run directory (default: runs/NAME-NNN)")
    parser.add_argument("--executor", default="auto", metavar="NAME", help="auto, local or ray (default: auto)")
    add_notes(parser)
    parser.add_argument("--no-report", action="store_true", help="leave out the page, report.html")


def run(options: argparse.Namespace) -> int:
    """Predict, write, and print how the time changes."""
    from manyscale.runner.notes import accepted
    from manyscale.runner.report.text import duration, signed_duration
    from manyscale.runner.run import study_runs
    from manyscale.runner.run.compare import is_run
    from manyscale.runner.run.directory import read_resolved
    from manyscale.runner.study import parse_study, what_if

    if options.study is not None and is_run(Path(options.study)):
        read_resolved(Path(options.study))  # whole, as the run wrote it
        options.study = str(Path(options.study) / "resolved.yaml")
    options.what_if = options.what_if or list(what_if.STANDARD)
    content, place, beside = study_content(options)
    study = parse_study(content, place)
    if list(study.sweep) != [what_if.AXIS]:
        raise UserError(f"{place}: is a sweep; ask of one of its points, or run the study with --what-if")
    check_executor(options.executor, seed=options.seed)
    with progress_bar() as progress:
        chosen = study_runs.Options(
            output=options.output, executor=options.executor, cache=options.cache, report=not options.no_report,
            point_reports=False, self_contained=True, accept=options.accept, strict=options.strict, yes=options.yes,
            progress=progress,
        )  # fmt: skip
        finished = study_runs.run_study(content, place, beside, chosen)
    makespans = {
        str(point.axes[what_if.AXIS]): float(point.statistics["application.makespan"].value)
        for point in finished.points
    }
    base = makespans[what_if.BASE]
    rows = [("what", "time", "change", "speed-up")]
    for name, seconds in makespans.items():
        share = f" ({100 * (seconds / base - 1):+.1f} %)" if base else ""
        change = "" if name == what_if.BASE else f"{signed_duration(seconds - base)}{share}"
        rows.append((name, duration(seconds), change, f"{base / seconds:.3f}" if seconds else "-"))
    notes = [note for point in finished.points for note in point.notes]
    print(columns(rows) + accepted(notes, options.accept))
    counts = finished.counts
    print(f"{counts.total} work units: {counts.simulated} simulated, {counts.reused} reused")
    print(f"results: {finished.directory}")
    print_notes(notes)
    return 0
