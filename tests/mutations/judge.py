"""Whether malformed inputs are read, or refused in one line: each in a process with limits of memory and time."""

from __future__ import annotations

import json
import os
import resource
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from manyscale.models.workload import WorkloadError
from manyscale.runner.errors import RunError, UserError

MOST_CPU_S: Final = 10
MOST_BYTES: Final = 2 << 30
_LONGEST: Final = 1000  # characters of a message
RIGHT: Final = -1  # the number of the right input, which is tried first


@dataclass
class Verdict:
    """How many inputs were read and refused; ``findings``: what was wrong with others, by their number."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[int, str] = field(default_factory=dict)
    peak_bytes: int = 0
    slowest_s: float = 0.0


def judge(attempt: Callable[[int], None], first: int, end: int) -> Verdict:
    """Try the inputs ``first`` to ``end`` - 1, each by ``attempt(number)``; the right one, -1, goes before them, so
    that kernels are loaded and nothing else is measured."""
    verdict = Verdict()
    while first < end:
        first = _batch(attempt, first, end, verdict)
    return verdict


def _batch(attempt: Callable[[int], None], first: int, end: int, verdict: Verdict) -> int:
    """Try inputs in one process until it ends; returns the number of the next one to try."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_child(attempt, first, end, writing))
    os.close(writing)
    running = RIGHT
    with os.fdopen(reading, "r") as answers:
        for line in answers:
            number, *outcome = json.loads(line)
            running = number
            if outcome:
                kind, what, seconds = outcome
                verdict.slowest_s = max(verdict.slowest_s, seconds)
                running = number + 1
                if number >= 0:
                    verdict.counts[kind] += 1
                if kind == "wrong":
                    verdict.findings[number] = what
    _, status, usage = os.wait4(child, 0)
    verdict.peak_bytes = max(verdict.peak_bytes, usage.ru_maxrss * 1024)
    if status == 0:
        return end
    name = (
        signal.Signals(os.WTERMSIG(status)).name
        if os.WIFSIGNALED(status)
        else f"exit {os.waitstatus_to_exitcode(status)}"
    )
    verdict.counts["wrong"] += 1
    verdict.findings[running] = f"the process ended by {name}"
    return max(running, first - 1) + 1 if running >= 0 else end


def _child(attempt: Callable[[int], None], first: int, end: int, writing: int) -> int:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    for number in (RIGHT, *range(first, end)):
        os.write(writing, json.dumps([number]).encode() + b"\n")
        used = _cpu_s()
        if number >= 0:
            limit = int(used) + MOST_CPU_S + 1
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        kind, what = _outcome(attempt, number)
        if number == RIGHT:
            held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (held + MOST_BYTES, resource.RLIM_INFINITY))
        os.write(writing, json.dumps([number, kind, what, _cpu_s() - used]).encode() + b"\n")
    return 0


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _outcome(attempt: Callable[[int], None], number: int) -> tuple[str, str]:
    try:
        attempt(number)
    except (UserError, RunError, WorkloadError) as error:
        text = str(error if isinstance(error, UserError | RunError) else UserError(error))
        if number == RIGHT:
            return "wrong", f"the right input is refused: {text}"
        if "\n" in text or len(text) > _LONGEST or not text.isprintable():
            return "wrong", f"no printable line of up to {_LONGEST} characters: {text[:300]!r}"
        return "refused", text
    except BaseException as error:
        steps = traceback.extract_tb(error.__traceback__)
        own = [each for each in steps if "/runner/" in each.filename or "/models/" in each.filename]
        place = (own or steps)[-1]
        where = f"{'/'.join(place.filename.split('/')[-3:])}:{place.lineno}"
        return "wrong", f"{type(error).__name__}: {str(error)[:200]} ({where})"
    return "read", ""
