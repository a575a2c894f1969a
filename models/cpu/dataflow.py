"""The dataflow model: how long a core takes for a stream of executed blocks, overlap included.

One pass over the instructions of the stream (models/cpu/dataflow_kernel.py), each of which

* enters the core in order, ``width`` per cycle, once the instruction that is ``reorder_buffer`` earlier has left, and
  the queues of loads and stores have room;
* starts when its sources are there (registers are renamed, so only true dependences count) and a unit of its class is
  free. Units are kept in the order of entry: an instruction that enters keeps its unit from the moment on at which
  the unit has served those before it, so a rate is never exceeded, and what waits for its sources blocks nobody;
* loads: take the latency of the level that serves them (models/cpu/served_levels.py), wait for one of
  ``line_fill_buffers`` and for the level's bandwidth, or for an earlier store of the same bytes; lines that a
  prefetcher foresaw take bandwidth alone. Lines that stores miss take the bandwidth twice, for they are written back,
  unless the core has a path of its own for that. A load that lies in two lines is two for the units of loads. Where
  the target says that a prefetcher begins anew in each page once most lines that the first cache misses are in no
  order (``prefetcher.interrupted_page``), the first ``confirm`` lines of a page take the latency then, and the others
  come a latency after they were asked for, by ``degree`` at each line, at most ``distance`` ahead;
* leaves in order, ``width`` per cycle.

A compare that the branch behind it reads is one with it, moves inside a register file cost nothing, and after a branch
that the predictor gets wrong nothing enters until it is done, plus ``misprediction``. The predictor takes the longest
of several histories of blocks that it knows (after Seznec and Michaud, "A case for (partially) tagged geometric history
length branch prediction", JILP 2006). What runs on the wrong path in the meantime comes, in loops, soon to the same
code as the right path: of the instructions behind the branch, as many as the reorder buffer has places, each asks for
its line when it would have known the address had the branch been predicted. Its own load still waits for the branch
(convergence of paths: Eyerman, Van den Steen, Heirman, Hur, "Simulating wrong-path instructions in decoupled
functional-first simulation", ISPASS 2023).

So time is at least that of the slowest of front end, units, bandwidth of each level, and of the longest chain of
dependent latencies; it is exact for any of them alone. Every time is a maximum of sums, so nothing ends earlier because
a latency grew.

The CPI stack gives each cycle between two instructions' leaving to what the later one waited for last: ``base`` (the
width), ``units``, ``dependency`` (arithmetic and loads of the first level), ``forwarding`` (store to load),
``branches``, ``fetch`` (of code), ``bandwidth`` (of any level, and full queues), ``translation``, and one part per
level beyond the first for its latency.

Assumptions: instructions of one class cost the same; an instruction is one operation of the core; addresses of stores
are known in time (no load waits for an older store of other bytes, not even of one with the same low bits of the
address); atomic operations take turns, but nothing beside waits for them; the code is in the first cache; page tables
are walked at a fixed cost, as many at once as asked for; all that follows a mispredicted branch is on its wrong path,
too; rows of DRAM are not known (latency is that of random lines, bandwidth that of a stream); the last cache is the
core's alone, and main memory's latency does not grow with what is asked of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.cpu import branch_predictor, dataflow_kernel
from manyscale.models.cpu import dataflow_tables as tables
from manyscale.models.cpu.dataflow_code import code_of
from manyscale.models.cpu.served_levels import ServedLevels
from manyscale.models.kernels import read_only
from manyscale.models.machine import Node
from manyscale.models.machine.hardware_threads import of_one_thread
from manyscale.models.machine.processor import Core, Prefetcher, data_caches, needed
from manyscale.models.memory.access_stream import access_sites, sites_of
from manyscale.models.workload import Workload
from manyscale.models.workload.quantities import MOST_PS

NAME = "dataflow"
VERSION = 3
_WARM_EXECUTIONS: Final = 100_000  # that the predictor sees before, if that is not too many
_MOST_WARM_RUNS: Final = 16
Batch = tuple[np.ndarray, np.ndarray]  # block ids int32[], addresses uint64[] of all their accesses


@dataclass(frozen=True)
class Runtime:
    """What a stream takes: ``time_ps``, and ``parts_ps`` (CPI stack, sums exactly to it), for ``num_instructions``, of
    which ``num_simulated`` were simulated; ``num_mispredicted`` branches of these."""

    time_ps: int
    parts_ps: dict[str, int]
    num_instructions: int
    num_simulated: int
    num_mispredicted: int


@dataclass(frozen=True)
class DataflowParameters:
    """``most_instructions``: simulate no more than about so many, in ``num_windows`` evenly spread pieces, and scale by
    instructions; 0 is all. Caches and predictor see the whole stream, so each window finds them as they are."""

    most_instructions: int = 0
    num_windows: int = 50

    def __post_init__(self) -> None:
        if self.most_instructions < 0 or self.num_windows < 1:
            raise ValueError("most_instructions must be 0 or more, num_windows at least 1")


class Dataflow:
    """One core that executes pieces of a stream one after another; of several threads of a core, one, on the node that
    ``of_one_thread`` leaves it (models/machine/hardware_threads.py).

    ``warm`` shows a piece to caches and branch predictor, ``execute`` runs it. Raises ValueError where the workload
    has no instructions, or the node lacks a parameter.
    """

    def __init__(self, workload: Workload, node: Node) -> None:
        core = needed(node.core, "node.core")
        self._frequency_hz = needed(node.frequency_hz, "node.frequency")
        self._sites = sites_of(workload)
        self._code, self._in_branch = code_of(workload, self._sites, core)
        self._limits, self._level_names = _limits(node, core, self._frequency_hz)
        self._state = tables.new_state(self._limits, len(self._code.accesses))
        self._levels = ServedLevels(node, len(self._sites))
        self._predictor = branch_predictor.new_predictor()
        self._instructions_of = np.diff(self._code.blocks[:, tables.FIRST_INSTRUCTION])
        self._num_mispredicted = 0

    def num_instructions(self, block_ids: np.ndarray) -> int:
        return int(self._instructions_of[block_ids].sum())

    def warm(self, block_ids: np.ndarray, addresses: np.ndarray) -> None:
        """Caches and predictor see a piece that takes no time. O(executions + accesses)."""
        self._look(block_ids, addresses, -1)

    def execute(
        self,
        block_ids: np.ndarray,
        addresses: np.ndarray,
        next_id: int = -1,
        windows: np.ndarray | None = None,
        levels: np.ndarray | None = None,
    ) -> None:
        """Runs a piece, of which ``next_id`` is the block that follows. Of ``windows`` int64[windows, 2], ranges of
        executions, only these take time. ``levels`` uint8[accesses]: which level serves each access (0 the first; the
        level that holds it + 8 x the level whose latency is seen + 64 x the TLB that translates), from caches simulated
        elsewhere; None: those of served_levels. O(instructions + accesses)."""
        simulated, wrong = self._look(block_ids, addresses, next_id)
        levels = simulated if levels is None else levels
        if windows is None:
            windows = np.array([[0, len(block_ids)]])
        ends = np.concatenate(([0], np.cumsum(np.diff(self._sites.offsets)[block_ids])))
        for first, end in windows:
            after = int(block_ids[end]) if end < len(block_ids) else next_id
            mine = slice(ends[first], ends[end])
            self._num_mispredicted += int(np.count_nonzero(wrong[first:end]))
            piece = tables.Piece(
                read_only(block_ids[first:end], np.int32), read_only(wrong[first:end], np.bool_),
                read_only(addresses[mine], np.uint64), read_only(levels[mine], np.uint8),
            )  # fmt: skip
            dataflow_kernel.run(tables.Core(self._code, self._limits, self._state, piece), after)

    def runtime(self, num_instructions: int | None = None) -> Runtime:
        """Of what was executed, scaled to ``num_instructions``. Raises ValueError for more than 53 days."""
        simulated = int(self._state.counts[tables.INSTRUCTIONS])
        wanted = simulated if num_instructions is None else num_instructions
        scale = wanted / simulated if simulated else 0.0
        parts = np.rint(self._state.stack * (scale * 1e12 / self._frequency_hz))
        if not parts.sum() <= MOST_PS:
            raise ValueError("the stream would take more than 53 days; mend the node's parameters")
        names = ["base", "units", "dependency", "forwarding", "branches", "bandwidth", "fetch", "translation"]
        names += self._level_names[1:]
        parts_ps = dict(zip(names, parts.astype(np.int64).tolist(), strict=True))
        return Runtime(sum(parts_ps.values()), parts_ps, wanted, simulated, self._num_mispredicted)

    def _look(self, block_ids: np.ndarray, addresses: np.ndarray, next_id: int) -> tuple[np.ndarray, np.ndarray]:
        site = access_sites(block_ids, self._sites)
        if len(site) != len(addresses):
            raise ValueError(f"blocks make {len(site)} accesses, but {len(addresses)} addresses are given")
        levels = self._levels.feed(addresses, self._sites.bytes[site], site)
        wrong = np.zeros(len(block_ids), np.bool_)
        branch_predictor.predict(block_ids, next_id, self._in_branch, self._predictor, wrong)
        return levels, wrong


def predict_stream(
    workload: Workload,
    node: Node,
    batches: Iterable[Batch],
    num_instructions: int | None = None,
    warm_up: Iterable[Batch] = (),
) -> Runtime:
    """Time of ``batches``, consecutive pieces of a stream of ``workload``'s blocks from any source, scaled to
    ``num_instructions`` (None: as many as they hold), after ``warm_up``, which takes none."""
    core = Dataflow(workload, of_one_thread(node))
    for block_ids, addresses in warm_up:
        core.warm(block_ids, addresses)
    for block_ids, addresses in batches:
        core.execute(block_ids, addresses)
    return core.runtime(num_instructions)


def predict(workload: Workload, node: Node, parameters: DataflowParameters = DataflowParameters()) -> Runtime:
    """Time of the workload's whole detailed stream when it has just run before (caches and predictor are warm)."""
    detail = workload.detail
    if detail is None:
        raise ValueError("the workload has no detailed level; trace it with --level detailed")
    core = Dataflow(workload, of_one_thread(node))
    bounds = detail.execution_bounds()
    pieces = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    total = int(workload.column("segments", "num_instructions").sum())
    num_executions = int(bounds[-1])
    for _ in range(repetitions(num_executions)):
        for first, end in pieces:
            batch = detail.read_executions(first, end)
            core.warm(batch.block_ids, batch.addresses)
    ranges = windows(num_executions, total, parameters)
    for first, end in pieces:
        batch = detail.read_executions(first, end)
        inside = np.clip(ranges, first, end) - first
        core.execute(batch.block_ids, batch.addresses, windows=inside[inside[:, 1] > inside[:, 0]])
    return core.runtime(total)


