"""The Dimemas network: start-up on the CPU, then links and buses that a transfer holds for S / B.

Source: Badia, Labarta, Gimenez, Escale, "DIMEMAS: Predicting MPI applications behavior in Grid environments" (2003) for
the model; its exact form is that of bsc-performance-tools/dimemas at 4ab5099 (Simulator/model: communic.c, links.c,
task.c), built and run beside this one (tests/validation/test_dimemas_references.py).

* A send, a blocking receive and each wait for a receive first occupy their CPU for the latency of the route; so n
  messages of a rank pay n latencies in series. Posting a non-blocking receive costs nothing.
* Then a transfer takes its output link, input link and bus (network/dimemas/kernel.py) and holds them for S / B. An
  eager one starts with the send; a rendezvous one when its receive has been posted too, and its sender goes on at that
  moment, not with the end of the transfer.
* A collective that is a formula (collectives: dimemas) starts when its last rank enters. It costs the fans between the
  nodes that take part, plus those among the ranks of the node that holds most of them. A non-blocking one pays the
  latency once where it starts and once where it is waited for.

Deviations: a collective neither waits for buses nor holds them (in Dimemas it takes them all, if their number is
finite). A wait for any of several requests pays no latency. Ranks that share a CPU are slowed down evenly
(mapping.oversubscribe), not scheduled in turn. Events at the same picosecond may be served in another order. Sends that
are synchronous in the trace stay so below the eager threshold (Dimemas takes either the trace's word or the threshold,
its option -S).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from manyscale.models.kernels.event_heap import event_record
from manyscale.models.machine import Network
from manyscale.models.network.collectives.formulas import gate_cost_ps
from manyscale.models.network.dimemas.kernel import (
    BUSES,
    FREE,
    INTER_NODE,
    INTRA_NODE,
    LINK,
    QUEUE,
    ROUTE,
    SIDE,
    TO_SELF,
    TRANSFER,
    Traffic,
    run,
)
from manyscale.models.network.dimemas.parameters import Dimemas, DimemasLinks
from manyscale.models.network.domains import network_domain
from manyscale.models.network.matching import Mode
from manyscale.models.network.program import Program
from manyscale.models.network.replay.replay import deadlock, refuse_unreceived
from manyscale.models.network.replay.steps import (
    ACTION,
    ENTER_GATE,
    FIRST,
    LAST,
    POST_OPEN_RECEIVE,
    POST_OPEN_SEND,
    POST_RECEIVE,
    POST_SEND,
    START_STRAND,
    WAIT_OPEN_RECEIVE,
    WAIT_RECEIVE,
    WAIT_STRAND,
)
from manyscale.models.network.replay.strand_state import BOTH_POSTED, State, Steps, new_state
from manyscale.models.network.replay.timeline import Placement, ReplayError, Timeline
from manyscale.models.workload.domain import left_open, left_short
from manyscale.models.workload.quantities import MOST_PS

NAME: Final = "dimemas"
VERSION: Final = 1
DOMAIN: Final = network_domain(
    {
        "shared-links": left_short(
            "transfers take the links and buses of network.dimemas, not the routes of the topology"
        ),
        "collective-formulas": left_open("collectives by formula neither wait for links and buses nor hold them"),
        "waits-for-any": left_short("a wait for any of several requests pays no start-up latency"),
    },
    {"network.dimemas": ()},
    without=("network.transfer_start",),
)
TRANSFER_START: Final = "eager"  # an eager message travels as soon as it is sent
MOST_LINKS: Final = 1 << 24  # of all nodes and ranks together: 16 bytes each


def replay(program: Program, compute_ps: np.ndarray, network: Network, placement: Placement) -> Timeline:
    """Timeline of a program whose operation i is preceded by ``compute_ps[i]`` of compute on the traced CPU.

    O(steps + messages x log(strands + messages in flight)). Raises ReplayError for a deadlock, ValueError for a message
    that takes over 53 days.
    """
    num_operations = int(program.rank_offsets[-1])
    if compute_ps.shape != (num_operations,):
        raise ValueError(f"compute_ps has shape {compute_ps.shape}, not ({num_operations},)")
    steps, state, is_eager, traffic = prepare(program, program, compute_ps, network, placement)
    run(steps, state, is_eager, traffic)
    if not state.finished.all():
        raise ReplayError(deadlock(program, state.strand["place"], state.finished))
    if program.num_queues:
        refuse_unreceived(program, state.status & BOTH_POSTED)
    return Timeline(ends(program, state), state.sent, state.arrived)


def prepare(
    program: Program, strands: Program, compute_ps: np.ndarray, network: Network, placement: Placement
) -> tuple[Steps, State, np.ndarray, Traffic]:
    """What `run` takes, before the first step. ``strands``: the program whose strands are to run, with the steps and
    messages of ``program``."""
    limits = Dimemas.of(network) or Dimemas()
    routes = _Routes.of(program, network, placement.node_of_rank)
    last_of_ranks = int(program.strand_steps[program.num_ranks])
    codes = program.step[:last_of_ranks]
    before = _startup_ps(program, routes, placement)
    before[np.flatnonzero(codes & FIRST)] += _on_target(program, compute_ps, limits, placement)
    small = (program.mode == Mode.standard) & (program.bytes < network.eager_threshold_bytes)
    is_eager = small | (program.mode == Mode.buffered) | (program.mode == Mode.free)
    gates = _gate_costs(program, network, limits, placement)
    steps, state = new_state(
        _with_steps_as_operations(strands), before, is_eager, np.zeros(program.num_messages, np.int64), gates
    )
    state.strand["operation"] = strands.strand_steps[:-1]
    return steps, state, is_eager, _traffic(program, routes, limits, placement)


def ends(program: Program, state: State) -> np.ndarray:
    """int64 per operation: when it ended."""
    of_ranks = program.step[: int(program.strand_steps[program.num_ranks])]
    return np.asarray(state.end[np.flatnonzero(of_ranks & LAST)])


def _with_steps_as_operations(program: Program) -> Program:
    """The program with each step an operation of its own, so that time can pass before any step."""
    bounds = program.strand_steps
    offsets = np.append(bounds[: program.num_ranks], bounds[-1])
    return replace(program, step=program.step | FIRST | LAST, rank_offsets=offsets)


def _on_target(program: Program, compute_ps: np.ndarray, limits: Dimemas, placement: Placement) -> np.ndarray:
    """Compute times on the CPUs of each rank's node."""
    ratios = np.array(limits.cpu_ratios or (1.0,))
    if np.all(ratios == 1.0):
        return compute_ps
    if len(ratios) not in (1, placement.num_nodes):
        raise ValueError(f"dimemas.cpu_ratios: {len(ratios)} ratios for {placement.num_nodes} nodes; give one for each")
    ratio = np.broadcast_to(ratios, placement.num_nodes)[placement.node_of_rank]
    factor = np.divide(1.0, ratio, out=np.zeros(len(ratio)), where=ratio > 0)
    scaled = compute_ps * np.repeat(factor, np.diff(program.rank_offsets))
    if scaled.max(initial=0.0) > MOST_PS:
        raise ValueError("a compute phase would take more than 53 days; mend dimemas.cpu_ratios")
    return np.rint(scaled).astype(np.int64)


