"""``manyscale share``: what jobs that share a machine cost each other."""

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
from manyscale.runner.cli.progress import announce_compilation, progress_bar


def arguments(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    add_output(parser, "runs/NAME-shared-NNN")
    add_executor(parser)
    add_notes(parser)
    add_report(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Predict all together and each alone, write, and print a line for each job."""
    from manyscale.runner.api import sharing, studies
    from manyscale.runner.api.folders import NUMBERED
    from manyscale.runner.report.text import duration

    asked = study_content(options)
    studies.check_executor(options.executor, options.workers, options.seed)
    announce_compilation()
    with progress_bar() as progress:
        found = sharing.shared(
            asked, options.output or NUMBERED, executor=options.executor, address=options.address,
            workers=options.workers, cache=options.cache, report=not options.no_report, accept=options.accept,
            strict=options.strict, progress=progress,
        )  # fmt: skip
    show(options, found)
    rows = found.jobs.to_pylist()
    of_steps = any(row["step_slowdown"] is not None for row in rows)
    lines = [("job", "ranks", "alone", "together", "slowdown", *(("step alone", "together", "slowdown") * of_steps))]
    for row in rows:
        line = [f"{row['job']} {row['job_name']}", f"{row['num_ranks']:,}"]
        for prefix in ("", "step_")[: 1 + of_steps]:
            slowdown = row[f"{prefix}slowdown"]
            line += ["-" if row[f"{prefix}{name}_s"] is None else duration(row[f"{prefix}{name}_s"])
                     for name in ("alone", "together")]  # fmt: skip
            line.append("-" if slowdown is None else f"{slowdown:.3f}")
        lines.append(tuple(line))
    print(columns(lines))
    print(f"results: {at(found.directory)}")
    print_notes(found.notes)
    return 0
