"""Intervals of a native run by samples: what ``manyscale profile --interval`` makes of the text of ``perf script``, for
``plan --method sbbv+ccv`` and ``evaluate``.

Method: Hung (NTU 2010, chapter 5): each thread is interrupted at regular counts of instructions, and the block that it
executes is counted (SBBV); counters of the same thread say what it did to the others. Intervals are of a global number
of instructions of all threads, in the order of perf's clock.

What the thesis leaves open, and a sample does not say, is done so. A *block* is a line of ``CODE_BYTES`` bytes of the
code of a function (an object where the function is not known), since a sample tells an address and no block. Each
sample stands for its period. It belongs to the interval in which the period ends. The last interval is kept if at least
half of it is there. Samples of other events fall into the interval in which they were taken.

Cost: that of reading (stacks/perf_script.py), then O(samples log samples).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload.notes import Note, changes, in_order, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.stacks import perf_script
from manyscale.runner.readers.stacks.profile import CLOCKS, INSTRUCTIONS, Profile, main_event
from manyscale.sampling.population import IntervalPopulation
from manyscale.sampling.vectors import Vectors

CODE_BYTES: Final = 64
# perf's names of events that count what ``plan`` knows by another name: generic ones, and those of x86 cores for loads
# that found a line modified in another core
_MISSES: Final = ("LLC-load-misses", "LLC-misses", "cache-misses", "longest_lat_cache.miss", "mem_load_retired.l3_miss")
_HITM: Final = (
    "mem_load_l3_hit_retired.xsnp_hitm", "mem_load_uops_l3_hit_retired.xsnp_hitm", "mem_load_l3_hit_retired.xsnp_fwd",
)  # fmt: skip


@dataclass(frozen=True)
class SampledIntervals:
    """``population``: of ``interval`` counts of ``event`` of all threads (``threads``: their names), vectors in columns
    of thread x ``num_blocks`` + block."""

    name: str
    interval: int
    event: str
    threads: Sequence[str]
    num_samples: int
    num_blocks: int
    population: IntervalPopulation
    notes: Sequence[Note]

    @property
    def title(self) -> str:
        return f"intervals of {self.name} by samples of {self.event}"

    def summary(self) -> str:
        """A line to read."""
        unit = "instructions" if self.event == INSTRUCTIONS else f"counts of {self.event}"
        beside = ", ".join(sorted(self.population.counters)) or "no counters"
        return (
            f"{self.name}: {len(self.population)} intervals of {self.interval:,} {unit} of {len(self.threads)} "
            f"threads, from {self.num_samples:,} samples of {self.num_blocks} blocks; beside them: {beside}"
        )


def is_sampled(path: str) -> bool:
    """Whether a file has what ``perf script`` prints."""
    return Path(path).is_file() and perf_script.can_read(Path(path))


def sampled_intervals(trace: str, interval: int) -> SampledIntervals:
    """Of intervals of ``interval`` instructions of all threads (counts of the main event, where instructions were not
    sampled). Raises UserError for text that perf does not print, samples without times and periods, and intervals
    that are shorter than what a sample stands for, or longer than the run."""
    path = Path(trace)
    if interval < 1:
        raise UserError(f"--interval {interval}: at least one instruction is needed")
    profile = Profile()
    perf_script.collect(path, profile, 0, code_bytes=CODE_BYTES)
    rows = profile.columns()
    if not len(rows["event"]):
        raise UserError(f"{trace}: has no samples")
    if not profile.has_common_clock:
        raise UserError(f"{trace}: samples have no times, which order the threads; print with 'perf script -F +time'")
    event = main_event(list(profile.events))
    if event == "samples":
        raise UserError(f"{trace}: samples do not say what they stand for; print with 'perf script -F +period,event'")
    order = np.argsort(rows["time_ns"], kind="stable")
    rows = {name: values[order] for name, values in rows.items()}
    is_main = rows["event"] == profile.events[event]
    main = {name: values[is_main] for name, values in rows.items()}
    longest = int(main["count"].max())
    if interval < longest:
        raise UserError(
            f"--interval {interval}: a sample stands for up to {longest:,} counts of {event}; make intervals longer, "
            "or sample more often (perf record -c)"
        )
    place = (np.cumsum(main["count"]) - 1) // interval
    total = int(main["count"].sum())
    number = total // interval + (2 * (total % interval) >= interval)
    if number < 2:
        raise UserError(f"--interval {interval}: the run has {total:,} counts of {event}; make intervals shorter")
    last = np.searchsorted(place, np.arange(number), "right") - 1  # sample with which each interval ends
    threads, of_thread = np.unique(main["thread"], return_inverse=True)
    stacks = list(profile.stacks)
    innermost = np.array([stack[-1] for stack in stacks], np.int64)
    codes, block = np.unique(innermost[main["stack"]], return_inverse=True)
    kept = place < number
    instructions = _sums(place[kept], of_thread[kept], main["count"][kept], number, len(threads))
    others = {name: code for name, code in profile.events.items() if name != event}
    counters, notes = _counters(others, rows, main["time_ns"][last], threads, number)
    vectors = _vectors(place[kept], of_thread[kept] * len(codes) + block[kept], main["count"][kept], number)
    population = IntervalPopulation(
        np.arange(number), instructions.sum(axis=1), vectors, len(threads),
        {name: values.sum(axis=1) for name, values in counters.items()}, instructions, counters,
    )  # fmt: skip
    notes = [*profile.notes, *notes]
    if event != INSTRUCTIONS:
        what = "ns of CPU time" if event in CLOCKS else f"counts of {event}"
        text = f"instructions were not sampled: intervals are of {interval:,} {what}, which stand in their place"
        notes.append(changes("intervals-of-other-counts", text, event))
    text = f"blocks are lines of {CODE_BYTES} bytes of code: samples tell addresses, and no basic blocks"
    notes.append(informs("blocks-by-address", text, path.name))
    names = [profile.names[0, thread] for thread in threads.tolist()]
    name = path.name.split(".")[0]
    return SampledIntervals(name, interval, event, names, len(main["count"]), len(codes), population, in_order(notes))


def _sums(place: np.ndarray, of_thread: np.ndarray, count: np.ndarray, number: int, threads: int) -> np.ndarray:
    """float64[number, threads]."""
    return np.bincount(place * threads + of_thread, count, number * threads).reshape(number, threads)


def _vectors(place: np.ndarray, column: np.ndarray, count: np.ndarray, number: int) -> Vectors:
    """Of each interval the counts of its columns, ascending."""
    width = int(column.max(initial=0)) + 1
    found, at = np.unique(place * width + column, return_inverse=True)
    row, columns = np.divmod(found, width)
    return Vectors(np.searchsorted(row, np.arange(number + 1)), columns, np.bincount(at, count, len(found)))


def _counters(
    events: dict[str, int], rows: dict[str, np.ndarray], end_ns: np.ndarray, threads: np.ndarray, number: int
) -> tuple[dict[str, np.ndarray], list[Note]]:
    """float64[number, threads] by name, of ``events``; ``end_ns`` of each interval."""
    found: dict[str, np.ndarray] = {}
    notes: list[Note] = []
    place = np.searchsorted(end_ns, rows["time_ns"], "left")
    thread = np.minimum(np.searchsorted(threads, rows["thread"]), len(threads) - 1)
    is_known = (place < number) & (threads[thread] == rows["thread"])
    for name, code in events.items():
        mine = is_known & (rows["event"] == code)
        column = _column(name)
        if column in found:  # the first one has the name that ``plan`` knows
            column = name
        found[column] = _sums(place[mine], thread[mine], rows["count"][mine], number, len(threads))
        if name in _HITM:
            text = (
                f"{name} counts which thread asked for lines that others had modified, and stands for how often each "
                "answered"
            )
            notes.append(changes("askers-for-answers", text, name))
    return found, notes


def _column(event: str) -> str:
    """The name by which ``plan`` knows what an event counts."""
    if event in _MISSES:
        return "llc_misses"
    return "coherence_answers" if event in _HITM else event.replace("-", "_")
