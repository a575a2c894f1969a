"""The target machine as a table, with the source of its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from manyscale.models.machine import Link, Machine
from manyscale.models.topology import Topology
from manyscale.runner.writers.report_text import binary_size, escape, table, time_unit


def machine_table(machine: Machine) -> str:
    """HTML: what the machine consists of and where each group of numbers comes from."""
    rows = [(escape(name), escape(value)) for name, value in _facts(machine)]
    sources = [(escape(part), escape(source)) for part, source in machine.sources.items()]
    left = table(("machine", ""), rows, numeric_from=2, css="facts")
    right = table(("part", "source"), sources, numeric_from=2, css="facts")
    return f'<div class="pair"><div>{left}</div><div>{right}</div></div>'


def _facts(machine: Machine) -> Iterator[tuple[str, str]]:
    node, network = machine.node, machine.network
    yield "nodes", f"{machine.num_nodes:,}"
    sockets = f"{node.sockets} socket{'s' if node.sockets > 1 else ''}"
    yield "node", f"{sockets} of {node.cores_per_socket} core{'s' if node.cores_per_socket > 1 else ''}"
    if node.frequency_hz is not None:
        yield "clock", f"{node.frequency_hz / 1e9:g} GHz"
    if node.memory_bytes is not None:
        yield "memory of a node", binary_size(node.memory_bytes)
    for name, cache in node.caches.items():
        shared = f"shared by {cache.shared_by_cores} cores" if cache.shared_by_cores > 1 else "per core"
        yield f"cache {name}", f"{binary_size(cache.size_bytes)}, {shared}"
    yield "between nodes", _route(network.latency_ps, network.ps_per_byte)
    if network.topology is not None:
        yield "topology", _shape(network.topology)
    yield "within a node", _link(network.intra_node)
    yield "rank to itself", _link(network.self_route)
    yield "envelope", binary_size(network.envelope_bytes)
    yield "eager threshold", binary_size(network.eager_threshold_bytes)
    starts = {"match": "when both sides are posted", "eager": "an eager message, when it is sent"}
    yield "transfer starts", starts[network.transfer_start]
    yield "collectives", str(network.collectives)


def _shape(topology: Topology) -> str:
    """Kind, and what was chosen for it; the classes of links are left out."""
    chosen = topology.model_dump(exclude_defaults=True, exclude={"kind"})
    parts = [
        f"{key.replace('_', ' ')} {' x '.join(map(str, value)) if isinstance(value, tuple) else value}"
        for key, value in chosen.items()
        if key != "links" and not isinstance(value, dict)
    ]
    return ", ".join((topology.kind, *parts))


def _link(link: Link) -> str:
    return _route(link.latency_ps, link.ps_per_byte)


def _route(latency_ps: int, ps_per_byte: float) -> str:
    rate = f"{1e3 / ps_per_byte:.4g} GB/s" if ps_per_byte else "unlimited"
    length, unit = time_unit(latency_ps * 1e-12)
    return f"{latency_ps * 1e-12 / length:.6g} {unit}, {rate}"
