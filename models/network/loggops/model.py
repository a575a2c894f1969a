"""The LogGOPS network: CPU time of messages, gaps at network interfaces, and a rendezvous protocol.

Law of LogGOPSim (Hoefler, Schneider, Lumsdaine, "LogGOPSim - simulating large-scale applications in the LogGOPS model",
HPDC 2010; its exact form from spcl/LogGOPSim 76451de, src/LogGOPSim/LogGOPSim.cpp, the built-in LogGP network). Every
rank has a CPU and a network interface, which sends and receives at once. For a message of s bytes:

* its send takes o + (s - 1) O of the sender's CPU and g + (s - 1) G of the sending interface, from the moment that both
  are free;
* its first byte arrives o + L after that moment;
* it is taken in as soon as the receiver's CPU and receiving interface are free, then takes o + (s - 1) max(O, G) of
  the CPU and g + (s - 1) G of the interface, whether its receive is posted or not;
* its receive ends when both have happened: it was posted, and the message was taken in;
* its send ends with its CPU time if it is eager, else as soon as the receiver starts to take it in and has posted the
  receive (no time passes on the way back).

A calculation keeps the CPU until its end; what becomes ready at once at one rank starts in the order sends, receives,
calculations. Parameters: L, G and S are the network's ``latency``, ``bandwidth`` and ``eager_threshold``; o, g and O
stand in ``loggops`` (all 0 without it), and there may be an L of its own. LogGOPSim sends S bytes eagerly, we those
*under* the threshold: its -S n is ``eager_threshold: n + 1``. A message that a workload calls synchronous or buffered
is never or always eager. Eager or not, messages travel as soon as they are sent (``transfer_start`` plays no part).

Assumptions and differences:

* All times are rounded to whole ps, (s - 1) G and (s - 1) O once per message; LogGOPSim knows whole ns only.
* s is the payload plus the ``envelope``. Where s = 0 LogGOPSim computes with (unsigned) s - 1 = -1; here it counts as
  one byte.
* Ranks of one node use L and G of ``intra_node``, and a rank to itself those of ``self``, on nodes that hold several
  ranks; LogGOPSim knows no nodes. Every rank keeps an interface of its own.
* LogGOPSim orders more than 16 vertices that become ready at one rank at once by an unstable sort; here it is stable.
* A non-blocking collective is messages as any other: it goes on while the CPU is free, not during compute.
* A wait for any of several requests takes the first whose end is known. Collectives that cost what a formula says take
  no CPU time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from manyscale.models.machine import Network
from manyscale.models.network.collectives.formulas import gate_cost_ps
from manyscale.models.network.domains import network_domain
from manyscale.models.network.loggops.kernel import ENDED, MESSAGE, RECEIVED, STARTED, run_graph
from manyscale.models.network.loggops.parameters import LogGops
from manyscale.models.network.loggops.strand_graph import lower, strand_times
from manyscale.models.network.matching import Mode
from manyscale.models.network.operation_graph import CALCULATION, RECEIVE, SEND, OperationGraph
from manyscale.models.network.program import Program
from manyscale.models.network.replay.kernel import BOTH_POSTED
from manyscale.models.network.replay.replay import deadlock, refuse_unreceived
from manyscale.models.network.replay.timeline import Placement, ReplayError, Timeline
from manyscale.models.workload import ANY_SOURCE, ANY_TAG
from manyscale.models.workload.domain import TAKES, Refuses, left_short
from manyscale.models.workload.quantities import MOST_PS

NAME = "loggops"
VERSION = 1
DOMAIN = network_domain(
    {
        "collective-formulas": left_short("collectives by formula take no processor time"),
        "unordered-operations": TAKES,
        "calls-inside-tasks": Refuses("cannot join the task graphs of ranks that communicate inside tasks"),
    },
    {"network.loggops": ()},
    without=("network.transfer_start",),
)
TRANSFER_START = "send"


def replay(program: Program, compute_ps: np.ndarray, network: Network, placement: Placement) -> Timeline:
    """Timeline of a program whose operation i is preceded by ``compute_ps[i]`` of compute. O(n log n) in the vertices.

    Of a graph of operations that is in no order, every operation's own end is given. Raises ReplayError for a deadlock
    and for messages that nobody receives, ValueError for a message that takes over 53 days.
    """
    num_operations = int(program.rank_offsets[-1])
    if compute_ps.shape != (num_operations,):
        raise ValueError(f"compute_ps has shape {compute_ps.shape}, not ({num_operations},)")
    compute_ps = compute_ps.view()
    compute_ps.flags.writeable = False
    message = _messages(program, message_costs(program, network, placement.node_of_rank))
    if program.graph is not None:
        return _replay_graph(program, program.graph, compute_ps, message)
    lowered = lower(program, compute_ps, gate_cost_ps(program.gates, network.latency_ps, network.ps_per_byte))
    any_of = np.full(lowered.graph.num_vertices if len(lowered.any_vertex) else 0, -1, np.int32)
    with_vertex = np.flatnonzero(lowered.any_vertex >= 0)
    any_of[lowered.any_vertex[with_vertex]] = with_vertex
    times, num_unreceived = _run(
        program, lowered.graph, lowered.duration_ps, message, any_of, program.candidate_offsets, lowered.candidates
    )
    del message
    end_ps, place, finished = strand_times(program, lowered, times)
    if not finished.all():
        raise ReplayError(deadlock(program, place, finished))
    if num_unreceived:
        status = np.full(program.num_messages, BOTH_POSTED)
        status[lowered.graph.message[_unreceived(lowered.graph, times)]] = 0
        refuse_unreceived(program, status)
    return Timeline(end_ps, times[STARTED, lowered.send], times[RECEIVED, lowered.send])


@dataclass(frozen=True)
class MessageCosts:
    """Per message: int64 ``flight_ps`` from its start to the arrival of its first byte, CPU time of ``send_ps`` and
    ``receive_ps``, ``gap_ps`` of both interfaces; and bool ``is_eager``."""

    flight_ps: np.ndarray
    send_ps: np.ndarray
    receive_ps: np.ndarray
    gap_ps: np.ndarray
    is_eager: np.ndarray


def message_costs(program: Program, network: Network, node_of_rank: np.ndarray) -> MessageCosts:
    """The law's costs of every message. Raises ValueError for a message that takes over 53 days. O(messages)."""
    extra = LogGops.of(network) or LogGops.model_construct(
        overhead_ps=0, gap_ps=0, overhead_ps_per_byte=0.0, latency_ps=None
    )
    source, destination = program.source, program.destination
    routes = (network, network.intra_node, network.self_route)
    latency = np.array([route.latency_ps for route in routes], np.int64)
    if extra.latency_ps is not None:
        latency[0] = extra.latency_ps
    ps_per_byte = np.array([route.ps_per_byte for route in routes])
    route = np.zeros(len(source), np.int8)
    node = node_of_rank[source]
    shared = np.bincount(node_of_rank)[node] > 1
    route[shared & (node == node_of_rank[destination])] = 1
    route[shared & (source == destination)] = 2
    size = np.maximum(program.bytes + (network.envelope_bytes - 1), 0).astype(np.float64)
    slowest = max(ps_per_byte.max(), extra.overhead_ps_per_byte)
    if size.max(initial=0.0) * slowest + latency.max() + extra.overhead_ps + extra.gap_ps > MOST_PS:
        raise ValueError(f"a message of {size.max():.0f} B would take more than 53 days; mend the network's bandwidths")
    wire = np.rint(size * ps_per_byte[route]).astype(np.int64)
    cpu = np.rint(size * extra.overhead_ps_per_byte).astype(np.int64)
    flight, gap = extra.overhead_ps + latency[route], extra.gap_ps + wire
    sending, receiving = extra.overhead_ps + cpu, extra.overhead_ps + np.maximum(cpu, wire)
    for values in (flight, gap, sending, receiving):
        values[program.mode == Mode.free] = 0
    small = (program.mode == Mode.standard) & (program.bytes < network.eager_threshold_bytes)
    is_eager = small | (program.mode == Mode.buffered) | (program.mode == Mode.free)
    return MessageCosts(flight, sending, receiving, gap, is_eager)


