"""``manyscale what-if``: a study or a run, and every what-if, as points of a sweep."""

from __future__ import annotations

import argparse

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import (
    add_executor,
    add_notes,
    add_output,
    add_report,
    add_study,
    at,
    columns,
    print_notes,
    study_content,
)
from manyscale.runner.cli.progress import progress_bar


def arguments(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    add_output(parser, "runs/NAME-NNN", "run directory")
    add_executor(parser)
    add_notes(parser)
    add_report(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Predict, write, and print how the time changes."""
    from manyscale.runner.api import studies
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.notes import accepted
    from manyscale.runner.report.text import duration, signed_duration
    from manyscale.runner.study import what_if

    options.what_if = options.what_if or list(what_if.STANDARD)
    asked = study_content(options)
    studies.check_executor(options.executor, options.workers, options.seed)
    with progress_bar() as progress:
        found = studies.predicted_what_ifs(
            asked, options.output or NUMBERED, executor=options.executor, address=options.address,
            workers=options.workers, cache=options.cache, report=not options.no_report, accept=options.accept,
            strict=options.strict, yes=options.yes, progress=progress,
        )  # fmt: skip
    show(options, found)
    makespans = found.makespan_seconds
    base = makespans[what_if.BASE]
    rows = [("what", "time", "change", "speed-up")]
    for name, seconds in makespans.items():
        share = f" ({100 * (seconds / base - 1):+.1f} %)" if base else ""
        change = "" if name == what_if.BASE else f"{signed_duration(seconds - base)}{share}"
        rows.append((name, duration(seconds), change, f"{base / seconds:.3f}" if seconds else "-"))
    notes = [note for point in found.points for note in point.notes]
    print(columns(rows) + accepted(notes, options.accept))
    print(f"{found.counts.total} work units: {found.counts.simulated} simulated, {found.counts.reused} reused")
    print(f"results: {at(found.directory)}")
    print_notes(notes)
    return 0
