"""Task instances from micro-profiles (models/node/micro) against the detailed model, on one core.

``python -m micro.measure_cores TRACES OUT [NAME ...]`` in tests/validation, with manyscale importable: for each trace
TRACES/NAME (two parts: suite and program; by default all), each target and caches empty or as the same iteration left
them, the last iteration is simulated in detail and predicted; a row per case is written to the CSV file OUT. Times are
CPU seconds, the better of two; collection is shared by the cases of a trace. The cycles of an iteration are the sum
over its task instances. With ``--designs``, 24 cores of DESIGNS instead of the targets, with warm caches: Spearman's
correlation of the ranks of each trace's designs by cycles (in steps of 1 %).
"""

from __future__ import annotations

import argparse
import copy
import csv
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.stats import spearmanr

from manyscale.models.machine import Node
from manyscale.models.node.detailed import NodeSimulation
from manyscale.models.node.micro.collect import collect_profiles
from manyscale.models.node.micro.profiles import MicroProfiles
from manyscale.models.node.micro.response import core_response, instance_cycles
from manyscale.models.node.micro.run_order import run_order
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner.predict.node.cells.open_cell import OpenCell, open_cell, phases_of_cell
from manyscale.runner.predict.node.cells.plan import detailed_segments
from manyscale.runner.predict.node.cells.streams import stream_part
from manyscale.runner.predict.node.creation import creation_pieces
from manyscale.runner.predict.node.rank_part import rank_part
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.targets import build_machine, shipped_targets

TARGETS: Final = ("grass-high-performance", "grass-low-power", "epyc-zen4")
# of grass-high-performance: width, reorder buffer, line fill buffers, size of L2, latency of memory
DESIGNS: Final = [
    (width, window, buffers, f"{kib} KiB", f"{latency} ns")
    for width, window, buffers in ((1, 32, 4), (2, 64, 8), (4, 168, 16), (8, 400, 32))
    for kib in (128, 512, 2048)
    for latency in (65, 130)
]
COLUMNS: Final = (
    "name", "target", "caches", "million_instructions", "cpi", "predicted_cpi", "error_percent", "windows",
    "detailed_s", "collect_s", "response_s",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--designs", action="store_true")
    options = parser.parse_intermixed_args(arguments)
    found = sorted(each.parent.relative_to(options.traces) for each in options.traces.glob("*/*/workload.json"))
    rows: list[dict[str, Any]] = []
    for name in options.names or map(str, found):
        if options.designs:
            rows += designs(name, cell_of(options.traces / name))
            cycles, predicted = (np.array([row[key] for row in rows[-len(DESIGNS) :]]) for key in COLUMNS[4:6])
            ranks = spearmanr(*(np.rint(100 * np.log(each)) for each in (cycles, predicted)))  # 1 % is equal
            print(name, f"rank correlation {ranks.statistic:.3f}", flush=True)
            continue
        rows += measure(name, cell_of(options.traces / name))
        print(*(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    errors = np.array([abs(row["error_percent"]) for row in rows])
    print(f"{len(rows)} cases: mean {errors.mean():.2f} %, largest {errors.max():.1f} %")
    return 0


def cell_of(path: Path) -> OpenCell:
    """The last iteration of rank 0 on one core."""
    workload = workload_folder.read(path)
    rank, iteration = detailed_segments(workload)
    last = int(iteration[rank == 0].max())
    rows = np.flatnonzero((rank == 0) & (iteration == last))
    part, runtime = rank_part(workload, 0, instructions=True), RuntimeSystem()
    stream = stream_part(workload, int(rows[0]), int(rows[-1]) + 1)
    program, decoded, pieces = open_cell({"rank": 0, "cores": 1}, {"part": part, "stream": stream}, runtime)
    first, end = phases_of_cell(program, last)
    creates = creation_pieces(program, part.workload)
    return OpenCell(part.workload, program, decoded, pieces, creates, first, end, node_of(TARGETS[0]), runtime)


def node_of(target: str) -> Node:
    return build_machine(load_yaml(shipped_targets()[target]), target).node


def measure(name: str, cell: OpenCell) -> list[dict[str, Any]]:
    """Rows of all targets and caches."""
    profiles, collect_s = least(lambda: profiles_of(cell))
    instructions = int(profiles.instructions.sum())
    rows = []
    for target in TARGETS:
        node = node_of(target)
        for caches in ("cold", "warm"):
            cycles, detailed_s = detailed(cell, node, warm=caches == "warm")
            predicted, response_s = least(lambda: predict(profiles, cell, node, caches == "warm"))  # noqa: B023
            values = (
                name, target, caches, round(instructions / 1e6, 1), round(cycles / instructions, 4),
                round(predicted / instructions, 4), round(100 * (predicted / cycles - 1), 2), profiles.num_windows,
                round(detailed_s, 3), round(collect_s, 3), round(response_s, 4),
            )  # fmt: skip
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def designs(name: str, cell: OpenCell) -> list[dict[str, Any]]:
    """Rows of all designs."""
    profiles = profiles_of(cell)
    instructions = int(profiles.instructions.sum())
    content = load_yaml(shipped_targets()[TARGETS[0]])
    rows = []
    for width, window, buffers, size, latency in DESIGNS:
        raw = copy.deepcopy(content)
        raw["node"]["core"] |= {"width": width, "reorder_buffer": window, "line_fill_buffers": buffers}
        raw["node"]["core"].pop("commit", None)
        raw["node"]["caches"]["L2"]["size"] = size
        raw["node"]["main_memory"]["latency"] = latency
        node = build_machine(raw, TARGETS[0]).node
        cycles, _ = detailed(cell, node, warm=True)
        predicted = predict(profiles, cell, node, True)
        values = (
            name, f"width {width} window {window} buffers {buffers} L2 {size} memory {latency}", "warm",
            round(instructions / 1e6, 1), round(cycles / instructions, 4), round(predicted / instructions, 4),
            round(100 * (predicted / cycles - 1), 2), profiles.num_windows, 0, 0, 0,
        )  # fmt: skip
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def profiles_of(cell: OpenCell) -> MicroProfiles:
    piece_ps = cell.pieces.num_instructions * 1000 + cell.creation_ps
    order = run_order(cell.program, 1, cell.runtime, piece_ps.astype(np.int64), cell.first, cell.end)
    return collect_profiles(cell.program, cell.stream, cell.pieces, cell.workload, order=order)


def least(function: Callable[[], Any]) -> tuple[Any, float]:
    """Its result, and the CPU seconds of the better of two runs behind a first one, which compiles."""
    function()
    times = []
    for _ in range(2):
        begin = time.process_time()
        result = function()
        times.append(time.process_time() - begin)
    return result, min(times)


def predict(profiles: MicroProfiles, cell: OpenCell, node: Node, warm: bool) -> float:
    """Cycles of all instances."""
    response, _ = core_response(profiles, cell.workload, node, warm=warm)
    return float(instance_cycles(profiles, response).sum())


def detailed(cell: OpenCell, node: Node, *, warm: bool) -> tuple[float, float]:
    """(cycles of all instances, CPU seconds)."""
    times = []
    for _ in range(2):
        simulation = NodeSimulation(
            cell.program, cell.workload, node, 1, cell.runtime, cell.stream, cell.pieces, first_phase=cell.first,
            end_phase=cell.end, empty_ps=cell.creation_ps,
        )  # fmt: skip
        if warm:
            simulation.run()
            simulation.start()
        begin = time.process_time()
        simulation.run()
        times.append(time.process_time() - begin)
    return float(simulation.result().instances["cycles"].sum()), min(times)


if __name__ == "__main__":
    sys.exit(main())
