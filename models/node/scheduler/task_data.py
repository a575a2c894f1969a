"""Data of task instances: what the policy data-reuse goes by, beside where predecessors ran.

Data are groups of lines that the same instances use in the same way, so that a group is used as a whole or not at all;
lines on the stack of which each core has its own belong to none, and the initial task's use is left out.

Cost: O(n log n) in the lines that instances use, once each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.kernels.hashing import mix


@dataclass(frozen=True)
class TaskData:
    """Instance i uses groups ``group`` int32[] in rows [first[i], first[i + 1]) (``first`` int64[instances + 1]), in
    the order of their last use; ``is_written`` bool[]. ``size_bytes`` int64[groups]."""

    first: np.ndarray
    group: np.ndarray
    is_written: np.ndarray
    size_bytes: np.ndarray


def task_data(
    num_instances: int, instance: np.ndarray, line: np.ndarray, is_written: np.ndarray, line_bytes: int,
    own: np.ndarray | None = None,
) -> TaskData:  # fmt: skip
    """Of rows (``instance``, ``line``, ``is_written``) in the order of use, those of an instance one after the other.
    ``own`` bool[lines]: of which each core has its own."""
    kept = np.asarray(instance) > 0
    if own is not None:
        kept &= ~own[line]
    instance, line, is_written = (np.asarray(each)[kept] for each in (instance, line, is_written))
    instance, line = instance.astype(np.int64), line.astype(np.int64)
    number, used = np.unique(line, return_inverse=True)
    # who uses each line: a sum of hashes, whatever the order; an instance may use a line in several rows
    uses = np.unique(np.stack([used, instance], axis=1), axis=0) if len(used) else np.zeros((0, 2), np.int64)
    writes = used[is_written] * np.int64(num_instances) + instance[is_written]
    wrote = np.isin(uses[:, 0] * np.int64(num_instances) + uses[:, 1], writes)
    users = mix.py_func(np.uint64(1), (2 * uses[:, 1] + wrote).astype(np.uint64))
    signature = np.zeros(len(number), np.uint64)
    np.add.at(signature, uses[:, 0], users)
    _, group, lines = np.unique(signature, return_inverse=True, return_counts=True)
    # each instance's groups, in the order of their last use
    pair = instance * np.int64(max(len(lines), 1)) + group[used]
    _, last = np.unique(pair[::-1], return_index=True)
    rows = np.sort(len(pair) - 1 - last)
    rows = rows[np.argsort(instance[rows], kind="stable")]
    written = np.isin(pair[rows], pair[is_written])
    first = np.searchsorted(instance[rows], np.arange(num_instances + 1))
    return TaskData(first, group[used][rows].astype(np.int32), written, lines.astype(np.int64) * line_bytes)
