"""Chapter 6's figures of the case studies: how they scale over cores and ranks, on which processors, at what cost.

``python design.py BINARIES WORK OUT [PART...]``, with manyscale importable and what chapter6_programs.py made in
BINARIES, traces the cases ``DESIGN`` and ``RANKS`` (once, in WORK) and writes a row per prediction to the CSV file OUT:

``cores``: 1 to 64 cores of each rank in bursts, and on some in detail (Grass, UPC 2017, fig. 6.4 to 6.6)
``ranks``: 1 to 16 ranks of one core in bursts, each number of them traced
``creator``: the creating thread a hundred times as fast (section 6.4.5)
``network``: no latency and infinite bandwidth
``processors``: three processors and widths of 1, 2 and 4 on 64 cores in detail (fig. 6.10)
``tasksim``: the same with instructions that take nothing but their place, as TaskSim has them
``cost``: CPU seconds of a prediction with 64 cores in bursts, in detail and sampled (fig. 6.7 to 6.9), without and with
classes of like code, and how far the latter two are from detail

``iteration_ms`` is as in native.py. Speed-ups are over one core of each rank (of one rank in ``ranks``, and of the
high-performance processor of width 4 in ``processors``). A core's chunk of a loop costs ``--schedule`` on several.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chapter6_cases import DESIGN, RANKS
from native import Place, iteration_ms

import manyscale
from manyscale.runner.study import WorkloadChoice

CORES: Final = (1, 2, 4, 8, 16, 32, 64)
IN_DETAIL: Final = (1, 8, 64)
MOST: Final = 64
HIGH: Final = "musa-high-performance"
PROCESSORS: Final = (HIGH, "musa-low-power", "musa-stacked-dram")
WIDTHS: Final = (1, 2, 4)
IDEAL_NETWORK: Final = {
    f"target.network.{route}{key}": value
    for route in ("", "intra_node.", "self.")
    for key, value in (("latency", "0 s"), ("bandwidth", "inf B/s"))
}
PARTS: Final = ("cores", "ranks", "creator", "network", "processors", "tasksim", "cost")
COLUMNS: Final = (
    "part", "case", "target", "width", "ranks", "cores", "model", "iteration_ms", "speedup", "efficiency_percent",
    "process_percent", "serial_percent", "thread_balance_percent", "difference_percent", "cpu_seconds",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("binaries", type=Path, metavar="BINARIES")
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default all")
    parser.add_argument("--schedule", default="280 ns")
    parser.add_argument("--only", action="append", default=[], metavar="CASE", help="of chapter6_cases.DESIGN")
    options = parser.parse_args(arguments)
    place = Place(options.binaries.resolve(), options.work.resolve(), realtime=False)
    made = Predictions(place, {"schedule": options.schedule})
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        writer.writeheader()
        for name in options.only or DESIGN:
            for part in options.parts or PARTS:
                for row in getattr(made, part)(name):
                    writer.writerow({"part": part, "case": name.rpartition("-")[0], **row})
                    file.flush()
    return 0


class Predictions:
    """Rows of each part, of a case of DESIGN."""

    def __init__(self, place: Place, runtime: Mapping[str, str]) -> None:
        self.place, self.runtime = place, dict(runtime)

    def trace(self, name: str) -> Path:
        case = (DESIGN | RANKS)[name]
        made = self.place.work / name
        return made if made.is_dir() else self.place.trace(name, case, case.of_threads or case.program, 1)

    def detail(self, name: str) -> Path:
        case = DESIGN[name]
        self.trace(name)
        return self.place.detail(name, case, case.of_threads or case.program)

    def predict(
        self, trace: Path, cores: int, target: str = HIGH, changed: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """The columns of one prediction; ``more``: keys of the study, of which dotted ones are ``changed``."""
        runtime = {**(self.runtime if cores > 1 else {}), **more.pop("runtime", {})}
        where = {"path": str(trace), **more.pop("workload", {})}
        mapping = {"cores_per_rank": cores, "ranks_per_node": 1}
        study = {"workload": where, "target": target, "mapping": mapping, "runtime": runtime, **more}
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            result = manyscale.run(
                study, run, executor="local", report=False, cache=Path(folder) / "cache", set=dict(changed or {})
            )
            host = json.loads((run / "simulator.json").read_text())
        workload = manyscale.read_workload(WorkloadChoice(path=str(trace)))
        factors = {
            column: result.statistics.get(f"application.{name}")
            for column, name in (
                ("process_percent", "process_efficiency"), ("serial_percent", "serial_efficiency"),
                ("thread_balance_percent", "thread_load_balance"),
            )
        }  # fmt: skip
        return {
            "target": target,
            "ranks": workload.num_ranks,
            "cores": cores,
            "model": more.get("model", {}).get("cpu", "burst"),
            "iteration_ms": f"{iteration_ms(result, workload):.4g}",
            "cpu_seconds": f"{host['unit_cpu_seconds']:.3g}",
            **{column: f"{100 * each.value:.1f}" for column, each in factors.items() if each is not None},
        }

    def in_detail(self, name: str, cores: int, target: str = HIGH, **more: Any) -> dict[str, Any]:
        workload = {"detail": str(self.detail(name))}
        return self.predict(self.trace(name), cores, target, workload=workload, model={"cpu": "detailed"}, **more)

    def cores(self, name: str) -> Iterator[dict[str, Any]]:
        yield from over([self.predict(self.trace(name), number) for number in CORES], "cores")
        yield from over([self.in_detail(name, number) for number in IN_DETAIL], "cores")

    def ranks(self, name: str) -> Iterator[dict[str, Any]]:
        program = name.rpartition("-")[0]
        names = [each for each in RANKS if each.rpartition("-")[0] == program]
        yield from over([self.predict(self.trace(each), 1) for each in names], "ranks")

    def creator(self, name: str) -> Iterator[dict[str, Any]]:
        for number in (8, MOST):
            yield self.predict(self.trace(name), number, runtime={"creator_speedup": 100.0})

    def network(self, name: str) -> Iterator[dict[str, Any]]:
        for number in (8, MOST):
            yield self.predict(self.trace(name), number, changed=IDEAL_NETWORK)

    def tasksim(self, name: str) -> Iterator[dict[str, Any]]:
        return self.processors(name, "-tasksim")

    def processors(self, name: str, kind: str = "") -> Iterator[dict[str, Any]]:
        base = self.in_detail(name, 1, f"{HIGH}{kind}")
        for target in (f"{each}{kind}" for each in PROCESSORS):
            for width in WIDTHS:
                found = self.in_detail(name, MOST, target, changed={"target.node.core.width": width})
                yield speedup({**found, "width": width}, base)

    def cost(self, name: str) -> Iterator[dict[str, Any]]:
        yield self.predict(self.trace(name), MOST)
        full = self.in_detail(name, MOST)
        yield full
        for model, more in (("lazy", {}), ("lazy+classes", {"taskpoint": {"classes": "bbv"}})):
            sampled = self.in_detail(name, MOST, sampling={"tasks": "lazy"}, **more)
            off = float(sampled["iteration_ms"]) / float(full["iteration_ms"]) - 1
            yield {**sampled, "model": model, "difference_percent": f"{100 * off:+.1f}"}


def speedup(row: dict[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "speedup": f"{float(base['iteration_ms']) / float(row['iteration_ms']):.3g}"}


def over(rows: list[dict[str, Any]], axis: str) -> Iterator[dict[str, Any]]:
    """Speed-up and efficiency over the first row."""
    for row in rows:
        found = speedup(row, rows[0])
        share = float(rows[0]["iteration_ms"]) / float(row["iteration_ms"]) * rows[0][axis] / row[axis]
        yield {**found, "efficiency_percent": f"{100 * share:.1f}"}


if __name__ == "__main__":
    sys.exit(main())
