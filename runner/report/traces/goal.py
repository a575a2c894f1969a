"""A workload as a GOAL schedule, the text that LogGOPSim's txt2bin reads.

Calculations, sends and receives are those that our LogGOPS model replays (models/network/loggops/strand_graph.py): an
operation starts once the one before it has (``irequires``), and after the end of what was waited for (``requires``).
Collectives become point-to-point messages with tags above the trace's. A workload that came with dependencies is
written as it is. Times are whole numbers of a unit that the first line names: 1 ns if that loses nothing, else 1 ps;
LogGOPSim's L, o, g, G and O must then be given in it.

What GOAL cannot say: waits for any of several requests and collectives that cost what a formula says are refused;
synchronous and buffered sends become ordinary ones, time asleep compute, and files are left out. A comment at the head
counts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.machine.storage import accesses
from manyscale.models.network.loggops.strand_graph import lower
from manyscale.models.network.matching import Mode
from manyscale.models.network.operation_graph import CALCULATION, ON_START, RECEIVE, SEND
from manyscale.models.network.program import Program, build_program
from manyscale.models.workload import SENDS, OperationKind, PhaseKind, Workload, WorkloadError
from manyscale.runner.errors import UserError
from manyscale.runner.report.text_columns import contents, integers, join, picked
from manyscale.runner.report.traces.replayed import check_replayed

NAME: Final = "goal"
FILE_NAME: Final = "schedule.goal"
_UNITS: Final = {1000: "1 ns", 1: "1 ps"}
_MOST_TAG: Final = 2**31 - 1


@dataclass(frozen=True)
class _Schedule:
    """Vertices in rank order: ``kind``, ``rank``, ``size`` (bytes, or ps of a calculation), ``peer``, ``tag``; and
    edges by their dependents: vertices ``before`` and ``after``, ``on_start``. ``remarks`` stand at the head."""

    kind: np.ndarray
    rank: np.ndarray
    size: np.ndarray
    peer: np.ndarray
    tag: np.ndarray
    before: np.ndarray
    after: np.ndarray
    on_start: np.ndarray
    remarks: tuple[str, ...]


def write_trace(workload: Workload, path: Path, collectives: str = "mpich", time_unit_ps: int | None = None) -> None:
    """Write the file ``path``, or ``schedule.goal`` into the folder ``path``, with collectives as a preset has them and
    times in units of ``time_unit_ps`` (a unit of their own size if None).

    Raises UserError for what the format cannot carry. O(operations + messages), in memory as arrays; the text of one
    rank at a time.
    """
    check_replayed(workload, "goal")
    try:
        if workload.tables["dependencies"].num_rows:
            schedule = _from_dependencies(workload)
        else:
            schedule = _from_program(workload, build_program(workload, collectives))
    except WorkloadError as error:
        raise UserError(f"{workload.name}: {error}") from None
    is_calculation = schedule.kind == CALCULATION
    times = schedule.size[is_calculation]
    unit_ps = time_unit_ps or (1000 if not np.any(times % 1000) else 1)
    remarks = [f"time unit: {_UNITS.get(unit_ps, f'{unit_ps} ps')}", *schedule.remarks]
    if inexact := int(np.count_nonzero(times % unit_ps)):
        remarks.append(f"{inexact} times were rounded to the unit")
    schedule.size[is_calculation] = np.rint(times / unit_ps) if inexact else times // unit_ps
    with (path / FILE_NAME if path.is_dir() else path).open("wb") as file:
        file.write("".join(f"// {remark}\n" for remark in remarks).encode())
        file.write(f"num_ranks {workload.num_ranks}\n".encode())
        ranks = np.arange(workload.num_ranks + 1)
        first_vertex = np.searchsorted(schedule.rank, ranks)
        first_edge = np.searchsorted(schedule.rank[schedule.after], ranks)
        for rank in range(workload.num_ranks):
            vertices = slice(first_vertex[rank], first_vertex[rank + 1])
            edges = slice(first_edge[rank], first_edge[rank + 1])
            file.write(f"\nrank {rank} {{\n".encode())
            file.write(contents(_operations(schedule, vertices)))
            file.write(contents(_dependencies(schedule, edges, int(first_vertex[rank]))))
            file.write(b"}\n")


def _operations(schedule: _Schedule, rows: slice) -> pa.Array:
    kind = schedule.kind[rows]
    message = kind != CALCULATION
    number = np.arange(len(kind))

    def only(text: str) -> pa.Array:
        return picked(["", text], message.astype(np.int8))

    def of_messages(values: np.ndarray) -> pa.Array:
        return pa.compute.if_else(pa.array(message), integers(values[rows]), "")

    return join(
        "l", integers(number), ": ", picked(["send ", "recv ", "calc "], kind.astype(np.int8)),
        integers(schedule.size[rows]), picked(["b to ", "b from ", ""], kind.astype(np.int8)),
        of_messages(schedule.peer), only(" tag "), of_messages(schedule.tag), "\n",
    )  # fmt: skip


def _dependencies(schedule: _Schedule, rows: slice, first: int) -> pa.Array:
    verb = picked([" requires l", " irequires l"], schedule.on_start[rows].astype(np.int8))
    return join("l", integers(schedule.after[rows] - first), verb, integers(schedule.before[rows] - first), "\n")


def _from_dependencies(workload: Workload) -> _Schedule:
    """What the workload's own dependencies say. Waits are left out: they stand for what other dependencies say too."""
    kinds = workload.column("operations", "kind")
    table = np.full(len(OperationKind), 255, np.uint8)
    table[[OperationKind.isend, OperationKind.irecv, OperationKind.other]] = SEND, RECEIVE, CALCULATION
    rows = np.flatnonzero(kinds != OperationKind.waitall)
    kind = table[kinds[rows]]
    if np.any(kind == 255):
        name = OperationKind(int(kinds[rows][np.argmax(kind == 255)])).name
        raise UserError(
            f"{workload.name}: {name} stands in a graph of dependencies, where GOAL knows no such operation"
        )
    vertex = np.full(len(kinds), -1, np.int32)
    vertex[rows] = np.arange(len(rows))
    size = np.where(kind == RECEIVE, workload.column("operations", "receive_bytes")[rows], 0)
    size[kind == SEND] = workload.column("operations", "bytes")[rows][kind == SEND]
    size[kind == CALCULATION] = _compute(workload)[rows][kind == CALCULATION]
    first = workload.rank_offsets[workload.column("dependencies", "rank")]
    before = vertex[first + workload.column("dependencies", "requires")]
    after = vertex[first + workload.column("dependencies", "operation_id")]
    kept = (before >= 0) & (after >= 0)
    on_start = workload.tables["dependencies"].column("on_start").to_numpy()
    rank, peer, tag = (workload.column("operations", name)[rows] for name in ("rank", "peer", "tag"))
    return _Schedule(kind, rank, size, peer, tag, before[kept], after[kept], on_start[kept], ())


