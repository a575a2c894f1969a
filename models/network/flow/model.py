"""The flow network: messages share the links of their routes, by SimGrid's fluid law.

Law (SimGrid 3.32: src/surf/network_cm02.cpp, src/kernel/lmm/maxmin.cpp; Velho, Schnorr, Casanova, Legrand, "On the
validity of flow-level TCP network models for grid and cloud simulations", ACM TOMACS 23(4), 2013): a message pays the
latency of its route first, which takes no bandwidth, then its bytes and envelope flow. Rates are max-min fair, weighted
by 1 / latency of the route (1 if that is 0), and change whenever a flow starts or ends. An unshared link bounds each
flow by itself.

``network.flow`` adds what SimGrid's SMPI model has besides: factors on latency and bandwidth by size (the bytes flow at
factor x rate, but take the whole rate of their links), the bound window / (2 latency) of TCP, a latency that the weight
gains for each link (weight_bytes / bandwidth), and traffic back, a share of each flow's rate on the links of the
opposite route.

``network.flow.step`` has rates solved at its multiples alone: for flows by the hundred thousand that share links, where
each start and end of one changes the rates of most others.

When a transfer starts, and which sends wait for their receiver, is as in latency_bandwidth.py. Without any finite
bandwidth there is no contention: then the law is that model's.

Assumptions: routes are fixed; nodes forward without delay of their own; no packets, so no losses and no retransmission.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels.event_heap import event_record
from manyscale.models.machine import Network
from manyscale.models.network import latency_bandwidth
from manyscale.models.network.domains import network_domain
from manyscale.models.network.flow.kernel import ARRIVES, FLOWS, MESSAGE, Traffic, run
from manyscale.models.network.flow.link_clocks import Sharing, new_sharing
from manyscale.models.network.flow.own_ways import OwnWays
from manyscale.models.network.flow.parameters import Flow, SizeFactor
from manyscale.models.network.matching import Mode
from manyscale.models.network.program import Program
from manyscale.models.network.replay.replay import deadlock, refuse_unreceived
from manyscale.models.network.replay.strand_state import BOTH_POSTED, new_state
from manyscale.models.network.replay.timeline import LinkLoad, Placement, ReplayError, Timeline
from manyscale.models.network.routes import Routes, routes
from manyscale.models.workload.domain import TAKES, left_open
from manyscale.models.workload.quantities import MOST_PS

NAME: Final = "flow"
VERSION: Final = 3
_STEPS: Final = (
    "rates of transfers are solved at multiples of network.flow.step alone: with steps of a hundredth, a tenth and the "
    "whole of a route's latency the makespans of 18 programs were off by at most 0.05, 0.6 and 4.7 %"
)  # tests/validation/cluster/RESULTS.md, Flow
DOMAIN: Final = network_domain(
    {"shared-links": TAKES, "rates-in-steps": left_open(_STEPS)},
    {
        "network.topology": (),
        "network.flow": (),
        "network.intra_node": ("own-routes",),
        "network.self": ("own-routes",),
    },
)

_PS_PER_S: Final = 1e12
# Intervals of the links' load: a picture's width, fewer on large machines
_MOST_INTERVALS: Final = 512
_MOST_LOADS: Final = 1 << 22
_FIRST_INTERVAL_PS: Final = 1e6


def check(network: Network) -> None:
    """Raises ValueError for a network without links to share."""
    if network.topology is None and not _is_free(network):
        raise ValueError("the flow network needs links: give the target network.topology, for example {kind: crossbar}")


def replay(program: Program, compute_ps: np.ndarray, network: Network, placement: Placement) -> Timeline:
    """Timeline of a program whose operation i is preceded by ``compute_ps[i]`` of compute.

    O((steps + messages) x log(strands + messages in flight)) and what the solver takes (network/flow/max_min.py).
    Raises ReplayError for a deadlock, ValueError for a network without topology or a message that takes over 53 days.
    """
    num_operations = int(program.rank_offsets[-1])
    if compute_ps.shape != (num_operations,):
        raise ValueError(f"compute_ps has shape {compute_ps.shape}, not ({num_operations},)")
    check(network)
    if network.topology is None:
        return latency_bandwidth.replay(program, compute_ps, network, placement)
    node = placement.node_of_rank
    source, destination = program.source, program.destination
    ways = routes(network, placement.num_nodes, node[source], node[destination], source == destination)
    return replay_over(ways, program, compute_ps, network, node)


def replay_over(
    ways: Routes,
    program: Program,
    compute_ps: np.ndarray,
    network: Network,
    node_of_rank: np.ndarray,
    with_load: bool = True,
) -> Timeline:
    """As `replay`, over given routes of the program's messages; the network's own latencies and bandwidths matter only
    to collectives that are formulas. ``with_load``: record the load of links."""
    law = latency_bandwidth.message_law(program, network, node_of_rank)
    is_eager, eager_start, gate_cost = law.is_eager, law.eager_start, law.gate_cost_ps.astype(np.float64)
    del law  # its costs are not used: 8 B a message
    traffic, sharing = traffic_of(program, network, ways, with_load)
    no_delay = np.zeros(program.num_messages)
    steps, state = new_state(program, compute_ps.astype(np.float64), is_eager, no_delay, gate_cost)
    run(steps, state, traffic, sharing, eager_start)
    del traffic
    if not state.finished.all():
        raise ReplayError(deadlock(program, state.strand["place"], state.finished))
    if program.num_queues:
        refuse_unreceived(program, state.status & BOTH_POSTED)
    load = load_of(ways, sharing) if with_load else None
    return Timeline(_whole(state.end), _whole(state.sent), _whole(state.arrived), load)


def load_of(ways: Routes, sharing: Sharing) -> LinkLoad:
    """The load of shared links, in the intervals that time has reached."""
    rows = np.flatnonzero(ways.link_is_shared)
    used = np.flatnonzero(sharing.load.any(axis=1))
    return LinkLoad(
        names=tuple(ways.link_names[row] for row in rows.tolist()),
        ps_per_byte=ways.link_ps_per_byte[rows],
        interval_ps=int(sharing.width[0]),
        bytes=np.ascontiguousarray(sharing.load[: used[-1] + 1 if len(used) else 0, rows].T),
    )


def _whole(times: np.ndarray) -> np.ndarray:
    return np.rint(times).astype(np.int64)


def _is_free(network: Network) -> bool:
    """Whether no route has a finite bandwidth, so that nothing can be shared."""
    return network.ps_per_byte == network.intra_node.ps_per_byte == network.self_route.ps_per_byte == 0


@dataclass(frozen=True)
class _Use:
    """What a flow between a pair of nodes takes: rows (pair, shared link, use) sorted by pair; per pair the bound of
    its own rate (bytes per ps), the latency of its route and its weight."""

    pair: np.ndarray
    link: np.ndarray
    use: np.ndarray
    bound: np.ndarray
    latency_ps: np.ndarray
    weight: np.ndarray


def traffic_of(
    program: Program, network: Network, ways: Routes, with_load: bool = True, own: OwnWays | None = None
) -> tuple[Traffic, Sharing]:
    """All messages before the first starts, on idle links; those of ``own`` on links of theirs, the last of ``ways``.
    O(messages + pairs x route)."""
    flow = Flow.of(network) or Flow()
    use = _uses(ways, flow)
    pair = ways.pair_of_message
    num_links = len(ways.link_ps_per_byte)
    if own is not None:
        pair = pair.copy()
        pair[own.message] = len(use.bound) + own.way
        use = _with_own(use, own, num_links - len(own.link_names))
    num_pairs = len(use.bound)
    capacity = _capacities(ways)
    size = (program.bytes + network.envelope_bytes).astype(np.float64)
    amount = size / _factor(size, flow.bandwidth_factors)
    message = np.zeros(program.num_messages, MESSAGE)
    message["latency"] = use.latency_ps[pair] * _factor(size, flow.latency_factors)
    message["amount"] = amount
    message["pair"] = pair
    message["private"] = -1
    offsets = np.searchsorted(use.pair, np.arange(num_pairs + 1))
    alone = (np.diff(offsets) == 0)[pair]
    narrowest = np.full(num_pairs, np.inf)
    np.minimum.at(narrowest, use.pair, capacity[use.link] / use.use)
    message["kind"] = np.where(alone, ARRIVES, FLOWS)
    message["latency"][alone] += amount[alone] / use.bound[pair[alone]]
    free = program.mode == Mode.free
    message["kind"][free] = ARRIVES
    message["latency"][free] = 0.0
    if own is not None:
        moving = own.flows
        message["kind"][own.message] = np.where(moving, FLOWS, ARRIVES)
        message["amount"][own.message] = own.bytes
        message["latency"][own.message] = own.latency_ps + np.where(moving, 0.0, own.bytes * own.ps_per_byte)
    flows = message["kind"] == FLOWS
    longest = message["latency"] + np.where(flows, amount / np.minimum(narrowest, use.bound)[pair], 0.0)
    if longest.max(initial=0.0) > MOST_PS:
        raise ValueError(f"a message of {size.max():.0f} B would take more than 53 days; mend the network's bandwidths")
    bounded = np.flatnonzero(flows & (use.bound < narrowest)[pair])
    narrow = use.bound[pair[bounded]]
    if own is not None:
        bounded = np.concatenate((bounded, own.message[own.flows]))
        narrow = np.concatenate((narrow, 1.0 / own.ps_per_byte[own.flows]))
    message["private"][bounded] = num_links + np.arange(len(bounded))
    of_pair = np.bincount(pair[flows], minlength=num_pairs)
    on_link = np.bincount(use.link, weights=of_pair[use.pair], minlength=num_links).astype(np.int64)
    num_flows = int(flows.sum())
    hops = int(np.diff(offsets).max(initial=0)) + (len(bounded) > 0)
    sharing = new_sharing(
        np.concatenate((capacity, narrow)),
        np.concatenate((on_link, np.ones(len(bounded), np.int64))),
        num_flows,
        hops,
        num_recorded=num_links if with_load else 0,
        num_intervals=max(16, min(_MOST_INTERVALS, _MOST_LOADS // max(1, num_links)) // 2 * 2),
        width=_FIRST_INTERVAL_PS,
    )
    traffic = Traffic(
        message=message,
        offsets=offsets,
        links=use.link,
        uses=use.use,
        weight=use.weight,
        waiting=np.empty(program.num_messages, event_record(np.dtype(np.float64))),
        waiting_size=np.zeros(1, np.int64),
        of_flow=np.empty(num_flows, np.int32),
        ended=np.empty(num_flows, np.int32),
        step=np.array([float(flow.step_ps), np.inf]),
    )
    return traffic, sharing


def _capacities(ways: Routes) -> np.ndarray:
    """Bytes per ps of each link; a link of infinite bandwidth is never used, whatever stands for it."""
    cost = ways.link_ps_per_byte
    return np.divide(1.0, cost, out=np.ones(len(cost)), where=cost > 0)


def _uses(ways: Routes, flow: Flow) -> _Use:
    """Shared links of finite bandwidth by pair, each once; unshared ones bound the flow."""
    num_pairs = len(ways.latency_ps)
    forward = np.repeat(np.arange(num_pairs), np.diff(ways.offsets))
    pair, link, use = forward, ways.links, np.ones(len(forward))
    if flow.cross_traffic_ratio > 0:
        backward = np.repeat(np.arange(num_pairs), np.diff(ways.reverse_offsets))
        pair, link = np.concatenate((pair, backward)), np.concatenate((link, ways.reverse_links))
        use = np.concatenate((use, np.full(len(backward), flow.cross_traffic_ratio)))
    latency_s = ways.latency_ps / _PS_PER_S
    cost = ways.link_ps_per_byte
    lasting = np.bincount(forward, weights=cost[ways.links], minlength=num_pairs) * flow.weight_bytes
    penalty = ways.latency_ps + np.where(ways.latency_ps > 0, lasting, 0.0)
    weight = np.where(penalty > 0, _PS_PER_S / np.where(penalty > 0, penalty, 1.0), 1.0)
    bound = np.full(num_pairs, np.inf)
    if flow.window_bytes is not None:
        np.divide(flow.window_bytes / _PS_PER_S, 2 * latency_s, out=bound, where=latency_s > 0)
    finite = cost[link] > 0
    shared = ways.link_is_shared[link]
    own = finite & ~shared
    np.minimum.at(bound, pair[own], 1.0 / (cost[link[own]] * use[own]))
    key = pair[finite & shared] * np.int64(len(cost)) + link[finite & shared]
    distinct, which = np.unique(key, return_inverse=True)
    total = np.bincount(which, weights=use[finite & shared], minlength=len(distinct))
    return _Use(
        pair=distinct // max(1, len(cost)),
        link=(distinct % max(1, len(cost))).astype(np.int32),
        use=total,
        bound=bound,
        latency_ps=ways.latency_ps.astype(np.float64),
        weight=weight,
    )


def _with_own(use: _Use, own: OwnWays, first_link: int) -> _Use:
    """With ways over links from ``first_link`` on, one flow as good as another."""
    count = len(own.offsets) - 1
    of_way = np.repeat(np.arange(count), np.diff(own.offsets))
    return _Use(
        pair=np.concatenate((use.pair, len(use.bound) + of_way)),
        link=np.concatenate((use.link, first_link + own.links)).astype(np.int32),
        use=np.concatenate((use.use, own.uses)),
        bound=np.concatenate((use.bound, np.full(count, np.inf))),
        latency_ps=np.concatenate((use.latency_ps, np.zeros(count))),
        weight=np.concatenate((use.weight, np.ones(count))),
    )


def _factor(size: np.ndarray, factors: tuple[SizeFactor, ...]) -> np.ndarray:
    """The factor of the largest ``above`` that a size exceeds; 1 if it exceeds none."""
    if not factors:
        return np.ones(len(size))
    above = np.array([one.above_bytes for one in factors])
    value = np.array([1.0, *(one.factor for one in factors)])
    return np.asarray(value[np.searchsorted(above, size, side="left")])
