"""``manyscale evaluate``: how far sampled simulations of task instances are from full detail, and what they save.

As figures 5.9 to 5.14 of Grass (UPC 2017): of each trace, number of cores and method, the error of the predicted time
of the simulated iterations against the same simulated in full detail, whether the confidence interval holds the truth,
the share of instructions in detail, and the ratio of CPU times. All are simulated anew, one after the other in this
process, so that CPU times compare; they are those of the units that simulate, with reading what they need and the
caches' state at the beginning, without profiles, which are computed once for an application. Each method is simulated
once before, since kernels are compiled or loaded then.

Creating task instances takes no time here (``detailed: {creation: free}``): where one core creates all of them, many
cores would wait for it, and any sample would do.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.models.workload.columns import one_chunk, text_array
from manyscale.runner.cli.commands import progress_bar
from manyscale.runner.errors import UserError
from manyscale.runner.report.page import Page
from manyscale.runner.report.sections.phases import phases_over_time
from manyscale.runner.report.text import table as html_table
from manyscale.runner.run import api
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table
from manyscale.runner.study import assign, parse_assignment, parse_study
from manyscale.sampling.taskpoint.options import source_choices

TIME: Final = "node.cells_time"
FULL: Final = "full"
_PARTS: Final[dict[str, dict[str, Any]]] = {
    "lazy": {"sampling.tasks": "lazy"},
    "periodic": {"sampling.tasks": "periodic"},
    "interval": {"model.cpu": "interval"},
    "source": {f"taskpoint.{name}": value for name, value in source_choices().items()},
    "types": {"taskpoint.classes": "types"},
    "classes": {"taskpoint.classes": "bbv"},
    "model": {"taskpoint.correction": "interval"},
    "stale": {"taskpoint.fast_forward": "stale"},
    "warm": {"taskpoint.fast_forward": "warm"},
    "settle": {"taskpoint.settle": 8},
    "unsettled": {"taskpoint.settle": 0},
}
_BEHIND: Final = [name for name in _PARTS if name not in ("lazy", "periodic", "interval")]
DEFAULT_METHODS: Final = "lazy+source,periodic+source,lazy,periodic"
COLUMNS: Final = ("error", "detailed_share", "speedup", "cpu_seconds")


def evaluate(options: argparse.Namespace) -> int:
    """The command. Raises UserError for a method, a number or a trace that makes no sense."""
    methods = [(name, _method(name)) for name in (options.methods or DEFAULT_METHODS).split(",")]
    cores = _numbers(options.cores)
    directory = rundir.new_directory(options.output, "evaluation", False)
    rows: list[dict[str, Any]] = []
    compiled: set[str] = set()
    total = len(options.traces) * len(cores) * (1 + len(methods))
    with progress_bar() as progress:
        for trace in options.traces:
            for number in cores:
                base = _study(trace, number, options)
                truth: dict[str, Any] = {}
                for name, changes in ((FULL, ()), *methods):
                    place = _place(directory, Path(trace).name.partition(".")[0], number, name)
                    if name not in compiled:
                        with TemporaryDirectory(dir=directory) as scratch:  # kernels are loaded then
                            _measured(base, changes, Path(scratch) / "run", Path(scratch) / "cache")
                        compiled.add(name)
                    row = _measured(base, changes, place, directory / "cache")
                    truth = truth or row
                    rows.append(_row(Path(trace).name.partition(".")[0], number, name, row, truth))
                    progress(len(rows), total)
    table = _table(rows)
    write_table(table, directory / "evaluation.parquet")
    text = summary(table)
    rundir.write_atomically(directory / "evaluation.txt", text)
    rundir.write_atomically(directory / "report.html", _page(rows, directory))
    print(text, end="")
    print(f"results: {directory}")
    return 0


def _place(directory: Path, workload: str, cores: int, method: str) -> Path:
    """The run directory of a method."""
    return directory / workload / f"{cores}-{method.replace('+', '-')}"


def _method(name: str) -> tuple[tuple[str, Any], ...]:
    """Keys of a study and their values, of a method such as lazy+source+classes."""
    parts = name.split("+")
    unknown = [part for part in parts if part not in _PARTS]
    if unknown or parts[0] not in ("lazy", "periodic", "interval") or (parts[0] == "interval" and len(parts) > 1):
        raise UserError(
            f"--methods {name!r}: write lazy or periodic, with any of +{', +'.join(_BEHIND)} behind it, or interval"
        )
    return tuple(pair for part in parts for pair in _PARTS[part].items())


def _numbers(text: str) -> list[int]:
    numbers = [int(each) if each.strip().isdigit() else 0 for each in text.split(",")]
    if not all(numbers):
        raise UserError(f"--cores {text!r}: write numbers of at least 1, such as 8,16,32,64")
    return numbers


def _study(trace: str, cores: int, options: argparse.Namespace) -> dict[str, Any]:
    content: dict[str, Any] = {
        "schema": 1,
        "workload": {"path": trace},
        "target": options.target,
        "model": {"cpu": "detailed"},
        "sampling": {"iterations": options.iterations},
        "mapping": {"cores_per_rank": cores},
        "detailed": {"creation": "free"},
        "timeline": {"ranks": [], "iterations": []},
    }
    for text in options.assignments:
        content = assign(content, *parse_assignment(text))
    parse_study(content, "evaluate")
    return content


def _measured(base: dict[str, Any], changes: Sequence[tuple[str, Any]], directory: Path, cache: Path) -> dict[str, Any]:
    """A run's time with its interval, share in detail and CPU time."""
    content = base
    for key, value in changes:
        content = assign(content, key, value)
    directory.parent.mkdir(parents=True, exist_ok=True)
    options = api.Options(output=directory, executor="local", cache=cache, report=False)
    finished = api.run_study(content, "evaluate", None, options)
    figures = finished.points[0].statistics
    units = pq.read_table(directory / "units.parquet").to_pylist()
    time = figures[TIME]
    return {
        "time": float(time.value),
        "low": time.ci_low,
        "high": time.ci_high,
        "share": float(figures["node.detailed_share"].value),
        "cpu": sum(unit["cpu_seconds"] for unit in units if unit["kind"] == "node-cell"),
    }


