"""Random platforms whose links are shared, as SimGrid reads them and as the flow network does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from manyscale.models.machine import Network
from manyscale.models.machine.topology import FatTree
from manyscale.models.network.flow import model as flow
from manyscale.models.network.flow.parameters import Flow
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement, Timeline
from manyscale.models.network.routes import Routes
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.run.pipeline import compute_per_operation
from manyscale.runner.study.targets import build_machine, shipped_targets
from simgrid.prediction import Prediction

HEADER = "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
Replay = Callable[[Path, bool], Prediction]


@dataclass(frozen=True)
class Link:
    """``duplex``: each direction has the bandwidth to itself. ``shared`` or, if not, the same for every flow."""

    name: str
    bytes_per_s: int
    latency_ps: int
    duplex: bool
    shared: bool


@dataclass
class Mesh:
    """Hosts joined by routes over any links: ``route[source, destination]`` lists (link, direction)."""

    links: list[Link]
    route: dict[tuple[int, int], list[tuple[int, int]]]
    num_hosts: int
    flow: Flow = field(default_factory=Flow)

    def write(self, folder: Path, num_ranks: int) -> list[str]:
        assert num_ranks == self.num_hosts
        lines = [f'<host id="n{host}" speed="1Gf"/>' for host in range(num_ranks)]
        for link in self.links:
            policy = "SPLITDUPLEX" if link.duplex else "SHARED" if link.shared else "FATPIPE"
            lines.append(
                f'<link id="{link.name}" bandwidth="{link.bytes_per_s}Bps" latency="{link.latency_ps}ps" '
                f'sharing_policy="{policy}"/>'
            )
        for (source, destination), route in self.route.items():
            steps = "".join(
                f'<link_ctn id="{self.links[link].name}"'
                + (f' direction="{("UP", "DOWN")[direction]}"' if self.links[link].duplex else "")
                + "/>"
                for link, direction in route
            )
            lines.append(f'<route src="n{source}" dst="n{destination}" symmetrical="NO">{steps}</route>')
        zone = '<zone id="w" routing="Full">\n' + "\n".join(lines) + "\n</zone>"
        (folder / "platform.xml").write_text(f'{HEADER}<platform version="4.1">{zone}</platform>\n')
        return _arguments(folder, num_ranks)

    def replay(self, trace: Path, eager: bool) -> Prediction:
        def ways(source: np.ndarray, destination: np.ndarray) -> Routes:
            return self._routes(source, destination)

        workload = simgrid_ti.read(trace)
        network = _network(eager).model_copy(update={"flow": self.flow})
        program = build_program(workload, network.collectives)
        compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
        node = np.arange(workload.num_ranks)
        routes = ways(program.source, program.destination)
        return _prediction(workload, flow.replay_over(routes, program, compute, network, node))

    def _routes(self, source: np.ndarray, destination: np.ndarray) -> Routes:
        directions = 2 * len(self.links)  # of a link that is not duplex, both are the first
        pairs = list(self.route)
        number = {pair: index for index, pair in enumerate(pairs)}

        def directed(pair: tuple[int, int]) -> list[int]:
            return [2 * link + (direction if self.links[link].duplex else 0) for link, direction in self.route[pair]]

        def listed(which: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
            rows = [directed(pair) for pair in which]
            offsets = np.cumsum([0, *(len(row) for row in rows)])
            return offsets, np.array([link for row in rows for link in row], np.int32)

        offsets, links = listed(pairs)
        reverse_offsets, reverse_links = listed([(b, a) for a, b in pairs])
        return Routes(
            link_names=tuple(f"{self.links[k // 2].name} {k % 2}" for k in range(directions)),
            link_ps_per_byte=np.array([1e12 / self.links[k // 2].bytes_per_s for k in range(directions)]),
            link_is_shared=np.array(
                [self.links[k // 2].duplex or self.links[k // 2].shared for k in range(directions)]
            ),
            pair_of_message=np.array(
                [number[pair] for pair in zip(source.tolist(), destination.tolist(), strict=True)], np.int32
            ),
            offsets=offsets,
            links=links,
            latency_ps=np.array(
                [sum(self.links[link].latency_ps for link, _ in self.route[pair]) for pair in pairs], np.int64
            ),
            reverse_offsets=reverse_offsets,
            reverse_links=reverse_links,
        )


@dataclass(frozen=True)
class Tree:
    """A fat tree of two levels, as SimGrid's cluster of that name."""

    down: tuple[int, int]
    up: tuple[int, int]
    cables: tuple[int, int]

    def write(self, folder: Path, num_ranks: int) -> list[str]:
        shape = ";".join(",".join(map(str, part)) for part in (self.down, self.up, self.cables))
        hosts = self.down[0] * self.down[1]
        (folder / "platform.xml").write_text(
            f'{HEADER}<platform version="4.1"><zone id="w" routing="Full">'
            f'<cluster id="ft" prefix="n" radical="0-{hosts - 1}" suffix="" speed="1Gf" bw="1.25GBps" lat="5us" '
            f'topology="FAT_TREE" topo_parameters="2;{shape}" loopback_bw="10GBps" loopback_lat="0"/>'
            "</zone></platform>\n"
        )
        return _arguments(folder, num_ranks)

    def replay(self, trace: Path, eager: bool) -> Prediction:
        workload = simgrid_ti.read(trace)
        tree = FatTree(kind="fat-tree", down=self.down, up=self.up, cables=self.cables)
        network = _network(eager, "fattree256").model_copy(update={"topology": tree})
        program = build_program(workload, network.collectives)
        compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
        placement = Placement(np.arange(workload.num_ranks, dtype=np.int32), self.down[0] * self.down[1])
        return _prediction(workload, flow.replay(program, compute, network, placement))


