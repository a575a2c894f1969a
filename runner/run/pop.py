"""Efficiencies of several runs side by side, measured or predicted, and how they scale. See run/efficiencies.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.machine import Network
from manyscale.models.workload.columns import to_numpy
from manyscale.runner.errors import UserError
from manyscale.runner.run.compare import is_run, load_run
from manyscale.runner.run.efficiencies import Efficiencies, efficiencies, scaling_table
from manyscale.runner.run.results import STATES
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload

_PER_RANK: Final = ("global_efficiency", "computation_scaling", "instruction_scaling")


def run_efficiencies(path: Path, network: Network | None = None, cache: Path | None = None) -> Efficiencies:
    """Those of a run directory, or of a trace with measured times; for serialisation and transfer of a trace, its ideal
    run is replayed with the protocol and collectives of ``network``. Raises UserError."""
    if not is_run(path):
        return efficiencies(read_workload(WorkloadChoice(path=str(path)), cache), network)
    side = load_run(path, cache)
    computing = to_numpy(side.ranks.column("state")) == STATES.index("compute")
    duration = to_numpy(side.ranks.column("end_ps")) - to_numpy(side.ranks.column("start_ps"))
    useful = np.zeros(side.num_ranks, np.int64)
    np.add.at(useful, to_numpy(side.ranks.column("rank"))[computing], duration[computing])
    if not useful.any():
        raise UserError(f"{path}: no rank computes in the run; there is no efficiency to speak of")
    figures = {name.removeprefix("application."): value for name, value in side.figures.items()}
    makespan = round(figures["makespan"] * 1e12)
    return Efficiencies(
        name=side.name,
        num_ranks=side.num_ranks,
        run_time_ps=makespan,
        useful_ps=useful,
        parallel_efficiency=figures["parallel_efficiency"],
        load_balance=figures["load_balance"],
        communication_efficiency=figures["communication_efficiency"],
        ideal_run_time_ps=round(figures["transfer_efficiency"] * makespan),
        serialisation_efficiency=figures["serialisation_efficiency"],
        transfer_efficiency=figures["transfer_efficiency"],
    )


def pop_table(runs: Sequence[Efficiencies], weak: bool = False) -> pa.Table:
    """A row per run, by rank count (equal ones as given): metrics, and scaling against the run on the fewest ranks.

    With ``weak`` the work per rank was meant to stay: computation and instruction scaling are per rank, and the
    speed-up is that of the work done, ranks over ranks times time over time.
    """
    ordered = sorted(runs, key=lambda run: run.num_ranks)
    rows: list[dict[str, Any]] = scaling_table(ordered).to_pylist()
    for row in rows if weak else ():
        growth = row["num_ranks"] / rows[0]["num_ranks"]
        for name in (*_PER_RANK, "speedup"):
            row[name] = None if row[name] is None else row[name] * growth
    return pa.Table.from_pylist(rows)
