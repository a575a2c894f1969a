"""Routes over a dragonfly: inside a group first along the chassis (green), then across chassis (black); between groups
over a router of a group that has a link to the other (blue).

As SimGrid 3.32 with one gateway, which wants at most as many groups as a chassis has routers: the link to group g is at
the g-th router. Where SimGrid, inside a group and off its first chassis, takes green links of one chassis and black
links of another, routes here stay connected. ``valiant`` goes between two groups by way of a random third one (Kim et
al., "Technology-driven, highly-scalable dragonfly topology", ISCA 2008).

Links are numbered: local (node, interface, up and down), green (router, router of the chassis), black (router,
chassis), blue (group, group, gateway).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from manyscale.models.machine import Network
from manyscale.models.machine.topology import Dragonfly
from manyscale.models.network.routes.fabric import chosen, link_figures, suffix

_Numbers = TypeVar("_Numbers", int, np.ndarray)


@dataclass(frozen=True)
class DragonflyFabric:
    topology: Dragonfly
    network: Network

    @property
    def num_links(self) -> int:
        return self._first_links[-1]

    @property
    def _first_links(self) -> tuple[int, int, int, int, int]:
        """Number of the first local, green, black and blue link, and of all links."""
        fly = self.topology
        routers = fly.groups * fly.chassis * fly.routers
        green = 2 * fly.most_nodes * fly.interfaces
        black = green + routers * fly.routers
        blue = black + routers * fly.chassis
        return 0, green, black, blue, blue + fly.groups**2 * fly.gateways

    def between(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        fly = self.topology
        interface = (source + destination) % fly.interfaces
        columns = [2 * (source * fly.interfaces + interface)]
        router, last = source // fly.nodes, destination // fly.nodes
        in_group = fly.chassis * fly.routers
        gateway = (source + destination) % fly.gateways
        if fly.routing == "valiant" and fly.groups > 2:
            router = self._to_group(columns, router, self._middle(source, destination), gateway)
        router = self._to_group(columns, router, last // in_group, gateway)
        self._within_group(columns, router, last)
        columns.append(2 * (destination * fly.interfaces + interface) + 1)
        return np.stack(columns, axis=1).astype(np.int32)

    def _middle(self, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
        """The group that a route goes by: a third one, or the source's own if both ends are in one group."""
        fly = self.topology
        in_group = fly.chassis * fly.routers * fly.nodes
        first, last = source // in_group, destination // in_group
        middle = chosen(source, destination, fly.seed, fly.groups - 2)
        middle += middle >= np.minimum(first, last)
        middle += middle >= np.maximum(first, last)
        return np.where(first == last, first, middle)

    def _to_group(
        self, columns: list[np.ndarray], router: np.ndarray, group: np.ndarray, gateway: np.ndarray
    ) -> np.ndarray:
        """Adds the hops from a router to a group (green, black, blue); returns the router where they arrive."""
        fly = self.topology
        own = router // (fly.chassis * fly.routers)
        is_away = own != group
        self._within_group(columns, router, np.where(is_away, self._gateway(own, group, gateway), router))
        link = self._first_links[3] + (own * fly.groups + group) * fly.gateways + gateway
        columns.append(np.where(is_away, link, -1))
        return np.where(is_away, self._gateway(group, own, gateway), router)

    def _gateway(self, group: _Numbers, other: _Numbers, gateway: _Numbers) -> _Numbers:
        """The router of ``group`` that has the gateway's link to the group ``other``."""
        in_group = self.topology.chassis * self.topology.routers
        return group * in_group + (other * self.topology.gateways + gateway) % in_group

    def _within_group(self, columns: list[np.ndarray], router: np.ndarray, target: np.ndarray) -> None:
        """Adds the hops to a router of the same group: green, black."""
        fly = self.topology
        blade, chassis = target % fly.routers, target // fly.routers % fly.chassis
        corner = router - router % fly.routers + blade
        columns.append(np.where(corner != router, self._first_links[1] + router * fly.routers + blade, -1))
        columns.append(np.where(corner != target, self._first_links[2] + corner * fly.chassis + chassis, -1))

    def figures(self, link: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        fly = self.topology
        figures = np.array(
            [link_figures(each, self.network, 0.5) for each in (fly.local, fly.green, fly.black, fly.blue)]
        )
        figures[1:, 1] /= (fly.green.cables, fly.black.cables, fly.blue.cables)
        latency, ps_per_byte = figures[np.searchsorted(self._first_links, link, side="right") - 1].T
        return latency, ps_per_byte

    def names(self, link: np.ndarray) -> list[str]:
        kinds = np.searchsorted(self._first_links, link, side="right") - 1
        name = (self._local_name, self._green_name, self._black_name, self._blue_name)
        first_links = self._first_links
        return [
            name[kind](number - first_links[kind]) for number, kind in zip(link.tolist(), kinds.tolist(), strict=True)
        ]

    def _router_name(self, router: int) -> str:
        rest, blade = divmod(router, self.topology.routers)
        group, chassis = divmod(rest, self.topology.chassis)
        return f"router {group}.{chassis}.{blade}"

    def _local_name(self, number: int) -> str:
        port, is_down = divmod(number, 2)
        node, interface = divmod(port, self.topology.interfaces)
        router = self._router_name(node // self.topology.nodes)
        ends = f"{router} > node {node}" if is_down else f"node {node} > {router}"
        return ends + suffix(interface, self.topology.interfaces)

    def _green_name(self, number: int) -> str:
        router, blade = divmod(number, self.topology.routers)
        return f"{self._router_name(router)} > {self._router_name(router - router % self.topology.routers + blade)}"

    def _black_name(self, number: int) -> str:
        fly = self.topology
        router, chassis = divmod(number, fly.chassis)
        in_group = fly.chassis * fly.routers
        target = router - router % in_group + chassis * fly.routers + router % fly.routers
        return f"{self._router_name(router)} > {self._router_name(target)}"

    def _blue_name(self, number: int) -> str:
        fly = self.topology
        groups, gateway = divmod(number, fly.gateways)
        source, target = divmod(groups, fly.groups)
        first, last = self._gateway(source, target, gateway), self._gateway(target, source, gateway)
        return f"{self._router_name(first)} > {self._router_name(last)}{suffix(gateway, fly.gateways)}"
