"""The commands that answer questions about predictions: what-if, compare, pop, clusters."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from manyscale.runner.cache import default_cache
from manyscale.runner.cli import commands
from manyscale.runner.errors import UserError
from manyscale.runner.report.text import duration
from manyscale.runner.run import compare as comparing
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table
from manyscale.runner.study import Study, WorkloadChoice, parse_study
from manyscale.runner.study import what_if as asking


def what_if(options: argparse.Namespace) -> int:
    """``manyscale what-if``: the study or run, and every what-if, as points of a sweep."""
    from manyscale.runner.run import api

    given = Path(options.study) if options.study is not None else None
    if given is not None and comparing.is_run(given):
        options.study = str(given / "resolved.yaml")
    options.what_if = options.what_if or list(asking.STANDARD)
    content, place, beside = commands.study_content(options)
    study = parse_study(content, place)
    if list(study.sweep) != [asking.AXIS]:
        raise UserError(f"{place}: is a sweep; ask of one of its points, or run the study with --what-if")
    commands.check_executor(options)
    with commands.progress_bar() as progress:
        chosen = api.Options(
            output=options.output,
            executor=options.executor,
            cache=options.cache,
            report=False,
            progress=progress,
        )
        finished = api.run_study(content, place, beside, chosen)
    makespans = {str(point.axes[asking.AXIS]): float(point.statistics["application.makespan"].value)
                 for point in finished.points}  # fmt: skip
    base = makespans[asking.BASE]
    rows = [("what", "time", "change", "speed-up")]
    for name, seconds in makespans.items():
        share = f" ({100 * (seconds / base - 1):+.1f} %)" if base else ""
        change = "" if name == asking.BASE else f"{_signed(seconds - base)}{share}"
        rows.append((name, duration(seconds), change, f"{base / seconds:.3f}" if seconds else "-"))
    print(_columns(rows))
    counts = finished.counts
    print(f"{counts.total} work units: {counts.simulated} simulated, {counts.reused} reused")
    print(f"results: {finished.directory}")
    return 0


def compare(options: argparse.Namespace) -> int:
    """``manyscale compare``."""
    cache = options.cache or default_cache()
    a, b = (comparing.load(Path(path), options.format, cache) for path in (options.a, options.b))
    table, notes = comparing.compare(a, b)
    if options.output is not None:
        _written(options.output, lambda path: write_table(table, path))
    if options.json is not None:
        content = {"a": a.name, "b": b.name, "notes": notes, "rows": table.to_pylist()}
        _written(options.json, lambda path: rundir.write_atomically(path, json.dumps(content, indent=1) + "\n"))
    print(f"A: {a.name}, {a.num_ranks} ranks\nB: {b.name}, {b.num_ranks} ranks; differences are B - A")
    _print_comparison(table, options.top)
    for note in notes:
        print(f"note: {note}")
    return 0


_TITLES = {
    "figure": "whole run",
    "state": "by state (mean over ranks)",
    "critical path": "critical path, by kind",
    "gpu": "kernel launches",
    "launch": "cycles by launch, latency included",
    "place": "by region and call (mean over ranks)",
    "visit": "by visit of a region or call (mean over ranks; #0 is the first)",
    "rank": "by rank and state",
}


def _print_comparison(table: pa.Table, top: int) -> None:
    rows = table.to_pylist()
    for group, title in _TITLES.items():
        mine = [row for row in rows if row["group"] == group]
        if not mine:
            continue
        is_whole = group in ("figure", "gpu")
        shown = [row for row in mine if row["difference"] != 0 or is_whole][: None if is_whole else top]
        print(f"\n{title}" + ("" if shown else ": no difference"))
        lines = [
            (row["item"], _shown(row["a"], row["unit"]), _shown(row["b"], row["unit"]), _difference(row))
            for row in shown
        ]
        if lines:
            print(_columns([("", "A", "B", "difference"), *lines]))
        left = sum(row["difference"] != 0 for row in mine) - len(shown)
        if left > 0:
            print(f"  and {left} smaller ones")


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return duration(value)
    if unit == "1" and abs(value) > 1.5 and value != round(value):
        return f"{value:,.4g}"
    return f"{value:,.0f}" + (" B" if unit == "B" else "") if abs(value) > 1.5 or unit == "B" else f"{value:.4f}"


def _difference(row: dict[str, Any]) -> str:
    value = row["difference"]
    if value is None:
        return "-"
    share = f" ({100 * value / row['a']:+.1f} %)" if row["a"] and row["unit"] in ("s", "cycles") else ""
    return (_signed(value) if row["unit"] == "s" else f"{value:+,.4g}") + share


def _signed(seconds: float) -> str:
    return ("+" if seconds > 0 else "") + duration(seconds)


def _columns(rows: Sequence[Sequence[str]]) -> str:
    """Lines with the first column flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if i else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _written(path: Path, write: Any) -> None:
    try:
        write(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); name another file") from None


def pop(options: argparse.Namespace) -> int:
    """``manyscale pop``."""
    from manyscale.runner.run.pop import pop_table, pop_text, run_efficiencies
    from manyscale.runner.study.targets import resolve_target

    cache = options.cache or default_cache()
    network = None
    if options.target is not None:
        study = Study(workload=WorkloadChoice(path="-"), target=options.target)
        network = resolve_target(study)[0].network
    table = pop_table([run_efficiencies(Path(path), network, cache) for path in options.runs], options.weak)
    if options.output is not None:
        _written(options.output, lambda path: write_table(table, path))
    print(pop_text(table))
    return 0


def clusters(options: argparse.Namespace) -> int:
    """``manyscale clusters``."""
    from manyscale.runner.report.clusters_page import cluster_rows, clusters_table, write_page
    from manyscale.runner.study import traces
    from manyscale.sampling.phases.burst_clusters import ClusterParameters, cluster_bursts

    cache = options.cache or default_cache()
    workload = traces.read_workload(WorkloadChoice(path=options.workload, format=options.format), cache)
    try:
        parameters = ClusterParameters(options.axes, options.eps, options.min_points, options.coverage)
        found = cluster_bursts(workload, parameters)
    except ValueError as error:
        raise UserError(str(error)) from None
    directory = rundir.new_directory(options.output, f"{workload.name}-clusters", resume=False)
    write_table(clusters_table(found), directory / "clusters.parquet")
    rows = cluster_rows(workload, found)
    write_page(workload, found, rows, directory / "clusters.html")
    print(f"{workload.name}: {found.num_clusters} phase clusters; axes {found.axes}, radius {found.eps:.4g}")
    print(_columns([("cluster", "bursts", "time", "mean duration", "IPC", "ranks"), *(row.text() for row in rows)]))
    print(f"results: {directory}")
    return 0