@dataclass(frozen=True)
class _Routes:
    """``route`` of each message, and per route its latency and time per byte."""

    node_of_rank: np.ndarray
    route: np.ndarray
    latency_ps: np.ndarray
    ps_per_byte: np.ndarray
    envelope_bytes: int

    @classmethod
    def of(cls, program: Program, network: Network, node_of_rank: np.ndarray) -> _Routes:
        source, destination = program.source, program.destination
        route = np.full(len(source), INTER_NODE, np.uint8)
        route[node_of_rank[source] == node_of_rank[destination]] = INTRA_NODE
        route[source == destination] = TO_SELF
        route[program.mode == Mode.free] = FREE
        kinds = (network, network.intra_node, network.self_route)
        latency = np.array([*(kind.latency_ps for kind in kinds), 0], np.int64)
        ps_per_byte = np.array([*(kind.ps_per_byte for kind in kinds), 0.0])
        return cls(node_of_rank, route, latency, ps_per_byte, network.envelope_bytes)


def _startup_ps(program: Program, routes: _Routes, placement: Placement) -> np.ndarray:
    """int64 per step: CPU time that Dimemas charges before it."""
    action, target = program.step & ACTION, program.target
    startup = np.zeros(len(action), np.int64)
    sends = np.flatnonzero((action == POST_SEND) | (action == POST_OPEN_SEND))
    startup[sends] = routes.latency_ps[routes.route[target[sends]]]
    # A blocking receive pays before it is posted, another one where it is waited for.
    for post, wait in ((POST_RECEIVE, WAIT_RECEIVE), (POST_OPEN_RECEIVE, WAIT_OPEN_RECEIVE)):
        waits = np.flatnonzero(action == wait)
        before = waits - 1
        blocking = (waits > 0) & (action[before] == post) & (target[before] == target[waits])
        blocking &= program.step[before] & LAST == 0  # of one operation
        cost = _receive_latency(program, routes, waits, post == POST_OPEN_RECEIVE)
        startup[np.where(blocking, before, waits)] = cost
    strands = np.flatnonzero((action == START_STRAND) | (action == WAIT_STRAND))
    first = program.strand_steps[:-1][target[strands]]
    whole = first < program.strand_steps[1:][target[strands]]
    gated = strands[whole][action[first[whole]] == ENTER_GATE]
    if len(gated):
        gate = target[program.strand_steps[target[gated]]]
        nodes, most = _gate_spread(program, placement)
        inter, intra = routes.latency_ps[INTER_NODE], routes.latency_ps[INTRA_NODE]
        startup[gated] = np.maximum(np.where(nodes[gate] > 1, inter, 0), np.where(most[gate] > 1, intra, 0))
    return startup


