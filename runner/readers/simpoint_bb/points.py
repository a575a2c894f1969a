"""Reader of chosen intervals as SimPoint and our ``plan`` write them: a file of intervals, one of weights beside it,
and one of labels if it is there; plain, gzip, xz or zstd.

SimPoint gives them whatever names it is told (and a suffix such as ``.lpt0.9`` with ``-coveragePct``): a file is what
its lines say. The weights are in the file that is named alike (`_beside`), else in the only one of the folder whose
lines fit: as many, of the same clusters, with shares.

Lines of the first two hold an interval (from 0) or a weight, and the cluster. SimPoint joins them by cluster, gem5 by
line; where a cluster has several intervals only the latter is possible. Lines of labels hold the cluster of each
interval, and SimPoint's its distance to the centre, which is not read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream, read_head

SUFFIX: Final = ".simpoints"
_COMPRESSED: Final = ("", ".gz", ".xz", ".zst")
_OWN_NAMES: Final = re.compile(r"simpoints?|simpts?|points", re.IGNORECASE)
_HEAD_BYTES: Final = 1 << 16
_MOST_BYTES: Final = 1 << 20  # of a file that may hold weights; one of a million bytes has some ten thousand
_PAIR: Final = re.compile(rb"\s*\d{1,18}\s+\d{1,9}\s*", re.ASCII)


class GivenPoints(NamedTuple):
    """``interval`` int64[], ascending; ``cluster`` int32[] and ``weight`` float64[] of each, as written; ``label``
    int32[intervals of the run], or empty."""

    interval: np.ndarray
    cluster: np.ndarray
    weight: np.ndarray
    label: np.ndarray


def read(path: Path) -> GivenPoints:
    """``path``: of the chosen intervals. Raises UserError with file and line."""
    interval, cluster = _pairs(path)
    if np.any(interval < 0) or np.any(interval != np.floor(interval)):
        raise UserError(f"{path}: names an interval that is no number from 0 on; is it the file of weights?")
    weights = _weights_of(path, cluster)
    weight, of_cluster = _pairs(weights)
    if len(weight) != len(interval):
        raise UserError(f"{weights}: has {len(weight)} weights for {len(interval)} intervals of {path.name}")
    if len(np.unique(interval)) < len(interval):
        raise UserError(f"{path}: names an interval twice; a chosen interval stands in one line")
    if np.any(weight < 0) or not weight.sum() > 0:
        raise UserError(f"{weights}: weights are shares of the run, from 0 to 1")
    if not np.array_equal(cluster, of_cluster):
        if len(np.unique(cluster)) < len(cluster) or not np.array_equal(np.sort(cluster), np.sort(of_cluster)):
            raise UserError(f"{weights}: names other clusters than {path.name}; both are of one run of SimPoint")
        weight = weight[np.argsort(of_cluster)][np.argsort(np.argsort(cluster))]
    order = np.argsort(interval)
    labels = next((file for file in _beside(path, "labels") if file.is_file()), None)
    label = np.zeros(0) if labels is None else np.array([row[0] for row in _rows(labels, (1, 2))])
    return GivenPoints(
        interval[order].astype(np.int64), cluster[order].astype(np.int32), weight[order], label.astype(np.int32)
    )


def is_points(path: Path) -> bool:
    """Whether this names a file of chosen intervals: by its lines, or by SimPoint's usual suffix."""
    if path.name.endswith(SUFFIX):
        return True
    head = read_head(path, _HEAD_BYTES)
    if not head:
        return False
    lines = head.splitlines()
    whole = lines[:-1] if len(head) == _HEAD_BYTES else lines
    return any(line.strip() for line in whole) and all(_PAIR.fullmatch(line) or not line.strip() for line in whole)


def _weights_of(path: Path, cluster: np.ndarray) -> Path:
    named = _beside(path, "weights")
    found = next((file for file in named if file.is_file()), None)
    if found is not None:
        return found
    fitting = [file for file in sorted(path.parent.iterdir()) if file != path and _may_weigh(file, cluster)]
    if len(fitting) > 1:
        files = ", ".join(file.name for file in fitting)
        raise UserError(f"{path}: its weights may be in {files}; name them {named[0].name}")
    if not fitting:
        raise UserError(f"{named[0]}: there is no such file; the weights of chosen intervals lie beside them")
    return fitting[0]


def _may_weigh(path: Path, cluster: np.ndarray) -> bool:
    """Whether the file's lines are shares of these clusters."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return False
        weight, of_cluster = _pairs(path)
    except (OSError, UserError):
        return False
    return (
        len(weight) == len(cluster)
        and np.array_equal(np.sort(of_cluster), np.sort(cluster))
        and bool(np.all((weight >= 0) & (weight <= 1)))
        and bool(0 < weight.sum() < 1.01)
    )


def _beside(path: Path, role: str) -> list[Path]:
    """Where what belongs to these intervals may lie, the likeliest first: under the same name with another role."""
    name = next((path.name.removesuffix(end) for end in _COMPRESSED[1:] if path.name.endswith(end)), path.name)
    stems = [f"{name.removesuffix(SUFFIX)}.{role}"] if name.endswith(SUFFIX) else []
    if found := list(_OWN_NAMES.finditer(name)):
        stems += [
            f"{name[: found[-1].start()]}{one}{name[found[-1].end() :]}" for one in (role, role.removesuffix("s"))
        ]
    stems += [f"{name.rpartition('.')[0] or name}.{role}", f"{name}.{role}"]
    return [
        path.with_name(stem + end) for stem in dict.fromkeys(stems) for end in _COMPRESSED if stem + end != path.name
    ]


def _pairs(path: Path) -> tuple[np.ndarray, np.ndarray]:
    rows = np.array(_rows(path, (2,)))
    return rows[:, 0], rows[:, 1]


def _rows(path: Path, columns: tuple[int, ...]) -> list[list[float]]:
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; chosen intervals have their weights beside them")
    with guarded(path), open_stream(path) as stream:
        lines = stream.read().decode("ascii", errors="replace").splitlines()
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
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