def _messages(program: Program, costs: MessageCosts) -> np.ndarray:
    """Costs of all messages as the kernel takes them."""
    message = np.empty(program.num_messages, MESSAGE)
    message["destination"], message["is_eager"] = program.destination, costs.is_eager
    message["flight"], message["gap"] = costs.flight_ps, costs.gap_ps
    message["send"], message["receive"] = costs.send_ps, costs.receive_ps
    return message


def _run(
    program: Program,
    graph: OperationGraph,
    duration_ps: np.ndarray,
    message: np.ndarray,
    any_of: np.ndarray,
    candidate_offsets: np.ndarray,
    candidates: np.ndarray,
) -> tuple[np.ndarray, int]:
    """Times of the vertices (see loggops_kernel), and how many messages nobody receives."""
    return run_graph(graph, duration_ps, (any_of, candidate_offsets, candidates), message, program.num_ranks)


def _replay_graph(program: Program, graph: OperationGraph, compute_ps: np.ndarray, message: np.ndarray) -> Timeline:
    if np.any(compute_ps[graph.kind != CALCULATION]):
        raise ValueError("compute before a send, a receive or a wait of a graph of operations; give it its own vertex")
    none = np.empty(0, np.int32)
    times, num_unreceived = _run(program, graph, compute_ps, message, none, np.zeros(1, np.int64), none)
    if np.any(times[ENDED] < 0):
        raise ReplayError(_stuck(program, graph, times))
    if num_unreceived:
        raise ReplayError(_lonely(program, graph, _unreceived(graph, times)))
    end_ps = times[ENDED].copy()
    if program.graph_is_ordered:
        # what does not wait ends where the one before it does, as if it took no time; its end counts in a later wait
        end_ps[graph.kind <= RECEIVE] = 0
        for first, last in pairwise(program.rank_offsets.tolist()):
            np.maximum.accumulate(end_ps[first:last], out=end_ps[first:last])
    sends = np.flatnonzero(graph.message >= 0)
    return Timeline(end_ps, times[STARTED, sends], times[RECEIVED, sends])


