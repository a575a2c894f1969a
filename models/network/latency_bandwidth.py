"""The latency-bandwidth network: T = L + S/B per message, without contention.

Source: Grass (UPC 2017, ch. 6) for the law; its exact form, the 16-byte envelope and the routes to oneself were
measured on SimGrid 3.32 with every correction factor off.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.machine import Network
from manyscale.models.network.collectives.formulas import gate_cost_ps
from manyscale.models.network.domains import network_domain
from manyscale.models.network.matching import Mode
from manyscale.models.network.program import Program
from manyscale.models.network.replay.replay import MessageLaw, replay_law
from manyscale.models.network.replay.timeline import Placement, Timeline
from manyscale.models.workload.quantities import MOST_PS

NAME = "latency-bandwidth"
VERSION = 1
DOMAIN = network_domain({}, {})
CALLED_FROM = 1024  # ranks from which on collectives are called (replay/calls.py): messages do not hinder each other


def replay(program: Program, compute_ps: np.ndarray, network: Network, placement: Placement) -> Timeline:
    """Timeline of a program whose operation i is preceded by ``compute_ps[i]`` of compute. O(steps + messages).

    Raises ReplayError for a deadlock, ValueError for a message that takes over 53 days, and for programs of calls
    EntangledCallsError.
    """
    law = message_law(program, network, placement.node_of_rank)
    if program.calls is None:
        return replay_law(program, compute_ps, law)
    from manyscale.models.network.replay.calls import replay_calls  # few runs need it

    return replay_calls(program, compute_ps, law, called(program, network, placement))


def called(program: Program, network: Network, placement: Placement) -> list[tuple[Program, MessageLaw]]:
    """Program and law of each collective that a program calls."""
    from manyscale.models.network.replay.calls import law_of_calls  # few runs need it

    return law_of_calls(program, placement.node_of_rank, lambda part, nodes: message_law(part, network, nodes))


def message_law(program: Program, network: Network, node_of_rank: np.ndarray) -> MessageLaw:
    """Cost and protocol of every message, cost of every gate; ``node_of_rank`` is int[num_ranks]. O(messages + gates).

    A message takes the ``self`` route if its ranks are one, the ``intra_node`` route if their nodes are, else the
    network's own. Costs are rounded to whole picoseconds. Raises ValueError for a message that takes over 53 days.
    """
    source, destination = program.source, program.destination
    routes = (network, network.intra_node, network.self_route)
    latency = np.array([route.latency_ps for route in routes], np.int64)
    ps_per_byte = np.array([route.ps_per_byte for route in routes])
    size = (program.bytes + network.envelope_bytes).astype(np.float64)
    if size.max(initial=0.0) * ps_per_byte.max() + latency.max() > MOST_PS:
        raise ValueError(f"a message of {size.max():.0f} B would take more than 53 days; mend the network's bandwidths")
    if np.array_equal(node_of_rank, np.arange(program.num_ranks)) and not np.any(source == destination):
        cost = latency[0] + np.rint(size * ps_per_byte[0]).astype(np.int64)
    else:
        route = np.zeros(len(source), np.int8)
        route[node_of_rank[source] == node_of_rank[destination]] = 1
        route[source == destination] = 2
        cost = latency[route] + np.rint(size * ps_per_byte[route]).astype(np.int64)
    cost[program.mode == Mode.free] = 0
    small = (program.mode == Mode.standard) & (program.bytes < network.eager_threshold_bytes)
    is_eager = small | (program.mode == Mode.buffered) | (program.mode == Mode.free)
    gate_cost = gate_cost_ps(program.gates, network.latency_ps, network.ps_per_byte)
    return MessageLaw(cost, is_eager, network.transfer_start == "eager", gate_cost)
