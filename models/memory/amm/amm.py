"""AMM, the Analytical Memory Model: a sequential program's run time from its reuse profile and its operations.

Source: AMM (section 3.3, eq. 4, 7 and 8). T = T_memory + T_CPU: nothing overlaps, so this is an upper bound on
out-of-order cores, several times too long for most programs. The parts add up to the total, a stack by cause.

Memory, eq. 7: total_mem / b blocks, each of (lambda + (b - 1) beta). lambda is the average latency of an access, by
eq. 8 the levels' latencies weighed by the shares of accesses that they serve; beta, per byte, the reciprocal
bandwidths, weighed alike. b is a word's 8 bytes where memory is contiguous. With gaps of v bytes between data, b + v
bytes are moved, in transfers of C bytes, at most a cache of B bytes (``transferred_bytes``).

Two forms of the equations:

=====================  ====================================  =====================================================
what                   ``printed``                           ``corrected`` (default)
=====================  ====================================  =====================================================
hit rates in eq. 8     each level's of *all* accesses (with  of the accesses that no nearer level holds (5 %)
                       .90 and .95, .5 % miss both)
blocks with gaps       total_mem / b', of b' bytes each, so  total_mem / b, of b' bytes each: gaps are moved, too
                       that gaps cost nothing but speed
T_CPU, throughput      division apart, all else together:    every class apart: lambda + (n - 1) beta
                       lambda + (n - 1) beta each
T_CPU, latency         (n - 1) lambda each                   n lambda
=====================  ====================================  =====================================================

As printed, a program without division costs lambda - beta of one (throughput), or less than nothing (latency): read
here as nothing, in both forms. Where the paper has one lambda for "ADD/SUB, MUL", the printed form takes the mean of
the classes, weighed by their instructions. Square roots count as division: they occupy the same unit.

Beyond the paper, and off unless asked for: address translation, prefetched streams, shares of shared caches (the last
in ``sdcm.hit_rates``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches, needed
from manyscale.models.memory.amm.program_counts import ProgramCounts
from manyscale.models.memory.amm.sdcm import HitRates, hit_rates
from manyscale.models.memory.reuse_profile import ReuseProfile
from manyscale.models.spelling import unknown
from manyscale.models.workload.detail_tables import InstructionClass
from manyscale.models.workload.quantities import PS_PER_SECOND

# Six programs at -O0, -O1 and -O3 on an EPYC (tests/validation/test_predicted_runtime.py). ``printed`` is the nearer
# one in 47 of the 72 cases, since what it leaves out makes up for some of what does not overlap.
UPPER_BOUND: Final = (
    "in AMM's own forms nothing overlaps: over 72 measured times corrected is 2.9 to 22.9 times too long, 8.7 times at "
    "the mean, printed 8.4 times"
)
DIVISIONS: Final = tuple(
    each.name for each in (InstructionClass.int_div, InstructionClass.fp_div, InstructionClass.fp_sqrt)
)
# The paper's "CPU operations (ADD, SUB, and DIV, etc.)"
ARITHMETIC: Final = tuple(
    each.name
    for each in InstructionClass
    if InstructionClass.int_alu <= each <= InstructionClass.simd_int or each == InstructionClass.atomic
)


@dataclass(frozen=True)
class AmmParameters:
    """How the model is applied. Raises ValueError, naming the parameter.

    ``form``: see the module. ``bound``: whether operations wait for each other (latency) or not (throughput).
    ``operations``: the instructions that cost time, those that compute, or all. ``block_bytes``: b; None: the mean size
    of the program's accesses. ``gap_bytes``: v; above 0 is the paper's case 2, and needs ``transfer_bytes``, C, and
    ``cache_bytes``, B. ``stream_ratio``: of the accesses that go beyond the cache with a prefetcher, the share that
    belongs to sequential streams (measure it); ``hidden_ratio``: of those, the share whose line has arrived in time, at
    that cache's latency (bandwidth is used all the same). ``shares``: of each shared cache, the part that the program
    has; names not given have it whole.
    """

    form: Literal["printed", "corrected"] = "corrected"
    bound: Literal["throughput", "latency"] = "throughput"
    operations: Literal["arithmetic", "all"] = "arithmetic"
    block_bytes: float | None = 8
    gap_bytes: float = 0
    transfer_bytes: float = 64
    cache_bytes: float = math.inf
    stream_ratio: float = 0
    hidden_ratio: float = 1
    shares: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        choices = {"form": ("printed", "corrected"), "bound": ("throughput", "latency")}
        for name, known in {**choices, "operations": ("arithmetic", "all")}.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}: {unknown('value', getattr(self, name), known)}")
        if self.block_bytes is not None and not 1 <= self.block_bytes < math.inf:
            raise ValueError(f"block_bytes: {self.block_bytes} is less than a byte or no number")
        for name, least in {"gap_bytes": 0, "transfer_bytes": 1, "cache_bytes": 1}.items():
            if not getattr(self, name) >= least:
                raise ValueError(f"{name}: {getattr(self, name)} is not at least {least}")
        for name in ("stream_ratio", "hidden_ratio"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not from 0 to 1")


@dataclass(frozen=True)
class AmmEstimate:
    """A run time by cause. ``parts``: (cause, picoseconds), causes such as ``memory.L1D``, ``memory.main``,
    ``translation.walk`` and ``cpu.fp_add``. ``latency_ps`` and ``ps_per_byte``: eq. 8's averages. ``served``: the share
    of accesses that each level serves, main memory last."""

    parts: tuple[tuple[str, int], ...]
    latency_ps: float
    ps_per_byte: float
    served: tuple[tuple[str, float], ...]

    @property
    def total_ps(self) -> int:
        return sum(time for _, time in self.parts)

    @property
    def seconds(self) -> float:
        return self.total_ps / PS_PER_SECOND

    def of(self, cause: str) -> int:
        """Picoseconds of a cause and all below it: ``memory``, ``memory.L2``, ``translation``, ``cpu``."""
        return sum(time for name, time in self.parts if name == cause or name.startswith(f"{cause}."))


def predict(
    counts: ProgramCounts,
    profile: ReuseProfile,
    node: Node,
    parameters: AmmParameters = AmmParameters(),
    page_profile: ReuseProfile | None = None,
) -> AmmEstimate:
    """The run time of a program on one core of a node.

    ``profile`` at the granularity of the caches' lines; ``page_profile``, where translation is to cost time, at that
    of the TLBs' pages. Raises ValueError for what the node's description or the trace does not say.
    """
    caches = data_caches(node.caches)
    rates = hit_rates(profile, caches, dict(parameters.shares))
    page_rates = None if page_profile is None else hit_rates(page_profile, node.tlbs)
    instructions = counts.instructions_by_class()
    return estimate(counts.bytes_accessed, counts.num_accesses, instructions, rates, node, parameters, page_rates)


def estimate(
    total_bytes: float,
    num_accesses: float,
    instructions: Mapping[str, float],
    rates: HitRates,
    node: Node,
    parameters: AmmParameters = AmmParameters(),
    page_rates: HitRates | None = None,
) -> AmmEstimate:
    """Eq. 4 from counts and hit rates, wherever they come from.

    ``rates``: of the node's data caches, the nearest first. ``instructions``: how many of each class
    (InstructionClass' names). ``page_rates``: of the node's TLBs. Raises ValueError as ``predict``.
    """
    _check_counts(total_bytes, num_accesses, instructions)
    memory, latency_ps, ps_per_byte, served = _memory(total_bytes, num_accesses, rates, node, parameters)
    blocks = total_bytes / _block_bytes(total_bytes, num_accesses, parameters)
    translation = {} if page_rates is None else _translation(blocks, page_rates, node, parameters)
    parts = memory | translation | _operations(instructions, node, parameters)
    return AmmEstimate(tuple((name, round(time)) for name, time in parts.items()), latency_ps, ps_per_byte, served)


def served_shares(rates: HitRates, form: Literal["printed", "corrected"]) -> np.ndarray:
    """float64[levels + 1]: the share of accesses that each level serves, main memory last; eq. 8 is the sum of shares
    times latencies. They add up to 1."""
    result, missing = [], 1.0
    for rate in rates.whole if form == "printed" else rates.conditional:
        result.append(missing * rate)
        missing *= 1 - rate
    return np.array([*result, missing])


def level_costs(node: Node) -> tuple[np.ndarray, np.ndarray]:
    """Latency and time per byte (ps) of each data cache, main memory last. Raises ValueError for what the
    node's description does not say."""
    cycle = _cycle_ps(node)
    memory = needed(node.main_memory, "main_memory", "node.")
    latency, per_byte = [], []
    for name, cache in data_caches(node.caches).items():
        place = f"node.caches.{name}."
        latency.append(cycle * needed(cache.latency_cycles, "latency", place))
        per_byte.append(needed(cache.ps_per_byte, "bandwidth", place))
    return np.array([*latency, memory.latency_ps]), np.array([*per_byte, memory.ps_per_byte])


def transferred_bytes(block_bytes: float, transfer_bytes: float, cache_bytes: float) -> float:
    """The paper's case 2: bytes that move for a block of ``block_bytes`` (gaps included) in transfers of
    ``transfer_bytes`` (C) to a cache of ``cache_bytes`` (B)."""
    if block_bytes >= cache_bytes:
        return cache_bytes
    return max(1, math.ceil(block_bytes / transfer_bytes)) * transfer_bytes


def memory_time_ps(
    total_bytes: float, latency_ps: float, ps_per_byte: float, block_bytes: float, moved_bytes: float | None = None
) -> float:
    """Eq. 7: total_bytes / b blocks, each lambda + (b - 1) beta. ``moved_bytes``: b in the second place, where gaps
    are moved beside the data."""
    moved = block_bytes if moved_bytes is None else moved_bytes
    return (latency_ps + (moved - 1) * ps_per_byte) / block_bytes * total_bytes


def _memory(
    total_bytes: float, num_accesses: float, rates: HitRates, node: Node, parameters: AmmParameters
) -> tuple[dict[str, float], float, float, tuple[tuple[str, float], ...]]:
    """(parts, average latency, average reciprocal bandwidth, shares served) of eq. 7 and 8."""
    names = (*rates.names, "main")
    if not rates.names or rates.names != tuple(data_caches(node.caches)):
        raise ValueError(
            f"hit rates are of {rates.names}, the node's data caches are {tuple(data_caches(node.caches))}"
        )
    shares = served_shares(rates, parameters.form)
    latency, per_byte = level_costs(node)
    latency = _prefetched(latency, node, parameters)
    block = moved = _block_bytes(total_bytes, num_accesses, parameters)
    if parameters.gap_bytes > 0:
        moved = transferred_bytes(block + parameters.gap_bytes, parameters.transfer_bytes, parameters.cache_bytes)
        block = moved if parameters.form == "printed" else block
    cost = [memory_time_ps(total_bytes, *level, block, moved) for level in zip(latency, per_byte, strict=True)]
    parts = {f"memory.{name}": share * time for name, share, time in zip(names, shares, cost, strict=True)}
    served = tuple(zip(names, shares.tolist(), strict=True))
    return parts, float(shares @ latency), float(shares @ per_byte), served


def _prefetched(latency: np.ndarray, node: Node, parameters: AmmParameters) -> np.ndarray:
    """Latencies, where beyond the first cache with a prefetcher the hidden part of the accesses waits for that cache
    alone."""
    hidden = parameters.stream_ratio * parameters.hidden_ratio
    if parameters.stream_ratio == 0:
        return latency
    with_prefetcher = [i for i, cache in enumerate(data_caches(node.caches).values()) if cache.prefetcher is not None]
    if not with_prefetcher:
        raise ValueError("stream_ratio: no data cache of the node has a prefetcher; add it to the machine, or give 0")
    first = with_prefetcher[0]
    result = latency.copy()
    result[first + 1 :] = (1 - hidden) * latency[first + 1 :] + hidden * latency[first]
    return result


def _translation(num_accesses: float, page_rates: HitRates, node: Node, parameters: AmmParameters) -> dict[str, float]:
    """What translations cost beyond the accesses, by the TLB that has them."""
    if page_rates.names != tuple(node.tlbs):
        raise ValueError(f"page hit rates are of {page_rates.names}, the node's TLBs are {tuple(node.tlbs)}")
    cycle = _cycle_ps(node)
    cycles = [tlb.latency_cycles for tlb in node.tlbs.values()]
    cycles.append(needed(node.main_memory, "main_memory", "node.").page_walk_cycles)
    shares = served_shares(page_rates, parameters.form)
    names = (*page_rates.names, "walk")
    return {
        f"translation.{name}": num_accesses * share * each * cycle
        for name, share, each in zip(names, shares.tolist(), cycles, strict=True)
    }


def _operations(instructions: Mapping[str, float], node: Node, parameters: AmmParameters) -> dict[str, float]:
    """T_CPU by class (corrected), or by division and all else (printed), in ps."""
    counted = {
        each.name: instructions[each.name]
        for each in InstructionClass
        if instructions.get(each.name, 0) > 0 and (parameters.operations == "all" or each.name in ARITHMETIC)
    }
    if not counted:
        return {}
    cycle = _cycle_ps(node)
    costs = needed(node.core, "core", "node.").instructions
    lambdas = {name: cycle * costs[name].latency_cycles for name in counted}
    betas = {name: cycle * costs[name].reciprocal_throughput_cycles for name in counted}
    if parameters.form == "corrected":
        if parameters.bound == "latency":
            return {f"cpu.{name}": n * lambdas[name] for name, n in counted.items()}
        return {f"cpu.{name}": _pipelined(n, lambdas[name], betas[name]) for name, n in counted.items()}
    kinds = {
        "cpu.other": {name: n for name, n in counted.items() if name not in DIVISIONS},
        "cpu.division": {name: n for name, n in counted.items() if name in DIVISIONS},
    }
    result = {}
    for kind, members in kinds.items():
        n = sum(members.values())
        if n > 0:
            latency = sum(count * lambdas[name] for name, count in members.items()) / n
            beta = sum(count * betas[name] for name, count in members.items()) / n
            is_latency = parameters.bound == "latency"
            result[kind] = max(0.0, n - 1) * latency if is_latency else _pipelined(n, latency, beta)
    return result


def _pipelined(number: float, latency: float, beta: float) -> float:
    """Time of ``number`` independent instructions. Below one (an estimated count), the same share of one."""
    return latency + (number - 1) * beta if number >= 1 else number * latency


def _block_bytes(total_bytes: float, num_accesses: float, parameters: AmmParameters) -> float:
    if parameters.block_bytes is not None:
        return parameters.block_bytes
    return max(1.0, total_bytes / num_accesses) if num_accesses > 0 else 1.0


def _cycle_ps(node: Node) -> float:
    return PS_PER_SECOND / needed(node.frequency_hz, "frequency", "node.")


def _check_counts(total_bytes: float, num_accesses: float, instructions: Mapping[str, float]) -> None:
    unknown = sorted(set(instructions) - {each.name for each in InstructionClass})
    if unknown:
        raise ValueError(f"unknown class of instructions {unknown[0]!r}")
    for value in (total_bytes, num_accesses, *instructions.values()):
        if not 0 <= value < math.inf:
            raise ValueError(f"a count of {value} is negative or no number")
