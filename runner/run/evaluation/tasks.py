"""How far sampled simulations of task instances are from full detail, and what they save.

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

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.models.spelling import closest
from manyscale.models.workload.columns import text_array
from manyscale.runner.errors import UserError
from manyscale.runner.input_kinds import TASK_METHODS, TASK_SUFFIXES
from manyscale.runner.progress import Progress, silent
from manyscale.runner.run import study_runs
from manyscale.runner.study import assign, parse_study
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
DEFAULT_METHODS: Final = ("lazy+source", "periodic+source", "lazy", "periodic")
COLUMNS: Final = ("error", "detailed_share", "speedup", "cpu_seconds")


def evaluate(
    traces: Sequence[str],
    directory: Path,
    methods: Sequence[str] = DEFAULT_METHODS,
    cores: Sequence[int] = (8, 16, 32, 64),
    *,
    target: str = "grass-high-performance",
    iterations: str = "joined",
    changes: Sequence[tuple[str, Any]] = (),
    accept: Collection[str] = (),
    strict: bool = False,
    progress: Progress = silent,
) -> list[dict[str, Any]]:
    """A row (``table``) per trace, number of cores and method, full detail first, with its ``notes``; run directories
    in ``directory``. ``accept``, ``strict``: as of runs.
    ``changes``: keys of the studies with their values. Raises UserError for a method, a number or a trace that makes no
    sense, RunError if a run fails."""
    changed = {name: changes_of(name) for name in methods}
    of_notes = {"accept": accept, "strict": strict}
    rows: list[dict[str, Any]] = []
    compiled: set[str] = set()
    total = len(traces) * len(cores) * (1 + len(methods))
    for trace in traces:
        stem = Path(trace).name.partition(".")[0]
        for number in cores:
            base = _study(trace, number, target, iterations, changes)
            truth: dict[str, Any] = {}
            for name, keys in ((FULL, ()), *changed.items()):
                if name not in compiled:
                    with TemporaryDirectory(dir=directory) as scratch:  # kernels are loaded then
                        _measured(base, keys, Path(scratch) / "run", Path(scratch) / "cache", **of_notes)
                    compiled.add(name)
                row = _measured(base, keys, place(directory, stem, number, name), directory / "cache", **of_notes)
                truth = truth or row
                rows.append(_row(stem, number, name, row, truth))
                progress(len(rows), total, "evaluating")
    return rows


def place(directory: Path, workload: str, cores: int, method: str) -> Path:
    """The run directory of a method."""
    return directory / workload / f"{cores}-{method.replace('+', '-')}"


def changes_of(method: str) -> tuple[tuple[str, Any], ...]:
    """Keys of a study and their values, of a method such as lazy+source+classes. Raises UserError."""
    parts = method.split("+")
    unknown = [part for part in parts if part not in _PARTS]
    if unknown or parts[0] not in TASK_METHODS or (parts[0] == "interval" and len(parts) > 1):
        near = closest(unknown[0], _PARTS) if unknown else None
        meant = "" if near is None else f"did you mean {near!r}? "
        raise UserError(
            f"--method {method!r}: {meant}write lazy or periodic, with any of +{', +'.join(TASK_SUFFIXES)} behind it, "
            "or interval"
        )
    return tuple(pair for part in parts for pair in _PARTS[part].items())


def _study(
    trace: str, cores: int, target: str, iterations: str, changes: Sequence[tuple[str, Any]]
) -> dict[str, Any]:  # fmt: skip
    content: dict[str, Any] = {
        "schema": 1,
        "workload": {"path": trace},
        "target": target,
        "model": {"cpu": "detailed"},
        "sampling": {"iterations": iterations},
        "mapping": {"cores_per_rank": cores},
        "detailed": {"creation": "free"},
        "timeline": {"ranks": [], "iterations": []},
    }
    for key, value in changes:
        content = assign(content, key, value)
    parse_study(content, "evaluate")
    return content


def _measured(
    base: dict[str, Any], changes: Sequence[tuple[str, Any]], directory: Path, cache: Path, **of_notes: Any
) -> dict[str, Any]:
    """A run's time with its interval, share in detail and CPU time."""
    content = base
    for key, value in changes:
        content = assign(content, key, value)
    directory.parent.mkdir(parents=True, exist_ok=True)
    options = study_runs.Options(output=directory, executor="local", cache=cache, report=False, **of_notes)
    finished = study_runs.run_study(content, "evaluate", None, options)
    figures = finished.points[0].statistics
    units = pq.read_table(directory / "units.parquet").to_pylist()
    time = figures[TIME]
    return {
        "time": float(time.value),
        "low": time.ci_low,
        "high": time.ci_high,
        "share": float(figures["node.detailed_share"].value),
        "notes": finished.points[0].notes,
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
        "notes": found["notes"],
        "speedup": truth["cpu"] / found["cpu"] if found["cpu"] else 0.0,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A row per trace, number of cores and method. Columns that run/evaluation/profiles.py has, too, mean the same:
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
                f"{shown_share(row['half_width'])} {row['detailed_share']:7.2%} {row['speedup']:8.1f}"
            )
    lines += ["", f"{'method':24} {'cores':>5} {'mean':>7} {'largest':>8} {'holds':>7} {'detail':>7} {'speed-up':>8}"]
    for method in dict.fromkeys(row["method"] for row in rows):
        for cores in (*dict.fromkeys(row["cores"] for row in rows), 0):
            mine = [row for row in rows if row["method"] == method and cores in (row["cores"], 0)]
            if method == FULL or not mine:
                continue
            errors = np.abs([row["error"] for row in mine])
            known = [row["holds"] for row in mine if row["holds"] is not None]
            holds = shown_share(np.mean(known) if known else None)
            share = np.mean([row["detailed_share"] for row in mine])
            speed = np.exp(np.mean(np.log([max(row["speedup"], 1e-9) for row in mine])))
            lines.append(
                f"{method:24} {cores or 'all':>5} {errors.mean():7.2%} {errors.max():8.2%} {holds} {share:7.2%} "
                f"{speed:8.1f}"
            )
    return "\n".join(lines) + "\n"


def shown_share(value: np.floating | float | None) -> str:
    """Hundredths of a per cent; blanks for None."""
    return f"{'' if value is None else f'{value:.2%}':>7}"
