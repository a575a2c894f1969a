"""The cases on which the analytical model of a node is held against the detailed one: programs, machines, cores.

Kernels are those of tests/programs at two sizes each, as taskpoint/trace_kernels.py has them, but smaller: an iteration
has some million instructions in 400 to 20,000 task instances, so that all cases are simulated in detail in a quarter
of an hour. ``resident``: what tasks touch fits the shared cache of grass-low-power (1 MiB). ``beyond``: it is two to
eight times as much, so that shared caches and DRAM decide. Applications run as one rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.runner.predict.node.cells import profile_units
from manyscale.runner.predict.node.cells.analytical_cell import costs_of
from manyscale.runner.predict.node.cells.open_cell import OpenCell, open_cell, open_profiled, phases_of_cell
from manyscale.runner.predict.node.cells.plan import WHOLE, detailed_segments
from manyscale.runner.predict.node.cells.simulated_cell import simulate
from manyscale.runner.predict.node.cells.streams import StreamPart, stream_part
from manyscale.runner.predict.node.cells.task_sampling import Found
from manyscale.runner.predict.node.creation import creation_pieces
from manyscale.runner.predict.node.options import DetailedChoice
from manyscale.runner.predict.node.rank_part import RankPart, rank_part
from manyscale.runner.predict.stored_arrays import restored
from manyscale.runner.predict.units import Arrays
from manyscale.runner.readers import workload_folder
from manyscale.runner.study.targets import target_named
from manyscale.sampling.taskpoint.options import TaskPointChoice

SUITES: Final[dict[str, dict[str, tuple[int, ...]]]] = {
    "resident": {
        "convolution_2d": (40, 4, 2, 2),
        "fft": (24, 32, 16, 1, 2),
        "histogram": (2000, 48, 4096, 2, 6),
        "k_means": (1500, 16, 8, 2, 2, 50),
        "matrix_multiply": (13, 8, 2),
        "merge_sort": (16384, 32, 256, 2),
        "monte_carlo": (2000, 200, 65536, 2),
        "n_body": (300, 10, 4, 2),
        "reduction": (1200, 1, 30, 2, 32),
        "sparse_matrix_vector": (1500, 1, 12, 2048, 2, 24),
        "stencil": (7, 7, 7, 4, 2, 4),
        "vector_operation": (2000, 8, 2, 100),
    },
    "beyond": {
        "convolution_2d": (46, 7, 1, 2, 2),
        "fft": (128, 32, 16, 1, 2),
        "histogram": (2000, 256, 262144, 2),
        "k_means": (2500, 8, 2, 16, 2, 50),
        "matrix_multiply": (76, 8, 2, 1),
        "merge_sort": (131072, 32, 256, 2),
        "monte_carlo": (2000, 200, 524288, 2),
        "n_body": (5000, 6, 2, 2),
        "reduction": (1600, 2, 104, 2, 8),
        "sparse_matrix_vector": (2000, 4, 24, 262144, 2, 4),
        "stencil": (12, 12, 12, 5, 2),
        "vector_operation": (2500, 104, 2, 8),
    },
    "apps": {
        "cholesky": (16, 16, 2),
        "sparselu": (14, 16, 2),
        "jacobi": (20, 32, 2),
        "multizone": (6, 24, 4, 16, 20, 2, 2),
    },
}
LULESH: Final = ("-s", "14", "-i", "2")
HYDRO: Final = {"nx": 96, "ny": 64, "nxystep": 16, "nstepmax": 4}
# what is changed of a target, and the numbers of cores. marenostrum3 has 16 of them in a node.
MACHINES: Final[dict[str, tuple[dict[str, Any], tuple[int, ...]]]] = {
    "grass-low-power": ({"cores_per_socket": 64, "caches": {"L2": {"shared_by_cores": 64}}}, (1, 4, 16, 64)),
    "grass-high-performance": ({}, (1, 4, 16, 64)),
    "marenostrum3": ({}, (1, 4, 16)),
}
SECOND: Final = 1


def machine(name: str) -> Machine:
    """A target as it is changed for this campaign."""
    return target_named({"name": name, "node": MACHINES[name][0]})[0]


@dataclass(frozen=True)
class Program:
    """One iteration of one rank (of LULESH, whose marks tell none, the whole run), to be opened for any number of
    cores."""

    folder: Path

    @cached_property
    def part(self) -> RankPart:
        return rank_part(self._workload, 0, instructions=True)

    @cached_property
    def _workload(self) -> Any:
        return workload_folder.read(self.folder)

    @property
    def iteration(self) -> int:
        return WHOLE if self.folder.name == "lulesh" else SECOND

    @cached_property
    def stream(self) -> StreamPart:
        rank, iteration = detailed_segments(self._workload)
        mine = rank == 0
        rows = np.flatnonzero(mine if self.iteration == WHOLE else mine & (iteration == self.iteration))
        return stream_part(self._workload, int(rows[0]), int(rows[-1]) + 1)

    def inputs(self) -> dict[str, Any]:
        return {"part": self.part, "stream": self.stream}

    def cut_for(self, cores: int) -> int:
        """The number of cores that a study would profile it for."""
        return cores if profile_units.shares_loops(self.part.workload) else 1

    def profile(self, cores: int, target: Machine) -> Arrays:
        """What a study would keep of it."""
        own = {"rank": 0, "iteration": self.iteration, "cores": self.cut_for(cores)}
        return profile_units.profile_cell(
            own | {"line_bytes": profile_units.line_bytes_of(target), "instances": False, "analytical": True},
            self.inputs(),
        )

    def costs(self, target: Machine, profile: Arrays) -> Arrays:
        """What a study would keep of its samples on a machine's cores."""
        return costs_of(self.part.workload, target.node, restored(profile), warm=True)

    def open_profiled(self, cores: int, target: Machine, profile: Arrays) -> OpenCell:
        """As a study opens it for ``cpu: interval``."""
        runtime = RuntimeSystem()
        own = {"rank": 0, "iteration": self.iteration, "cores": cores}
        program, stream, pieces, fused = open_profiled(own, self.inputs() | {"profile": profile}, runtime)
        first, end = phases_of_cell(program, self.iteration)
        creates = creation_pieces(program, self.part.workload)
        return OpenCell(
            self.part.workload, program, stream, pieces, creates, first, end, target.node, runtime, fused=fused
        )

    def open(self, cores: int, target: Machine) -> OpenCell:
        runtime = RuntimeSystem()
        own = {"rank": 0, "iteration": self.iteration, "cores": cores}
        program, stream, pieces = open_cell(own, self.inputs(), runtime)
        first, end = phases_of_cell(program, self.iteration)
        creates = creation_pieces(program, self.part.workload)
        return OpenCell(self.part.workload, program, stream, pieces, creates, first, end, target.node, runtime)


def run(
    cell: OpenCell, cores: int, model: str, profile: Arrays | None, tasks: str = "full", *, caches: str = "rerun",
    **taskpoint: Any,
) -> Found:  # fmt: skip
    """The cell as a study would simulate it, caches as the same cell before leaves them, creation of instances free."""
    parameters = {
        "rank": 0,
        "cores": cores,
        "model": model,
        "seed": 0,
        "detailed": DetailedChoice(creation="free", caches=caches).model_dump(mode="json"),
        "tasks": tasks,
        "taskpoint": TaskPointChoice(**taskpoint).model_dump(mode="json"),
    }
    return simulate(replace(cell), parameters, profile)


def cycles_of(found: Found, target: Machine) -> float:
    """From the begin of the first phase to the end of the last one."""
    frequency = target.node.frequency_hz
    assert frequency is not None
    return float(found.makespan_ps.sum()) * frequency / 1e12
