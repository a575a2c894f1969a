"""Applications on simulated nodes: models and sampling against full detail.

``python measure_applications.py TRACES OUT [NAME...]``, with manyscale importable: for each NAME, the trace TRACES/NAME
(``--level tasks``) and TRACES/NAME-detail (``--level detailed --iterations 2``) of the same run are predicted on every
target, number of cores and model of the tables below, and a row per case is written to the CSV file OUT.
``iteration_ms`` is the mean over ranks of the time from the end of the first iteration's last operation to that of the
second's, the one that is simulated (where iterations have no operations, that of its phases; nothing in bursts); errors
are of that time. CPU time is that of the work units, profiles of task instances included, with a cache of its own for
each case; the first case of a process also loads compiled kernels.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import manyscale
from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.study import WorkloadChoice

TARGETS: Final = {"marenostrum3": (1, 8, 16), "musa-high-performance-tasksim": (1, 8, 16), "epyc-zen4": (1,)}
MODELS: Final[dict[str, dict[str, Any]]] = {
    "detailed": {"model": {"cpu": "detailed"}},
    "burst": {"model": {"cpu": "burst"}},
    "interval": {"model": {"cpu": "interval"}},
    "lazy": {"model": {"cpu": "detailed"}, "sampling": {"tasks": "lazy"}},
    "lazy+classes": {
        "model": {"cpu": "detailed"},
        "sampling": {"tasks": "lazy"},
        "taskpoint": {"classes": "bbv"},
    },
}
COLUMNS: Final = (
    "application", "target", "ranks", "cores", "model", "makespan_ms", "iteration_ms", "error_percent",
    "makespan_half_width_percent", "detailed_instructions_percent", "cpu_seconds", "native_iteration_ms",
)  # fmt: skip
MEASURED: Final = "epyc-zen4"  # native times are of such a machine
SECOND: Final = 1
_BOUNDS: Final = ("first_operation_id", "end_operation_id")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", type=Path, metavar="TRACES")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--native", action="append", default=[], metavar="APPLICATION=MS", help="of one rank")
    options = parser.parse_args(arguments)
    names = options.names or sorted(path.name.removesuffix("-detail") for path in options.traces.glob("*-detail"))
    native = dict(each.split("=") for each in options.native)
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for name in names:
            for row in measured(options.traces / name, native):
                writer.writerow(row)
                file.flush()
    return 0


def measured(trace: Path, native: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """A row per target, number of cores and model."""
    workload = manyscale.read_workload(WorkloadChoice(path=str(trace)))
    for target, numbers in TARGETS.items():
        if target == MEASURED and workload.num_ranks > 2:
            continue  # it has two cores
        for cores in numbers:
            truth = 0.0
            for model, choice in MODELS.items():
                study = {
                    "workload": {"path": str(trace), "detail": f"{trace}-detail"},
                    "target": target,
                    "mapping": {"cores_per_rank": cores},
                    **choice,
                }
                found = measure(study, workload)
                truth = truth or found["iteration_ms"]
                name = trace.name.rpartition("-")[0]
                case = (name, target, str(workload.num_ranks), str(cores), model)
                yield {
                    **dict(zip(COLUMNS, case, strict=False)),
                    **{key: "" if math.isnan(value) else f"{value:.4g}" for key, value in found.items()},
                    "error_percent": f"{100 * (found['iteration_ms'] / truth - 1):.2f}".replace("nan", ""),
                    "native_iteration_ms": native.get(name, "") if target == MEASURED else "",
                }


def measure(study: Mapping[str, Any], workload: Workload) -> dict[str, float]:
    """One case, with nothing stored from others."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        result = manyscale.run(study, run, executor="local", report=False, cache=Path(folder) / "cache")
        host = json.loads((run / "simulator.json").read_text())
    makespan = result.statistics["application.makespan"]
    share = result.statistics.get("node.detailed_share")
    half_width = 0.0 if makespan.ci_high is None else (makespan.ci_high - makespan.value) / makespan.value
    return {
        "makespan_ms": makespan.value * 1e3,
        "iteration_ms": iteration_ms(result, workload),
        "makespan_half_width_percent": 100 * half_width,
        "detailed_instructions_percent": 100 * share.value if share is not None else 0.0,
        "cpu_seconds": host["unit_cpu_seconds"],
    }


def iteration_ms(result: manyscale.Result, workload: Workload) -> float:
    """Mean over ranks; NaN where nothing tells it."""
    cells = result.statistics.get("node.cells")
    rank, operation, end_ps = (to_numpy(result.ranks.column(name)) for name in ("rank", "operation_id", "end_ps"))
    times = []
    for owner in range(workload.num_ranks):
        row = np.flatnonzero(
            (workload.column("iterations", "rank") == owner) & (workload.column("iterations", "iteration") == SECOND)
        )[0]
        places = [int(workload.column("iterations", name)[row]) - 1 for name in _BOUNDS]
        if places[0] == places[1]:
            return 1e3 * result.statistics["node.cells_time"].value / cells.value if cells else math.nan
        ends = [end_ps[(rank == owner) & (operation == place)].max() for place in places]
        times.append(ends[1] - ends[0])
    return float(np.mean(times)) / 1e9


if __name__ == "__main__":
    sys.exit(main())
