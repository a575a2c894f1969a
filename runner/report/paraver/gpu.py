"""Kernel launches and SMs in a run's Paraver trace, beside its ranks: a second application.

It has one task on a node of its own, a thread for the launches of each rank (where streams were replayed, one for each
stream and each copy engine of a GPU, with its copies), and one for each SM: a state Running while a launch is under way
or an SM holds blocks; an event KERNEL with the number of the kernel at the begin of a launch and 0 at its end; an event
RESIDENT with the number of blocks on an SM whenever that changes. Blocks are those of the first MAX_BLOCKS
(report/gpu_blocks.py). Times are nanoseconds, rounded to nearest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.report.gpu_blocks import TimedBlocks, timed_blocks
from manyscale.runner.report.gpu_tracks import GpuTracks, gpu_tracks
from manyscale.runner.report.paraver.records import Records, nanoseconds, states
from manyscale.runner.report.text_columns import integers, join, picked
from manyscale.runner.run.results import Result

KERNEL: Final = 63900000  # types of our own
RESIDENT: Final = 63900001
VIEWED: Final = {"Kernels and copies": KERNEL, "Resident thread blocks": RESIDENT}
_RUNNING: Final = 1


@dataclass(frozen=True)
class GpuPart:
    """``threads``: names of the second application's, none where no kernel was launched. ``states`` and ``events``: its
    records. ``kernels``: names by number, from 1."""

    threads: list[str]
    states: list[Records]
    events: list[Records]
    kernels: list[str]

    @property
    def values(self) -> str:
        """What the .pcf file has of it."""
        if not self.threads:
            return ""
        names = "".join(f"{number}    {' '.join(name.split())}\n" for number, name in enumerate(self.kernels, start=1))
        return (
            f"\n\nEVENT_TYPE\n0    {KERNEL}    Kernel or copy\nVALUES\n0    End\n{names}\n"
            f"EVENT_TYPE\n0    {RESIDENT}    Resident thread blocks\n"
        )


def part_of(result: Result, cpus: int) -> GpuPart:
    """``cpus``: how many CPUs ranks have, behind which these come."""
    tracks = gpu_tracks(result)
    if tracks is None:
        launches = result.launches
        if launches is None or not launches.num_rows:
            return GpuPart([], [], [], [])
        tracks = _of_ranks(launches)
    blocks = timed_blocks(result)
    num_sms = 0 if blocks is None else int(blocks.sm.max()) + 1
    names = tracks.names + [f"SM {each}" for each in range(num_sms)]
    who = [f"{cpus + number}:2:1:{number}:" for number in range(1, len(names) + 1)]
    begin, end = nanoseconds(tracks.start_ps), nanoseconds(tracks.end_ps)
    keep = begin < end
    place, begin, end, code = (each[keep] for each in (tracks.track, begin, end, tracks.label + 1))
    running = [states(who, place, begin, end, np.full(len(place), _RUNNING))]
    happens = [_events(who, np.tile(place, 2), np.concatenate((end, begin)), KERNEL, np.concatenate((0 * code, code)))]
    if blocks is not None:
        of_blocks = _of_blocks(who, blocks, len(tracks.names))
        running.append(of_blocks[0])
        happens.append(of_blocks[1])
    return GpuPart(names, running, happens, tracks.labels)


def _of_ranks(launches: pa.Table) -> GpuTracks:
    """The launches of each rank."""
    rank, start, end, launch = (
        to_numpy(launches.column(name)).astype(np.int64) for name in ("rank", "start_ps", "end_ps", "launch_id")
    )
    ranks, row = np.unique(rank, return_inverse=True)
    kernels = launches.column("kernel").to_pylist()
    labels = list(dict.fromkeys(kernels))
    number = {name: index for index, name in enumerate(labels)}
    label = np.array([number[name] for name in kernels], np.int64)
    names = [f"launches of rank {each}" for each in ranks.tolist()]
    return GpuTracks(names, labels, row, label, start, end, 0 * launch, launch)


def _of_blocks(who: list[str], blocks: TimedBlocks, first: int) -> list[Records]:
    """States and events of SMs: steps of the number of resident blocks, one of each time of an SM."""
    time = np.concatenate((nanoseconds(blocks.start_ps), nanoseconds(blocks.end_ps)))
    sm = np.tile(blocks.sm, 2)
    change = np.repeat((1, -1), len(blocks.sm))
    order = np.lexsort((time, sm))
    time, sm, resident = time[order], sm[order], np.cumsum(change[order])  # an SM's changes sum to 0
    is_last = np.append((np.diff(time) != 0) | (np.diff(sm) != 0), True)
    time, sm, resident = time[is_last], sm[is_last], resident[is_last]
    begins = np.flatnonzero((resident > 0) & (np.append(0, resident[:-1]) == 0))
    ends = np.flatnonzero((resident == 0) & (np.append(0, resident[:-1]) > 0))
    place = first + sm
    return [
        states(who, place[begins], time[begins], time[ends], np.full(len(begins), _RUNNING)),
        _events(who, place, time, RESIDENT, resident),
    ]


def _events(who: list[str], place: np.ndarray, time: np.ndarray, kind: int, value: np.ndarray) -> Records:
    prefix = [f"2:{name}" for name in who]

    def lines(rows: np.ndarray) -> pa.Array:
        return join(picked(prefix, place[rows]), integers(time[rows]), f":{kind}:", integers(value[rows]), "\n")

    return Records(time, time, lines)
