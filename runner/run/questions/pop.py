"""Efficiencies of several runs side by side, measured or predicted, and how they scale. See run/efficiencies.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from manyscale.models.machine import Network
from manyscale.runner.errors import UserError
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.questions.compare import load_run
from manyscale.runner.run.questions.efficiencies import Efficiencies, of_trace, scaling_table
from manyscale.runner.run.questions.factors import NAMES, PARALLEL, THREAD, with_threads
from manyscale.runner.run.results import compute_of_ranks
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
        *(pa.field(name, pa.float64()) for name in NAMES),
        pa.field("computation_scaling", pa.float64()),
        pa.field("global_efficiency", pa.float64()),
    ]
)
_PER_RANK: Final = ("global_efficiency", "computation_scaling", "instruction_scaling")


def run_efficiencies(path: Path, network: Network | None = None, cache: Path | None = None) -> Efficiencies:
    """Those of a run directory, or of a trace with measured times; for serialisation and transfer of a trace, its ideal
    run is replayed with the protocol and collectives of ``network``. Raises UserError."""
    if not rundir.is_run(path):
        return of_trace(path, read_workload(WorkloadChoice(path=str(path)), cache), network)
    side = load_run(path, cache, with_workload=False)
    useful = compute_of_ranks(side.ranks, side.num_ranks)
    if not useful.any():
        raise UserError(f"{path}: no rank computes in the run; there is no efficiency to speak of")
    figures = {name.removeprefix("application."): value for name, value in side.figures.items()}
    if "transfer_efficiency" not in figures:
        raise UserError(
            f"{path}: has steps of GPUs, whose hosts' efficiencies say nothing; look at gpu.time in stats.txt"
        )
    makespan = round(figures["makespan"] * 1e12)
    cores = int(side.figures.get("node.cores_per_rank", 1))
    known: dict[str, Any] = {name: figures[name] for name in NAMES if name in figures}
    if cores == 1:
        known = with_threads(known)
    elif THREAD not in figures and "cores-not-counted" not in {note.code for note in side.notes}:
        raise UserError(f"{path}: was written before efficiencies counted cores; run it again with run -o NEW")
    return Efficiencies(
        name=side.name,
        num_ranks=side.num_ranks,
        run_time_ps=makespan,
        useful_ps=useful,
        ideal_run_time_ps=round(figures["transfer_efficiency"] * makespan),
        num_cores=side.num_ranks * cores if THREAD in known else None,
        core_time_ps=makespan * side.num_ranks * cores * known[PARALLEL] if THREAD in figures else None,
        notes=side.notes,
        **known,
    )


def scaled(pop: pa.Table, *, of_labels: bool = False) -> pa.Table:
    """How time changes with the number of ranks and cores: the rows of ``pop_table``, in their order. ``of_labels``:
    their names are labels, and no paths.

    Columns: label, num_ranks, num_cores, makespan_s; against the first row speed_up and efficiency, the speed-up over
    the growth of the cores, or of the ranks where the cores of one are not known; and the efficiencies of POP that are
    known of each. The efficiency of the speed-up is above 1 where a run is faster than more cores alone explain.
    """
    rows = pop.to_pylist()
    size = "num_ranks" if any(row["num_cores"] is None for row in rows) else "num_cores"
    first = rows[0]
    columns: dict[str, list[Any]] = {name: [] for name in SCALING_SCHEMA.names}
    for row in rows:
        own = {
            "label": row["name"] if of_labels else Path(row["name"]).name or row["name"],
            "makespan_s": row["run_time_ps"] * 1e-12,
            "speed_up": row["speedup"],
            "efficiency": row["speedup"] * first[size] / row[size],
        }
        for name in SCALING_SCHEMA.names:
            columns[name].append(own[name] if name in own else row[name])
    return pa.table(columns, schema=SCALING_SCHEMA)


def _known(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: row[name] for name in NAMES if row[name] is not None}


def pop_table(runs: Sequence[Efficiencies], weak: bool = False) -> pa.Table:
    """A row per run, by the number of cores, or of ranks where the cores of one are not known (equal ones as given):
    metrics, and scaling against the run on the fewest.

    With ``weak`` the work per rank was meant to stay: computation and instruction scaling are per rank, and the
    speed-up is that of the work done, ranks over ranks times time over time.
    """
    by_ranks = any(run.num_cores is None for run in runs)
    ordered = sorted(runs, key=lambda run: run.num_ranks if by_ranks else run.num_cores or 0)
    rows: list[dict[str, Any]] = scaling_table(ordered).to_pylist()
    if not by_ranks:  # of ranks of one core beside others with several: all factors
        rows = [row if row[THREAD] is not None else row | with_threads(_known(row)) for row in rows]
    for row in rows if weak else ():
        growth = row["num_ranks"] / rows[0]["num_ranks"]
        for name in (*_PER_RANK, "speedup"):
            row[name] = None if row[name] is None else row[name] * growth
    return pa.Table.from_pylist(rows)
