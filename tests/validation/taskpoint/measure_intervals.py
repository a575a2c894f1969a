"""How often TaskPoint's intervals hold, and how wide they are, on the smaller traces of the twelve kernels.

``python -m taskpoint.measure_intervals TRACES OUT.csv [--cores 8,16,32,64] [KERNEL ...]`` in tests/validation, with
manyscale importable. ``python -m interval.trace_programs`` makes TRACES. Both sides begin with caches as the same
iteration leaves them; creating task instances takes no time. The merge sort is scheduled by work stealing. A row per
case and method: error of the time, half-width of its 95 % interval in percent of that time, and whether it holds; a
line per suite and method at the end.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from interval.cases import Program, run

from manyscale.models.machine import Machine
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner.predict.node.cells import profile_units
from manyscale.runner.study.targets import target_named
from manyscale.sampling.taskpoint.options import source_choices

METHODS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "lazy": ("lazy", {}),
    "periodic": ("periodic", {"period": 32}),
    "lazy+stale": ("lazy", {"fast_forward": "stale"}),
    "lazy+source": ("lazy", source_choices()),
}
TARGETS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "resident": ("grass-high-performance-tasksim", {}),
    "beyond": (
        "grass-low-power-tasksim",
        {"cores_per_socket": 64, "caches": {"L2": {"shared_by_cores": 64}}},
    ),
}
COLUMNS: Final = ("suite", "kernel", "cores", "method", "error_percent", "half_width_percent", "holds")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", type=Path, metavar="TRACES")
    parser.add_argument("output", type=Path, metavar="OUT.csv")
    parser.add_argument("--cores", default="8,16,32,64", help="numbers of cores (default: 8,16,32,64)")
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="default: all")
    options = parser.parse_intermixed_args(arguments)
    rows: list[tuple[Any, ...]] = []
    with options.output.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for suite in TARGETS:
            for folder in sorted(each for each in (options.traces / suite).iterdir() if each.is_dir()):
                if options.kernels and folder.name not in options.kernels:
                    continue
                for cores in map(int, options.cores.split(",")):
                    for row in measured(suite, folder, cores):
                        table.writerow(row)
                        rows.append(row)
    for suite in TARGETS:
        for method in METHODS:
            mine = [row for row in rows if (row[0], row[3]) == (suite, method)]
            if mine:
                widths = [float(row[5]) for row in mine]
                print(f"{suite} {method}: {sum(row[6] for row in mine)} of {len(mine)} hold; half-width median "
                      f"{statistics.median(widths):.2f} %, mean {statistics.mean(widths):.2f} %")  # fmt: skip
    return 0


def measured(suite: str, folder: Path, cores: int) -> Iterator[tuple[Any, ...]]:
    """A row per method."""
    target = machine(suite)
    program = Program(folder)
    asked = {
        "rank": 0,
        "iteration": program.iteration,
        "cores": cores,
        "line_bytes": profile_units.line_bytes_of(target),
    }
    profile = profile_units.profile_cell(asked | {"instances": True, "analytical": False}, program.inputs())
    cell = program.open(cores, target)
    if folder.name == "merge_sort":
        cell = replace(cell, runtime=RuntimeSystem(policy="work-stealing"))
    truth = int(run(cell, cores, "detailed", profile, caches="warm").makespan_ps.sum())
    for name, (tasks, options) in METHODS.items():
        found = run(cell, cores, "detailed", profile, tasks, caches="warm", **options)
        time, half = int(found.makespan_ps.sum()), float(found.arrays["half_width"][0])
        holds = int(abs(time - truth) <= half * time)
        yield suite, folder.name, cores, name, f"{100 * (time / truth - 1):.2f}", f"{100 * half:.2f}", holds


def machine(suite: str) -> Machine:
    """The target of a suite, with compares and branches fused."""
    name, changes = TARGETS[suite]
    return target_named({"name": name, "node": {"core": {"fuses_branches": True}, **changes}})[0]


if __name__ == "__main__":
    sys.exit(main())
