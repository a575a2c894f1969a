"""Reader of chosen intervals as SimPoint and our ``plan`` write them: NAME.simpoints with NAME.weights beside it, and
NAME.labels if it is there; plain, gzip, xz or zstd under these names.

Lines of the first two hold an interval (from 0) or a weight, and the cluster. SimPoint joins them by cluster, gem5 by
line; where a cluster has several intervals only the latter is possible. Lines of labels hold the cluster of each
interval, and SimPoint's its distance to the centre, which is not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream

SUFFIX: Final = ".simpoints"


class GivenPoints(NamedTuple):
    """``interval`` int64[], ascending; ``cluster`` int32[] and ``weight`` float64[] of each, as written; ``label``
    int32[intervals of the run], or empty."""

    interval: np.ndarray
    cluster: np.ndarray
    weight: np.ndarray
    label: np.ndarray


def read(path: Path) -> GivenPoints:
    """``path``: NAME.simpoints. Raises UserError with file and line."""
    stem = path.name.removesuffix(SUFFIX)
    interval, cluster = _pairs(path)
    weights = path.with_name(f"{stem}.weights")
    weight, of_cluster = _pairs(weights)
    if len(weight) != len(interval):
        raise UserError(f"{weights}: has {len(weight)} weights for {len(interval)} intervals of {path.name}")
    if len(np.unique(interval)) < len(interval):
        raise UserError(f"{path}: names an interval twice; a chosen interval stands in one line")
    if np.any(interval < 0) or np.any(interval != np.floor(interval)):
        raise UserError(f"{path}: names an interval that is no number from 0 on")
    if np.any(weight < 0) or not weight.sum() > 0:
        raise UserError(f"{weights}: weights are shares of the run, from 0 to 1")
    if not np.array_equal(cluster, of_cluster):
        if len(np.unique(cluster)) < len(cluster) or not np.array_equal(np.sort(cluster), np.sort(of_cluster)):
            raise UserError(f"{weights}: names other clusters than {path.name}; both are of one run of SimPoint")
        weight = weight[np.argsort(of_cluster)][np.argsort(np.argsort(cluster))]
    order = np.argsort(interval)
    labels = path.with_name(f"{stem}.labels")
    label = np.zeros(0) if not labels.is_file() else np.array([row[0] for row in _rows(labels, (1, 2))])
    return GivenPoints(
        interval[order].astype(np.int64), cluster[order].astype(np.int32), weight[order], label.astype(np.int32)
    )


def _pairs(path: Path) -> tuple[np.ndarray, np.ndarray]:
    rows = np.array(_rows(path, (2,)))
    return rows[:, 0], rows[:, 1]


def _rows(path: Path, columns: tuple[int, ...]) -> list[list[float]]:
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; points are NAME.simpoints with NAME.weights beside it")
    with guarded(path), open_stream(path) as stream:
        lines = stream.read().decode("ascii", errors="replace").splitlines()
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 1):
        try:
            row = [float(word) for word in line.split()]
        except ValueError:
            row = []
        if len(row) not in columns or not np.all(np.isfinite(row)):
            raise UserError(f"{path}:{number}: {line[:60]!r} is no line of {' or '.join(map(str, columns))} numbers")
        rows.append(row)
    if not rows:
        raise UserError(f"{path}: is empty; SimPoint did not end")
    return rows
