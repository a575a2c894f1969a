"""What a piece takes, by the levels that serve its first uses of lines and by how long lines of main memory wait.

Windows of sampled pieces (windows.py) run on the detailed model's core with all lines that the piece has not used
before in one level, once for each: what a line of that level costs is the difference to all of them in the first cache,
for each line. Main memory does so at some waits. Lines do not cost the same where few of them come from afar, since
they overlap less: so windows also run with lines where the traced run on one core has them (occupancy.py), at the same
waits, and what that takes beyond the sum counts as far as the piece's lines come from the same levels. Lines that the
piece itself has used before lie where the lines since say, always. Rows and queues of DRAM are left to queues.py: here
every line finds its row open.

O(instructions in windows x (levels + 2 x waits) + rows of PieceLines x levels), once for a program, core and caches.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.machine.processor import data_caches, needed
from manyscale.models.node.core.code import kept_core_code
from manyscale.models.node.core.kernel import new_cores, stream_of
from manyscale.models.node.memory.system import new_memory_system
from manyscale.models.node.shared import costs_kernel as kernel
from manyscale.models.node.shared.costs_kernel import NATURAL
from manyscale.models.node.shared.last_uses import last_uses
from manyscale.models.node.shared.occupancy import COLUMNS, empty_caches
from manyscale.models.node.shared.occupancy_kernel import fill
from manyscale.models.node.shared.piece_lines import PieceLines
from manyscale.models.node.shared.windows import PieceWindows
from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note

WAITS: Final = (0.0, 1.0, 4.0)  # of memory's latency
_PORT_STEP: Final = 0.5  # of the last cache's latency


class PieceCosts(NamedTuple):
    """Of each sample, per instruction: ``base`` float64[samples], all lines in the first cache; ``natural``
    float64[samples, levels + 1], lines by the level that serves them in the traced run; ``extra`` float64[samples,
    waits], what that takes beyond the sum of its lines; ``own`` float64[samples], lines from main memory that the
    instance itself used before. Per line: ``line`` float64[samples, levels], ``memory`` float64[samples, waits],
    ``remote`` float64[samples],
    ``passed`` float64[samples] beside that of a shared cache, if another core has modified it. ``port``
    float64[samples]: cycles for each that a line of a shared cache waits. ``wait``
    float64[waits], in cycles. ``least`` float64[samples]: no piece takes less."""

    wait: np.ndarray
    base: np.ndarray
    line: np.ndarray
    memory: np.ndarray
    natural: np.ndarray
    extra: np.ndarray
    remote: np.ndarray
    passed: np.ndarray
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
    used = runs.mean(runs.lines)
    per_line = 1.0 / np.maximum(used, 1e-12)

    def per_line_of(cycles: np.ndarray, latency_cycles: float) -> np.ndarray:
        """No line takes longer than its latency; all of that, where no window shows one."""
        shown = np.minimum(np.maximum(cycles - first, 0.0) * per_line, latency_cycles)
        return np.where(used > 1e-9, shown, latency_cycles)

    first, own = runs.at(0)
    of_level = np.zeros((len(first), levels))
    for level in range(1, levels):
        of_level[:, level] = per_line_of(runs.at(level)[0], latency[level])
    of_memory = np.stack([per_line_of(runs.at(levels, each)[0], latency[levels] + each) for each in wait], axis=1)
    of_memory = np.maximum.accumulate(of_memory, axis=1)
    there, mix = runs.at(NATURAL)
    mix = np.maximum(mix - own, 0.0)
    mix[:, 0] = np.maximum(used - mix[:, 1:].sum(axis=1), 0.0)
    plain = first + (mix[:, :levels] * of_level).sum(axis=1)
    waited = [there, *(runs.at(NATURAL, each)[0] for each in wait[1:])]
    extra = np.stack(waited, axis=1) - plain[:, None] - mix[:, levels:] * of_memory
    port = np.zeros(len(first))
    if private < levels:
        step = _PORT_STEP * float(latency[levels - 1])
        shown = np.maximum(runs.at(private, 0.0, step)[0] - first, 0.0) * per_line - of_level[:, private]
        port = np.where(used > 1e-9, np.clip(shown / step, 0.0, 1.0), 1.0)
    numa = node.numa.latency_ps * needed(node.frequency_hz, "node.frequency") / 1e12 if node.numa is not None else 0.0
    remote = of_memory[:, 0] * ((latency[levels - 1] + latency[private - 1] + numa) / latency[-1])
    passed = port * (latency[private - 1] if private < levels else 0.0)
    return PieceCosts(
        wait, first, of_level, of_memory, mix, extra, remote, passed, port, own[:, levels].copy(), first
    ), runs.notes  # fmt: skip


class _Runs:
    """Windows on the core of a machine. ``lines`` int64[windows]: that what counts uses first, at most."""

    def __init__(self, windows: PieceWindows, lines: PieceLines, workload: Workload, node: Node, warm: bool) -> None:
        natural = _levels_of_rows(lines, node, warm)
        main = needed(node.main_memory, "node.main_memory")
        if main.dram is not None:
            hit_ps = main.latency_ps - main.dram.activate_ps
            main = main.model_copy(update={"latency_ps": hit_ps, "dram": None, "node_ps_per_byte": None})
            node = node.model_copy(update={"main_memory": main})
        code, self.notes = kept_core_code(workload, needed(node.core, "node.core"), windows.executed)
        self._memory = new_memory_system(node, 1)
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
        every = np.bincount(owner[~is_own], minlength=windows.num_windows)
        size = np.maximum(workload.column("blocks", "num_instructions").astype(np.int64), 0)[windows.block_ids]
        before = np.concatenate(([0], np.cumsum(size)))
        whole = before[windows.first_execution[1:]] - before[windows.first_execution[:-1]]
        self.lines = every * (windows.instructions / np.maximum(whole, 1))

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Of windows, per instruction of their samples."""
        return np.asarray(np.bincount(self._sample, values * self._per, self._count) / self._weights)

    def at(self, level: int, wait: float = 0.0, port: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """(cycles float64[samples], accesses by level float64[samples, levels + 1]) per instruction."""
        count = len(self._per)
        cycles, served = np.zeros(count), np.zeros((count, self.levels + 1), np.int64)
        memory = self._memory
        memory.memory["latency"] += wait
        memory.level["latency"][self.private : self.levels] += port
        kernel.run_windows(self._cores, memory, self._windows, level, cycles, served)
        memory.memory["latency"] -= wait
        memory.level["latency"][self.private : self.levels] -= port
        return self.mean(cycles), np.stack([self.mean(each) for each in served.T], axis=1)


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
