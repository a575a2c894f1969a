"""POP metrics of measured runs: how efficient a run was, and how that changes over runs on more ranks.

Source: Rosas, Gimenez, Labarta, "Scalability prediction for fundamental performance factors" (Supercomputing Frontiers
and Innovations 1(2), 2014) and the POP centre's standard metrics, the multiplicative model:

* parallel efficiency = load balance x communication efficiency, with useful time u per rank and run time T:
  load balance = mean(u) / max(u), communication efficiency = max(u) / T;
* communication efficiency = serialisation x transfer efficiency, with the run time T' of a replay on an ideal network
  (no latency, infinite bandwidth): serialisation = max(u) / T', transfer = T' / T;
* against a reference run: computation scaling = useful time of all ranks there / here = instruction scaling x IPC
  scaling x frequency scaling; global efficiency = parallel efficiency x computation scaling; speed-up = T there / T.

Useful time is computing outside MPI: the workload's phases of kind compute. Instructions and cycles are those that the
hardware counted in these phases; a run whose counters leave a phase of any length out has neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from manyscale.models.machine import Network, ideal_network
from manyscale.models.network import latency_bandwidth
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement, ReplayError
from manyscale.models.workload import PhaseKind, Workload, WorkloadError
from manyscale.models.workload.columns import one_chunk
from manyscale.models.workload.notes import Note
from manyscale.runner.errors import UserError
from manyscale.runner.run.pipeline import compute_per_operation

if TYPE_CHECKING:
    from manyscale.runner.readers.paraver.thread_times import ThreadTimes

INSTRUCTIONS: Final = "PAPI_TOT_INS"
CYCLES: Final = "PAPI_TOT_CYC"
_NO_COLUMNS: Final = ("useful_ps", "notes")


@dataclass(frozen=True)
class Efficiencies:
    """Metrics of one run; ratios are 0 to 1. ``useful_ps`` int64 per rank: how long it computes. None: the trace does
    not tell (counters, threads), or it was not asked for or cannot be replayed (what needs the ideal network).
    ``num_cores``: of all ranks; ``core_time_ps``: how long these execute the program, None where that is
    ``useful_ps``."""

    name: str
    num_ranks: int
    run_time_ps: int
    useful_ps: np.ndarray
    parallel_efficiency: float
    load_balance: float
    communication_efficiency: float
    ideal_run_time_ps: int | None = None
    serialisation_efficiency: float | None = None
    transfer_efficiency: float | None = None
    instructions: int | None = None
    cycles: int | None = None
    ipc: float | None = None
    frequency_hz: float | None = None
    num_cores: int | None = None
    core_time_ps: float | None = None
    process_efficiency: float | None = None
    thread_efficiency: float | None = None
    serial_efficiency: float | None = None
    thread_load_balance: float | None = None
    scheduling_efficiency: float | None = None
    notes: tuple[Note, ...] = ()

    @property
    def total_useful_ps(self) -> float:
        """Of all cores."""
        return float(self.useful_ps.sum()) if self.core_time_ps is None else self.core_time_ps


@dataclass(frozen=True)
class Scaling:
    """One run against a reference run; ratios, None where one of the two runs lacks the counters."""

    speedup: float
    computation_scaling: float
    global_efficiency: float
    instruction_scaling: float | None
    ipc_scaling: float | None
    frequency_scaling: float | None


def efficiencies(
    workload: Workload, network: Network | None = None, threads: ThreadTimes | None = None
) -> Efficiencies:
    """Metrics of the run that was traced. With ``network`` it is replayed on the ideal form of that network for
    serialisation and transfer. ``threads``: what its threads did, where that is known. O(operations + phases +
    counters).

    Raises UserError for a workload without measured times or without any compute, and for one that cannot be replayed.
    """
    if not workload.is_measured:
        raise UserError(
            f"{workload.name}: the trace does not say when its operations began and ended; its efficiencies need a "
            "measured trace (manyscale trace -o DIR -- PROGRAM, or Paraver, OTF2, DUMPI), or a predicted run"
        )
    run_time = int(workload.column("measured", "end_ps").max(initial=0))
    useful = _useful_ps(workload)
    most = int(useful.max())
    if run_time <= 0 or most <= 0:
        raise UserError(f"{workload.name}: no rank computes in the trace; there is no efficiency to speak of")
    mean = float(useful.sum()) / workload.num_ranks
    ideal = None if network is None else ideal_run_time_ps(workload, network)
    if threads is not None and threads.num_threads.max(initial=1) > 1:
        return _of_threads(workload, run_time, useful, ideal, threads)
    instructions, cycles = _counted(workload, INSTRUCTIONS), _counted(workload, CYCLES)
    return Efficiencies(
        name=workload.name,
        num_ranks=workload.num_ranks,
        run_time_ps=run_time,
        useful_ps=useful,
        parallel_efficiency=mean / run_time,
        load_balance=mean / most,
        communication_efficiency=most / run_time,
        ideal_run_time_ps=ideal,
        serialisation_efficiency=most / ideal if ideal else None,
        transfer_efficiency=ideal / run_time if ideal else None,
        instructions=instructions,
        cycles=cycles,
        ipc=instructions / cycles if instructions is not None and cycles else None,
        frequency_hz=None if cycles is None else cycles / (float(useful.sum()) * 1e-12),
        num_cores=None if threads is None else workload.num_ranks,
        notes=workload.notes,
    )


def of_trace(path: Path, workload: Workload, network: Network | None = None) -> Efficiencies:
    """``efficiencies`` of the workload that was read from ``path``, of all threads where the trace's format tells what
    these did. Raises UserError."""
    from manyscale.runner.readers.paraver.thread_times import thread_times  # Arrow's reader of text

    has_threads = workload.source_format == "paraver" and path.is_file()
    return efficiencies(workload, network, thread_times(path) if has_threads else None)


def _of_threads(
    workload: Workload, run_time: int, useful: np.ndarray, ideal: int | None, threads: ThreadTimes
) -> Efficiencies:
    """Of a hybrid run: predict/core_efficiencies.py, with ranks weighted by their threads. Counters are those of the
    first threads alone, and left out; so is what the runtime system takes, which is in the load balance of threads."""
    number = threads.num_threads.astype(float)
    computes = threads.region_ps + threads.serial_ps
    most, whole = int(computes.max()), float(number @ computes)
    busy, idle = float(threads.useful_ps.sum()), float((number - 1) @ threads.serial_ps)
    if most <= 0 or busy <= 0:
        raise UserError(f"{workload.name}: no thread computes in the trace; there is no efficiency to speak of")
    mean = whole / number.sum()
    is_split = ideal is not None and most <= ideal  # else MPI is called inside of regions
    return Efficiencies(
        name=workload.name,
        num_ranks=workload.num_ranks,
        run_time_ps=run_time,
        useful_ps=useful,
        parallel_efficiency=busy / (number.sum() * run_time),
        load_balance=mean / most,
        communication_efficiency=most / run_time,
        ideal_run_time_ps=ideal,
        serialisation_efficiency=most / ideal if is_split and ideal else None,
        transfer_efficiency=ideal / run_time if is_split and ideal else None,
        num_cores=int(number.sum()),
        core_time_ps=busy,
        process_efficiency=mean / run_time,
        thread_efficiency=busy / whole,
        serial_efficiency=busy / (busy + idle),
        thread_load_balance=(busy + idle) / whole,
        notes=tuple(note for note in workload.notes if note.code != "threads-left-out"),
    )


def ideal_run_time_ps(workload: Workload, network: Network) -> int:
    """Run time of a replay without latency and with infinite bandwidth, the network's protocol and collectives kept.
    Raises UserError for a workload that cannot be replayed."""
    try:
        program = build_program(workload, network.collectives)
        compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
        placement = Placement.one_per_node(workload.num_ranks)
        return latency_bandwidth.replay(program, compute, ideal_network(network), placement).makespan_ps
    except (WorkloadError, ReplayError) as error:
        raise UserError(f"{workload.name}: the ideal network's run cannot be replayed: {error}") from None


def scaling(run: Efficiencies, reference: Efficiencies) -> Scaling:
    """How a run did against a reference, usually that on the fewest ranks."""
    computation = reference.total_useful_ps / run.total_useful_ps
    return Scaling(
        speedup=reference.run_time_ps / run.run_time_ps,
        computation_scaling=computation,
        global_efficiency=run.parallel_efficiency * computation,
        instruction_scaling=_ratio(reference.instructions, run.instructions),
        ipc_scaling=_ratio(run.ipc, reference.ipc),
        frequency_scaling=_ratio(run.frequency_hz, reference.frequency_hz),
    )


def scaling_table(runs: Sequence[Efficiencies], reference: int = 0) -> pa.Table:
    """A row per run: its metrics, without those per rank, and its scaling against ``runs[reference]``."""
    if not runs:
        raise ValueError("no run to compare")
    rows = []
    for run in runs:
        own = {each.name: getattr(run, each.name) for each in fields(Efficiencies) if each.name not in _NO_COLUMNS}
        against = scaling(run, runs[reference])
        own |= {"useful_mean_ps": float(run.useful_ps.mean()), "useful_max_ps": int(run.useful_ps.max())}
        rows.append(own | {each.name: getattr(against, each.name) for each in fields(Scaling)})
    return pa.Table.from_pylist(rows)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _useful_ps(workload: Workload) -> np.ndarray:
    """int64 per rank: time of the phases of kind compute."""
    useful = np.zeros(workload.num_ranks, np.int64)
    computing = workload.column("phases", "kind") == PhaseKind.compute
    np.add.at(useful, workload.column("phases", "rank")[computing], workload.column("phases", "duration_ps")[computing])
    return useful


def _counted(workload: Workload, name: str) -> int | None:
    """Sum of a counter over the compute phases; None where it misses a phase of any length."""
    names = one_chunk(workload.tables["counters"].column("counter")).dictionary.to_pylist()
    if name not in names:
        return None
    mine = workload.column("counters", "counter") == names.index(name)
    phases = workload.column("counters", "phase_id")[mine]
    computing = workload.column("phases", "kind") == PhaseKind.compute
    measured = np.zeros(len(computing), np.bool_)
    measured[phases] = True
    if np.any(computing & ~measured & (workload.column("phases", "duration_ps") > 0)):
        return None
    return int(workload.column("counters", "value")[mine][computing[phases]].sum())