def repetitions(num_executions: int) -> int:
    """How often a stream of so many executions is shown to caches and predictor before they are as they stay where it
    is repeated: a predictor learns a short program by heart, in several runs."""
    return int(np.clip(_WARM_EXECUTIONS // max(num_executions, 1), 1, _MOST_WARM_RUNS))


def windows(num_executions: int, num_instructions: int, parameters: DataflowParameters) -> np.ndarray:
    """int64[windows, 2]: ranges of executions, each in the middle of an equal share of the stream."""
    most = parameters.most_instructions
    if not most or most >= num_instructions:
        return np.array([[0, num_executions]])
    share = num_executions / parameters.num_windows
    length = share * most / num_instructions
    middle = (np.arange(parameters.num_windows) + 0.5) * share
    return np.stack([middle - length / 2, middle + length / 2], axis=1).astype(np.int64)


def _limits(node: Node, core: Core, frequency_hz: float) -> tuple[tables.Limits, list[str]]:
    memory = needed(node.main_memory, "node.main_memory")
    caches = data_caches(node.caches)
    cycles_per_ps = frequency_hz / 1e12
    names = list(caches)
    latency = [needed(caches[name].latency_cycles, "latency", f"node.caches.{name}.") for name in names]
    rates = [needed(caches[name].ps_per_byte, "bandwidth", f"node.caches.{name}.") for name in names[1:]]
    line_bytes = needed(caches[names[0]].line_bytes, "line")
    latency.append(memory.latency_ps * cycles_per_ps)
    transfer = np.array([0.0, *rates, memory.ps_per_byte]) * line_bytes * cycles_per_ps
    fetching = [cache.prefetcher for cache in caches.values() if cache.prefetcher]
    general = core.store_to_load_cycles
    if core.general_store_to_load_cycles is not None:
        general = core.general_store_to_load_cycles
    vector_loads = core.vector_loads_per_cycle or core.loads_per_cycle
    vector_stores = core.vector_stores_per_cycle or core.stores_per_cycle
    walk = memory.page_walk_cycles if node.tlbs else 0.0
    rings = np.zeros(5, np.int64)
    rings[tables.REORDER], rings[tables.FILLS] = core.reorder_buffer, core.line_fill_buffers
    rings[tables.LOADED], rings[tables.STORED] = core.load_buffer, core.store_buffer
    rings[tables.VECTORS] = core.vector_registers
    limits = tables.Limits(
        slot=core.hardware_threads / core.width,
        files=np.array(
            [
                [1 / core.loads_per_cycle, 1 / core.stores_per_cycle, general],
                [1 / vector_loads, 1 / vector_stores, core.store_to_load_cycles],
            ]
        ),
        access=_occupancy(core.accesses_per_cycle),
        forward=_occupancy(core.forwarded_loads_per_cycle),
        repeat=core.repeated_accesses * _occupancy(core.accesses_per_cycle),
        fetch=float(core.hardware_threads) if core.fetch_bytes else 0.0,
        string=_occupancy(core.string_bytes_per_cycle),
        vector_load=core.vector_load_cycles,
        misprediction=core.misprediction_cycles,
        levels=np.stack([latency, transfer], axis=1),
        translation=np.array([each.latency_cycles for each in node.tlbs.values()] + [walk]),
        prefetch_lines=float(fetching[0].distance) if fetching else 0.0,
        prefetch=_prefetch(fetching, line_bytes),
        write_back=0.0 if core.writes_back_aside else 1.0,
        line_shift=line_bytes.bit_length() - 1,
        stores_on_the_way=core.store_buffer or core.reorder_buffer,
        rings=rings,
    )
    return limits, [*caches, "memory"]


def _prefetch(fetching: list[Prefetcher], line_bytes: int) -> tables.Prefetch:
    page_bytes = fetching[0].interrupted_page_bytes if fetching else None
    if page_bytes is None:
        return tables.Prefetch(confirm=1, degree=1, distance=0, page_shift=0)
    first, page_lines = fetching[0], max(1, page_bytes // line_bytes)
    return tables.Prefetch(first.confirm, first.degree, first.distance, page_lines.bit_length() - 1)


def _occupancy(rate: float | None) -> float:
    """Cycles that one of ``rate`` per cycle takes; none where there is no limit."""
    return 1 / rate if rate else 0.0
