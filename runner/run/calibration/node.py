"""What ``manyscale calibrate --node`` makes: a target machine whose node is the one that this runs on.

Sizes are read from the system, times measured by a micro-benchmark (calibration/microbench.c). What it cannot measure
(replacement, inclusion, prefetchers, sizes of load and store buffers) stays as in the base machine, or is left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from manyscale.models.workload.quantities import parse_bytes
from manyscale.runner.progress import Progress, silent
from manyscale.runner.run.calibration import core_figures, fit
from manyscale.runner.run.calibration.last_cache import left_of_last_cache, shown_size
from manyscale.runner.run.calibration.lines_ahead import lines_ahead
from manyscale.runner.run.calibration.measure import (
    FULL,
    QUICK,
    Effort,
    Figures,
    built,
    measure,
    measure_node_bandwidth,
)
from manyscale.runner.run.calibration.runtime_costs import RuntimeTimes, measure_runtime, runtime_costs, runtime_source
from manyscale.runner.run.calibration.system_caches import System, read_system
from manyscale.runner.study.targets import build_machine, target_named
from manyscale.runner.system import require_linux

_KEPT_OF_CACHES: Final = ("replacement", "inclusion", "write", "write_allocate", "sector", "prefetcher")
_KEPT_OF_CORES: Final = ("load_buffer", "store_buffer", "reorder_buffer", "vector_load", "misprediction")
_RATES: Final = ("loads_per_cycle", "stores_per_cycle", "vector_loads_per_cycle", "vector_stores_per_cycle",
                 "accesses_per_cycle", "string_bytes_per_cycle")  # fmt: skip
_FORESEEN: Final = 2.0  # times as quick in their order as at random: a prefetcher
_ONE_SET: Final = 128  # entries of a TLB in one set at most
_TLB_WAYS: Final = 16
_SCATTERS: Final = 0.1  # of main memory's latency; a seventh of it changed 21 lines ahead to 13


@dataclass(frozen=True)
class Measured:
    """What the figures say, times in cycles. ``latency_cycles``: by level, ``memory`` the last; ``held_bytes``: what
    the last cache holds of larger working sets, or the largest that it serves alone. ``read``, ``write``, ``copy``:
    bytes per ns of one core by level. ``lines_ahead``: of a prefetcher that begins anew in each page where other misses
    come between, None of one that does not. ``instructions``: latency and reciprocal throughput by class; empty where
    the architecture has no such part of the benchmark. ``num_processes`` measured them; ``scatter``: by how much these
    differ, as a share, in what main memory's latency and ``lines_ahead`` rest on."""

    num_processes: int
    scatter: float
    frequency_ghz: float
    latency_cycles: dict[str, float]
    has_huge_pages: bool
    page_walk_cycles: float
    held_bytes: int
    prefetches: bool
    prefetches_across_pages: bool
    lines_ahead: int | None
    page_fault_ns: float | None
    read: dict[str, float]
    write: dict[str, float]
    copy: dict[str, float]
    node_read: float
    tlbs: list[tuple[int, float]]
    line_fill_buffers: int | None
    window: int | None
    vector_window: int | None
    instructions: dict[str, tuple[float, float]]
    core: dict[str, float]


@dataclass(frozen=True)
class NodeCalibration:
    """``machine``: the content of a machine file; what was measured on ``core`` of the ``system``, and all figures;
    ``runtime``: of OpenMP, or why not."""

    machine: dict[str, Any]
    system: System
    core: int
    measured: Measured
    figures: Figures
    runtime: RuntimeTimes | str


def calibrate_node(
    base: str = "laptop",
    *,
    quick: bool = False,
    core: int | None = None,
    sizes: Mapping[str, int] | None = None,
    progress: Progress = silent,
) -> NodeCalibration:
    """The machine ``base`` with the node that this runs on, of which CPU ``core`` (default: the last) is measured;
    ``sizes``: bytes of caches by name that the system does not say, or says wrongly. Raises UserError."""
    require_linux("calibrate --node", "calibrate there, or write a machine file")
    effort = QUICK if quick else FULL
    system = read_system(core, dict(sizes or {}))
    core = max(system.core_cpus) if core is None else core
    _, content = target_named(base, "command line")
    with built() as program:
        print(f"measuring core {core} of {system.cpu_name}, about {8 if quick else 50} s ...", file=sys.stderr)
        figures = measure(program, system, core, effort, progress)
        measured = read_off(figures, system, measure_node_bandwidth(program, system, effort))
    runtime = measure_runtime(system.core_cpus, effort)
    machine = machine_of(content, system, measured, effort, runtime)
    build_machine(machine, "machine.yaml")
    return NodeCalibration(machine, system, core, measured, figures, runtime)


