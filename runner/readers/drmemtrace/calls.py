"""System calls of a thread, as markers of its trace tell them: where its instructions stood, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from manyscale.runner.readers.drmemtrace import files

FUTEX: Final = {False: 202, True: 98}  # of x86-64, of AArch64
CLONES: Final = {False: (56, 435), True: (220, 435)}  # clone, clone3
NEVER: Final = 1 << 62
_OF_CALLS: Final = 1 << 32  # TRACE_FUNC_ID_SYSCALL_BASE
_BEFORE_POST_TIMES: Final = 6  # version from which a time stands before a system call, and one behind it
_TOLD: Final = (
    files.TIMESTAMP, files.FUNCTION, files.ARGUMENT, files.RETURNED, files.SYSCALL, files.MAY_BLOCK, files.FAILED,
    files.SWITCH_TO, files.UNSCHEDULE, files.SCHEDULE,
)  # fmt: skip


@dataclass
class Call:
    """A system call. ``at``: instructions of the thread up to it; ``times``: the last before it, and the two next
    (microseconds, -1 where there are none); ``values``: arguments, of a futex; ``returned``: None where not recorded;
    ``target``: a thread that it lets go on, ``switches``: whether its own thread goes to sleep by it."""

    number: int
    at: int
    times: list[int]
    may_block: bool = False
    values: list[int] = field(default_factory=list)
    returned: int | None = None
    has_failed: bool = False
    target: int = -1
    switches: bool = False

    def begins(self, version: int) -> int:
        """When its thread came to it. Older traces have no time before it, and the first behind it is that."""
        return _known(self.times[1 if version < _BEFORE_POST_TIMES and len(self.times) > 1 else 0 : 2])

    def ends(self, version: int) -> int:
        """When its thread went on; NEVER where the trace does not say."""
        at = 2 if version < _BEFORE_POST_TIMES else 1
        return self.times[at] if len(self.times) > at else NEVER


def _known(times: list[int]) -> int:
    return next((time for time in times if time >= 0), 0)


@dataclass
class Calls:
    """What the markers of one thread say, its records taken in order."""

    made: list[Call] = field(default_factory=list)
    first_us: int = -1
    last_us: int = -1
    num_instructions: int = 0
    num_of_kernel: int = 0  # instructions of them that are the kernel's
    num_windows: int = 0
    num_others: int = 0  # markers without a meaning here, the user's own
    _in_kernel: bool = False
    _window: int = -1
    _function: int = -1

    def see(self, records: np.ndarray, is_instruction: np.ndarray) -> np.ndarray:
        """int64[]: rows of ``records`` that are system calls. ``is_instruction``: bool[] of them. O(records), and a
        step of Python for each marker of a call or a time."""
        before = np.cumsum(is_instruction) + self.num_instructions
        is_marker = records["type"] == files.MARKER
        rows = np.flatnonzero(is_marker)
        kinds = records["size"][rows]
        self.num_others += int(np.count_nonzero(kinds > files.LAST_KNOWN))
        self._count_kernel(rows, kinds, is_instruction)
        told = np.isin(kinds, (*_TOLD, files.WINDOW))
        rows, kinds = rows[told], kinds[told]
        for kind, at, value in zip(kinds.tolist(), before[rows].tolist(), records["value"][rows].tolist(), strict=True):
            self._take(kind, at, value)
        self.num_instructions += int(np.count_nonzero(is_instruction))
        found: np.ndarray = rows[kinds == files.SYSCALL]
        return found

    def _count_kernel(self, rows: np.ndarray, kinds: np.ndarray, is_instruction: np.ndarray) -> None:
        marks = np.isin(kinds, (*files.KERNEL_BEGINS, *files.KERNEL_ENDS))
        inside = [self._in_kernel, *np.isin(kinds[marks], files.KERNEL_BEGINS).tolist()]
        lengths = np.diff([0, *rows[marks].tolist(), len(is_instruction)])
        self.num_of_kernel += int(np.count_nonzero(is_instruction & np.repeat(inside, lengths)))
        self._in_kernel = inside[-1]

    def _take(self, kind: int, at: int, value: int) -> None:
        last = self.made[-1] if self.made else None
        if kind == files.TIMESTAMP:
            self.first_us = value if self.first_us < 0 else self.first_us
            if last is not None and len(last.times) < 3:
                last.times.append(value)
            self.last_us = value
        elif kind == files.SYSCALL:
            self.made.append(Call(value, at, [self.last_us]))
        elif kind == files.WINDOW:
            self.num_windows += int(self._window >= 0 and value != self._window)
            self._window = value
        elif kind == files.FUNCTION:
            self._function = value
        elif last is None:  # of a call before the trace began
            return
        elif kind == files.MAY_BLOCK:
            last.may_block = True
        elif kind in (files.SWITCH_TO, files.SCHEDULE):
            last.target, last.switches = value, kind == files.SWITCH_TO
        elif kind == files.UNSCHEDULE:
            last.switches = True
        elif self._function == _OF_CALLS + last.number:
            if kind == files.ARGUMENT and last.returned is None:
                last.values.append(value)
            elif kind == files.RETURNED:
                last.returned = value - (1 << 64) if value >> 63 else value
            elif kind == files.FAILED:
                last.has_failed = True
