"""What the samples of micro-profiles take on the cores of a machine: windows run at states of what other cores do."""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.machine import Node
from manyscale.models.machine.processor import Cache, data_caches, needed
from manyscale.models.node.core.code import kept_core_code
from manyscale.models.node.core.kernel import Cores, new_cores, stream_of
from manyscale.models.node.memory.cache_rows import DIRTY, FLAG_BITS
from manyscale.models.node.memory.system import MemorySystem, new_memory_system
from manyscale.models.node.micro import response_kernel as kernel
from manyscale.models.node.micro.profiles import MicroProfiles
from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note

_WAITS: Final = (0.0, 0.5, 2.0, 8.0)  # of memory's latency, which others add to it
_AT_ONCE: Final = 64  # lines of a history under way at most
_PAGES: Final = 64  # of a window that are looked at
_OTHERS: Final = 1 << 59  # lines that no window uses
_DIRTY_STEPS: Final = 64
_SPREAD: Final = 0x9E3779B1
_SPREAD_SHIFT: Final = 12
_SLOPE_STEP: Final = 0.5  # of the last cache's latency


def core_response(
    profiles: MicroProfiles,
    workload: Workload,
    node: Node,
    *,
    num_cores: int = 1,
    warm: bool = False,
    contended: bool = True,
) -> tuple[kernel.CoreResponse, tuple[Note, ...]]:
    """The response of each sample, and notes on what the trace does not show. ``warm``: the same instances ran before.
    ``contended``: at all states that ``num_cores`` cores can bring about; else only alone on the machine.

    Raises ValueError where the node lacks a parameter or has lines of another size. O(instructions in windows x
    states), states that put all lines of a window in the same caches once.
    """
    caches = data_caches(node.caches)
    for name, cache in caches.items():
        if needed(cache.line_bytes, "line", f"node.caches.{name}.") != profiles.line_bytes:
            raise ValueError(f"node.caches.{name}: lines of {cache.line_bytes} B, profiles of {profiles.line_bytes} B")
    code, notes = kept_core_code(workload, needed(node.core, "node.core"))
    memory = new_memory_system(node, 1)
    stream = stream_of(profiles.block_ids, profiles.addresses)
    cores = new_cores(node, 1, code, stream._replace(addresses=profiles.addresses.copy()))
    return _Runs(profiles, cores, memory, warm).response(*_states(list(caches.values()), num_cores, contended)), notes


def instance_cycles(profiles: MicroProfiles, response: kernel.CoreResponse, elsewhere: float = 0.0) -> np.ndarray:
    """float64[instances]: cycles of each if nothing runs beside it; ``elsewhere`` as ``respond`` has it."""
    out, per_instruction = np.zeros(response.rate.shape[-1]), np.zeros(profiles.num_samples + 1)
    for sample in range(profiles.num_samples):
        kernel.respond(response, sample, 1.0, elsewhere, 0.0, 0.0, out)
        per_instruction[sample] = out[kernel.CYCLES]
    return np.asarray(per_instruction[profiles.sample_of] * profiles.instructions)  # -1: the last, which is 0


def _states(caches: list[Cache], num_cores: int, contended: bool) -> tuple[np.ndarray, int, bool]:
    """(shares, number of ``elsewhere``, whether there are waits)."""
    if not contended or num_cores == 1:
        return np.ones(1), 1, False
    sharing = max((min(cache.shared_by_cores, num_cores) for cache in caches), default=1)
    steps = (sharing - 1).bit_length()
    return 1.0 / np.minimum(2.0 ** np.arange(steps + 1), sharing), 2, True


