"""CPU seconds, for ratios: of calls in this process, and of commands."""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Final

import numpy as np

UNIT: Final = 12  # sorts of a million numbers in one CPU second, where the bounds were set
_SORTS: Final = 4  # that are measured


def second() -> float:
    """CPU seconds that stand for one of the machine on which the bounds were set."""
    values = np.random.default_rng(1).random(1_000_000)
    begin = time.process_time()
    for _ in range(_SORTS):
        np.sort(values, kind="stable")
    return (time.process_time() - begin) * UNIT / _SORTS


def once(function: Callable[[], object]) -> float:
    """CPU seconds of one call; whoever asks has compiled and loaded before what it takes."""
    begin = time.process_time()
    function()
    return time.process_time() - begin


def cpu_seconds(function: Callable[[], object], runs: int) -> list[float]:
    """Of each of so many calls, after one that compiles and warms up."""
    function()
    return [once(function) for _ in range(runs)]


def median_cpu(function: Callable[[], object], runs: int = 5) -> float:
    """Median CPU seconds of a call."""
    return statistics.median(cpu_seconds(function, runs))


def least_cpu(function: Callable[[], object], runs: int = 5) -> float:
    """CPU seconds of the fastest call."""
    return min(cpu_seconds(function, runs))


def cpu_of(command: list[str], **options: object) -> float:
    """CPU seconds of a command and all that it starts."""
    before = _children()
    subprocess.run(command, check=True, capture_output=True, **options)  # type: ignore[call-overload]
    return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
