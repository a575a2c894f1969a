"""Copies of a trace that tells launches alone: Accel-Sim's lists have the bytes of each copy to the GPU and its place
among the launches, and nothing of the host. Each is taken to be synchronous, from pageable memory, as programs copy
that name no stream: the launches behind it wait for it, and it waits for those before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.gpu.device.program import ENGINES
from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Note, changes
from manyscale.runner.predict.statistic import Statistic

_G = GpuOperationKind


def copy_statistics(size: np.ndarray, took_ps: np.ndarray) -> dict[str, Statistic]:
    """Of all copies of a run: bytes and picoseconds, int64[n]."""
    seconds = int(took_ps.sum()) / 1e12
    return {
        "gpu.copies": Statistic(len(size), "1", "count", "copies to, from and between GPUs"),
        "gpu.copied_bytes": Statistic(int(size.sum()), "B", "total", "bytes of these"),
        "gpu.copy_time": Statistic(seconds, "s", "total", "time of copies, summed over them"),
    }


def notes_of(copies: int) -> list[Note]:
    """Of so many copies of a trace that tells launches alone."""
    if not copies:
        return []
    text = (
        "the trace tells copies to the GPU, and neither those back nor what the host does: launches wait for the "
        "copies before them, which take what node.gpu.host_link makes of them from pageable memory, and change no "
        "cache"
    )
    return [changes("copies-in-turn", text, count=copies)]


@dataclass(frozen=True)
class Copies:
    """``launch`` int64[n]: row of the launch behind each, or number of its execution, ascending; ``bytes`` and
    ``took_ps`` int64[n]."""

    launch: np.ndarray
    bytes: np.ndarray
    took_ps: np.ndarray

    def __len__(self) -> int:
        return len(self.launch)

    def of(self, launch: np.ndarray) -> Copies:
        """Those before each execution of launches, of which ``launch`` int64[executions] are the rows."""
        first, end = (np.searchsorted(self.launch, launch, side) for side in ("left", "right"))
        count = end - first
        execution = np.repeat(np.arange(len(launch)), count)
        own = np.arange(len(execution)) + np.repeat(first - (np.cumsum(count) - count), count)
        return Copies(execution, self.bytes[own], self.took_ps[own])

    def before(self, count: int) -> np.ndarray:
        """int64[count]: picoseconds of those before each launch, or execution."""
        found = np.zeros(count, np.int64)
        np.add.at(found, self.launch, self.took_ps)
        return found

    def notes(self) -> list[Note]:
        return notes_of(len(self))

    def statistics(self) -> dict[str, Statistic]:
        """As a replay of streams has them."""
        if not len(self):
            return {}
        return copy_statistics(self.bytes, self.took_ps)

    def given(self, workload: Workload, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """(rows of launches, -1 of copies; arrays of a replay's result): copies and launches, which last from ``start``
        to ``end`` (int64[launches])."""
        count, number = len(start), len(self)
        until = np.cumsum(self.took_ps)
        of_launch = np.append(0, until)[np.searchsorted(self.launch, self.launch, "right")]  # behind all of its launch
        copied = start[self.launch] - (of_launch - until)
        begins = np.concatenate((start, copied - self.took_ps))
        arrays = {
            "given_start_ps": begins,
            "given_given_ps": begins,
            "given_end_ps": np.concatenate((end, copied)),
            "given_kind": np.repeat((int(_G.launch), int(_G.copy_to_device)), (count, number)),
            "given_engine": np.repeat((0, ENGINES.index("copies to the GPU")), (count, number)),
            "given_gpu": np.zeros(count + number, np.int64),
            "given_rank": np.zeros(count + number, np.int64),
            "given_stream": np.append(
                workload.column("launches", "stream").astype(np.int64), np.zeros(number, np.int64)
            ),
            "given_bytes": np.append(np.zeros(count, np.int64), self.bytes),
        }
        return np.append(np.arange(count), np.full(number, -1)), arrays


def copies_before(launches: Workload) -> tuple[np.ndarray, np.ndarray]:
    """int64[n]: the row of the launch behind each copy, ascending, and its bytes; those behind all launches are left
    out."""
    known = launches.column("launches", "launch_id")
    before, size = (launches.column("copies", name).astype(np.int64) for name in ("before_launch_id", "bytes"))
    mine = np.isin(before, known)
    row = np.searchsorted(known, before[mine])
    order = np.argsort(row, kind="stable")
    return row[order], size[mine][order]


def copies_of(launches: Workload, gpu: Gpu) -> Copies:
    """Those before launches of the table; none where nothing tells how fast they are."""
    row, size = copies_before(launches)
    if gpu.host_link is None:
        return Copies(row[:0], size[:0], size[:0])
    return Copies(row, size, gpu.host_link.copy_ps(size, is_pageable=True))
