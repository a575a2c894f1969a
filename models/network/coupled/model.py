"""Replay of ranks whose MPI operations stand inside their task graphs: communication overlaps computation.

Method: the runtime system of each such rank (node/scheduler/scheduler.py) and the replay share one simulated time. An
operation is a vertex of its rank's task graph: it blocks the core that came to it, while other cores, and other
operations, go on. So a phase of independent computation C and communication M takes max(C, M) on two cores, and C + M
on one. Source: MUSA (Grass, UPC 2017) replays MPI between phases only, and names this as what is missing (section 8.3).

A rank is coupled if its node program is given; its compute comes from the pieces of its instances. Ranks without are
replayed as ever, in the same run. Network models: latency-bandwidth, flow, dimemas.

Assumptions: messages and collectives are matched as traced, each rank's operations in their traced order, whatever
order the cores execute them in (MPI programs whose tasks communicate tell their messages apart by tags, or could be
matched wrongly when they run, too); wildcard receives take what comes, in simulated time. An operation occupies its
core while it lasts, as a blocking call does. Cores go on at whole picoseconds: under ``flow``, which has fractions, up
to one later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from manyscale.models.kernels.event_heap import event_record
from manyscale.models.machine import Network
from manyscale.models.network.coupled import kernel
from manyscale.models.network.coupled.joined import MODELS, Kernels, run, split, whole
from manyscale.models.network.dimemas.parameters import Dimemas
from manyscale.models.network.program import Program
from manyscale.models.network.replay.replay import deadlock_of, refuse_unreceived, stuck_strand
from manyscale.models.network.replay.strand_state import BOTH_POSTED, State
from manyscale.models.network.replay.timeline import Placement, ReplayError, Timeline
from manyscale.models.node.program.node_program import Action, NodeProgram
from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.node.scheduler.scheduler import Scheduler, new_scheduler, why_stuck

VERSION: Final = 4
KERNELS: Final = Kernels(kernel.run_coupled_fixed, kernel.run_coupled_flow, kernel.run_coupled_dimemas)


@dataclass(frozen=True)
class CoreRows:
    """What cores did, by rank, core and time: int32 ``rank``, ``core``, ``instance`` (row of the rank's NodeProgram, -1
    while an MPI operation blocks the core), ``operation`` (id within the rank, -1 for compute); int64 ``start_ps``,
    ``end_ps``, and when its instance was created, ``created_ps``, and ready, ``ready_ps``. Pieces that an
    instance executes without a pause are one row."""

    rank: np.ndarray
    core: np.ndarray
    instance: np.ndarray
    operation: np.ndarray
    start_ps: np.ndarray
    end_ps: np.ndarray
    created_ps: np.ndarray
    ready_ps: np.ndarray


@dataclass(frozen=True)
class CoupledTimeline:
    """``timeline``: as of every replay, but an operation does not begin where the one before it in the trace ended.

    int64 per operation: ``begin_ps``; ``exposed_ps``: from then until the operation ended, no core of its rank had
    anything to execute (its end for one that was overlapped), so that these spans of a rank do not overlap and what
    lies between them is its compute. int64 per rank ``rank_end_ps``, when the last of it ended.
    Per core of coupled ranks: int32 ``core_rank``; int64 ``busy_ps`` (executing pieces), ``overhead_ps`` (in the
    runtime system) and ``blocked_ps`` (in MPI operations).
    """

    timeline: Timeline
    begin_ps: np.ndarray
    exposed_ps: np.ndarray
    rank_end_ps: np.ndarray
    core_rank: np.ndarray
    busy_ps: np.ndarray
    overhead_ps: np.ndarray
    blocked_ps: np.ndarray
    cores: CoreRows

    @property
    def makespan_ps(self) -> int:
        return int(self.rank_end_ps.max(initial=0))


def replay_coupled(
    program: Program,
    compute_ps: np.ndarray,
    node_programs: Sequence[NodeProgram | None],
    piece_ps: Sequence[np.ndarray | None],
    num_cores: int,
    runtime: RuntimeSystem,
    network: Network,
    placement: Placement,
    *,
    model: str = "latency-bandwidth",
    seed: int = 0,
    share_group: np.ndarray | None = None,
    speeds: np.ndarray | None = None,
    keep_ranks: Sequence[int] = (),
) -> CoupledTimeline:
    """Timeline of a program some of whose ranks are node programs on ``num_cores`` cores each.

    ``node_programs`` and ``piece_ps`` (int64 per piece): one entry per rank, None for a rank that is replayed as ever,
    with ``compute_ps`` (int64 per operation, ignored for the others) before its operations. ``share_group`` int32 per
    core: cores that share a last cache. ``speeds`` float64[ranks, cores]: of cores that are not all alike: a piece
    takes its time by the speed of its core. ``keep_ranks``: coupled ranks whose cores' rows are kept.

    O(what the scheduler takes + (steps + operations) x log(strands + cores)); memory: 150 B an operation of a coupled
    rank, a scheduler per rank and 32 B a row. Raises ReplayError for a deadlock, ValueError for programs that do not
    fit and for a network model that cannot wait for cores.
    """
    _check(program, compute_ps, node_programs, piece_ps, model, network)
    coupled = np.array([rank for rank, each in enumerate(node_programs) if each is not None], np.int64)
    strands = split(program, coupled)
    before = compute_ps.copy()
    for rank in coupled:
        before[program.rank_offsets[rank] : program.rank_offsets[rank + 1]] = 0
    mine = [each for each in node_programs if each is not None]
    schedulers = [
        new_scheduler(
            each, num_cores, runtime, seed + each.rank, share_group=share_group,
            speed=None if speeds is None else np.asarray(speeds[each.rank], np.float64),
        )
        for each in mine
    ]  # fmt: skip
    times = [np.ascontiguousarray(each, np.int64) for each in piece_ps if each is not None]
    nodes = _nodes(program, strands, coupled, mine, times, schedulers, runtime, keep_ranks)
    nodes.core["per_speed"] = 1.0 if speeds is None else 1.0 / np.asarray(speeds, np.float64)[coupled].ravel()
    state, end_ps, links = run(
        model,
        KERNELS,
        nodes,
        partial(_with_cores, strands, coupled, nodes),
        program,
        strands,
        before,
        network,
        placement,
    )
    if not state.finished.all() or np.any(nodes.node["end"] < 0):
        raise ReplayError(_deadlock(program, strands, coupled, mine, state, nodes))
    if program.num_queues:
        refuse_unreceived(program, state.status & BOTH_POSTED)
    timeline = Timeline(end_ps, whole(state.sent), whole(state.arrived), links)
    return _result(program, compute_ps, coupled, timeline, nodes)


def _check(
    program: Program,
    compute_ps: np.ndarray,
    node_programs: Sequence[NodeProgram | None],
    piece_ps: Sequence[np.ndarray | None],
    model: str,
    network: Network,
) -> None:
    if model not in MODELS:
        raise ValueError(
            f"the network model {model} cannot join the task graphs of ranks that communicate inside tasks; "
            f"choose one of {', '.join(MODELS)}"
        )
    if not program.graph_is_ordered:
        raise ValueError("operations that are a graph without an order cannot join task graphs")
    if model == "dimemas" and any(ratio != 1.0 for ratio in (Dimemas.of(network) or Dimemas()).cpu_ratios):
        raise ValueError("dimemas.cpu_ratios does not apply to ranks that communicate inside tasks; leave it out")
    if compute_ps.shape != (int(program.rank_offsets[-1]),):
        raise ValueError(f"compute_ps has shape {compute_ps.shape}, not ({int(program.rank_offsets[-1])},)")
    if not len(node_programs) == len(piece_ps) == program.num_ranks:
        raise ValueError(f"{len(node_programs)} node programs and {len(piece_ps)} times for {program.num_ranks} ranks")
    if all(each is None for each in node_programs):
        raise ValueError("no rank has a node program; use the replay of the network model")
    for rank, (node, times) in enumerate(zip(node_programs, piece_ps, strict=True)):
        if node is None:
            continue
        if times is None or times.shape != (node.num_pieces,):
            raise ValueError(f"rank {rank}: {0 if times is None else len(times)} times for {node.num_pieces} pieces")
        count = int(program.rank_offsets[rank + 1] - program.rank_offsets[rank])
        in_tasks = node.step_target[node.step_action == Action.operation]
        at_ends = node.phase_operation[node.phase_operation >= 0]
        found = np.bincount(np.concatenate((in_tasks, at_ends)), minlength=count)[:count]
        wrong = np.flatnonzero(found != 1)
        if len(wrong):
            raise ValueError(
                f"rank {rank}, operation {wrong[0]} stands {found[wrong[0]]} times in the rank's node program, not once"
            )


def _with_cores(strands: Program, coupled: np.ndarray, nodes: kernel.Nodes, state: State) -> State:
    """Ranks are parked at 0, those without cores as their strands; the heap has room for all cores."""
    whole = np.flatnonzero(~np.isin(strands.strand_rank[: strands.num_ranks], coupled))
    heap = np.zeros(len(strands.strand_rank) + 2 * len(nodes.core), state.heap.dtype)
    first = len(strands.strand_rank) + len(nodes.core)
    parked = np.concatenate((whole, np.arange(first, first + len(nodes.node))))
    heap["number"][: len(parked)] = parked
    return state._replace(heap=heap, heap_size=np.array([len(parked)]))


def _nodes(
    program: Program,
    strands: Program,
    coupled: np.ndarray,
    mine: list[NodeProgram],
    times: list[np.ndarray],
    schedulers: list[Scheduler],
    runtime: RuntimeSystem,
    keep_ranks: Sequence[int],
) -> kernel.Nodes:
    """All coupled ranks before their first phase."""
    count, num_cores = len(coupled), len(schedulers[0].core)
    pieces, piece_bounds = joined(times)
    operations, phase_bounds = joined([each.phase_operation.astype(np.int64) for each in mine])
    node = np.zeros(count, kernel.NODE)
    node["first_core"] = np.arange(count) * num_cores
    node["end_core"] = node["first_core"] + num_cores
    node["first_row"] = program.rank_offsets[coupled]
    node["num_operations"] = np.diff(program.rank_offsets)[coupled]
    node["first_strand"] = np.searchsorted(strands.rank_offsets[:-1], node["first_row"], side="right") - 1
    node["first_piece"] = piece_bounds[:, 0]
    node["first_phase"], node["end_phase"] = phase_bounds.T
    node["phase"] = node["end"] = -1
    node["begins_phase"] = node["num_parked"] = 1
    node["keeps_rows"] = np.isin(coupled, np.asarray(keep_ranks, np.int64))
    core = np.zeros(count * num_cores, kernel.CORE)
    core["node"] = np.repeat(np.arange(count), num_cores)
    capacity = sum(
        mine[i].num_pieces + int(node["num_operations"][i]) for i in np.flatnonzero(node["keeps_rows"]).tolist()
    )
    num_rows = int(program.rank_offsets[-1])
    arrays = [joined(list(parts)) for parts in zip(*(_arrays_of(each) for each in schedulers), strict=True)]
    return kernel.Nodes(
        scheduler=_like(schedulers[0], iter([values for values, _ in arrays])),
        bounds=np.array([bounds for _, bounds in arrays]),
        node=node,
        core=core,
        heap=np.zeros(len(core), event_record(np.dtype(np.int64))),
        heap_size=np.zeros(count, np.int64),
        piece_ps=pieces,
        per_speedup=np.array([1 / runtime.creator_speedup]),
        phase_operation=operations,
        begin=np.full(num_rows, -1, np.int64),
        exposed=np.zeros(num_rows, np.int64),
        row=np.zeros(capacity, kernel.ROW),
        num_rows=np.zeros(1, np.int64),
    )


def joined(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The arrays one after another, and int64[parts, 2] where each begins and ends. Those that cannot be written stay
    so, and if they are one in memory, they stand there once."""
    bounds = np.empty((len(parts), 2), np.int64)
    there: dict[tuple[int, int], int] = {}
    kept: list[np.ndarray] = []
    length = 0
    is_written = any(part.flags.writeable for part in parts)
    for i, part in enumerate(parts):
        where = (part.ctypes.data, len(part))
        place = length if is_written else there.setdefault(where, length)
        bounds[i] = place, place + len(part)
        if place == length:
            kept.append(part)
            length += len(part)
    values = np.concatenate(kept)
    values.flags.writeable = is_written
    return values, bounds


