"""The interval model: what each task instance takes on a core, from a profile that knows no machine.

cycles = dispatch + branches + stalls for data, where

* dispatch: instructions / effective dispatch rate, the slowest of the width, the dependences inside a reorder buffer
  (block_windows.py) and the units (by class, loads, stores);
* branches: mispredictions x (resolution + refill), the miss rate linear in the branch entropy (branch_entropy.py);
* stalls: the longest of three. *Groups*: loads that miss fall into groups that a reorder buffer sees at once; what a
  group takes is the latency of its farthest line, less the time in which the reorder buffer fills. *Chains*: loads that
  wait for loads, dispatch at the mean latency of a load. *Buffers*: latencies of all lines / line fill buffers. So
  memory-level parallelism is 1 where each load waits for the one before, and the size of a group where none does.

Sources: Eyerman, Eeckhout, Karkhanis, Smith, "A mechanistic performance model for superscalar out-of-order processors",
ACM TOCS 27(2), 2009 (intervals; long misses overlap in a reorder buffer); Karkhanis and Smith, "A first-order
superscalar processor model", ISCA 2004 (latency less fill); Van den Steen et al., "Analytical processor performance and
power modeling using micro-architecture independent characteristics", IEEE TC 65(12), 2016 (StatStack for caches, linear
branch entropy, profiles independent of the machine). Chains by mean latency, and the longest of three, are our own.

Caches (interval_caches.py) are shared by the instances that run at the same time, which Grass (UPC 2017, section 5.3.2)
leaves out. So are main memory and shared caches' bandwidth: instances run ``num_cores`` at a time with their neighbours
in the order of the traced run; a line waits for those of the other cores as in a queue with Poisson arrivals and a
constant service time (M/D/1), and all cores slow down until what they ask for together fits.

Assumptions: code is in the first cache; no address translation, no prefetching; DRAM takes ``latency`` whether its row
is open or not; sockets share memory evenly, half of what lies in another's at a distance is left out; stores stall
nothing but through bandwidth. A core without ``misprediction`` is taken to predict all branches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.cpu import domains
from manyscale.models.cpu.block_windows import window_cycles
from manyscale.models.cpu.interval_caches import served_accesses
from manyscale.models.machine import Node
from manyscale.models.machine.processor import Core, data_caches, needed
from manyscale.models.node.instance_profile import GROUP_INSTRUCTIONS, InstanceProfiles

NAME = "interval"
VERSION = 2
DOMAIN: Final = domains.INTERVAL
PARTS: Final = ("base", "dependency", "branches", "cache", "memory", "bandwidth")
_LATENCY_STEPS: Final = np.array([0.0, 0.01, 0.03, 0.08, 0.2, 0.45, 1.0])  # of mean load latencies, up to memory's
_BISECTIONS: Final = 40
_DOUBLINGS: Final = 30


@dataclass(frozen=True)
class IntervalParameters:
    """``miss_rate_slope``, ``miss_rate_at_0``: of branches, over linear entropy. ``neighbours``: how many instances per
    core, before and after, make up the load that an instance meets. ``contention``: whether caches and memory are
    shared at all (the source's model: False).

    The slope is a least-squares fit through the origin to what cpu/branch_predictor.py mispredicts of 78 static
    branches of the kernels in tests/programs/kernels, each weighed by its share of its program's executions (it
    explains 83 % of the variance; a constant beside it comes out negative). Fit it anew for another predictor.
    """

    miss_rate_slope: float = 0.43
    miss_rate_at_0: float = 0.0
    neighbours: int = 8
    contention: bool = True

    def __post_init__(self) -> None:
        if not (0 <= self.miss_rate_slope <= 1 and 0 <= self.miss_rate_at_0 <= 1):
            raise ValueError("miss_rate_slope and miss_rate_at_0 are not in 0 to 1")
        if self.neighbours < 1:
            raise ValueError("neighbours must be at least 1")


DEFAULT: Final = IntervalParameters()


@dataclass(frozen=True)
class IntervalTimes:
    """``cycles`` float64[instances]; ``parts``: of PARTS, float64[instances] each, which add up to ``cycles``.
    ``misses`` float64[instances, caches]: accesses that each cache does not serve. ``wait_cycles`` float64[instances]:
    that a line of main memory takes longer because others ask, too."""

    cycles: np.ndarray
    parts: dict[str, np.ndarray]
    misses: np.ndarray
    wait_cycles: np.ndarray


def predict(
    profiles: InstanceProfiles,
    node: Node,
    num_cores: int,
    parameters: IntervalParameters = DEFAULT,
    *,
    warm: bool = False,
) -> IntervalTimes:
    """Cycles of every instance if ``num_cores`` cores execute instances at the same time, beginning with empty caches
    or, if ``warm``, with what the same instances have left there.

    Raises ValueError for no cores, where the node lacks a parameter, and for caches of other lines than the profiles'.
    O(instances x caches + rows of the profiles).
    """
    if num_cores < 1:
        raise ValueError(f"{num_cores} cores execute nothing; give at least one")
    model = _Model(profiles, node, num_cores if parameters.contention else 1, parameters, warm)
    return model.solve()


class _Resource:
    """What cores share: ``service`` float64[instances]: cycles for which each keeps it busy, ``line_cycles``: one line;
    ``served``: the level (1 .. caches - 1, or caches for memory) whose latency it adds to."""

    def __init__(self, lines: np.ndarray, line_cycles: float, num_users: float, level: int) -> None:
        self.service, self.line_cycles, self.num_users, self.level = lines * line_cycles, line_cycles, num_users, level


class _Model:
    def __init__(
        self, profiles: InstanceProfiles, node: Node, num_cores: int, parameters: IntervalParameters, warm: bool
    ) -> None:
        self.profiles, self.parameters, self.num_cores = profiles, parameters, num_cores
        self.core = core = needed(node.core, "node.core")
        frequency = needed(node.frequency_hz, "node.frequency")
        memory = needed(node.main_memory, "node.main_memory")
        caches = list(data_caches(node.caches).values())
        if not caches:
            raise ValueError("node.caches is not given; add it to the machine")
        for name, cache in data_caches(node.caches).items():
            if needed(cache.line_bytes, "line", f"node.caches.{name}.") != profiles.line_bytes:
                raise ValueError(
                    f"node.caches.{name}: lines of {cache.line_bytes} B, profiles of {profiles.line_bytes} B"
                )
        cycles_per_ps = frequency / 1e12
        latencies = [
            needed(c.latency_cycles, "latency", f"node.caches.{n}.") for n, c in data_caches(node.caches).items()
        ]
        self.latency = np.maximum.accumulate([*latencies, memory.latency_ps * cycles_per_ps])
        self.served = served_accesses(profiles, caches, num_cores, warm=warm)
        self.instructions = profiles.num_instructions.astype(np.float64)
        self._dispatch(core)
        self.groups = self._groups(core)
        line = profiles.line_bytes * cycles_per_ps
        self.floor = np.zeros(profiles.num_instances)  # by what one core may read
        for k, cache in enumerate(caches):
            if k and cache.ps_per_byte:
                self.floor = np.maximum(self.floor, self.served.misses[:, k - 1] * line * cache.ps_per_byte)
        lines = self.served.misses[:, -1] + self.served.written_back
        self.floor = np.maximum(self.floor, self.served.misses[:, -1] * line * memory.ps_per_byte)
        self.resources = []
        for k, cache in enumerate(caches):
            if k and cache.shared_ps_per_byte:
                users = min(num_cores, cache.shared_by_cores)
                self.resources.append(
                    _Resource(self.served.misses[:, k - 1], line * cache.shared_ps_per_byte, users, k)
                )
        per_byte = memory.node_ps_per_byte
        if memory.dram is not None:
            num_sockets = min(node.sockets, -(-num_cores // node.cores_per_socket))
            per_byte = memory.dram.channel_ps_per_byte / memory.dram.channels / num_sockets
        if per_byte:
            self.resources.append(_Resource(lines, line * per_byte, num_cores, len(caches)))
        self.segment, self.num_segments = self._segments()

    def _segments(self) -> tuple[np.ndarray, int]:
        """int64[instances]: which instances run at about the same time."""
        size = 2 * self.parameters.neighbours * self.num_cores
        count = max(1, self.profiles.num_instances // size)
        return np.minimum(self.profiles.order // size, count - 1), count

    def _dispatch(self, core: Core) -> None:
        """Cycles without stalls, at each of some mean load latencies."""
        profiles, code = self.profiles, self.profiles.code
        block = profiles.vector_block
        size = np.maximum(code.block_instructions, 1)
        instruction_block = np.repeat(np.arange(len(size)), code.block_instructions)
        fused = np.bincount(instruction_block[code.is_fused & core.fuses_branches], minlength=len(size))
        self.grid = self.latency[0] + (4 * self.latency[-1] - self.latency[0]) * _LATENCY_STEPS
        windows = window_cycles(code, profiles.windows, core, self.grid, core.reorder_buffer)
        slot = 1.0 / min(core.width, core.commit or core.width)
        width = slot * (size - fused) / size
        per_instruction = np.where(np.isnan(windows.per_instruction), width[:, None], windows.per_instruction)
        per_instruction = np.maximum(per_instruction, width[:, None])
        weight = profiles.vector_instructions.astype(np.float64)
        sums = profiles.sum_rows
        self.base = sums(profiles.first_vector, weight * width[block])
        self.curve = sums(profiles.first_vector, weight[:, None] * per_instruction[block])
        self.curve = np.maximum.accumulate(np.maximum(self.curve, self.base[:, None]), axis=1)
        self.dispatch = np.maximum(self.curve[:, 0], self._units(core))
        resolution = np.where(np.isnan(windows.resolution), 0.0, windows.resolution)[block]
        executions = weight / size[block]
        mean = sums(profiles.first_vector, executions * resolution) / np.maximum(
            sums(profiles.first_vector, executions), 1
        )
        rate = np.clip(self.parameters.miss_rate_at_0 + self.parameters.miss_rate_slope * profiles.entropy, 0, 1)
        penalty = mean + core.misprediction_cycles if core.misprediction_cycles > 0 else 0.0
        self.branches = profiles.num_branches * rate * penalty

    def _units(self, core: Core) -> np.ndarray:
        counts = self.profiles.unit_counts()
        busy: dict[int, np.ndarray] = {}
        for each, unit in core.units().items():
            cost = counts[:, each] * core.instructions[each.name].reciprocal_throughput_cycles
            busy[unit] = busy.get(unit, 0.0) + cost
        bounds = [*busy.values(), self.profiles.num_loads / core.loads_per_cycle]
        bounds.append(self.profiles.num_stores / core.stores_per_cycle)
        if core.accesses_per_cycle:
            bounds.append(self.profiles.num_accesses / core.accesses_per_cycle)
        return np.max(bounds, axis=0)

    def _groups(self, core: Core) -> np.ndarray:
        """float64[instances, caches]: groups of loads of which some pass cache k, as a reorder buffer sees them."""
        profiles, served = self.profiles, self.served
        instructions = np.maximum(self.instructions, 1)
        window = np.full(len(instructions), float(core.reorder_buffer))
        if core.load_buffer:
            window = np.minimum(window, core.load_buffer * instructions / np.maximum(profiles.num_loads, 1))
        window = np.clip(window, 1.0, GROUP_INSTRUCTIONS[-1])
        sizes = np.log2(GROUP_INSTRUCTIONS)
        place = np.clip(np.searchsorted(sizes, np.log2(window), side="right") - 1, 0, len(sizes) - 2)
        part = ((np.log2(window) - sizes[place]) / np.diff(sizes)[place])[:, None]
        rows = np.arange(len(window))
        some = served.first_groups[rows, :, place] * (1 - part) + served.first_groups[rows, :, place + 1] * part
        # other reuses are spread evenly
        density = np.maximum(served.reused_loads * (window / instructions)[:, None], 1.0)
        return some + served.reused_loads / density

    def cycles(self, waits: dict[int, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(cycles, stalls, share of each latency in the stalls float64[instances, levels])."""
        served = self.served
        latency = np.repeat(self.latency[None, 1:], len(self.instructions), axis=0)
        for level, wait in waits.items():
            latency[:, level - 1 :] += wait[self.segment][:, None]
        loads = np.maximum(self.profiles.num_loads, 1)
        beyond = served.first_loads + served.reused_loads  # loads that pass each cache
        steps = np.diff(latency, axis=1, prepend=self.latency[0])
        mean = self.latency[0] + (beyond * steps).sum(axis=1) / loads
        place = np.clip(np.searchsorted(self.grid, mean, side="right") - 1, 0, len(self.grid) - 2)
        rows = np.arange(len(mean))
        slope = (self.curve[rows, place + 1] - self.curve[rows, place]) / np.diff(self.grid)[place]
        chain = self.curve[rows, place] + slope * (mean - self.grid[place]) - self.dispatch
        fill = self.core.reorder_buffer * self.dispatch / np.maximum(self.instructions, 1)
        stall = np.maximum(latency - fill[:, None], 0)
        weight = self.groups * np.diff(stall, axis=1, prepend=0.0)
        buffers = (beyond * np.diff(latency, axis=1, prepend=0.0)).sum(axis=1) / self.core.line_fill_buffers
        stalls = np.maximum(np.maximum(chain, weight.sum(axis=1)), buffers - self.dispatch)
        share = beyond * steps
        return self.dispatch + self.branches + np.maximum(stalls, 0), np.maximum(stalls, 0), share

    def solve(self) -> IntervalTimes:
        """Waits at which what all ask for fits, then the parts."""
        waits = {each.level: np.zeros(self.num_segments) for each in self.resources}
        for _ in range(2 if len(self.resources) > 1 else 1):
            for each in self.resources:
                waits[each.level] = self._wait(each, waits)
        cycles, _, _ = self.cycles(waits)
        nothing = {level: np.zeros(self.num_segments) for level in waits}
        alone, stalls_alone, share_alone = self.cycles(nothing)
        total = np.maximum(cycles, self.floor)
        for each in self.resources:
            total = total + self._excess(each, total)
        # a line of memory passes all levels before: its whole latency is memory's
        of_memory = (self.served.first_loads + self.served.reused_loads)[:, -1] * (self.latency[-1] - self.latency[0])
        memory = stalls_alone * np.clip(of_memory / np.maximum(share_alone.sum(axis=1), 1e-300), 0, 1)
        parts = {
            "base": self.base,
            "dependency": self.dispatch - self.base,
            "branches": self.branches,
            "cache": stalls_alone - memory,
            "memory": memory,
            "bandwidth": total - alone,
        }
        wait = waits.get(len(self.latency) - 1, np.zeros(self.num_segments))[self.segment]
        return IntervalTimes(total, parts, self.served.misses, wait)

    def _load(self, resource: _Resource, cycles: np.ndarray) -> np.ndarray:
        """float64[segments]: share of the time for which a resource is busy, above 1 if it cannot be."""
        # the initial task creates the others, it is not one of as many
        counts = np.ones(len(cycles))
        counts[0] = 0.0 if len(cycles) > 1 else 1.0
        there = counts * (self.instructions > 0)
        service = np.bincount(self.segment, resource.service * there, self.num_segments)
        time = np.bincount(self.segment, cycles * there, self.num_segments)
        users = np.minimum(resource.num_users, np.bincount(self.segment, there, self.num_segments))
        return users * service / np.maximum(time, 1e-300)

    def _wait(self, resource: _Resource, waits: dict[int, np.ndarray]) -> np.ndarray:
        """float64[segments]: cycles by which each line comes later."""

        def too_short(wait: np.ndarray) -> np.ndarray:
            cycles, _, _ = self.cycles(waits | {resource.level: wait})
            load = np.minimum(self._load(resource, np.maximum(cycles, self.floor)), 1.0)
            with np.errstate(divide="ignore", invalid="ignore"):
                queue = resource.line_cycles * load / (2 * (1 - load))
                return np.asarray(queue * (resource.num_users - 1) / resource.num_users > wait)

        low, high = np.zeros(self.num_segments), np.full(self.num_segments, resource.line_cycles)
        for _ in range(_DOUBLINGS):
            grows = too_short(high)
            if not grows.any():
                break
            low, high = np.where(grows, high, low), np.where(grows, 2 * high, high)
        else:  # what comes later holds nobody up: bandwidth alone counts
            low = np.where(grows, 0.0, low)
            high = np.where(grows, 0.0, high)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            grows = too_short(middle) & (high > 0)
            low, high = np.where(grows, middle, low), np.where(grows, high, middle)
        return high

    def _excess(self, resource: _Resource, cycles: np.ndarray) -> np.ndarray:
        """float64[instances]: what is missing where waits do not slow down enough, by how much each asks for."""
        load = self._load(resource, cycles)
        service = np.bincount(self.segment, resource.service, self.num_segments)
        time = np.bincount(self.segment, cycles, self.num_segments)
        missing = np.maximum(load - 1.0, 0.0) * time / np.maximum(service, 1e-300)
        return np.asarray(resource.service * missing[self.segment])
