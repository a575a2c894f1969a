"""How far one creating thread bounds task programs: predictions on many cores against the closed form.

``python creator.py WORK OUT --target MACHINE``: WORK holds the traces ``creator-N`` of ``native.py``; the costs of the
runtime system are those of MACHINE, the cores those of ``musa-high-performance``. N instances of w, each created in c
(both as traced, with the runtime system's costs) by a thread that is s times as fast, take on p cores at least

    r / s + max(N c / s + w, N (c / s + w) / p)

an iteration: creation one after the other and the last instance, or all work on all cores (Grass, UPC 2017, section
6.4.5 names the first for HYDRO), beside the rest r of what the creating thread does between iterations.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from native import predicted

import manyscale
from manyscale.models.node.program.build import build_program
from manyscale.models.workload.task_tables import EventKind
from manyscale.runner.predict.node.schedule_units import phase_of_pieces
from manyscale.runner.problems import load_yaml
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.targets import build_machine

GRAINS: Final = (200, 500, 2000, 5000)
CORES: Final = (2, 4, 8, 16, 32, 64)
SPEEDUPS: Final = (1, 10, 100)
COLUMNS: Final = ("case", "cores", "creator_speedup", "predicted_ms", "law_ms", "off_percent", "speedup")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--target", required=True, metavar="MACHINE")
    options = parser.parse_args(arguments)
    content = load_yaml(Path(options.target))
    costs = build_machine(content, options.target).node.blocks["runtime_system"]
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for grain in GRAINS:
            trace = options.work / f"creator-{grain}"
            number, creation_ms, work_ms, rest_ms = traced(trace)
            alone = rest_ms + number * (creation_ms + work_ms)
            for cores in CORES:
                for speedup in SPEEDUPS:
                    each = creation_ms + costs.create_ps / 1e9
                    work = work_ms + costs.schedule_ps / 1e9
                    law = rest_ms / speedup + max(
                        number * each / speedup + work, number * (each / speedup + work) / cores
                    )
                    more = {
                        "target": {
                            "name": "musa-high-performance",
                            "node": {"runtime_system": content["node"]["runtime_system"]},
                        }
                    }
                    found = predicted(
                        trace, "musa-high-performance", cores, more | {"runtime": {"creator_speedup": speedup}}
                    )
                    row = (
                        trace.name,
                        cores,
                        speedup,
                        f"{found:.4g}",
                        f"{law:.4g}",
                        f"{100 * (found / law - 1):+.1f}",
                        f"{alone / found:.2f}",
                    )
                    print(*row, flush=True)
                    writer.writerow(dict(zip(COLUMNS, row, strict=True)))
    return 0


def traced(trace: Path) -> tuple[int, float, float, float]:
    """(instances of an iteration, ms of creating one, ms of executing one, ms of what else the creating thread does in
    an iteration), means from the second iteration to the last but one."""
    workload = manyscale.read_workload(WorkloadChoice(path=str(trace)))
    program = build_program(workload, 0, 1)
    iteration = program.phase_iteration[phase_of_pieces(program)]
    mine = (iteration >= 1) & (iteration < iteration.max())
    kind = workload.column("events", "kind")
    ends = np.where(program.piece_event >= 0, kind[np.maximum(program.piece_event, 0)], -1)
    executes = program.piece_instance > 0
    creates = (ends == int(EventKind.task_create)) & ~executes
    iterations = int(iteration.max()) - 1
    number = round(int((mine & creates).sum()) / iterations)
    creation, work, rest = (
        float(program.piece_ps[mine & which].sum()) / iterations / 1e9
        for which in (creates, executes, ~creates & ~executes)
    )
    return number, creation / number, work / number, rest


if __name__ == "__main__":
    sys.exit(main())