def _unreceived(graph: OperationGraph, times: np.ndarray) -> np.ndarray:
    """Sends whose messages no receive has taken."""
    sends = np.flatnonzero(graph.kind == SEND)
    return sends[times[RECEIVED, sends] < 0]


def _lonely(program: Program, graph: OperationGraph, sends: np.ndarray) -> str:
    row = int(sends[0])
    message = int(graph.message[row])
    return (
        f"{_place(program, graph, row)} sends {int(program.bytes[message])} B with tag {int(graph.tag[row])} to rank "
        f"{int(program.destination[message])}, which never receives it ({len(sends)} such messages); "
        "the trace is incomplete"
    )


def _place(program: Program, graph: OperationGraph, row: int) -> str:
    rank = int(graph.rank[row])
    return f"rank {rank}, operation {row - int(program.rank_offsets[rank])}"


def _stuck(program: Program, graph: OperationGraph, times: np.ndarray) -> str:
    """What the operations wait for that have started, or could, but do not end; at most five of them."""
    never = np.flatnonzero(times[ENDED] < 0)
    begun = never[times[STARTED, never] >= 0]
    lines = []
    for row in begun[:5].tolist():
        place = _place(program, graph, row)
        if graph.kind[row] == SEND:
            message = int(graph.message[row])
            lines.append(
                f"{place} waits for rank {int(program.destination[message])} to receive "
                f"{int(program.bytes[message])} B with tag {int(graph.tag[row])}"
            )
        else:
            who = "any rank" if graph.source[row] == ANY_SOURCE else f"rank {int(graph.source[row])}"
            tag = "any tag" if graph.tag[row] == ANY_TAG else f"tag {int(graph.tag[row])}"
            lines.append(f"{place} waits for a message from {who} with {tag}")
    if not lines:
        lines = [f"{_place(program, graph, int(never[0]))} requires itself, by way of others"]
    more = f"; and {len(begun) - 5} more" if len(begun) > 5 else ""
    ranks = len(np.unique(graph.rank[never]))
    return f"deadlock: {ranks} of {program.num_ranks} ranks never finish: {'; '.join(lines)}{more}"
