"""Tracks of the Chrome trace that ranks and cores are on, and their names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from manyscale.runner.report.core_rows import CoreRows

FIRST_RANK: Final = 10  # process of rank 0 where cores are shown; others before are the critical path, links, launches
STATES: Final = 1  # its track of states; core c is track c + 2
MARGIN_PS: Final = 2_000  # cutting start and duration to nanoseconds moves the end of a slice by less than this


def tracks_of_ranks(num_ranks: int, *, has_cores: bool) -> list[str]:
    """The keys of each rank's states: tracks of one process, or the first of a process for each."""
    if has_cores:
        return [f'"pid":{FIRST_RANK + rank},"tid":{STATES}' for rank in range(num_ranks)]
    return [f'"pid":1,"tid":{rank + 1}' for rank in range(num_ranks)]


def track_of_core(rank: int, core: int) -> str:
    """The keys of a core's slices."""
    return f'"pid":{FIRST_RANK + rank},"tid":{STATES + 1 + core}'


def named_tracks(ranks: Iterable[int], rows: CoreRows | None, waits: tuple[np.ndarray, np.ndarray]) -> str:
    """Events with names and order of these, of the given ranks. ``waits``: rank and core of calls that cores wait
    in."""
    events: list[dict[str, Any]] = []
    if rows is None:
        events.append({"ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": {"name": "application"}})
        for rank in ranks:
            events += _track(1, rank + 1, f"rank {rank}", rank)
    else:
        for rank in ranks:
            common = {"ph": "M", "pid": FIRST_RANK + rank, "tid": STATES}
            events.append({**common, "name": "process_name", "args": {"name": f"rank {rank}"}})
            events.append({**common, "name": "process_sort_index", "args": {"sort_index": FIRST_RANK + rank}})
            events += _track(FIRST_RANK + rank, STATES, "MPI and computing", 0)
        rank_of, core_of = (np.concatenate(both) for both in zip((rows.rank, rows.core), waits, strict=True))
        width = int(core_of.max()) + 1
        for place in np.unique(rank_of * width + core_of).tolist():
            rank, core = divmod(place, width)
            events += _track(FIRST_RANK + rank, STATES + 1 + core, f"core {core}", core + 1)
    return ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)


def _track(process: int, thread: int, name: str, order: int) -> list[dict[str, Any]]:
    common = {"ph": "M", "pid": process, "tid": thread}
    return [
        {**common, "name": "thread_name", "args": {"name": name}},
        {**common, "name": "thread_sort_index", "args": {"sort_index": order}},
    ]


def inside(time: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Times moved so that a viewer, which cuts to nanoseconds, finds them in the slices from ``start`` to ``end``."""
    return np.maximum(np.minimum(time, end - MARGIN_PS), start)
