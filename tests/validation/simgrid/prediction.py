"""Replay a trace with manyscale under the law of SimGrid's contention-free network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyscale.models.network import latency_bandwidth
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.workload import Workload
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.study.targets import build_machine, shipped_targets

# lines that are no operation of the workload: compute and sleep precede one, the others are ignored
NO_OPERATION = ("compute", "sleep", "location", "comm_size", "comm_split", "comm_dup")


@dataclass(frozen=True)
class Prediction:
    """``makespan_s``; per rank the end of each of its operations, in seconds; ``notes`` of the reader."""

    makespan_s: float
    operation_ends_s: tuple[np.ndarray, ...]
    notes: tuple[str, ...]

    @property
    def rank_ends_s(self) -> list[float]:
        return [float(ends[-1]) for ends in self.operation_ends_s]


def predict(trace: Path, eager: bool = False) -> Prediction:
    """Prediction for a time-independent trace on crossbar256; ``eager``: small messages leave at once."""
    return predict_workload(simgrid_ti.read(trace), eager)


def predict_workload(workload: Workload, eager: bool = False) -> Prediction:
    machine = build_machine(load_yaml(shipped_targets()["crossbar256"]), "crossbar256")
    network = machine.network.model_copy(update={"transfer_start": "eager" if eager else "match"})
    program = build_program(workload, network.collectives)
    compute_ps = np.zeros(workload.num_operations, np.int64)
    rows = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    np.add.at(compute_ps, rows, workload.column("phases", "duration_ps"))
    placement = Placement.one_per_node(workload.num_ranks)
    timeline = latency_bandwidth.replay(program, compute_ps, network, placement)
    ends = np.split(timeline.end_ps / 1e12, workload.rank_offsets[1:-1])
    return Prediction(timeline.makespan_ps / 1e12, tuple(ends), workload.notes)
