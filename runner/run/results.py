"""A predicted run: timeline tables, statistics and what is needed to explain them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from manyscale.models.machine import Machine
from manyscale.models.network.operation_graph import is_ordered
from manyscale.models.workload import COLLECTIVES, OperationKind, Workload
from manyscale.models.workload.columns import text_array, to_arrow, to_numpy
from manyscale.models.workload.notes import Note
from manyscale.runner.predict.statistic import Statistic

STATES: Final = ("compute", "send", "receive", "wait", "collective", "overhead")
_STATE_NAMES: Final = text_array(STATES)
_ROWS_AT_ONCE: Final = 1 << 20  # operations whose states are made together

RANKS_SCHEMA: Final = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),  # MPI rank
        pa.field("start_ps", pa.int64(), nullable=False),  # when the state begins
        pa.field("end_ps", pa.int64(), nullable=False),  # when it ends
        pa.field("state", pa.dictionary(pa.int8(), pa.string()), nullable=False),  # of STATES
        pa.field("operation_id", pa.int32(), nullable=False),  # index of the operation within the rank
    ]
)
MESSAGES_SCHEMA: Final = pa.schema(
    [
        pa.field("message_id", pa.int64(), nullable=False),  # row of the message
        pa.field("source", pa.int32(), nullable=False),  # rank that sends
        pa.field("destination", pa.int32(), nullable=False),  # rank that receives
        pa.field("send_ps", pa.int64(), nullable=False),  # when the send begins
        pa.field("receive_ps", pa.int64(), nullable=False),  # when the message has arrived
        pa.field("bytes", pa.int64(), nullable=False),  # payload
        pa.field("tag", pa.int32(), nullable=False),  # tag of the MPI calls
        pa.field("communicator_id", pa.int32(), nullable=False),  # row of the workload's table of communicators
    ]
)


def _state_of_kind() -> np.ndarray:
    """Index into STATES for each OperationKind."""
    state = np.full(len(OperationKind), STATES.index("overhead"), np.int8)
    kinds = OperationKind
    state[[kinds.send, kinds.isend, kinds.ssend, kinds.issend, kinds.bsend, kinds.ibsend]] = STATES.index("send")
    state[[kinds.recv, kinds.irecv, kinds.sendrecv]] = STATES.index("receive")
    state[[kinds.wait, kinds.waitall, kinds.waitany]] = STATES.index("wait")
    state[list(COLLECTIVES)] = STATES.index("collective")
    return state


_STATE_OF_KIND: Final = _state_of_kind()


def states_array(workload: Workload, row: np.ndarray) -> np.ndarray:
    """int8: the state (index into STATES) that a rank is in during each of the given operations."""
    return np.asarray(_STATE_OF_KIND[workload.column("operations", "kind")[row]])


@dataclass(frozen=True)
class Result:
    """A predicted run.

    ``ranks`` and ``messages`` follow RANKS_SCHEMA and MESSAGES_SCHEMA (times in integer ps from the start of the run,
    sorted by rank and time; by message). ``statistics``: dotted name to figure, in the order of stats.json.
    ``critical_path`` follows the schema of critical_path.py, in the order of time; None where none was looked for.
    ``critical_path_links``: how long it is on which link, where the network's model knows links.
    ``links`` follows the schema of run/links.py, by link and time; None where the network's model knows no links.
    ``cores``, ``task_instances`` and ``cpi_stacks`` follow the schemas of predict/node/tables.py; None where no node
    was simulated. So does ``core_calls``, None where no rank calls MPI inside its phases.
    ``intervals``: a row per interval of a program whose intervals were sampled (predict/intervals/sampled_tables.py).
    ``launches``, ``blocks``, ``gpu_ipc``, ``gpu_cpi_stacks`` and ``gpu_resources`` follow the schemas of
    predict/gpu/tables.py; None where no kernel was launched. ``gpu_lines`` and ``gpu_branches`` follow those of
    predict/gpu/source_tables.py; None where the trace tells no lines of source, or not where the threads of a warp
    part. ``gpu_streams`` follows that of predict/gpu/streams/table.py; None where no streams were replayed.
    ``steps``, ``collectives`` and ``step_path`` follow those of predict/gpu/traced (tables.py, path.py); None where
    the workload names no steps, no collectives of streams, or no times of kernels.
    ``plan``: what was simulated (sampling/plan.py), with the key of its unit; None of a result that no run made.
    ``notes``: what the figures leave out or assume, most severe first.
    ``resolved``: the study as it was run, all defaults filled in. ``sweep_point``: values of the sweep's axes, or {}.
    """

    name: str
    workload: Workload
    machine: Machine
    ranks: pa.Table
    messages: pa.Table
    statistics: Mapping[str, Statistic]
    resolved: Mapping[str, Any]
    sweep_point: Mapping[str, Any]
    critical_path: pa.Table | None = None
    critical_path_links: pa.Table | None = None
    links: pa.Table | None = None
    cores: pa.Table | None = None
    core_calls: pa.Table | None = None
    task_instances: pa.Table | None = None
    cpi_stacks: pa.Table | None = None
    intervals: pa.Table | None = None
    launches: pa.Table | None = None
    blocks: pa.Table | None = None
    gpu_ipc: pa.Table | None = None
    gpu_cpi_stacks: pa.Table | None = None
    gpu_resources: pa.Table | None = None
    gpu_lines: pa.Table | None = None
    gpu_branches: pa.Table | None = None
    gpu_streams: pa.Table | None = None
    steps: pa.Table | None = None
    collectives: pa.Table | None = None
    step_path: pa.Table | None = None
    plan: pa.Table | None = None
    notes: tuple[Note, ...] = ()

    @property
    def makespan_seconds(self) -> float:
        return float(self.statistics["application.makespan"].value)


def ranks_table(workload: Workload, compute_ps: np.ndarray, end_ps: np.ndarray) -> pa.Table:
    """States of every rank, without those of no duration: per operation the compute before it, then itself.

    O(operations). In NumPy: a kernel would take a quarter of the time, but loading the first one costs 0.4 s, which a
    run whose results are all stored need not spend.

    Where the operations of a rank are a graph without an order, each computes up to its own end, and what lies between
    is waiting.
    """
    if not is_ordered(workload):
        return _graph_table(workload, compute_ps, end_ps)
    starts = range(0, max(1, len(end_ps)), _ROWS_AT_ONCE)
    parts = [_states_of(workload, compute_ps, end_ps, slice(at, at + _ROWS_AT_ONCE)) for at in starts]
    rank, since, until, state, operation = (
        parts[0][k] if len(parts) == 1 else np.concatenate([part[k] for part in parts]) for k in range(5)
    )
    columns = [
        to_arrow(rank),
        to_arrow(since),
        to_arrow(until),
        pa.DictionaryArray.from_arrays(to_arrow(state), _STATE_NAMES),
        to_arrow(operation),
    ]
    return pa.Table.from_arrays(columns, schema=RANKS_SCHEMA)


def _states_of(workload: Workload, compute_ps: np.ndarray, end_ps: np.ndarray, rows: slice) -> list[np.ndarray]:
    """Columns of RANKS_SCHEMA of some operations, the states as indices."""
    offsets, ends = workload.rank_offsets, end_ps[rows]
    first, end = rows.start, rows.start + len(ends)
    # two states per operation, one behind the other; a state starts where the one before it ends
    until = np.empty(2 * len(ends), np.int64)
    until[1::2] = ends
    since = np.empty_like(until)
    since[2::2] = ends[:-1]
    since[:1] = end_ps[first - 1] if first else 0
    begins = offsets[:-1][np.diff(offsets) > 0]
    since[2 * (begins[(begins >= first) & (begins < end)] - first)] = 0
    np.add(since[::2], compute_ps[rows], out=until[::2])
    since[1::2] = until[::2]
    kept = np.flatnonzero(until > since)
    row = (kept >> 1) + first
    rank = workload.column("operations", "rank")[row]
    state = states_array(workload, row)
    state[kept & 1 == 0] = STATES.index("compute")
    return [rank, since[kept], until[kept], state, (row - offsets[rank]).astype(np.int32)]


def _graph_table(workload: Workload, compute_ps: np.ndarray, end_ps: np.ndarray) -> pa.Table:
    """States of ranks whose rows stand in no order: compute, and the waiting before it."""
    rows = np.flatnonzero(compute_ps)
    rank = workload.column("operations", "rank")[rows]
    order = np.lexsort((end_ps[rows], rank))
    rows, rank = rows[order], rank[order]
    end = end_ps[rows]
    start = end - compute_ps[rows]
    before = np.roll(end, 1)
    before[np.flatnonzero(np.diff(rank, prepend=-1))] = 0
    since, until = np.stack((before, start), axis=1).ravel(), np.stack((start, end), axis=1).ravel()
    kept = np.flatnonzero(until > since)
    owner = kept >> 1
    state = np.where(kept & 1, STATES.index("compute"), STATES.index("wait")).astype(np.int8)
    columns = [
        to_arrow(rank[owner]),
        to_arrow(since[kept]),
        to_arrow(until[kept]),
        pa.DictionaryArray.from_arrays(to_arrow(state), _STATE_NAMES),
        to_arrow((rows - workload.rank_offsets[rank])[owner].astype(np.int32)),
    ]
    return pa.Table.from_arrays(columns, schema=RANKS_SCHEMA)


def messages_table(workload: Workload, send_ps: np.ndarray, receive_ps: np.ndarray) -> pa.Table:
    """Point-to-point messages in the order of their sends (rank by rank)."""
    rows = workload.send_rows
    columns = [
        to_arrow(np.arange(len(rows), dtype=np.int64)),
        to_arrow(workload.column("operations", "rank")[rows]),
        to_arrow(workload.column("operations", "peer")[rows]),
        to_arrow(send_ps),
        to_arrow(receive_ps),
        to_arrow(workload.column("operations", "bytes")[rows]),
        to_arrow(workload.column("operations", "tag")[rows]),
        to_arrow(workload.column("operations", "communicator_id")[rows]),
    ]
    return pa.Table.from_arrays(columns, schema=MESSAGES_SCHEMA)


def compute_of_ranks(ranks: pa.Table, num_ranks: int) -> np.ndarray:
    """int64[ranks]: how long each computes. ``ranks`` follows RANKS_SCHEMA."""
    computing = to_numpy(ranks.column("state")) == STATES.index("compute")
    duration = to_numpy(ranks.column("end_ps")) - to_numpy(ranks.column("start_ps"))
    result = np.zeros(num_ranks, np.int64)
    np.add.at(result, to_numpy(ranks.column("rank"))[computing], duration[computing])
    return result


def statistics(
    workload: Workload, machine: Machine, ranks: pa.Table, messages: pa.Table, end_ps: np.ndarray, ideal_ps: int,
    ideal_compute_ps: np.ndarray | None = None,
) -> dict[str, Statistic]:  # fmt: skip
    """Figures of a run. ``ideal_ps`` is the makespan on an ideal network. ``ideal_compute_ps`` int64[ranks]: how long
    each computes there, where the network changes that (None: it does not).

    Efficiencies: Rosas, Gimenez, Labarta, "Scalability prediction for fundamental performance factors" (Supercomputing
    Frontiers and Innovations 1(2), 2014), the POP multiplicative model: parallel efficiency = load balance x
    communication efficiency, communication efficiency = serialisation x transfer efficiency. Transfer is what the
    network costs, and all others are of the run on an ideal one, so that none is above 1: where cores wait for messages
    (models/network/coupled), a rank computes for longer in the run than on the ideal network.
    """
    n = workload.num_ranks
    rank = to_numpy(ranks.column("rank"))
    codes = to_numpy(ranks.column("state"))
    duration = to_numpy(ranks.column("end_ps")) - to_numpy(ranks.column("start_ps"))
    per_state = np.zeros((n, len(STATES)), np.int64)
    np.add.at(per_state, (rank, codes), duration)
    total = dict(zip(STATES, per_state.sum(axis=0).tolist(), strict=True))
    makespan = int(end_ps.max(initial=0))
    compute = per_state[:, STATES.index("compute")] if ideal_compute_ps is None else ideal_compute_ps
    most, mean = int(compute.max()), int(compute.sum()) / n
    computing = "compute" if ideal_compute_ps is None else "compute on an ideal network"
    idle = n * makespan - sum(total.values())

    def seconds(picoseconds: float, description: str, kind: Literal["total", "mean"] = "mean") -> Statistic:
        return Statistic(picoseconds / 1e12, "s", kind, description)

    def ratio(part: float, whole: float, description: str) -> Statistic:
        return Statistic(part / whole if whole else 1.0, "1", "ratio", description)

    kinds = workload.column("operations", "kind")
    sizes = to_numpy(messages.column("bytes"))
    return {
        "application.makespan": seconds(makespan, "predicted time from start to the end of the last rank", "total"),
        "application.compute": seconds(total["compute"] / n, "computing"),
        "application.point_to_point": seconds((total["send"] + total["receive"]) / n, "in blocking sends and receives"),
        "application.collective": seconds(total["collective"] / n, "in collective operations"),
        "application.wait": seconds(total["wait"] / n, "waiting for requests"),
        "application.idle": seconds(idle / n, "ended, while others still run"),
        "application.messages": Statistic(len(sizes), "1", "count", "point-to-point messages"),
        "application.bytes": Statistic(int(sizes.sum()), "B", "total", "payload of point-to-point messages"),
        "application.collectives": Statistic(
            int(np.count_nonzero(kinds >= COLLECTIVES.start)), "1", "count", "calls of collective operations, all ranks"
        ),
        "application.parallel_efficiency": ratio(mean, makespan, f"mean {computing} / makespan"),
        "application.load_balance": ratio(mean, most, f"mean {computing} / longest {computing} of a rank"),
        "application.communication_efficiency": ratio(most, makespan, f"longest {computing} of a rank / makespan"),
        "application.serialisation_efficiency": ratio(
            most, ideal_ps, "longest compute of a rank / makespan on an ideal network (no latency, infinite bandwidth)"
        ),
        "application.transfer_efficiency": ratio(ideal_ps, makespan, "makespan on an ideal network / makespan"),
        "application.ranks": Statistic(n, "1", "count", "MPI processes"),
    }
