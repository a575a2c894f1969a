"""SimPoint's text files: chosen intervals, their weights, labels of all intervals, and projection matrices.

Lines of chosen intervals and weights stand in the same order: SimPoint and PinPoints join them by cluster, gem5 joins
them by line.
A matrix has a header ``ROWS:w``, and in each line a weight that nobody reads, the number of columns and the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def simpoints(intervals: Iterable[int], clusters: Iterable[int]) -> str:
    """``.simpoints``: number of each chosen interval, from 0, and its cluster."""
    return "".join(f"{interval} {cluster}\n" for interval, cluster in zip(intervals, clusters, strict=True))


def weights(shares: Iterable[float], clusters: Iterable[int]) -> str:
    """``.weights``: share of each, and its cluster."""
    return "".join(f"{share:.6g} {cluster}\n" for share, cluster in zip(shares, clusters, strict=True))


def labels(of_interval: Iterable[int]) -> str:
    """``.labels``: the cluster of every interval."""
    return "".join(f"{label}\n" for label in of_interval)


def projection(matrix: np.ndarray) -> str:
    """``.proj``: ``matrix`` float64[blocks, dimensions], which ``-loadProjMatrix`` reads without loss."""
    rows, columns = matrix.shape
    lines = [f"{1 / rows:.17g} {columns}: {' '.join(f'{value:.17g}' for value in row)} \n" for row in matrix.tolist()]
    return f"{rows}:w\n" + "".join(lines)


def vectors(rows: Iterable[Iterable[tuple[int, float]]]) -> str:
    """``.bb``: of each interval pairs of a block, from 1, and its count, which is rounded."""
    return "".join("T" + "   ".join(f":{block}:{round(count)}" for block, count in row) + "   \n" for row in rows)
