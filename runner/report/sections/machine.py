"""The target machine as a table, with the source of its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.machine import Link, Machine, Node
from manyscale.models.machine.processor import Cache, Dram
from manyscale.models.machine.topology import Topology
from manyscale.models.network.collectives.rules import CollectiveRules
from manyscale.runner.report.text import binary_size, escape, table, time_unit


def machine_table(machine: Machine, *, with_network: bool = True) -> str:
    """HTML: what the machine consists of and where each group of numbers comes from; of the network where it plays a
    part."""
    facts = [*_facts(machine), *(_network_facts(machine) if with_network else ())]
    rows = [(escape(name), escape(value)) for name, value in facts]
    sources = [
        (escape(part), escape(source))
        for part, source in machine.sources.items()
        if with_network or not part.startswith("network")
    ]
    left = table(("machine", ""), rows, numeric_from=2, css="facts")
    right = table(("part", "source"), sources, numeric_from=2, css="facts")
    return f'<div class="pair"><div>{left}</div><div>{right}</div></div>'


def _facts(machine: Machine) -> Iterator[tuple[str, str]]:
    node = machine.node
    yield "nodes", f"{machine.num_nodes:,}"
    sockets = f"{node.sockets} socket{'s' if node.sockets > 1 else ''}"
    yield "node", f"{sockets} of {node.cores_per_socket} core{'s' if node.cores_per_socket > 1 else ''}"
    yield from _node_facts(node)


def _network_facts(machine: Machine) -> Iterator[tuple[str, str]]:
    network = machine.network
    yield "between nodes", _route(network.latency_ps, network.ps_per_byte)
    if network.topology is not None:
        yield "topology", _shape(network.topology)
    yield "within a node", _link(network.intra_node)
    yield "rank to itself", _link(network.self_route)
    yield "envelope", binary_size(network.envelope_bytes)
    yield "eager threshold", binary_size(network.eager_threshold_bytes)
    starts = {"match": "when both sides are posted", "eager": "an eager message, when it is sent"}
    yield "transfer starts", starts[network.transfer_start]
    yield "collectives", str(CollectiveRules.model_validate(network.collectives))


def _node_facts(node: Node) -> Iterator[tuple[str, str]]:
    """Clock, core, caches, memory; what the machine file leaves out is left out."""
    for kind in node.core_kinds:
        clock = "" if kind.frequency_hz is None else f", {kind.frequency_hz / 1e9:g} GHz"
        yield "kind of core", f"{kind.cores} of speed {kind.speed:g}{clock}"
        if kind.core is not None:
            yield "its core", f"reorder buffer of {kind.core.reorder_buffer}, issues {kind.core.width} per cycle"
        for name, cache in kind.caches.items():
            yield f"its cache {name}", _cache(cache)
    if node.frequency_hz is not None:
        yield "clock", f"{node.frequency_hz / 1e9:g} GHz"
    if node.core is not None:
        core = node.core
        commit = core.commit or core.width
        yield "core", f"reorder buffer of {core.reorder_buffer}, issues {core.width} and commits {commit} per cycle"
    for name, cache in node.caches.items():
        yield f"cache {name}", _cache(cache)
    if node.memory_bytes is not None:
        yield "memory of a node", binary_size(node.memory_bytes)
    memory = node.main_memory
    if memory is not None:
        whole = "" if memory.node_ps_per_byte is None else f"; all cores {_rate(memory.node_ps_per_byte)}"
        yield "main memory", f"{_route(memory.latency_ps, memory.ps_per_byte)} for a core{whole}"
        if memory.dram is not None:
            yield from _dram_facts(memory.dram)
    if node.numa is not None:
        numa = node.numa
        pages = "of the socket that first touches them" if numa.pages == "first-touch" else "of all sockets in turn"
        yield "between sockets", f"{_route(numa.latency_ps, numa.ps_per_byte)} a link"
        yield "pages", f"{binary_size(numa.page_bytes)}, in the memory {pages}"
    gpu = Gpu.of(node)
    if gpu is not None:
        yield from _gpu_facts(node.num_gpus, gpu)


def _gpu_facts(number: int, gpu: Gpu) -> Iterator[tuple[str, str]]:
    yield "GPUs of a node", f"{number}, sm_{gpu.compute_capability}, {gpu.sms} SMs at {gpu.frequency_hz / 1e6:g} MHz"
    yield (
        "SM",
        (
            f"{gpu.schedulers} schedulers ({gpu.scheduler}), {gpu.warps} warps, {gpu.threads:,} threads, {gpu.blocks} "
            f"blocks, {gpu.registers:,} registers, {binary_size(gpu.shared_memory.size_bytes)} of shared memory"
        ),
    )
    yield "pipeline", f"{gpu.pipeline_cycles:g} cycles behind each unit"
    yield (
        "units (latency, interval)",
        ", ".join(f"{name} {unit.latency_cycles:g} {unit.interval_cycles:g}" for name, unit in gpu.units.items()),
    )
    if gpu.instructions:
        yield (
            "instructions (results a cycle of an SM, unit)",
            ", ".join(f"{name} {each.rate:g} {each.unit}" for name, each in gpu.instructions.items()),
        )
    for name, cache in (("L1", gpu.l1), ("L2", gpu.l2)):
        shape = f"{cache.ways} ways, lines of {cache.line_bytes} B in sectors of {cache.sector_bytes} B"
        slices = f", {cache.slices} slices" if cache.slices > 1 else ""
        limits = f"{cache.latency_cycles:g} cycles, {cache.mshrs} MSHRs{slices}, write {cache.write}"
        yield f"GPU's {name}", f"{binary_size(cache.size_bytes)}, {shape}, {limits}"
    dram = gpu.dram
    yield "GPU's DRAM", f"{dram.channels} channels, {_rate(dram.bandwidth_ps_per_byte)}, {dram.latency_cycles:g} cycles"
    yield "launch latency", f"{gpu.launch_latency_cycles:g} cycles"
    if gpu.host_call_ps:
        yield "CUDA call of a host", f"{gpu.host_call_ps / 1e6:g} us"


def _cache(cache: Cache) -> str:
    parts = [binary_size(cache.size_bytes)]
    parts += [f"{cache.ways} ways"] if cache.ways is not None else []
    parts += [f"{cache.latency_cycles:g} cycles"] if cache.latency_cycles is not None else []
    parts.append(f"shared by {cache.shared_by_cores} cores" if cache.shared_by_cores > 1 else "per core")
    parts += [f"{_rate(cache.ps_per_byte)} for a core"] if cache.ps_per_byte is not None else []
    parts += (
        [f"{_rate(cache.shared_ps_per_byte)} for all that share it"] if cache.shared_ps_per_byte is not None else []
    )
    return ", ".join(parts)


def _dram_facts(dram: Dram) -> Iterator[tuple[str, str]]:
    channels = f"{dram.channels} channel{'s' if dram.channels > 1 else ''} of {_rate(dram.channel_ps_per_byte)}"
    yield "DRAM of a socket", f"{channels}, each {dram.banks} banks, rows of {binary_size(dram.row_bytes)}"
    times = (dram.activate_ps, dram.access_ps, dram.precharge_ps, dram.row_cycle_ps)
    yield "DRAM tRCD, tCL, tRP, tRC", ", ".join(_time(each) for each in times)


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
    return f"{_time(latency_ps)}, {_rate(ps_per_byte)}"


def _rate(ps_per_byte: float) -> str:
    return f"{1e3 / ps_per_byte:.4g} GB/s" if ps_per_byte else "unlimited"


def _time(picoseconds: int) -> str:
    length, unit = time_unit(picoseconds * 1e-12)
    return f"{picoseconds * 1e-12 / length:.6g} {unit}"
