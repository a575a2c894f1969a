"""What a user may say about a trace that its format leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class ReadOptions:
    """``flop_rate``: speed behind a trace's flop counts, flop/s. ``time_unit_ps``: what a unit of time without a name
    means (GOAL). ``application``: which application of a trace with several is read, from 1 (Paraver). ``launches``:
    which launches of a GPU's trace are read, numbers from 1; none: all. ``threads``, ``idle``: regular expressions of
    the names of threads that are kept, and of methods in which a thread waits (profiles of call stacks). ``time``:
    which clock says how long a program computed (DUMPI: auto, cpu or wall). ``unequal_collectives``: what becomes of
    collectives that only some ranks call, in a format without communicators (simgrid-ti: infer, group or local).
    ``ranks``: how many there are, where a trace does not say it (simai); 0: not given.
    ``missing_ranks``: whether ranks of a job that were not traced are left out, and the others numbered anew (drop), or
    are there without operations (keep; kineto)."""

    flop_rate: float = 1e9
    time_unit_ps: int = 1000
    application: int = 1
    launches: tuple[int, ...] = ()
    threads: str = ""
    idle: str = ""
    time: str = "auto"
    unequal_collectives: str = "infer"
    ranks: int = 0
    missing_ranks: str = "drop"


DEFAULT_OPTIONS: Final = ReadOptions()
