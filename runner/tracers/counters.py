"""Counters that the tracer reads of a thread: what a user may ask for, and what Linux calls it (perf_event_open(2)).

A group is counted together. Names are PAPI's where PAPI's preset means exactly what Linux counts, else those of Linux's
``perf``; a raw event of the processor is ``rHEX``, as ``perf`` has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from manyscale.runner.errors import UserError

_HARDWARE, _SOFTWARE, _CACHE, _RAW = 0, 1, 3, 4  # enum perf_type_id
_READ_MISSES: Final = 1 << 16  # of a cache: enum perf_hw_cache_op_id read, perf_hw_cache_op_result_id miss
MOST: Final = 8  # trace.h


@dataclass(frozen=True)
class Counter:
    """``type`` and ``config`` of the kernel's interface; ``with_kernel``: it happens inside the kernel, and needs its
    leave to be counted there."""

    type: int
    config: int
    with_kernel: bool = False


COUNTERS: Final = {
    "PAPI_TOT_INS": Counter(_HARDWARE, 1),
    "PAPI_TOT_CYC": Counter(_HARDWARE, 0),
    "PAPI_BR_INS": Counter(_HARDWARE, 4),
    "PAPI_BR_MSP": Counter(_HARDWARE, 5),
    "PAPI_REF_CYC": Counter(_HARDWARE, 9),
    "PAPI_L1_LDM": Counter(_CACHE, 0 | _READ_MISSES),
    "cache-references": Counter(_HARDWARE, 2),
    "cache-misses": Counter(_HARDWARE, 3),
    "LLC-load-misses": Counter(_CACHE, 2 | _READ_MISSES),
    "dTLB-load-misses": Counter(_CACHE, 3 | _READ_MISSES),
    "task-clock": Counter(_SOFTWARE, 1),
    "page-faults": Counter(_SOFTWARE, 2),
    "context-switches": Counter(_SOFTWARE, 3, with_kernel=True),
    "cpu-migrations": Counter(_SOFTWARE, 4, with_kernel=True),
    "minor-faults": Counter(_SOFTWARE, 5),
    "major-faults": Counter(_SOFTWARE, 6),
}
ALIASES: Final = {
    "instructions": "PAPI_TOT_INS", "cycles": "PAPI_TOT_CYC", "branches": "PAPI_BR_INS",
    "branch-misses": "PAPI_BR_MSP", "ref-cycles": "PAPI_REF_CYC", "L1-dcache-load-misses": "PAPI_L1_LDM",
    "faults": "page-faults", "migrations": "cpu-migrations", "cs": "context-switches",
}  # fmt: skip
GROUPS: Final = {
    # two that have hardware of their own on most processors, and three: no more than the others hold together
    "hardware": ("PAPI_TOT_INS", "PAPI_TOT_CYC", "PAPI_L1_LDM", "cache-misses", "PAPI_BR_MSP"),
    "software": ("task-clock", "page-faults", "context-switches", "cpu-migrations"),
}
DEFAULT: Final = ("PAPI_TOT_INS", "PAPI_TOT_CYC")  # read at MPI calls whether asked for or not


def chosen(text: str) -> tuple[str, ...]:
    """Names of a group, or of a list with commas, aliases resolved. Raises UserError for one that is unknown."""
    if text in GROUPS:
        return GROUPS[text]
    names = []
    for word in text.split(","):
        name = ALIASES.get(word, word)
        if name not in COUNTERS and not re.fullmatch(r"r[0-9a-fA-F]{1,16}", name):
            known = ", ".join([*GROUPS, *COUNTERS, *ALIASES])
            raise UserError(f"--counters {word!r}: is no counter; known are {known}, and rHEX, a raw event")
        names.append(name)
    if len(set(names)) < len(names) or len(names) > MOST:
        raise UserError(f"--counters {text}: name each counter once, and {MOST} at most")
    return tuple(names)


def environment(names: tuple[str, ...] | None, *, at_events: bool) -> dict[str, str]:
    """Variables of the tracer (``native/counters.c``). None: nothing was asked for."""
    listed = ",".join(_word(name) for name in (DEFAULT if names is None else names))
    variables = {"MANYSCALE_TRACE_COUNTERS": listed}
    if names is not None:
        variables["MANYSCALE_TRACE_COUNTERS_AT"] = "events" if at_events else "calls"
    return variables


def _word(name: str) -> str:
    counter = COUNTERS[name] if name in COUNTERS else Counter(_RAW, int(name[1:], 16))
    return f"{name}={counter.type:x}:{counter.config:x}:{int(counter.with_kernel):x}"
