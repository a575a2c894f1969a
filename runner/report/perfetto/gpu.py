"""Kernel launches and their thread blocks as tracks of the Chrome trace.

A process with a track per rank that launches kernels, a complete event per launch, its name the kernel; where streams
were replayed, instead one with a track for each stream and each copy engine of a GPU, and their copies, too; and a
process of SMs with as many tracks for each as blocks are resident at once, a complete event per block (of the first
MAX_BLOCKS).
"""

from __future__ import annotations

import gzip
import json
from typing import Any, Final

import numpy as np

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.kernel_names import function_name
from manyscale.runner.report.gpu_blocks import timed_blocks
from manyscale.runner.report.gpu_tracks import GpuTracks, gpu_tracks
from manyscale.runner.report.text_columns import batches, contents, integers, join, microseconds, picked
from manyscale.runner.run.results import Result

LAUNCHES: Final = 5  # processes; those before are the application, its critical path and its links
BLOCKS: Final = 6


def write_launches(file: gzip.GzipFile, result: Result) -> list[str]:
    """Write the events and the names of the tracks, and say what is left out. Nothing where no kernel was launched."""
    tracks = gpu_tracks(result)
    if tracks is not None:
        return _write_streams(file, result, tracks)
    launches = result.launches
    if launches is None or not launches.num_rows:
        return []
    rank, start, end, cycles, launch = (
        to_numpy(launches.column(name)) for name in ("rank", "start_ps", "end_ps", "cycles", "launch_id")
    )
    kernels = launches.column("kernel").to_pylist()
    names = list(dict.fromkeys(kernels))
    number = {name: index for index, name in enumerate(names)}
    kernel = np.array([number[name] for name in kernels])
    known, track = np.unique(rank, return_inverse=True)
    head = [f'{{"ph":"X","pid":{LAUNCHES},"tid":{each + 1},"ts":' for each in known.tolist()]
    called = [f',"name":{json.dumps(function_name(name))},"args":{{"launch_id":' for name in names]
    for batch in batches(len(rank)):
        text = join(
            picked(head, track[batch]), microseconds(start[batch]),
            ',"dur":', microseconds(end[batch] - start[batch]),
            picked(called, kernel[batch]), integers(launch[batch]), ',"cycles":', integers(cycles[batch]), "}},\n",
        )  # fmt: skip
        file.write(contents(text))
    events = [*_process(LAUNCHES, "kernel launches")]
    for each in known.tolist():
        events += _track(LAUNCHES, each + 1, f"rank {each}", each)
    notes = _write_blocks(file, result, events)
    file.write("".join(json.dumps(event, separators=(",", ":")) + ",\n" for event in events).encode())
    return notes


def _write_streams(file: gzip.GzipFile, result: Result, tracks: GpuTracks) -> list[str]:
    head = [f'{{"ph":"X","pid":{LAUNCHES},"tid":{each + 1},"ts":' for each in range(len(tracks.names))]
    called = [f',"name":{json.dumps(function_name(name))},"args":{{"launch_id":' for name in tracks.labels]
    for batch in batches(len(tracks.track)):
        start, end = tracks.start_ps[batch], tracks.end_ps[batch]
        text = join(
            picked(head, tracks.track[batch]), microseconds(start), ',"dur":', microseconds(end - start),
            picked(called, tracks.label[batch]), integers(tracks.launch_id[batch]),
            ',"bytes":', integers(tracks.bytes[batch]), "}},\n",
        )  # fmt: skip
        file.write(contents(text))
    events = [*_process(LAUNCHES, "GPU streams and copy engines")]
    for number, name in enumerate(tracks.names):
        events += _track(LAUNCHES, number + 1, name, number)
    notes = _write_blocks(file, result, events)
    file.write("".join(json.dumps(event, separators=(",", ":")) + ",\n" for event in events).encode())
    return notes


def _write_blocks(file: gzip.GzipFile, result: Result, events: list[dict[str, Any]]) -> list[str]:
    blocks = timed_blocks(result)
    if blocks is None:
        return []
    width = int(blocks.lane.max()) + 1
    known, track = np.unique(blocks.sm * width + blocks.lane, return_inverse=True)
    head = [f'{{"ph":"X","pid":{BLOCKS},"tid":{each + 1},"ts":' for each in range(len(known))]
    for batch in batches(len(track)):
        text = join(
            picked(head, track[batch]), microseconds(blocks.start_ps[batch]),
            ',"dur":', microseconds(blocks.end_ps[batch] - blocks.start_ps[batch]),
            ',"name":"block","args":{"launch_id":', integers(blocks.launch[batch]),
            ',"block":', integers(blocks.block[batch]), "}},\n",
        )  # fmt: skip
        file.write(contents(text))
    events += _process(BLOCKS, "SMs")
    for index, place in enumerate(known.tolist()):
        events += _track(BLOCKS, index + 1, f"SM {place // width}", index)
    return [f"thread blocks of the first launches; {blocks.left_out:,} more"] if blocks.left_out else []


def _process(process: int, name: str) -> list[dict[str, Any]]:
    common = {"ph": "M", "pid": process, "tid": 1}
    return [
        {**common, "name": "process_name", "args": {"name": name}},
        {**common, "name": "process_sort_index", "args": {"sort_index": process}},
    ]


def _track(process: int, thread: int, name: str, order: int) -> list[dict[str, Any]]:
    return [
        {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": name}},
        {"ph": "M", "pid": process, "tid": thread, "name": "thread_sort_index", "args": {"sort_index": order}},
    ]
