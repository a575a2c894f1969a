"""What replays share whose operations begin when something else comes to them, be it cores of ranks or hosts of GPUs:
each operation a strand of its own, and the network models that wait for what is not a message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from manyscale.models.machine import Network
from manyscale.models.network.coupled.kernel import new_flights
from manyscale.models.network.dimemas import model as dimemas
from manyscale.models.network.flow import model as flow
from manyscale.models.network.flow.own_ways import OwnWays
from manyscale.models.network.latency_bandwidth import message_law
from manyscale.models.network.program import Program
from manyscale.models.network.replay.steps import ACTION, FIRST, START_STRAND, WAIT_STRAND
from manyscale.models.network.replay.strand_state import State, new_state
from manyscale.models.network.replay.timeline import LinkLoad, Placement
from manyscale.models.network.routes import routes

MODELS: Final = ("latency-bandwidth", "flow", "dimemas")


class Kernels(NamedTuple):
    """The loops of a replay, by how transfers take their time."""

    fixed: Callable[..., None]
    flow: Callable[..., None]
    dimemas: Callable[..., None]


def run(
    model: str,
    kernels: Kernels,
    joined: Any,
    parked: Callable[[State], State],
    program: Program,
    strands: Program,
    before: np.ndarray,
    network: Network,
    placement: Placement,
    message_ps: np.ndarray | None = None,
    own: OwnWays | None = None,
) -> tuple[State, np.ndarray, LinkLoad | None]:
    """Run one of MODELS: the state at its end, ends of operations, the load of links where they are known. ``joined``:
    what the kernels take beside strands; ``parked``: the state with what of it is in the heap. ``before`` int64[rows]:
    compute before operations. ``message_ps`` int64[messages]: what those take that do not go over the network, -1 of
    others; models whose messages share links take no account of it. ``own``: messages that share links beside the
    topology's, where any are shared."""
    node_of_rank = placement.node_of_rank
    if model == "dimemas":
        steps, state, is_eager, transfers = dimemas.prepare(program, strands, before, network, placement)
        state = parked(state)
        kernels.dimemas(steps, state, joined, is_eager, transfers)
        return state, dimemas.ends(program, state), None
    if model == "flow":
        flow.check(network)
    law = message_law(program, network, node_of_rank)
    shares_links = model == "flow" and network.topology is not None
    time = np.dtype(np.float64 if shares_links else np.int64)
    no_delay = np.zeros(strands.num_messages, time)
    steps, state = new_state(strands, before.astype(time), law.is_eager, no_delay, law.gate_cost_ps.astype(time))
    state = parked(state)
    if shares_links:
        source, destination = program.source, program.destination
        pairs = node_of_rank[source], node_of_rank[destination]
        ways = routes(network, placement.num_nodes, *pairs, source == destination)
        ways = ways if own is None else own.beside(ways)
        traffic, sharing = flow.traffic_of(program, network, ways, own=own)
        kernels.flow(steps, state, joined, traffic, sharing, law.eager_start)
        return state, whole(state.end), flow.load_of(ways, sharing)
    cost = law.cost_ps if message_ps is None else np.where(message_ps >= 0, message_ps, law.cost_ps)
    kernels.fixed(steps, state, joined, new_flights(cost), law.eager_start)
    return state, state.end, None


def whole(times: np.ndarray) -> np.ndarray:
    """Times in whole picoseconds, int64."""
    return np.rint(times).astype(np.int64) if times.dtype.kind == "f" else times


def split(program: Program, ranks: np.ndarray) -> Program:
    """The program with each operation of ``ranks`` (ascending) a strand of its own, in the order of the rows.

    For `new_state`, which takes whatever is no strand of a non-blocking collective for a rank: ``num_ranks`` and
    ``rank_offsets`` are of such strands. Messages keep their ranks. O(steps).
    """
    is_split = np.zeros(program.num_ranks, np.bool_)
    is_split[ranks] = True
    of_ranks = int(program.strand_steps[program.num_ranks])
    first_of_operation = np.flatnonzero(program.step[:of_ranks] & FIRST)
    rows = np.diff(program.rank_offsets)
    starts = np.repeat(is_split, rows)  # per row: a strand begins here
    starts[program.rank_offsets[:-1][(~is_split) & (rows > 0)]] = True
    empty = np.flatnonzero((rows == 0) & ~is_split)
    first_row = np.flatnonzero(starts)
    where = np.searchsorted(first_row, program.rank_offsets[empty])
    first_row = np.insert(first_row, where, program.rank_offsets[empty])
    rank_of_row = np.repeat(np.arange(program.num_ranks, dtype=np.int32), rows)
    rank_of_strand = np.insert(rank_of_row[np.flatnonzero(starts)], where, empty.astype(np.int32))
    added = len(first_row) - program.num_ranks
    bounds = np.append(first_of_operation, of_ranks)[first_row]
    target = program.target.copy()
    to_strand = np.isin(program.step & ACTION, (START_STRAND, WAIT_STRAND))
    target[to_strand] += added
    candidate = program.candidate_target.copy()
    candidate[program.candidate_action == WAIT_STRAND] += added
    return replace(
        program,
        num_ranks=len(first_row),
        rank_offsets=np.append(first_row, program.rank_offsets[-1]),
        target=target,
        candidate_target=candidate,
        strand_steps=np.concatenate((bounds, program.strand_steps[program.num_ranks :])),
        strand_rank=np.concatenate((rank_of_strand, program.strand_rank[program.num_ranks :])),
        graph=None,
    )