def _receive_latency(program: Program, routes: _Routes, waits: np.ndarray, is_open: bool) -> np.ndarray:
    """Latency of the route of each received message; of one from any source that of the network."""
    target = program.target[waits]
    if not is_open:
        return np.asarray(routes.latency_ps[routes.route[target]])
    source = program.open_source[target]
    rank = program.strand_rank[np.searchsorted(program.strand_steps, waits, side="right") - 1]
    node = routes.node_of_rank
    route = np.where((source >= 0) & (node[source] == node[rank]), INTRA_NODE, INTER_NODE)
    route[source == rank] = TO_SELF
    return np.asarray(routes.latency_ps[route])


def _gate_spread(program: Program, placement: Placement) -> tuple[np.ndarray, np.ndarray]:
    """int32 per gate: nodes that take part, and ranks on the node that holds most of them. O(entries log entries)."""
    entries = np.flatnonzero(program.step & ACTION == ENTER_GATE)
    strand = np.searchsorted(program.strand_steps, entries, side="right") - 1
    node = placement.node_of_rank[program.strand_rank[strand]]
    pairs, count = np.unique(program.target[entries].astype(np.int64) * placement.num_nodes + node, return_counts=True)
    gate = pairs // placement.num_nodes
    nodes = np.bincount(gate, minlength=len(program.gate_size)).astype(np.int32)
    most = np.zeros(len(program.gate_size), np.int32)
    np.maximum.at(most, gate, count.astype(np.int32))
    return nodes, most


def _gate_costs(program: Program, network: Network, limits: Dimemas, placement: Placement) -> np.ndarray:
    if not len(program.gate_size):
        return np.empty(0, np.int64)
    nodes, most = _gate_spread(program, placement)
    intra = network.intra_node
    cost = gate_cost_ps(replace(program.gates, size=most), intra.latency_ps, intra.ps_per_byte, 0)
    if placement.num_nodes > 1:
        between = replace(program.gates, size=nodes)
        cost = cost + gate_cost_ps(between, network.latency_ps, network.ps_per_byte, limits.inter_node.buses)
    return cost


def _traffic(program: Program, routes: _Routes, limits: Dimemas, placement: Placement) -> Traffic:
    """All transfers before the first starts."""
    size = (program.bytes + routes.envelope_bytes).astype(np.float64)
    duration = size * routes.ps_per_byte[routes.route]
    if duration.max(initial=0.0) > MOST_PS:
        raise ValueError(f"a message of {size.max():.0f} B would take more than 53 days; mend the network's bandwidths")
    node, num_nodes, num_messages = placement.node_of_rank, placement.num_nodes, program.num_messages
    inside = routes.route != INTER_NODE
    transfer = np.zeros(num_messages, TRANSFER)
    transfer["duration"] = np.rint(duration)
    transfer["leaves"] = np.where(inside, num_nodes + program.source, node[program.source])
    transfer["enters"] = np.where(inside, num_nodes + program.destination, node[program.destination])
    transfer["buses"] = np.where(inside, 1 + node[program.source], 0)
    transfer["route"] = routes.route
    transfer["output"] = transfer["input"] = -1
    links = (limits.inter_node, limits.intra_node)
    counts = (num_nodes, program.num_ranks)
    last_link = np.cumsum(np.repeat([_num_links(one) for one in links], counts))
    if last_link[-1] > MOST_LINKS:
        raise ValueError(f"{last_link[-1]} links are more than the {MOST_LINKS} that are kept; 0 is without limit")
    side = np.zeros(len(last_link), SIDE)
    side["last_link"] = last_link
    side["first_link"][1:] = last_link[:-1]
    side["free_inputs"] = np.repeat([one.input_links for one in links], counts)
    link = np.zeros(last_link[-1], LINK)
    link["owner"] = -1
    queue = np.full(2 * len(side) + 1 + num_nodes, -1, np.int32).repeat(2).view(QUEUE)
    buses = np.zeros(1 + num_nodes, BUSES)
    buses["limit"] = limits.intra_node.buses
    buses["limit"][0] = limits.inter_node.buses
    route = np.zeros(2, ROUTE)
    route["has_links"] = [_num_links(one) > 0 for one in links]
    route["half_duplex"] = [min(one.output_links, one.input_links) == 0 for one in links]
    heap = np.zeros(num_messages, event_record(np.dtype(np.int64)))
    counter, heap_size = np.zeros(2, np.int64), np.zeros(1, np.int64)
    return Traffic(transfer, link, side, queue, buses, route, counter, heap, heap_size)


def _num_links(links: DimemasLinks) -> int:
    """Links that carry output: of a half-duplex side, all."""
    return links.output_links or links.input_links