def random_mesh(seed: int, num_hosts: int) -> Mesh:
    """Routes of 1 to 5 links over few links, so that many share them; some hosts have an unshared link to themselves.

    Elsewhere unshared links are left out: SimGrid's solver holds all flows on such a link to the level of the one that
    weighs most, so that flows of longer latency get less than the link has (DEVIATIONS.md).
    """
    chance = random.Random(f"mesh {seed}")
    links = []
    for number in range(chance.randint(2, 3 + num_hosts)):
        links.append(_random_link(chance, f"l{number}", chance.random() < 0.5, True))
    route = {
        (source, destination): [
            (link, chance.randrange(2))
            for link in chance.sample(range(len(links)), chance.randint(1, min(5, len(links))))
        ]
        for source in range(num_hosts)
        for destination in range(num_hosts)
    }
    for host in range(num_hosts):
        if chance.random() < 0.5:
            links.append(_random_link(chance, f"self{host}", False, False))
            route[host, host] = [(len(links) - 1, 0)]
    return Mesh(links, route, num_hosts)


def _random_link(chance: random.Random, name: str, duplex: bool, shared: bool) -> Link:
    """30 MB/s to 30 GB/s; a third of them without latency."""
    latency = chance.choice((0, chance.randint(0, 2_000_000), chance.randint(0, 50_000_000)))
    return Link(name, int(10 ** chance.uniform(7.5, 10.5)), latency, duplex, shared)


def random_tree(seed: int, num_hosts: int) -> Tree:
    chance = random.Random(f"tree {seed}")
    leaf = chance.choice((2, 3, 4))
    return Tree((leaf, -(-num_hosts // leaf) + 1), (1, chance.choice((1, 2, 3))), (1, chance.choice((1, 1, 2))))


def _network(eager: bool, target: str = "crossbar256") -> Network:
    network = build_machine(load_yaml(shipped_targets()[target]), target).network
    return network.model_copy(update={"transfer_start": "eager" if eager else "match"})


def _prediction(workload, timeline: Timeline) -> Prediction:  # type: ignore[no-untyped-def]
    ends = np.split(timeline.end_ps / 1e12, workload.rank_offsets[1:-1])
    return Prediction(timeline.makespan_ps / 1e12, tuple(ends), workload.notes)


def _arguments(folder: Path, num_ranks: int) -> list[str]:
    (folder / "hosts.txt").write_text("".join(f"n{host}\n" for host in range(num_ranks)))
    return ["-np", str(num_ranks), "-platform", "platform.xml", "-hostfile", "hosts.txt"]
