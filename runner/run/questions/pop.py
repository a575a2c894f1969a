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
from manyscale.runner.run.questions.compare import is_run, load_run
from manyscale.runner.run.questions.efficiencies import Efficiencies, efficiencies, scaling_table
from manyscale.runner.run.results import STATES
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload

SCALING_SCHEMA: Final = pa.schema(
    [
        pa.field("label", pa.string(), nullable=False),
        pa.field("num_ranks", pa.int64(), nullable=False),
        pa.field("num_cores", pa.int64()),
        pa.field("makespan_s", pa.float64(), nullable=False),
        pa.field("speed_up", pa.float64()),
        pa.field("efficiency", pa.float64()),
        pa.field("parallel_efficiency", pa.float64()),
        pa.field("load_balance", pa.float64()),
        pa.field("communication_efficiency", pa.float64()),
        pa.field("serialisation_efficiency", pa.float64()),
        pa.field("transfer_efficiency", pa.float64()),
        pa.field("computation_scaling", pa.float64()),
        pa.field("global_efficiency", pa.float64()),
    ]
)
_PER_RANK: Final = ("global_efficiency", "computation_scaling", "instruction_scaling")


def run_efficiencies(path: Path, network: Network | None = None, cache: Path | None = None) -> Efficiencies:
    """Those of a run directory, or of a trace with measured times; for serialisation and transfer of a trace, its ideal
    run is replayed with the protocol and collectives of ``network``. Raises UserError."""
    if not is_run(path):
        return efficiencies(read_workload(WorkloadChoice(path=str(path)), cache), network)
    side = load_run(path, cache, with_workload=False)
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


def scaled(pop: pa.Table, num_cores: Sequence[int | None], labels: Sequence[str] | None = None) -> pa.Table:
    """How time changes with the number of ranks and cores: rows of ``pop_table`` with the cores of each, by which they
    are put in order (equal ones as given); by ranks where the cores of one are not known (None).

    Columns: label, num_ranks, num_cores, makespan_s; against the first row speed_up and efficiency, the speed-up over
    the growth of the cores, or ranks; and the efficiencies of POP that are known of each.
    """
    rows = pop.to_pylist()
    names = list(labels) if labels is not None else [Path(row["name"]).name or row["name"] for row in rows]
    of_ranks = any(cores is None for cores in num_cores)
    sizes = [int((row["num_ranks"] if of_ranks else cores) or 0) for row, cores in zip(rows, num_cores, strict=True)]
    ordered = sorted(zip(names, rows, num_cores, sizes, strict=True), key=lambda one: one[3])
    _, first, _, first_size = ordered[0]
    columns: dict[str, list[Any]] = {name: [] for name in SCALING_SCHEMA.names}
    for label, row, cores, size in ordered:
        gain = row["speedup"] / first["speedup"]
        own = {
            "label": label,
            "num_cores": cores,
            "makespan_s": row["run_time_ps"] * 1e-12,
            "speed_up": gain,
            "efficiency": gain * first_size / size,
        }
        for name in SCALING_SCHEMA.names:
            columns[name].append(own[name] if name in own else row[name])
    return pa.table(columns, schema=SCALING_SCHEMA)


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