def _from_program(workload: Workload, program: Program) -> _Schedule:
    """What the replay program of an ordinary workload does."""
    if len(program.candidate_target):
        raise UserError(f"{workload.name}: it waits for any of several requests, which GOAL cannot say")
    if len(program.gate_size):
        raise UserError(f"{workload.name}: collectives that cost what a formula says are no messages; choose a preset")
    lowered = lower(program, _compute(workload), np.empty(0, np.int64), keep_edges=True)
    assert lowered.edges is not None
    before, after, when = lowered.edges
    graph = lowered.graph
    kind, size = graph.kind.copy(), lowered.duration_ps.copy()
    peer, tag = np.zeros(len(kind), np.int32), np.zeros(len(kind), np.int64)
    tags = _tags(workload, program)
    is_received = lowered.receive >= 0
    received = lowered.receive[is_received]
    for vertices, others, messages in (
        (lowered.send, program.destination, slice(None)),
        (received, program.source, is_received),
    ):
        size[vertices], peer[vertices], tag[vertices] = program.bytes[messages], others[messages], tags[messages]
    if program.num_queues:
        # the bytes that such a receive takes are not known: enough for every message that it may take
        largest = np.zeros(program.num_queues, np.int64)
        is_open = program.send_queue >= 0
        np.maximum.at(largest, program.send_queue[is_open], program.bytes[: len(is_open)][is_open])
        size[lowered.opened] = largest[program.open_queue]
        peer[lowered.opened], tag[lowered.opened] = program.open_source, program.open_tag
    free = program.mode == Mode.free  # within a rank and without cost
    for vertices in (lowered.send[free], lowered.receive[free]):
        kind[vertices], size[vertices] = CALCULATION, 0
    remarks = []
    for count, what in (
        (accesses(workload).row >= 0, "accesses of files take no time"),
        (
            np.isin(program.mode, (Mode.synchronous, Mode.buffered)),
            "synchronous or buffered sends are written as sends",
        ),
        (workload.column("phases", "kind") == PhaseKind.sleep, "phases asleep are written as calculations"),
        (program.bytes == 0, "messages have 0 bytes, which LogGOPSim takes for -1 beyond the first"),
    ):
        if np.any(count):
            remarks.append(f"{np.count_nonzero(count)} {what}")
    on_start = when == ON_START
    return _Schedule(kind, graph.rank, size, peer, tag, before, after, on_start, tuple(remarks))


def _tags(workload: Workload, program: Program) -> np.ndarray:
    """Tag of every message: the trace's (numbered anew, with their communicators, where it uses several of these), then
    one of its own for every message of a collective."""
    rows = workload.send_rows
    tag = workload.column("operations", "tag").astype(np.int64)
    own = tag[rows]
    kind = workload.column("operations", "kind")
    communicator = workload.column("operations", "communicator_id")
    if np.any(communicator[rows] != communicator[rows][:1]):
        if program.num_queues:
            raise UserError(
                f"{workload.name}: it has receives with wildcards and messages on several communicators, which GOAL "
                "does not know"
            )
        own = np.unique(communicator[rows].astype(np.int64) << 32 | own, return_inverse=True)[1].astype(np.int64)
    used = tag[np.isin(kind, [*SENDS, OperationKind.recv, OperationKind.irecv])]
    above = int(max(used.max(initial=-1), own.max(initial=-1))) + 1
    num_collective = program.num_messages - len(rows)
    if above + num_collective > _MOST_TAG:
        raise UserError(f"{workload.name}: {num_collective} messages of collectives have no room above tag {above - 1}")
    return np.concatenate((own, above + np.arange(num_collective)))


def _compute(workload: Workload) -> np.ndarray:
    """int64 per operation: the time of the phases before it."""
    compute = np.zeros(workload.num_operations, np.int64)
    rows = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    np.add.at(compute, rows, workload.column("phases", "duration_ps"))
    compute.flags.writeable = False
    return compute
