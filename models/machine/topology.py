"""Topologies of the target's network: what connects the nodes, and how messages are routed.

Read by models that know links (``flow``). Where a topology gives a link no bandwidth it has the network's; where it
gives no latency, neighbouring nodes are ``network.latency`` apart: half of it per link, of which a route between
neighbours has two, or all of it on the torus, where it has one. The latency of a route is the sum over its links.

``loopback``: what stays on a node takes routes of its ``own`` (``network.self`` from a rank to itself,
``network.intra_node`` between ranks), or goes ``through-links``: out to the first switch and back. Routes of its own
are not shared by default, since ``intra_node`` is what one copy by one core achieves; with ``within_node: shared`` all
transfers between the ranks of a node share its bandwidth.

``routing``: ``minimal`` is deterministic; ``valiant`` goes minimally to a random intermediate place and minimally on
(Valiant, "A scheme for fast parallel communication", SIAM J. Comput. 11(2), 1982). Random choices depend on the pair of
nodes and on ``seed`` only.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from manyscale.models.workload.parameters import Count, PsPerByte, Strict, TimePs

MOST_LINKS = 2**30  # links, and a node's own routes after them, are numbered in 32 bits
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1, max_length=16)]


class TopologyLink(Strict):
    """One direction of one class of link; what is left out is derived from the network."""

    latency_ps: TimePs | None = Field(default=None, alias="latency")
    """The latency of the link. By default it follows from `network.latency`."""
    ps_per_byte: PsPerByte | None = Field(default=None, alias="bandwidth")
    """The bandwidth of the link. By default that of the network."""


class BundledLink(TopologyLink):
    """A link of ``cables`` cables that act as one link with the sum of their bandwidths."""

    cables: Count = 1
    """How many cables act as one link with the sum of their bandwidths."""


class WithinNode(Strict):
    """How messages inside a node share its bandwidth."""

    within_node: Literal["unshared", "shared"] = "unshared"
    """Whether all transfers between the ranks of a node share its bandwidth."""


class WithLoopback(WithinNode):
    """Which way messages inside a node go."""

    loopback: Literal["own", "through-links"] = "own"
    """Whether messages inside a node take routes of their `own`, or go `through-links`, out to the first switch and
    back."""


class Crossbar(WithLoopback):
    """Every network interface has one link up and one link down to an ideal switch.

    Two nodes a and b talk through interface (a + b) mod ``interfaces`` of both.
    """

    kind: Literal["crossbar"]
    """The kind of topology: every interface has a link up and one down to an ideal switch."""
    interfaces: Count = 1
    """Network interfaces of a node."""


class FatTree(WithLoopback):
    """A fat tree, level by level from the nodes up: a switch of level i has ``down[i]`` children, everything below it
    ``up[i]`` parents, and ``cables[i]`` parallel links join the two (Zahavi's PGFT; ``topo_parameters`` of SimGrid).

    Several interfaces of a node are ``cables[0]`` (to one leaf switch) or ``up[0]`` (to several). ``links``: one per
    level, or none. ``routing`` chooses the ports up: by the destination, the source, or at random for each pair.
    """

    kind: Literal["fat-tree"]
    """The kind of topology: a fat tree, level by level from the nodes up."""
    down: Counts
    """The children of a switch of each level."""
    up: Counts
    """The parents of everything below a switch of each level."""
    cables: tuple[Count, ...] = ()
    """The parallel links that join the two, by level. By default 1."""
    links: tuple[TopologyLink, ...] = ()
    """Latency and bandwidth of the links of each level."""
    routing: Literal["d-mod-k", "s-mod-k", "random"] = "d-mod-k"
    """How the ports up are chosen: by the destination, the source, or at random for each pair."""
    seed: Seed = 0
    """The seed of random routes."""

    @model_validator(mode="after")
    def _levels_agree(self) -> FatTree:
        levels = len(self.down)
        for key in ("up", "cables", "links"):
            length = len(getattr(self, key))
            if length != levels and (key == "up" or length):
                raise ValueError(f"{key}: {length} given for {levels} levels (those of 'down'); give one for each")
        refuse_too_many(sum(self.num_links(level) for level in range(levels)))
        return self

    @property
    def cables_of_level(self) -> tuple[int, ...]:
        return self.cables or (1,) * len(self.down)

    def num_switches(self, level: int) -> int:
        """Switches of a level; nodes are level 0."""
        return math.prod(self.up[:level]) * math.prod(self.down[level:])

    def num_links(self, level: int) -> int:
        """Directed links between ``level`` and the one above."""
        return 2 * self.num_switches(level) * self.up[level] * self.cables_of_level[level]

    @property
    def most_nodes(self) -> int:
        return math.prod(self.down)


class Torus(WithinNode):
    """Nodes on a torus, the first dimension running fastest; every node has a link each way in each dimension.

    Routes go dimension by dimension, the shorter way round. ``links``: one per dimension, or none.
    """

    kind: Literal["torus"]
    """The kind of topology: a torus, whose first dimension runs fastest."""
    dimensions: Counts
    """The number of nodes in each dimension."""
    links: tuple[TopologyLink, ...] = ()
    """Latency and bandwidth of the links of each dimension."""
    routing: Literal["minimal", "valiant"] = "minimal"
    """`minimal`, dimension by dimension the shorter way round; or `valiant`, by way of a random node."""
    seed: Seed = 0
    """The seed of random routes."""

    @model_validator(mode="after")
    def _dimensions_agree(self) -> Torus:
        if self.links and len(self.links) != len(self.dimensions):
            raise ValueError(f"links: {len(self.links)} given for {len(self.dimensions)} dimensions; give one for each")
        refuse_too_many(2 * len(self.dimensions) * self.most_nodes)
        return self

    @property
    def most_nodes(self) -> int:
        return math.prod(self.dimensions)


class Dragonfly(WithLoopback):
    """``groups`` of ``chassis`` of ``routers`` with ``nodes`` each (Cray Cascade; Faanes et al., SC 2012).

    ``local`` links join nodes and router, one each way per interface (chosen as on the crossbar); ``green`` links all
    routers of a chassis; ``black`` links routers at the same place in the chassis of a group; ``blue`` links every two
    groups, ``gateways`` times. Gateway k to group g is router g x ``gateways`` + k of a group (modulo its routers); two
    nodes a and b take gateway (a + b) mod ``gateways``. ``valiant`` goes by way of a third group.
    """

    kind: Literal["dragonfly"]
    """The kind of topology: groups of chassis of routers (Cray Cascade)."""
    groups: Count
    """The number of groups."""
    chassis: Count
    """The chassis of each group."""
    routers: Count
    """The routers of each chassis."""
    nodes: Count
    """The nodes of each router."""
    interfaces: Count = 1
    """Network interfaces of a node."""
    gateways: Count = 1
    """How many links join every two groups."""
    local: TopologyLink = TopologyLink()
    """Links between nodes and their router."""
    green: BundledLink = BundledLink()
    """Links between the routers of a chassis."""
    black: BundledLink = BundledLink()
    """Links between routers at the same place in the chassis of a group."""
    blue: BundledLink = BundledLink()
    """Links between groups."""
    routing: Literal["minimal", "valiant"] = "minimal"
    """`minimal`, or `valiant`, by way of a third group."""
    seed: Seed = 0
    """The seed of random routes."""

    @model_validator(mode="after")
    def _numbers_fit(self) -> Dragonfly:
        routers = self.groups * self.chassis * self.routers
        local = 2 * self.most_nodes * self.interfaces
        refuse_too_many(local + routers * (self.routers + self.chassis) + self.groups**2 * self.gateways)
        return self

    @property
    def most_nodes(self) -> int:
        return self.groups * self.chassis * self.routers * self.nodes


Topology: TypeAlias = Annotated[Crossbar | FatTree | Torus | Dragonfly, Field(discriminator="kind")]


def most_nodes(topology: Topology) -> int | None:
    """How many nodes a topology has room for; None is any number. Nodes take the first places."""
    return None if isinstance(topology, Crossbar) else topology.most_nodes


def refuse_too_many(num_links: int) -> None:
    """Raises ValueError if links cannot be numbered."""
    if num_links > MOST_LINKS:
        raise ValueError(f"{num_links:,} links are more than {MOST_LINKS:,}; make the topology smaller")
