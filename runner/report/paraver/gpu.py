"""Kernel launches and SMs as a Paraver trace of its own: ``gpu.prv``, ``gpu.pcf`` and ``gpu.row``.

One application and one task, a thread for the launches of each rank (where streams were replayed, one for each stream
and each copy engine of a GPU, with its copies), and one for each SM: a state Running while a
launch is under way or an SM holds blocks; an event KERNEL with the number of the kernel at the begin of a launch and 0
at its end; an event RESIDENT with the number of blocks on an SM whenever that changes. Blocks are those of the first
MAX_BLOCKS (report/gpu_blocks.py). Times are nanoseconds, rounded to nearest; the trace ends with the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.readers.paraver.labels import STATES
from manyscale.runner.report.gpu_blocks import TimedBlocks, timed_blocks
from manyscale.runner.report.gpu_tracks import GpuTracks, gpu_tracks
from manyscale.runner.report.paraver.files import opened_prv
from manyscale.runner.report.paraver.hierarchy import DATE
from manyscale.runner.report.paraver.records import Records, nanoseconds, states, write_sorted
from manyscale.runner.report.text_columns import integers, join, picked
from manyscale.runner.run.results import Result

KERNEL: Final = 63900000  # types of our own
RESIDENT: Final = 63900001
_RUNNING: Final = 1


def write(result: Result, directory: Path) -> None:
    """Write the three files; nothing where no kernel was launched. Equal results give equal bytes."""
    launches = result.launches
    if launches is None or not launches.num_rows:
        return
    tracks = gpu_tracks(result) or _of_ranks(launches)
    blocks = timed_blocks(result)
    num_sms = 0 if blocks is None else int(blocks.sm.max()) + 1
    threads = len(tracks.names) + num_sms
    who = [f"{number + 1}:1:1:{number + 1}:" for number in range(threads)]
    begin, end = nanoseconds(tracks.start_ps), nanoseconds(tracks.end_ps)
    row, code = tracks.track, tracks.label + 1
    keep = begin < end
    place, begin, end, code = row[keep], begin[keep], end[keep], code[keep]
    records = [
        states(who, place, begin, end, np.full(len(place), _RUNNING)),
        _events(who, np.tile(place, 2), np.concatenate((end, begin)), KERNEL, np.concatenate((0 * code, code))),
    ]
    if blocks is not None:
        records += _of_blocks(who, blocks, len(tracks.names))
    last = max(int(end.max(initial=0)), int(nanoseconds(to_numpy(result.ranks.column("end_ps"))).max(initial=0)))
    with opened_prv(directory / "gpu.prv") as file:
        file.write(f"#Paraver ({DATE}):{last}_ns:1({threads}):1:1({threads}:1)\n".encode())
        write_sorted(file, records)
    (directory / "gpu.pcf").write_text(_configuration(tracks.labels), encoding="utf-8", errors="backslashreplace")
    labels = tracks.names + [f"SM {each}" for each in range(num_sms)]
    text = "".join(f"{label}\n" for label in labels)
    levels = (f"LEVEL CPU SIZE {threads}\n{text}", "LEVEL NODE SIZE 1\nGPU\n", f"LEVEL THREAD SIZE {threads}\n{text}")
    (directory / "gpu.row").write_text("\n".join(levels), encoding="utf-8", errors="backslashreplace")


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


def _configuration(kernels: list[str]) -> str:
    lines = ["DEFAULT_OPTIONS", "", "LEVEL THREAD", "UNITS NANOSEC", "", "STATES"]
    lines += [f"{number}    {name}" for number, name, _ in STATES]
    lines += ["", "STATES_COLOR"]
    lines += [f"{number}    {{{','.join(map(str, colour))}}}" for number, _, colour in STATES]
    lines += ["", "EVENT_TYPE", f"0    {KERNEL}    Kernel", "VALUES", "0    End"]
    lines += [f"{number}    {' '.join(name.split())}" for number, name in enumerate(kernels, start=1)]
    lines += ["", "EVENT_TYPE", f"0    {RESIDENT}    Resident thread blocks"]
    return "\n".join(lines) + "\n"
