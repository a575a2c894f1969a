"""What GPUs did, a track for each stream and each copy engine, for the traces of a run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.run.results import Result

_OF_NO_ENGINE = ("SMs", "network")


@dataclass(frozen=True)
class GpuTracks:
    """``names`` of the tracks; int64[n] per slice: ``track``, ``start_ps``, ``end_ps``, ``bytes``, ``launch_id`` and
    ``label``, place in ``labels``: kernels as the table of launches names them, and other operations. A copy has a
    slice in its stream and one on its engine."""

    names: list[str]
    labels: list[str]
    track: np.ndarray
    label: np.ndarray
    start_ps: np.ndarray
    end_ps: np.ndarray
    bytes: np.ndarray
    launch_id: np.ndarray


def gpu_tracks(result: Result, kernel_column: str) -> GpuTracks | None:
    """None where no streams were replayed. ``kernel_column``: of the table of launches, for the labels."""
    table, launches = result.gpu_streams, result.launches
    if table is None or launches is None or not table.num_rows:
        return None
    gpu, rank, stream, launch = (
        to_numpy(table.column(name)).astype(np.int64) for name in ("gpu", "rank", "stream", "launch_id")
    )
    engines, operations = (table.column(name).to_pylist() for name in ("engine", "operation"))
    of_stream, track = np.unique(np.stack((gpu, rank, stream)), axis=1, return_inverse=True)
    several = result.workload.num_ranks > 1
    names = [
        f"GPU {g}, {f'rank {r}, ' if several else ''}stream {s}" for g, r, s in zip(*of_stream.tolist(), strict=True)
    ]
    places = [(g, engine) for g, engine in zip(gpu.tolist(), engines, strict=True) if engine not in _OF_NO_ENGINE]
    own = {place: len(names) + k for k, place in enumerate(sorted(set(places)))}
    names += [f"GPU {g}, {engine}" for g, engine in own]
    kernel = dict(
        zip(launches.column("launch_id").to_pylist(), launches.column(kernel_column).to_pylist(), strict=True)
    )
    called = [kernel[each] if each else operation for each, operation in zip(launch.tolist(), operations, strict=True)]
    labels = list(dict.fromkeys(called))
    number = {name: k for k, name in enumerate(labels)}
    label = np.array([number[name] for name in called], np.int64)
    again = np.flatnonzero(np.array([engine not in _OF_NO_ENGINE for engine in engines]))
    rows = np.concatenate((np.arange(table.num_rows), again))
    on_engine = np.array([own[place] for place in places], np.int64)
    start, end, size = (to_numpy(table.column(name)) for name in ("start_ps", "end_ps", "bytes"))
    return GpuTracks(
        names, labels, np.concatenate((np.asarray(track).ravel(), on_engine)), label[rows], start[rows], end[rows],
        size[rows], launch[rows],
    )  # fmt: skip