class _Runs:
    def __init__(self, profiles: MicroProfiles, cores: Cores, memory: MemorySystem, warm: bool) -> None:
        self._profiles, self._cores, self._memory = profiles, cores, memory
        distance = profiles.warm if warm else profiles.cold
        self._windows = kernel.Windows(
            profiles.first_execution, profiles.first_measured, profiles.begins_piece, profiles.is_mispredicted,
            profiles.first_access, profiles.first_line, profiles.line, distance, profiles.ahead.copy(), profiles.is_own,
            np.zeros(1, np.int64), np.zeros((profiles.num_windows, len(memory.level) - 1)), profiles.first_history,
            profiles.history,
            profiles.history_instructions, np.zeros(_AT_ONCE),
        )  # fmt: skip
        kernel.leave_streams(
            self._windows,
            memory,
            cores.stream.addresses,
            int(cores.limits[0]["line_shift"]),
            np.zeros((_PAGES, 4), np.int64),
        )
        owner = np.repeat(np.arange(profiles.num_windows), np.diff(profiles.first_line))
        self._owner, self._order = owner, np.lexsort((-distance, owner))
        self._levels = int(memory.memory[0]["levels"])
        self._private = int(memory.memory[0]["private"])
        self._sets = memory.level["sets"][: self._levels].copy()
        self._done: dict[tuple[int, bytes, bool, float, float, float], tuple[float, np.ndarray]] = {}
        starts = profiles.first_window
        self._share(1.0)
        self._sample = np.repeat(np.arange(profiles.num_samples), np.diff(starts))
        self._per = profiles.weight / np.maximum(profiles.instructions_measured, 1)
        self._weights = np.maximum(np.bincount(self._sample, profiles.weight, profiles.num_samples), 1)

    def _use_caches(self) -> None:
        """Caches that the program's lines fill hold others than those of windows, of which some are to be written
        back: as many as windows store to."""
        level, tag = self._memory.level[: self._levels], self._memory.tag
        stored = int(np.mean(self._profiles.is_stored) * _DIRTY_STEPS) if len(self._profiles.is_stored) else 0
        for k in range(self._levels):
            lines = int(level["sets"][k] * level["ways"][k])
            if self._profiles.num_lines >= lines:
                slots = np.arange(lines) + int(level["first"][k])
                is_dirty = (slots * _SPREAD >> _SPREAD_SHIFT) % _DIRTY_STEPS < stored
                tag[slots] = (_OTHERS | slots) << FLAG_BITS | np.where(is_dirty, DIRTY, 0)

    def response(self, shares: np.ndarray, elsewheres: int, waits: bool) -> kernel.CoreResponse:
        latency = float(self._memory.memory[0]["latency"])
        wait = latency * np.array(_WAITS if waits else _WAITS[:1])
        count, columns = self._profiles.num_samples, kernel.FIRST_SERVED + self._levels + 1
        cycles = np.zeros((count, 2, len(shares), len(wait)))
        slope, rate = np.zeros((count, 2, len(shares))), np.zeros((count, 2, len(shares), columns))
        for s, share in enumerate(shares.tolist()):
            self._share(share)
            for other in range(elsewheres):
                place = np.zeros(len(self._profiles.line), np.int8)
                kernel.find_places(self._windows, self._memory, 1.0, bool(other), place)
                for w, each in enumerate(wait.tolist()):
                    cycles[:, other, s, w], served = self._at(place, bool(other), 0.0, each)
                    if w == 0:
                        rate[:, other, s] = self._rates(place, served, columns)
                if waits and self._private < self._levels:
                    step = _SLOPE_STEP * float(self._memory.level[self._levels - 1]["latency"])
                    slower, _ = self._at(place, bool(other), step, 0.0)
                    slope[:, other, s] = np.maximum(slower - cycles[:, other, s, 0], 0.0) / step
        if elsewheres == 1:
            cycles[:, 1], slope[:, 1], rate[:, 1] = cycles[:, 0], slope[:, 0], rate[:, 0]
        return kernel.CoreResponse(shares, wait, cycles, slope, rate)

    def _share(self, share: float) -> None:
        """Shared caches have so many of their sets."""
        level = self._memory.level[: self._levels]
        sets = np.maximum(np.rint(self._sets * np.where(np.arange(self._levels) < self._private, 1.0, share)), 1)
        level["sets"] = sets
        level["mask"] = np.where(level["sets"] & (level["sets"] - 1) == 0, level["sets"] - 1, -1)
        self._now = share
        self._use_caches()
        scratch = np.zeros(int(level["sets"].max()), np.int32)
        kernel.find_clashes(self._windows, self._memory, scratch, self._windows.clash)

    def _at(
        self, place: np.ndarray, elsewhere: bool, cache_wait: float, memory_wait: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """(cycles per instruction float64[samples], accesses and prefetches by level float64[windows, 2, levels + 1])
        of all windows, those that ran at such a state before not again."""
        profiles, first = self._profiles, self._profiles.first_line
        keys = []
        for w in range(profiles.num_windows):
            mine = place[first[w] : first[w + 1]]
            farthest = int(mine.max(initial=0))
            # what reaches no memory does not wait for it
            reaches = memory_wait if farthest >= self._levels else 0.0
            passes = cache_wait if farthest >= self._private else 0.0
            part = self._now if farthest >= self._private else 1.0
            keys.append((w, mine.tobytes(), elsewhere, part, passes, reaches))
        wanted = np.array([w for w, key in enumerate(keys) if key not in self._done], np.int64)
        cycles = np.zeros(profiles.num_windows)
        served = np.zeros((profiles.num_windows, 2, self._levels + 1), np.int64)
        if len(wanted):
            level, memory = self._memory.level, self._memory.memory
            level["latency"][self._private : self._levels] += cache_wait
            for name in ("latency", "after_activate"):
                memory[name] += memory_wait
            kernel.run_windows(
                self._cores, self._memory, self._windows, wanted, place, self._order, elsewhere, cycles, served
            )
            level["latency"][self._private : self._levels] -= cache_wait
            for name in ("latency", "after_activate"):
                memory[name] -= memory_wait
        for w in wanted.tolist():
            self._done[keys[w]] = float(cycles[w]), served[w]
        for w, key in enumerate(keys):
            cycles[w], served[w] = self._done[key]
        return np.bincount(self._sample, cycles * self._per, profiles.num_samples) / self._weights, served

    def _rates(self, place: np.ndarray, served: np.ndarray, columns: int) -> np.ndarray:
        """float64[samples, columns] per instruction."""
        profiles, levels = self._profiles, self._levels
        rate = np.zeros((profiles.num_samples, columns))
        every = served.sum(axis=1)
        written = every[:, levels] * self._stored_share(place)
        values = {
            kernel.LINES_READ: every[:, levels],
            kernel.LINES_WRITTEN: written,
            kernel.LINES_SHARED: every[:, self._private :].sum(axis=1),
        } | {kernel.FIRST_SERVED + level: served[:, 0, level] for level in range(levels + 1)}
        for column, value in values.items():
            rate[:, column] = np.bincount(self._sample, value * self._per, profiles.num_samples) / self._weights
        return rate

    def _stored_share(self, place: np.ndarray) -> np.ndarray:
        """float64[windows]: of its lines that come from memory the share to which it stores: lines that are read for
        these go back sooner or later."""
        profiles = self._profiles
        from_memory = place >= self._levels
        count = profiles.num_windows
        lines = np.bincount(self._owner[from_memory], minlength=count)
        stored = np.bincount(self._owner[from_memory & profiles.is_stored], minlength=count)
        return np.asarray(stored / np.maximum(lines, 1))
