"""Intervals of a run as a population: what samplers of intervals choose from, and what they choose."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import one_chunk, to_numpy
from manyscale.models.workload.notes import Note
from manyscale.sampling.vectors import Vectors, side_by_side


@dataclass(frozen=True)
class IntervalPopulation:
    """``number`` int64[n], of each interval, ascending; ``instructions`` float64[n], of all threads; ``vectors``: basic
    blocks of all threads side by side (the concatenated vectors of Perelman et al., 2006, that Hung calls SBBV);
    ``counters`` float64[n] by name, sums over threads, NaN where nothing was measured. ``thread_instructions`` float64
    [n, threads], 0 where a thread did not run, and ``thread_counters`` float64[n, threads] by name, NaN as above."""

    number: np.ndarray
    instructions: np.ndarray
    vectors: Vectors
    num_threads: int
    counters: dict[str, np.ndarray] = field(default_factory=dict)
    thread_instructions: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    thread_counters: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.number)

    def projected(self, seed: int, dimensions: int) -> np.ndarray:
        """float64[n, dimensions]: the vectors, made to sum to 1 and projected (vectors.py)."""
        return self.vectors.normalised().projected(seed, dimensions)

    @property
    def cpi(self) -> np.ndarray | None:
        """float64[n]: cycles per instruction, where cycles were measured of all intervals."""
        cycles = self.counters.get("cycles")
        if cycles is None or np.any(np.isnan(cycles)) or np.any(self.instructions <= 0):
            return None
        return np.asarray(cycles / self.instructions)


@dataclass(frozen=True)
class ProjectedPopulation(IntervalPopulation):
    """Intervals whose vectors were projected as they were read, and may be gone: ``points`` float64[n, dimensions], of
    vectors with ``num_columns``."""

    points: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    num_columns: int = 0

    def projected(self, seed: int, dimensions: int) -> np.ndarray:
        return self.points


@dataclass(frozen=True)
class Choice:
    """Intervals that are simulated: ``element`` int64[], rows of the population, ascending; ``stratum`` int32[];
    ``weight`` float64[], the share of the run's instructions that each stands for (sum 1); ``label`` int32[n], the
    stratum of every interval, or empty; ``expected_error``: half-width of the interval of CPI's estimate as a share of
    it, where deviations are known; ``notes`` for the user; ``is_random``: elements were drawn at random in each
    stratum, so that they tell how sure they are (estimate.py)."""

    element: np.ndarray
    stratum: np.ndarray
    weight: np.ndarray
    label: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    expected_error: float | None = None
    notes: tuple[Note, ...] = ()
    is_random: bool = False


def intervals_of(workload: Workload) -> IntervalPopulation:
    """The intervals of a profile. Raises ValueError if it has none."""
    rows = workload.tables["intervals"]
    if not rows.num_rows:
        raise ValueError(
            "has no intervals; a profile of basic-block vectors (.bb) has them, as of manyscale profile --interval N "
            "of a trace of --level detailed, or valgrind --tool=exp-bbv"
        )
    of_row, thread = (to_numpy(rows.column(name)).astype(np.int64) for name in ("interval_id", "thread"))
    number, at = np.unique(of_row, return_inverse=True)
    threads = int(thread.max()) + 1
    of_thread = np.zeros((len(number), threads))
    of_thread[at, thread] = to_numpy(rows.column("num_instructions"))
    blocks = workload.tables["interval_blocks"]
    interval, owner, block = (
        to_numpy(blocks.column(name)).astype(np.int64) for name in ("interval_id", "thread", "block")
    )
    count = to_numpy(blocks.column("count"))
    parts = []
    for each in range(threads):
        mine = slice(None) if threads == 1 else owner == each
        first = np.searchsorted(interval[mine], np.append(number, number[-1] + 1))
        parts.append(Vectors(first, block[mine] - 1, count[mine]))
    width = int(block.max(initial=1))
    vectors = parts[0] if threads == 1 else side_by_side(parts, [each * width for each in range(threads)])
    measured = _thread_counters(workload, number, threads)
    return IntervalPopulation(
        number, of_thread.sum(axis=1), vectors, threads, {name: _sums(each) for name, each in measured.items()},
        of_thread, measured,
    )  # fmt: skip


def _sums(of_thread: np.ndarray) -> np.ndarray:
    """Over the threads that were measured, NaN where none was."""
    return np.where(np.all(np.isnan(of_thread), axis=1), np.nan, np.nansum(of_thread, axis=1))


def _thread_counters(workload: Workload, number: np.ndarray, threads: int) -> dict[str, np.ndarray]:
    table = workload.tables["interval_counters"]
    if not table.num_rows:
        return {}
    named = one_chunk(table.column("counter"))
    code, value = to_numpy(named.indices).astype(np.int64), to_numpy(table.column("value"))
    row = np.searchsorted(number, to_numpy(table.column("interval_id")))
    thread = to_numpy(table.column("thread"))
    found = {}
    for index, name in enumerate(named.dictionary.to_pylist()):
        mine = code == index
        found[name] = np.full((len(number), threads), np.nan)
        found[name][row[mine], thread[mine]] = value[mine]
    return found