def _row(trace: str, cores: int, method: str, found: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, Any]:
    has_interval = found["low"] is not None
    return {
        "workload": trace,
        "cores": cores,
        "method": method,
        "time": found["time"],
        "error": found["time"] / truth["time"] - 1,
        "half_width": (found["high"] - found["low"]) / 2 / truth["time"] if has_interval else None,
        "holds": int(found["low"] <= truth["time"] <= found["high"]) if has_interval else None,
        "detailed_share": found["share"],
        "cpu_seconds": found["cpu"],
        "speedup": truth["cpu"] / found["cpu"] if found["cpu"] else 0.0,
    }


def _table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A row per trace, number of cores and method. Columns that cli/evaluate_profiles.py has, too, mean the same:
    ``error`` has its sign; ``half_width`` and ``holds`` are null where there is no interval."""
    texts = ("workload", "method")
    columns = {name: text_array([row[name] for row in rows]) for name in texts}
    for name, kind in (("cores", pa.int32()), ("holds", pa.int8())):
        columns[name] = pa.array([row[name] for row in rows], kind)
    for name in ("time", "error", "half_width", "detailed_share", "cpu_seconds", "speedup"):
        columns[name] = pa.array([row[name] for row in rows], pa.float64())
    return pa.table(columns)


def summary(table: pa.Table) -> str:
    """All rows, and by number of cores and method mean and largest error and the geometric mean of speed-ups."""
    rows = table.to_pylist()
    lines = [f"{'workload':24} {'cores':>5} {'method':24} {'error':>8} {'+-':>7} {'detail':>7} {'speed-up':>8}"]
    for row in rows:
        if row["method"] != FULL:
            lines.append(
                f"{row['workload'][:24]:24} {row['cores']:5d} {row['method']:24} {row['error']:+8.2%} "
                f"{_percent(row['half_width'])} {row['detailed_share']:7.2%} {row['speedup']:8.1f}"
            )
    lines += ["", f"{'method':24} {'cores':>5} {'mean':>7} {'largest':>8} {'holds':>7} {'detail':>7} {'speed-up':>8}"]
    for method in dict.fromkeys(row["method"] for row in rows):
        for cores in (*dict.fromkeys(row["cores"] for row in rows), 0):
            mine = [row for row in rows if row["method"] == method and cores in (row["cores"], 0)]
            if method == FULL or not mine:
                continue
            errors = np.abs([row["error"] for row in mine])
            known = [row["holds"] for row in mine if row["holds"] is not None]
            holds = _percent(np.mean(known) if known else None)
            share = np.mean([row["detailed_share"] for row in mine])
            speed = np.exp(np.mean(np.log([max(row["speedup"], 1e-9) for row in mine])))
            lines.append(
                f"{method:24} {cores or 'all':>5} {errors.mean():7.2%} {errors.max():8.2%} {holds} {share:7.2%} "
                f"{speed:8.1f}"
            )
    return "\n".join(lines) + "\n"


def _percent(value: np.floating | float | None) -> str:
    return f"{'' if value is None else f'{value:.2%}':>7}"


def _page(rows: Sequence[Mapping[str, Any]], directory: Path) -> str:
    """All rows, and CPI over the task instances by task type as they are in full detail, with those that each method
    simulated in detail; of the first number of cores."""
    page = Page("Samples of task instances against full detail", "Errors of the time of the simulated iterations.")
    header = ("workload", "cores", "method", "error", "half-width", "holds", "in detail", "speed-up")
    sampled = [row for row in rows if row["method"] != FULL]
    cells = [
        (
            row["workload"], str(row["cores"]), row["method"], f"{row['error']:+.2%}", _percent(row["half_width"]),
            "" if row["holds"] is None else "yes" if row["holds"] else "no", f"{row['detailed_share']:.2%}",
            f"{row['speedup']:.1f}",
        )
        for row in sampled
    ]  # fmt: skip
    page.add("Errors", html_table(header, cells, numeric_from=3))
    for number, row in enumerate(sampled):
        if row["cores"] == rows[0]["cores"]:
            full, own = (
                pq.read_table(
                    _place(directory, row["workload"], row["cores"], method) / "timeline/task_instances.parquet"
                )
                for method in (FULL, row["method"])
            )
            kind = one_chunk(full.column("task_type"))
            cpi = np.array(full.column("cycles")) / np.maximum(np.array(full.column("instructions")), 1)
            detailed = np.flatnonzero(np.array(own.column("model").to_pylist()) == "detailed")
            chart = phases_over_time(
                page, f"instances-{number}", cpi, np.array(kind.indices), detailed, kind.dictionary.to_pylist(),
                one="task instance", caption=f"CPI of {row['workload']} by task type",
            )  # fmt: skip
            note = "CPI of task instances in full detail, in the order of their creation; marked: simulated in detail."
            page.add(f"{row['workload']}, {row['cores']} cores: {row['method']}", chart, note=note)
    return page.html()
