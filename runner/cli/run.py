"""``manyscale run``: a study's prediction and its run directory."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import (
    add_executor,
    add_notes,
    add_output,
    add_report,
    add_self_contained,
    add_study,
    at,
    print_notes,
    study_content,
)
from manyscale.runner.cli.progress import announce_compilation, progress_bar

if TYPE_CHECKING:
    from manyscale.runner.api.study_results import RunResult, SweepResult
    from manyscale.runner.predict.statistic import Statistic
    from manyscale.runner.run.sweeps.summaries import Summary

MOST_POINTS_SHOWN: Final = 20  # on the terminal
MOST_HELD: Final = 100  # points of a dry run, by which the executor is chosen


def arguments(parser: argparse.ArgumentParser) -> None:
    add_study(parser)
    add_output(parser, "runs/NAME-NNN", "run directory")
    add_executor(parser)
    add_notes(parser)
    parser.add_argument(
        "--host", type=Path, metavar="FILE", help="where the simulator runs: a file of cluster_configs/host"
    )
    parser.add_argument("--resume", action="store_true", help="continue the run in -o DIR")
    parser.add_argument("--dry-run", action="store_true", help="say what would be simulated; write nothing")
    add_report(parser)
    add_json(parser)
    add_self_contained(parser)


def run(options: argparse.Namespace) -> int:
    """Predict, write and print."""
    from manyscale.runner.api import studies
    from manyscale.runner.api.folders import NUMBERED

    asked = study_content(options)
    studies.check_executor(options.executor, options.workers, options.seed)
    if options.dry_run:
        return _dry_run(*asked, options)
    _announce_sweep(asked.content, asked.place, options.yes)
    announce_compilation()
    with progress_bar() as progress:
        finished = studies.predicted(
            asked,
            options.output or NUMBERED,
            executor=options.executor,
            address=options.address,
            workers=options.workers,
            host=options.host,
            cache=options.cache,
            resume=options.resume,
            report=not options.no_report,
            self_contained=options.self_contained,
            accept=options.accept,
            strict=options.strict,
            yes=options.yes,
            progress=progress,
        )
    show(options, finished)
    _print_results(finished, options.accept)
    return 0


def _announce_sweep(content: dict[str, Any], place: str, yes: bool) -> None:
    """Say how many points there are, before anything is built for them. Raises UserError for too many."""
    from manyscale.runner.study import num_points, parse_study

    study = parse_study(content, place)
    if study.sweep:
        print(f"{num_points(study, place, yes):,} points", flush=True)


def _dry_run(content: dict[str, Any], place: str, beside: Path | None, options: argparse.Namespace) -> int:
    from manyscale.runner.cache import default_cache
    from manyscale.runner.run.execute.choice import choose_executor
    from manyscale.runner.run.preview import prepared, unit_keys
    from manyscale.runner.run.store import Store
    from manyscale.runner.study import num_points, parse_study

    workload, found = prepared(content, place, beside, options.cache, options.yes)
    number = num_points(parse_study(content, place), place, options.yes)
    some = list(islice(found, MOST_HELD))
    keys = unit_keys(chain(some, found))
    store = Store((options.cache or default_cache()) / "units")
    store.expect(keys)
    reused = sum(map(store.has, keys))
    chosen = choose_executor(options.executor, some, options.address, options.host, number)
    print(f"{workload.name}: {workload.num_ranks} ranks, {workload.num_operations} operations; {number} points")
    print(f"{len(keys)} work units, {reused} of them stored already; executor {chosen}; nothing was run or written")
    return 0


def _print_results(finished: RunResult | SweepResult, accept: Sequence[str]) -> None:
    from manyscale.runner.notes import accepted, of_shapes
    from manyscale.runner.study.shapes import is_shape

    points = finished.summaries
    notes = [note for point in points for note in point.notes]
    if any(map(is_shape, points[0].axes)):
        notes = of_shapes(notes)
        shown = _print_shapes(points, accept)
    else:
        shown = points if len(points) <= MOST_POINTS_SHOWN else points[:1]
        for point in shown:
            print(_summary(point) + accepted(point.notes, accept))
    if len(points) > len(shown):
        print(f"... {len(points)} points: see sweep.parquet")
    counts = finished.counts
    print(
        f"{counts.total} work units: {counts.simulated} simulated, {counts.reused} reused; "
        f"{finished.host['wall_seconds']:.2f} s wall, {finished.host['cpu_seconds']:.2f} s CPU"
    )
    print(f"results: {at(finished.directory)}")
    print_notes(notes)


def _print_shapes(points: Sequence[Summary], accept: Sequence[str]) -> Sequence[Summary]:
    """Points of a sweep over shapes, the best first, in columns; those that were printed."""
    from manyscale.runner.notes import accepted
    from manyscale.runner.run.sweeps.best import MEMORY_SHARE, TOKENS_RATE, best_first, short

    rates, shares = ([_value(point, name) for point in points] for name in (TOKENS_RATE, MEMORY_SHARE))
    order = best_first(rates, shares)[:MOST_POINTS_SHOWN]
    print(f"{points[0].name} on {points[0].target}, the best first:")
    head = ["point", *short(points[0].axes).values(), "step", "tokens/s", "MFU", "exposed", "memory"]
    rows = [[f"{place:04d}", *map(str, points[place].axes.values()), *_step_cells(points[place])] for place in order]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    tails = ["", *(accepted(points[place].notes, accept) for place in order)]
    for row, tail in zip([head, *rows], tails, strict=True):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + tail)
    return [points[place] for place in order]


def _value(point: Summary, name: str) -> float | None:
    return float(point.statistics[name].value) if name in point.statistics else None


def _step_cells(point: Summary) -> list[str]:
    from manyscale.runner.run.sweeps.best import MEMORY_SHARE, TOKENS_RATE, exceeds

    values = {name: float(each.value) for name, each in point.statistics.items()}
    parts = {name: values[f"gpu.time.{name}"] for name in ("compute", "exposed_transfer", "exposed_wait", "idle")}
    exposed = (parts["exposed_transfer"] + parts["exposed_wait"]) / (sum(parts.values()) or 1.0)
    use = values.get("step.model_flops_utilisation")
    too_much = " (too much)" if exceeds(values.get(MEMORY_SHARE)) else ""
    return [
        f"{values['step.whole']:.6f} s", f"{values[TOKENS_RATE]:,.0f}", "-" if use is None else f"{use:.1%}",
        f"{exposed:.1%}", f"{values['step.memory'] / 1e9:.1f} GB{too_much}",
    ]  # fmt: skip


def _summary(point: Summary) -> str:
    """The predicted time and what was simulated: of one core alone no efficiencies, which are 100 % by definition."""
    from manyscale.runner.run.questions.factors import of_statistics, sentence

    figures = point.statistics
    values = {name: each.value for name, each in figures.items()}
    at = "".join(f" {key}={value}" for key, value in point.axes.items())
    parts = []
    if "intervals.cpi" in figures:
        parts.append(_intervals(figures))
    elif "gpu.time.compute" in figures:
        parts.append(_steps(figures))
    elif line := sentence(of_statistics(values), point.num_ranks, int(values.get("node.cores_per_rank", 1))):
        parts.append(line)
    if "gpu.launches" in figures:
        launches, cycles, ipc = (figures[f"gpu.{name}"].value for name in ("launches", "cycles", "ipc"))
        taken = f"{launches:,} launches take" if launches > 1 else "1 launch takes"
        parts.append(f"{taken} {cycles:,} cycles, IPC {ipc:.4g}")
    who = point.name if point.num_ranks == 1 else f"{point.name}, {point.num_ranks} ranks"
    digits = 9 if point.num_ranks == 1 else 6
    makespan = figures["application.makespan"].value
    return "; ".join([f"{who} on {point.target}{at}: {makespan:.{digits}f} s", *parts])


def _steps(figures: Mapping[str, Statistic]) -> str:
    """What training steps say of their GPUs, whose hosts' efficiencies are not theirs."""
    names = ("compute", "exposed_transfer", "exposed_wait", "idle")
    compute, transfer, wait, idle = (float(figures[f"gpu.time.{name}"].value) for name in names)
    whole = compute + transfer + wait + idle or 1.0
    shares = (f"GPUs compute {compute / whole:.1%}", f"exposed communication {transfer / whole:.1%} and its waits "
              f"{wait / whole:.1%}", f"idle {idle / whole:.1%}")  # fmt: skip
    step = [f"step {figures['step.time'].value:.6f} s"] if "step.time" in figures else []
    more = [
        f"{name} {figures[key].value:.1%}"
        for name, key in (("pipeline bubble", "step.pipeline_bubble"), ("MFU", "step.model_flops_utilisation"))
        if key in figures
    ]
    return ", ".join([*step, *shares, *more])


def _intervals(figures: Mapping[str, Statistic]) -> str:
    """What sampled intervals of a program say of it."""
    cpi = figures["intervals.cpi"]
    between = "" if cpi.ci_low is None else f" ({cpi.ci_low:.4g} to {cpi.ci_high:.4g})"
    of = f"{figures['intervals.simulated'].value:,} of {figures['intervals.total'].value:,} intervals"
    return f"CPI {cpi.value:.4g}{between} from {of}, {figures['intervals.share'].value:.1%} of the instructions"