def figures(found: NodeCalibration) -> dict[str, Any]:
    """The content of ``calibration.json``."""
    return {
        "system": asdict(found.system),
        "core": found.core,
        "fit": asdict(found.measured),
        "figures": {
            name: {"best_ns": figure.best, "spread_ratio": figure.spread_ratio, "processes_ns": figure.processes}
            for name, figure in found.figures.items()
        },
        "runtime_system": found.runtime if isinstance(found.runtime, str) else asdict(found.runtime),
    }


def curve(figures: Figures, name: str) -> dict[int, float]:
    """Best ns per unit of the requests ``name:NUMBER``, by number."""
    found = {int(key.partition(":")[2]): each.best for key, each in figures.items() if key.startswith(f"{name}:")}
    return dict(sorted(found.items()))


def read_off(figures: Figures, system: System, node_read: float) -> Measured:
    """Parameters from all figures."""
    cycle_ns = figures["clock"].best
    caches = {name: cache.size_bytes for name, cache in system.data_caches.items()}
    largest = max(caches.values())
    line = min(cache.line_bytes for cache in system.data_caches.values())

    def cycles(values: Mapping[int, float]) -> dict[int, float]:
        return {number: value / cycle_ns for number, value in values.items()}

    small, huge = cycles(curve(figures, "chase")), cycles(curve(figures, "huge"))
    usual = {size: value for size, value in small.items() if size in huge or not huge}
    latency = fit.levels(huge or usual, caches)
    beyond = [size for size in usual if size >= 2 * largest and size in huge]
    translation = {
        pages: value - small[pages * line]
        for pages, value in cycles(curve(figures, "pages")).items()
        if pages * line in small
    }
    if "parallel:1" in figures:  # no line of it comes twice, so that no cache has any
        latency["memory"] = max(latency["memory"], figures["parallel:1"].best / cycle_ns)
    walk = fit.middle([usual[size] - huge[size] for size in beyond]) if beyond else 0.0
    last_but_one = max((size for size in caches.values() if size < largest), default=0)
    last = latency[list(caches)[-1]]
    ordered, across = (
        min((value / cycle_ns for value in curve(figures, name).values()), default=None)
        for name in ("ordered_pages", "ordered")
    )
    reads = curve(figures, "read")
    for size, value in curve(figures, "read_half").items():
        reads[size] = min(value, reads[size])

    window = fit.window(curve(figures, "window"))
    single = {name: figures[name].best / cycle_ns for name in figures if ":" not in name}
    core = core_figures.core(single, next(iter(latency.values())))
    beside, few = (cycles(curve(figures, name)) for name in ("beside", "beside_few"))

    def rates(values: Mapping[int, float]) -> dict[str, float]:
        return {name: 1 / value for name, value in fit.levels(values, caches).items()}

    sensitive = [each for name, each in figures.items() if name == "parallel:1" or name.startswith("beside")]
    return Measured(
        num_processes=len(figures["clock"].processes),
        scatter=max((each.spread_ratio for each in sensitive), default=0.0),
        frequency_ghz=1 / cycle_ns,
        latency_cycles=latency,
        has_huge_pages=bool(huge),
        page_walk_cycles=max(0.0, walk),
        held_bytes=fit.mostly_held(huge or usual, last_but_one, last, latency["memory"])
        or fit.held_bytes(huge or usual, last_but_one, last),
        prefetches=across is not None and _FORESEEN * across < latency["memory"],
        prefetches_across_pages=ordered is not None and across is not None and _FORESEEN * across < ordered,
        lines_ahead=lines_ahead(beside, few, latency["memory"], window, core.get("width"), system.page_bytes // line),
        page_fault_ns=min(curve(figures, "fault").values(), default=None),
        read=rates(reads),
        write=rates(curve(figures, "write")),
        copy=rates(curve(figures, "copy")),
        node_read=node_read,
        tlbs=fit.entries(translation),
        line_fill_buffers=fit.buffers(curve(figures, "parallel")),
        window=window,
        vector_window=fit.window(curve(figures, "vector_window")),
        instructions=core_figures.instructions(single),
        core=core,
    )


def machine_of(
    base: Mapping[str, Any], system: System, measured: Measured, effort: Effort, runtime: RuntimeTimes | str
) -> dict[str, Any]:
    """The content of a machine file: ``base`` with its node replaced."""
    old = base["node"]
    node: dict[str, Any] = {
        "sockets": system.num_sockets,
        "cores_per_socket": system.cores_per_socket,
        "frequency": f"{measured.frequency_ghz:.4g} GHz",
    }
    if system.memory_bytes is not None:
        node["memory"] = f"{system.memory_bytes} B"
    node["caches"] = _caches(old.get("caches") or {}, system, measured)
    if measured.tlbs:
        node["tlbs"] = _tlbs(old.get("tlbs") or {}, system, measured)
    node["main_memory"] = {
        "latency": f"{round(1000 * measured.latency_cycles['memory'] / measured.frequency_ghz)} ps",
        "bandwidth": _rate(measured.read["memory"]),
        "node_bandwidth": _rate(max(measured.node_read, measured.read["memory"])),
        "page_walk": _cycles(measured.page_walk_cycles),
    }
    if measured.page_fault_ns is not None:
        node["main_memory"]["page_fault"] = f"{measured.page_fault_ns:.4g} ns"
    core, kept = _core_of(old.get("core") or {}, measured)
    if core:
        node["core"] = core
    if isinstance(runtime, RuntimeTimes):
        node["runtime_system"] = runtime_costs(runtime)
    name = re.sub(r"[^a-z0-9]+", "-", system.cpu_name.lower()).strip("-") or "node"
    what = " (virtual machine)" if system.hypervisor else ""
    source = f"{_source(system, measured, effort, base['name'], kept, node['caches'])}; {runtime_source(runtime)}"
    sources = dict(base["sources"]) | {"node": source}
    return dict(base) | {
        "name": f"{name}-calibrated",
        "description": f"{system.cpu_name}{what}, node calibrated; network as in {base['name']}",
        "node": node,
        "sources": sources,
    }


def _caches(old: Mapping[str, Any], system: System, measured: Measured) -> dict[str, Any]:
    caches = {}
    for name, cache in system.caches.items():
        content: dict[str, Any] = {"size": shown_size(cache.size_bytes), "line": f"{cache.line_bytes} B"}
        if cache.ways is not None:
            content["ways"] = cache.ways
        content["shared_by_cores"] = cache.shared_by_cores
        if name in measured.latency_cycles:
            content |= {"latency": _cycles(measured.latency_cycles[name]), "bandwidth": _rate(measured.read[name])}
        before = old.get(name) or {}
        if before and parse_bytes(before["size"]) == cache.size_bytes:
            content |= {key: before[key] for key in _KEPT_OF_CACHES if key in before}
        caches[name] = content
    last, first = list(system.data_caches)[-1], next(iter(system.data_caches))
    left = left_of_last_cache(system, measured.held_bytes)
    if left is not None:
        caches[last]["size"] = shown_size(left)
    if measured.prefetches and not any("prefetcher" in each for each in caches.values()):
        caches[first]["prefetcher"] = _prefetcher(system, measured)
    return caches


def _prefetcher(system: System, measured: Measured) -> dict[str, Any]:
    """What the figures say of it."""
    page = shown_size(system.page_bytes)
    if not measured.prefetches_across_pages:
        return {"page": page}
    ahead = measured.lines_ahead
    return {"page": "2 MiB"} | ({"interrupted_page": page, "distance": ahead} if ahead else {})


def _tlbs(old: Mapping[str, Any], system: System, measured: Measured) -> dict[str, Any]:
    """By measured entries; ways as in the base where it has as many entries, else _TLB_WAYS of a large one, and a small
    one in one set."""
    tlbs = {}
    for level, (entries, cost) in enumerate(measured.tlbs, start=1):
        before = old.get(f"L{level}") or {}
        own = _TLB_WAYS if entries > _ONE_SET and entries % _TLB_WAYS == 0 else entries
        ways = before["ways"] if before.get("entries") == entries else own
        tlbs[f"L{level}"] = {
            "entries": entries, "ways": ways, "page": f"{system.page_bytes} B", "latency": _cycles(cost),
        }  # fmt: skip
    return tlbs


def _core_of(old: Mapping[str, Any], measured: Measured) -> tuple[dict[str, Any], list[str]]:
    """The core, and which of its keys are the base's. Nothing where neither has instructions or buffers."""
    content, kept = dict(old), sorted(old)
    if measured.core and measured.line_fill_buffers and (measured.window or "reorder_buffer" in old):
        new: dict[str, Any] = {
            "width": max(1, round(measured.core["width"])),
            "reorder_buffer": measured.window,
            **{key: round(measured.core[key], 2) for key in _RATES},
            "line_fill_buffers": measured.line_fill_buffers,
            "store_to_load": _cycles(measured.core["store_to_load_fp"]),
            "general_store_to_load": _cycles(measured.core["store_to_load_integer"]),
            "vector_registers": measured.vector_window or 0,
            "vector_load": _cycles(measured.core["vector_load"]),
            "misprediction": _cycles(measured.core["misprediction"]),
            "eliminates_moves": bool(measured.core["eliminates_moves"]),
            "instructions": (old.get("instructions") or {})  # of classes that are not measured (atomic)
            | {
                name: {"latency": _cycles(latency), "reciprocal_throughput": _cycles(throughput)}
                for name, (latency, throughput) in sorted(measured.instructions.items())
            },
        }
        new |= {key: old[key] for key in _KEPT_OF_CORES if key in old}
        content |= new
        kept = sorted(key for key in old if key not in new or key in _KEPT_OF_CORES)
    return content, kept


def uncertain(measured: Measured) -> list[str]:
    """What the repetitions say against main memory's latency and what follows from it, in words."""
    if measured.num_processes < 2:
        return [
            "one process alone was done in time, so nothing tells how far figures scatter; calibrate an idle machine"
        ]
    if measured.scatter <= _SCATTERS:
        return []
    return [
        f"figures of main memory differ by {100 * measured.scatter:.0f} % between processes, so its latency and how "
        "far ahead prefetchers are may be wrong; calibrate an idle machine"
    ]


def _of_prefetcher(system: System, measured: Measured, base: str, caches: Mapping[str, Any]) -> str:
    """Words for where the prefetcher of the machine's ``caches`` is from."""
    found = _prefetcher(system, measured)
    if all(cache.get("prefetcher") != found for cache in caches.values()):
        return f"; the prefetcher is that of {base}, whose cache has this size"
    if "distance" in found:
        return ", and how far ahead where other misses come between; of how many streams, is taken"
    return "; how far ahead, and of how many streams, is taken"


def _source(
    system: System, measured: Measured, effort: Effort, base: str, kept: Sequence[str], caches: Mapping[str, Any]
) -> str:
    words = [
        "caches, cores and memory as Linux says; times measured by manyscale calibrate --node (best of "
        f"{measured.num_processes} processes on one core{', quick' if effort is QUICK else ''})"
    ]
    words += uncertain(measured)
    if not measured.has_huge_pages:
        words.append("no huge pages, so latencies contain what translation costs, and page walks are not told apart")
    if measured.tlbs:
        words.append(
            "TLBs as their steps show, where the ways are not known in one set, or of 16 ways where they are large"
        )
    if measured.core:
        words.append("branch is that of a taken one, other is taken as int_alu")
        if "reorder_buffer" not in kept:
            words.append("reorder_buffer is the window in which two misses still overlap, at most what registers allow")
        if "load_buffer" not in kept:
            words.append("load_buffer and store_buffer are not measured")
    else:
        words.append(f"no costs of instructions on this architecture{f', core as in {base}' if kept else ''}")
    if kept and measured.core:
        words.append(f"core's {', '.join(kept)} as in {base}")
    words += [f"the system does not say {each}" for each in system.missing]
    last = list(system.data_caches)[-1]
    words.append(f"replacement and inclusion are not measured: of caches of equal size as in {base}")
    if measured.prefetches:
        words.append(f"that lines in order are prefetched is measured{_of_prefetcher(system, measured, base, caches)}")
    left = left_of_last_cache(system, measured.held_bytes)
    if left is not None:
        size = shown_size(system.data_caches[last].size_bytes)
        words.append(f"random walks find {last} of {size} to hold {shown_size(left)}: others use it, too")
    if measured.page_fault_ns is not None:
        words.append("page_fault: first writes to pages that the system gives, and takes back")
    return "; ".join(words)


def _cycles(value: float) -> str:
    return f"{max(0.0, round(value, 3)):g} cycles"


def _rate(bytes_per_ns: float) -> str:
    return f"{bytes_per_ns:.4g} GB/s"
