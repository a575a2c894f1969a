"""What a piece takes, by the levels that serve its first uses of lines and by how long lines of main memory wait.

Windows of sampled pieces (windows.py) run on the detailed model's core with all lines that the piece has not used
before in one level, once for each: what a line of that level costs is the difference to all of them in the first cache,
for each line that is loaded first. Lines that are stored to first are alone in main memory once; what they cost
elsewhere goes by latency. With one line of APART in main memory none waits with another: so what the first of some
lines costs is told from those that come closely behind it. Two more runs, beside another core of the socket and of
another one, have all lines modified by it, or held by it, too, so that stores have to take them away.

Windows also run with lines where the traced run on one core has them (occupancy.py), and what that takes beyond the sum
counts as far as the piece's lines come from the same levels. Main memory has some waits each time. Lines that the piece
itself has used before lie where the lines since say, always. Rows and queues of DRAM are left to queues.py (here every
line finds its row open), prefetchers to occupancy.py.

O(instructions in windows x (levels + 3 x waits + 6) + rows of PieceLines x levels), once for program, core and caches.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches, needed
from manyscale.models.node.core.code import kept_core_code
from manyscale.models.node.core.kernel import new_cores, stream_of
from manyscale.models.node.memory.system import MemorySystem, new_memory_system
from manyscale.models.node.shared import costs_kernel as kernel
from manyscale.models.node.shared.costs_kernel import HELD_BY_OTHERS, MODIFIED, NATURAL
from manyscale.models.node.shared.last_uses import last_uses
from manyscale.models.node.shared.occupancy import COLUMNS, empty_caches
from manyscale.models.node.shared.occupancy_kernel import fill
from manyscale.models.node.shared.piece_lines import PieceLines
from manyscale.models.node.shared.piece_lines_kernel import LOADED, STORED
from manyscale.models.node.shared.windows import PieceWindows
from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note

WAITS: Final = (0.0, 1.0, 4.0)  # of memory's latency: costs go in straight lines between, and on beyond the last
APART: Final = 8  # lines of which one is from main memory, to see what it takes where no other waits with it
_PORT_STEP: Final = 0.5  # of the last cache's latency: a wait that shows, as ports make them; costs are its slope


class PieceCosts(NamedTuple):
    """Of each sample, per instruction: ``base`` float64[samples], all lines in the first cache; ``natural``
    float64[samples, levels + 1], loaded lines by the level that they wait for in the traced run; ``extra``
    float64[samples, waits], what that takes beyond the sum of its lines; ``own`` float64[samples], lines from main
    memory that the instance itself used before.

    Per line that is loaded first: ``line`` float64[samples, levels]. Of main memory, where one that comes less than
    ``reach`` int64[samples] lines after another waits with it: ``led`` float64[samples, waits] of those before,
    ``memory`` float64[samples, waits] of those with them. Of another core that has modified it, float64[samples] each:
    ``near``, on the same socket, many of them, ``near_led`` one by one; ``far`` and ``far_led``, from another one, as
    of main memory. Of stores to lines that others hold, too: ``near_take``, ``far_take``. Of lines that are stored to
    first, as a share of the level's latency: ``store`` float64[samples]; ``latency`` float64[levels + 2], the last of
    another socket's caches.

    ``port`` float64[samples]: cycles for each that a line of a shared cache waits. ``wait`` float64[waits], in cycles.
    ``least`` float64[samples]: no piece takes less."""

    wait: np.ndarray
    base: np.ndarray
    line: np.ndarray
    memory: np.ndarray
    led: np.ndarray
    reach: np.ndarray
    natural: np.ndarray
    extra: np.ndarray
    near: np.ndarray
    near_led: np.ndarray
    near_take: np.ndarray
    far: np.ndarray
    far_led: np.ndarray
    far_take: np.ndarray
    store: np.ndarray
    latency: np.ndarray
    port: np.ndarray
    own: np.ndarray
    least: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """All as plain arrays, for ``numpy.savez``; ``costs_from`` reads them back."""
        return {f"costs_{name}": values for name, values in self._asdict().items()}


def costs_from(arrays: dict[str, np.ndarray]) -> PieceCosts:
    """What ``PieceCosts.arrays`` gave."""
    # as ``piece_costs`` has them: stored arrays cannot be written, and kernels would be compiled for these, too
    return PieceCosts(*(arrays[f"costs_{name}"].copy() for name in PieceCosts._fields))


def piece_costs(
    windows: PieceWindows, lines: PieceLines, workload: Workload, node: Node, *, warm: bool = True
) -> tuple[PieceCosts, tuple[Note, ...]]:
    """Costs of each sample, and notes on what the trace does not show. ``warm``: the traced run executed all pieces
    before. Raises ValueError where the node lacks a parameter or has lines of another size."""
    for name, cache in data_caches(node.caches).items():
        if needed(cache.line_bytes, "line", f"node.caches.{name}.") != lines.line_bytes:
            raise ValueError(f"node.caches.{name}: lines of {cache.line_bytes} B, profiles of {lines.line_bytes} B")
    runs = _Runs(windows, lines, workload, node, warm)
    levels, private, latency = runs.levels, runs.private, runs.latency
    wait = float(latency[-1]) * np.array(WAITS)
    used, stored_first = runs.lines_by_use()

    def per_line(cycles: np.ndarray, lines_used: np.ndarray, most: float) -> np.ndarray:
        """No line takes longer than ``most``; all of that, where no window shows one."""
        shown = np.clip(cycles / np.maximum(lines_used, 1e-12), 0.0, most)
        return np.where(lines_used > 1e-9, shown, most)

    first, own = runs.at(0)
    place, _ = runs.some(every=1, of_stores=True, others=0)
    of_stores = np.maximum(runs.at(NATURAL, place=place)[0] - first, 0.0)
    store = np.where(stored_first > 1e-9, per_line(of_stores, stored_first, latency[levels]) / latency[levels], 0.0)
    of_level = np.zeros((len(first), levels))
    nearer = np.zeros(len(first))
    for level in range(1, levels):
        cycles, stores = runs.at(level)[0] - first, of_stores * (latency[level] / latency[levels])
        of_level[:, level] = per_line(cycles - stores, used, latency[level])
        if level == min(private, levels - 1):
            nearer = cycles
    place, apart = runs.some(every=APART, of_stores=False, others=min(private, levels - 1))
    nearer = nearer * (1.0 - apart / np.maximum(used + stored_first, 1e-12))

    def of_memory(each: float) -> tuple[np.ndarray, np.ndarray]:
        """float64[samples] twice: all lines, and few of them"""
        most, stores = latency[levels] + each, of_stores * (1.0 + each / latency[levels])
        every = runs.at(levels, each)[0] - first - stores
        few = runs.at(NATURAL, each, place=place)[0] - first - nearer
        return per_line(every, used, most), per_line(few, apart, most)

    every, few = (
        np.maximum.accumulate(np.stack(each, axis=1), axis=1)
        for each in zip(*(of_memory(each) for each in wait), strict=True)
    )
    reach, led, memory = split_by_leaders(every, few, runs.under_way(used), latency[levels] + wait)
    mix, stores = runs.natural()
    leading = mix[:, levels:] * runs.leading(reach)[:, None]
    plain = first + (mix[:, :levels] * of_level).sum(axis=1)
    waited = np.stack([runs.at(NATURAL, each)[0] for each in wait], axis=1)
    waited -= store[:, None] * ((stores * latency).sum(axis=1)[:, None] + stores[:, levels:] * wait)
    extra = waited - plain[:, None] - leading * led - (mix[:, levels:] - leading) * memory
    port = np.zeros(len(first))
    if private < levels:
        step = _PORT_STEP * float(latency[levels - 1])
        stores = of_stores * (latency[private] / latency[levels])
        shown = per_line(runs.at(private, 0.0, step)[0] - first - stores, used, np.inf) - of_level[:, private]
        port = np.where(used > 1e-9, np.clip(shown / step, 0.0, 1.0), 1.0)
    apart = led[:, 0] / np.maximum(every[:, 0], 1e-12)  # what one takes, to each of many
    most = 0.0
    beside: list[np.ndarray] = []
    for is_far in (False, True):
        if is_far and node.numa is None:
            beside += beside
            continue
        foreign, held, most = runs.beside(is_far)
        fetch = per_line(foreign - held, used, most)
        beside += [fetch, np.minimum(fetch * apart, most), per_line(held - first, runs.stored(), most)]
    near, near_led, near_take, far, far_led, far_take = beside
    return PieceCosts(
        wait, first, of_level, memory, led, reach, mix, extra, near, near_led, near_take, far, far_led, far_take, store,
        np.append(latency, most), port, own[:, levels].copy(), first,
    ), runs.notes  # fmt: skip


def split_by_leaders(
    every: np.ndarray, apart: np.ndarray, together: np.ndarray, most: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(int64[samples], float64[samples, waits] twice): how many lines wait together at most, and what the first and
    the others of these take, so that lines take ``every`` if all are from main memory, ``apart`` if one of APART is.
    ``together`` float64[samples]: lines that the core has under way at once."""
    apart = np.minimum(np.maximum(apart, every), most)
    reach = np.rint(np.maximum(together, apart[:, 0] / np.maximum(every[:, 0], 1e-12)))
    reach = np.clip(reach, 1, APART).astype(np.int64)
    share = 1.0 / reach[:, None]
    memory = np.where(share < 1.0, np.maximum(every - share * apart, 0.0) / np.maximum(1.0 - share, 1e-12), every)
    led = np.where(share < 1.0, (every - (1.0 - share) * memory) / share, every)
    return reach, led, memory


