"""What GPUs did, a track for each stream and each copy engine, for the traces of a run and its report."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.predict.node.tables import codes_and_names
from manyscale.runner.run.results import Result

SMS: Final = "SMs"
_OF_NO_ENGINE: Final = (SMS, "network")  # what a trace draws once, in its stream


@dataclass(frozen=True)
class Lanes:
    """``names`` of streams, or of engines; ``of_row`` int64[rows of the table gpu_streams]: the lane, -1 in none."""

    names: list[str]
    of_row: np.ndarray


def streams_of(table: pa.Table) -> Lanes:
    """By GPU, rank and number."""
    gpu, rank, stream = (to_numpy(table.column(name)).astype(np.int64) for name in ("gpu", "rank", "stream"))
    known, of_row = np.unique(np.stack((gpu, rank, stream)), axis=1, return_inverse=True)
    has_ranks = len(np.unique(rank)) > 1
    names = [
        f"GPU {g}, {f'rank {r}, ' * has_ranks}{'default stream' if s == 0 else f'stream {s}'}"
        for g, r, s in known.T.tolist()
    ]
    return Lanes(names, of_row.ravel().astype(np.int64))


def engines_of(table: pa.Table, left_out: Collection[str]) -> Lanes:
    """By GPU, without those of these names."""
    gpu = to_numpy(table.column("gpu")).astype(np.int64)
    engine, names = codes_and_names(table.column("engine"))
    is_shown = np.array([names[each] not in left_out for each in engine])
    keys = gpu * len(names) + engine
    known = np.unique(keys[is_shown])
    of_row = np.where(is_shown, np.searchsorted(known, keys), -1)
    return Lanes([f"GPU {key // len(names)}, {names[key % len(names)]}" for key in known.tolist()], of_row)


@dataclass(frozen=True)
class GpuTracks:
    """``names`` of the tracks; int64[n] per slice: ``track``, ``start_ps``, ``end_ps``, ``bytes``, ``launch_id`` and
    ``label``, place in ``labels``: kernels by their names, and other operations. A copy has a
    slice in its stream and one on its engine."""

    names: list[str]
    labels: list[str]
    track: np.ndarray
    label: np.ndarray
    start_ps: np.ndarray
    end_ps: np.ndarray
    bytes: np.ndarray
    launch_id: np.ndarray


def gpu_tracks(result: Result) -> GpuTracks | None:
    """None where no streams were replayed."""
    table = result.gpu_streams
    if table is None or not table.num_rows:
        return None
    streams, engines = streams_of(table), engines_of(table, _OF_NO_ENGINE)
    kernel, kernels = codes_and_names(table.column("kernel_name"))
    operation, operations = codes_and_names(table.column("operation"))
    known = np.array([bool(name) for name in kernels], np.bool_)
    called = np.where(known[kernel], kernel, len(kernels) + operation)
    used, first = np.unique(called, return_index=True)
    used = used[np.argsort(first)]
    names = [*kernels, *operations]
    place = np.zeros(len(names), np.int64)
    place[used] = np.arange(len(used))
    label = place[called]
    again = np.flatnonzero(engines.of_row >= 0)
    rows = np.concatenate((np.arange(table.num_rows), again))
    track = np.concatenate((streams.of_row, len(streams.names) + engines.of_row[again]))
    start, end, size = (to_numpy(table.column(name))[rows] for name in ("start_ps", "end_ps", "bytes"))
    launch = to_numpy(table.column("launch_id")).astype(np.int64)
    labels = [names[each] for each in used.tolist()]
    return GpuTracks(streams.names + engines.names, labels, track, label[rows], start, end, size, launch[rows])
