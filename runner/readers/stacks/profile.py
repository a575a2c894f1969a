"""Call stacks while a reader finds them, whatever their format: what becomes a workload's tables."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from manyscale.runner.readers.stacks.units import NO_CPU

if TYPE_CHECKING:
    from manyscale.models.workload.notes import Note

SAMPLES: Final = "samples"  # the event of a profile that says nothing of what it counts
CPU_TIME: Final = "cpu-time"
CLOCKS: Final = ("cpu-clock", "task-clock", CPU_TIME)  # events that count ns of CPU time
INSTRUCTIONS: Final = "instructions"
UNIT_LENGTH: Final = "instrs"  # counter of units that a profile cut itself, which says how long they are
UNKNOWN: Final = "[unknown]"  # the frame of a stack that could not be walked
_COLUMNS: Final = ("rank", "thread", "cpu", "time_ns", "event", "count", "stack", "weight")


@dataclass(frozen=True)
class TaskCounts:
    """What a runtime system measured of its tasks: intervals of threads, by name, and values (one row per counter)."""

    thread_names: tuple[str, ...]
    start_ns: np.ndarray
    end_ns: np.ndarray
    counters: tuple[str, ...]
    values: np.ndarray  # float64[num_counters, num_tasks]


@dataclass
class Profile:
    """Samples while they are read. A row: of which thread, on which core, when, which event, how much of it the sample
    stands for, the stack (from the outermost frame), and how many snapshots the row stands for.

    ``has_common_clock``: whether times of different threads can be compared; without, threads are not merged.
    ``has_order``: whether the rows of a thread are in the order of time; without, a thread is one unit. ``num_idle``:
    snapshots of waiting threads that the reader left out. ``scale``: how many counts and snapshots of the rows are one
    of the profile's, which has fractions of them. ``on_cpu``: numbers of the rows whose threads ran for certain.
    """

    has_common_clock: bool = True
    has_order: bool = True
    num_idle: int = 0
    scale: int = 1
    notes: list[Note] = field(default_factory=list)
    on_cpu: list[int] = field(default_factory=list)
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    tasks: TaskCounts | None = None
    frames: dict[str, int] = field(default_factory=dict)
    stacks: dict[tuple[int, ...], int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    rows: dict[str, array[int]] = field(default_factory=lambda: {name: array("q") for name in _COLUMNS})

    def frame(self, name: str) -> int:
        return self.frames.setdefault(name, len(self.frames))

    def stack(self, frames: Iterable[int]) -> int:
        return self.stacks.setdefault(tuple(frames), len(self.stacks))

    def event(self, name: str) -> int:
        return self.events.setdefault(name, len(self.events))

    def add(
        self,
        rank: int,
        thread: int,
        time_ns: int,
        stack: int,
        *,
        cpu: int = NO_CPU,
        event: int = 0,
        count: int = 1,
        weight: int = 1,
    ) -> None:
        """Append one sample; ``event`` is what ``self.event`` returned, ``count`` of the whole row. Numbers of a file
        must have been held to 63 bits (``bounds``)."""
        for column, value in zip(
            self.rows.values(), (rank, thread, cpu, time_ns, event, count, stack, weight), strict=True
        ):
            column.append(value)

    def columns(self) -> dict[str, np.ndarray]:
        """The rows as int64 arrays."""
        return {name: np.array(values, np.int64) for name, values in self.rows.items()}


def main_event(events: Sequence[str]) -> str:
    """The event whose samples are the snapshots: instructions, as SimProf has it, else CPU time, else the first."""
    for wanted in (INSTRUCTIONS, *CLOCKS, "cycles"):
        if wanted in events:
            return wanted
    return events[0]