class _Runs:
    """Windows on the core of a machine, without prefetchers."""

    def __init__(self, windows: PieceWindows, lines: PieceLines, workload: Workload, node: Node, warm: bool) -> None:
        natural = _levels_of_rows(lines, node, warm)
        self._level_of, self._rows, self._sampled = natural, lines, windows.piece
        caches = {name: each.model_copy(update={"prefetcher": None}) for name, each in node.caches.items()}
        node = node.model_copy(update={"caches": caches})  # occupancy.py has them
        main = needed(node.main_memory, "node.main_memory")
        if main.dram is not None:
            hit_ps = main.latency_ps - main.dram.activate_ps
            main = main.model_copy(update={"latency_ps": hit_ps, "dram": None, "node_ps_per_byte": None})
            node = node.model_copy(update={"main_memory": main})
        code, self.notes = kept_core_code(workload, needed(node.core, "node.core"), windows.executed)
        self._memory, self._node = new_memory_system(node, 1), node
        stream = stream_of(windows.block_ids, windows.addresses)
        self._cores = new_cores(node, 1, code, stream._replace(addresses=windows.addresses.copy()))
        self.levels, self.private = (int(self._memory.memory[0][name]) for name in ("levels", "private"))
        self.latency = np.append(self._memory.level["latency"][: self.levels], self._memory.memory[0]["latency"])
        sizes = np.cumsum([cache.size_bytes // lines.line_bytes for cache in data_caches(node.caches).values()])
        is_own = (windows.since >= 0) | (windows.row < 0)
        place = np.zeros(len(windows.row), np.int8)
        place[~is_own] = natural[windows.row[~is_own]]
        place[is_own] = np.searchsorted(sizes, np.maximum(windows.since[is_own], 0), side="right")
        self._windows = kernel.Windows(
            windows.first_execution, windows.first_measured, windows.is_mispredicted, windows.first_access,
            windows.first_line, windows.line, place, is_own, np.zeros(1, np.int64),
        )  # fmt: skip
        self._sample = np.repeat(np.arange(windows.num_samples), np.diff(windows.first_window))
        self._count = windows.num_samples
        self._per = windows.weight / np.maximum(windows.instructions, 1)
        there = np.where(windows.instructions > 0, windows.weight, 0.0)
        self._weights = np.maximum(np.bincount(self._sample, there, self._count), 1e-300)
        owner = np.repeat(np.arange(windows.num_windows), np.diff(windows.first_line))
        size = np.maximum(workload.column("blocks", "num_instructions").astype(np.int64), 0)[windows.block_ids]
        before = np.concatenate(([0], np.cumsum(size)))
        whole = before[windows.first_execution[1:]] - before[windows.first_execution[:-1]]
        self._counts = windows.instructions / np.maximum(whole, 1)
        self._owner = owner
        use = np.where(windows.row >= 0, lines.use[np.maximum(windows.row, 0)], LOADED)
        self._stores, self._stores_first = ((use & STORED) != 0) & ~is_own, (use & LOADED) == 0

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Of windows, per instruction of their samples."""
        return np.asarray(np.bincount(self._sample, values * self._per, self._count) / self._weights)

    def at(
        self, level: int, wait: float = 0.0, port: float = 0.0, *, place: np.ndarray | None = None,
        memory: MemorySystem | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """(cycles float64[samples], accesses by level float64[samples, levels + 1]) per instruction. ``place``
        int8[lines]: instead of that in the traced run; ``memory``: instead of that of one core."""
        count = len(self._per)
        cycles, served = np.zeros(count), np.zeros((count, self.levels + 1), np.int64)
        windows = self._windows if place is None else self._windows._replace(natural=place)
        memory = self._memory if memory is None else memory
        memory.memory["latency"] += wait
        memory.level["latency"][self.private : self.levels] += port
        kernel.run_windows(self._cores, memory, windows, level, cycles, served)
        memory.memory["latency"] -= wait
        memory.level["latency"][self.private : self.levels] -= port
        return self.mean(cycles), np.stack([self.mean(each) for each in served.T], axis=1)

    def _lines(self, which: np.ndarray) -> np.ndarray:
        """Of those lines of windows, how many samples use first, per instruction."""
        return self.mean(np.bincount(self._owner[which], minlength=len(self._per)) * self._counts)

    def lines_by_use(self) -> tuple[np.ndarray, np.ndarray]:
        """float64[samples]: new lines that are loaded first, and stored to first."""
        own = self._windows.is_own
        return self._lines(~own & ~self._stores_first), self._lines(~own & self._stores_first)

    def stored(self) -> np.ndarray:
        """float64[samples]: new lines that are stored to."""
        return self._lines(self._stores)

    def natural(self) -> tuple[np.ndarray, np.ndarray]:
        """float64[samples, levels + 1]: new lines by their level in the traced run, loaded and stored to first."""
        own, place = self._windows.is_own, self._windows.natural
        loaded, stored = (
            [self._lines(~own & (self._stores_first == stores) & (place == level)) for level in range(self.levels + 1)]
            for stores in (False, True)
        )
        return np.stack(loaded, axis=1), np.stack(stored, axis=1)

    def some(self, *, every: int, of_stores: bool, others: int) -> tuple[np.ndarray, np.ndarray]:
        """(int8[lines], float64[samples]): places with each ``every``-th line that is stored to first, or loaded, in
        main memory, the others in level ``others``, and how many there are per instruction."""
        place, new = self._windows.natural.copy(), ~self._windows.is_own
        mine = new & (self._stores_first == of_stores)
        rank = np.cumsum(mine) + 3 * self._owner  # other places in each window
        chosen = mine & (rank % every == 0)
        place[new] = others
        place[chosen] = self.levels
        return place, self._lines(chosen)

    def under_way(self, used: np.ndarray) -> np.ndarray:
        """float64[samples]: new lines of as many instructions as the core has under way, as many as it can ask for."""
        core = needed(self._node.core, "node.core")
        return np.minimum(used * needed(core.reorder_buffer, "node.core.reorder_buffer"), core.line_fill_buffers)

    def leading(self, reach: np.ndarray) -> np.ndarray:
        """float64[samples]: of lines that are loaded from main memory in the traced run, the share that no other comes
        before."""
        rows = self._rows
        first, end = (np.ascontiguousarray(each[self._sampled]) for each in (rows.first, rows.end))
        loaded, of_memory = (rows.use & LOADED) != 0, self._level_of >= self.levels
        found = np.zeros(len(first))
        kernel.leaders(loaded, of_memory, first, end, reach, found)
        before = np.concatenate(([0], np.cumsum(loaded & of_memory)))
        count = before[end] - before[first]
        return np.where(count > 0, found / np.maximum(count, 1), 1.0)

    def beside(self, is_far: bool) -> tuple[np.ndarray, np.ndarray, float]:
        """(float64[samples] twice, cycles): per instruction, with all lines modified by another core, and with all in
        the first cache while another core holds them, too; how long one takes at most. ``is_far``: the other is on
        another socket."""
        node, both = self._node, 1 if is_far else 2
        group = next(iter(data_caches(node.caches).values())).shared_by_cores
        caches = {
            name: each.model_copy(update={"shared_by_cores": min(each.shared_by_cores, both * group)})
            for name, each in node.caches.items()
        }
        pair = node.model_copy(update={"sockets": 3 - both, "cores_per_socket": both * group, "caches": caches})
        found = [self.at(level, memory=new_memory_system(pair, 2 * group))[0] for level in (MODIFIED, HELD_BY_OTHERS)]
        cycles = float(self.latency[self.levels - 1] + self.latency[max(self.private - 1, 0)])
        if is_far and node.numa is not None:
            cycles += node.numa.latency_ps * needed(node.frequency_hz, "node.frequency") / 1e12
        return found[0], found[1], cycles


def _levels_of_rows(lines: PieceLines, node: Node, warm: bool) -> np.ndarray:
    """int8[rows]: the level that serves each if one core runs pieces as the traced run did. O(rows x levels)."""
    order = np.flatnonzero(lines.end > lines.first)
    order = order[np.argsort(lines.first[order], kind="stable")]
    caches = empty_caches(lines, node, 1)
    levels = len(data_caches(node.caches))
    where, alone = np.zeros(len(lines.line), np.int8), np.zeros(len(order), np.int64)
    if warm:
        left = last_uses(lines, order, alone)
        fill(caches, np.arange(len(order)), alone, *left, np.zeros(levels + COLUMNS), np.zeros(0, np.int8))
    fill(
        caches, order, alone, lines.first, lines.end, lines.line, lines.use, lines.visits, np.zeros(levels + COLUMNS),
        where,
    )  # fmt: skip
    return where