def _arrays_of(scheduler: tuple[Any, ...]) -> Iterator[np.ndarray]:
    for value in scheduler:
        if isinstance(value, tuple):
            yield from _arrays_of(value)
        else:
            yield value


def _like(scheduler: Any, arrays: Iterator[np.ndarray]) -> Any:
    """The same tuples of other arrays."""
    values = (_like(value, arrays) if isinstance(value, tuple) else next(arrays) for value in scheduler)
    return type(scheduler)(*values)


def _result(
    program: Program, compute_ps: np.ndarray, coupled: np.ndarray, timeline: Timeline, nodes: kernel.Nodes
) -> CoupledTimeline:
    end_ps, offsets = timeline.end_ps, program.rank_offsets
    rows = np.diff(offsets)
    is_coupled = np.zeros(program.num_ranks, np.bool_)
    is_coupled[coupled] = True
    before = np.roll(end_ps, 1)
    before[offsets[:-1][rows > 0]] = 0
    by_cores = np.repeat(is_coupled, rows)
    rank_end = np.zeros(program.num_ranks, np.int64)
    np.maximum.at(rank_end, np.repeat(np.arange(program.num_ranks), rows), end_ps)
    rank_end[coupled] = np.maximum(rank_end[coupled], nodes.node["end"])
    core_rank = coupled[nodes.core["node"]].astype(np.int32)
    kept = nodes.row[: int(nodes.num_rows[0])]
    kept = _merged(kept[np.lexsort((kept["end"], kept["start"], kept["core"]))])
    node_of_row = nodes.core["node"][kept["core"]]
    first_core, first_row = nodes.node["first_core"][node_of_row], nodes.node["first_row"][node_of_row]
    return CoupledTimeline(
        timeline=timeline,
        begin_ps=np.where(by_cores, nodes.begin, before + compute_ps),
        exposed_ps=np.where(by_cores, nodes.exposed, before + compute_ps),
        rank_end_ps=rank_end,
        core_rank=core_rank,
        busy_ps=nodes.core["busy"].copy(),
        overhead_ps=nodes.scheduler.core["overhead_ps"].copy(),
        blocked_ps=nodes.core["blocked"].copy(),
        cores=CoreRows(
            rank=coupled[node_of_row].astype(np.int32),
            core=(kept["core"] - first_core).astype(np.int32),
            instance=kept["instance"].copy(),
            operation=np.where(kept["operation"] >= 0, kept["operation"] - first_row, -1).astype(np.int32),
            start_ps=kept["start"].copy(),
            end_ps=kept["end"].copy(),
            created_ps=kept["created"].copy(),
            ready_ps=kept["ready"].copy(),
        ),
    )


def _merged(rows: np.ndarray) -> np.ndarray:
    """Rows by core and time, neighbours of one instance without a pause between them as one."""
    same = rows["instance"][1:] == rows["instance"][:-1]
    same &= (rows["core"][1:] == rows["core"][:-1]) & (rows["instance"][1:] >= 0)
    same &= rows["start"][1:] == rows["end"][:-1]
    merged = rows[np.append(True, ~same)[: len(rows)]]
    merged["end"] = rows["end"][np.append(~same, True)[: len(rows)]]
    return np.asarray(merged)


def _deadlock(
    program: Program,
    strands: Program,
    coupled: np.ndarray,
    mine: list[NodeProgram],
    state: State,
    nodes: kernel.Nodes,
) -> str:
    """What the stuck strands wait for, at most five of them; else the ranks whose instances wait for each other."""
    added = strands.num_ranks - program.num_ranks
    begun = np.ones(len(strands.strand_rank), np.bool_)
    of_core = np.flatnonzero(np.isin(strands.strand_rank[: strands.num_ranks], coupled))
    begun[of_core] = nodes.begin[strands.rank_offsets[of_core]] >= 0
    begun[strands.num_ranks :] = state.strand["phase"][strands.num_ranks :] != 0
    stuck = np.flatnonzero(begun & (state.finished == 0))
    ended = np.zeros(program.num_ranks, np.bool_)
    ended[coupled] = nodes.node["end"] >= 0
    is_whole = np.ones(strands.num_ranks, np.bool_)
    is_whole[of_core] = False
    ended[strands.strand_rank[: strands.num_ranks][is_whole & (state.finished[: strands.num_ranks] != 0)]] = True
    lines = []
    for strand in stuck[:5].tolist():
        number = int(strands.strand_rank[strand]) if strand < strands.num_ranks else strand - added
        lines.append(stuck_strand(program, number, int(state.strand["place"][strand])))
    idle = np.flatnonzero((nodes.node["end"] < 0) & (nodes.node["under_way"] == 0))
    for node in idle[: 5 - len(lines)].tolist():
        parts = (array[slice(*nodes.bounds[number, node])] for number, array in enumerate(_arrays_of(nodes.scheduler)))
        lines.append(why_stuck(mine[node], _like(nodes.scheduler, parts)))
    return deadlock_of(int(np.count_nonzero(~ended)), program.num_ranks, lines, len(stuck) + len(idle))
