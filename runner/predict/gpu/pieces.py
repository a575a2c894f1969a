"""Launches too large to be held in memory: they are read, simulated and forgotten a piece of consecutive blocks at a
time, and what tables need of all blocks is gathered as the pieces go by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.gpu.roofline.counts import RowCounts, row_counts
from manyscale.models.workload.gpu_tables import LaunchStreams
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.predict.gpu.blocks import columns_of_blocks, columns_of_work, profile_of
from manyscale.sampling.tbpoint.regions import BlockProfile

WHOLE: Final = 8_000_000  # warp instructions: launches up to here are held as a whole (50 MB to 700 MB)
PIECE: Final = 1_000_000  # warp instructions of a piece


class LaunchInPieces:
    """A launch of ``num_instructions`` warp instructions, read anew by each iteration."""

    def __init__(self, read: Callable[[], Iterator[LaunchTrace]], launch_id: int, num_instructions: int) -> None:
        self.launch_id = launch_id
        self.num_instructions = num_instructions
        self._read = read
        self._head: LaunchTrace | None = None
        self._counts: RowCounts | None = None
        self._profiles: list[BlockProfile] = []

    def __iter__(self) -> Iterator[LaunchTrace]:
        """The pieces, in the order of their blocks; ``columns`` knows of them as soon as the last one is taken."""
        self._head, self._counts, self._profiles = None, None, []
        for piece in self._read():
            counts = row_counts(piece)
            if self._counts is not None:
                counts = RowCounts(*(one + other for one, other in zip(self._counts, counts, strict=True)))
            self._counts = counts
            self._profiles.append(profile_of(piece))
            if self._head is None:
                self._head = _without_instructions(piece)
            yield piece

    def columns(self, gpu: Gpu, rules: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """As ``block_columns`` and ``work_columns`` of the whole launch, once its pieces have gone by."""
        assert self._head is not None
        assert self._counts is not None
        names = ("warp_instructions", "thread_instructions", "memory_requests")
        profile = BlockProfile(*(np.concatenate([getattr(each, name) for each in self._profiles]) for name in names))
        return columns_of_blocks(self._head, profile, gpu, rules), columns_of_work(self._head, self._counts, gpu)


def opened(
    streams: LaunchStreams, launch_id: int, whole: Callable[[], LaunchTrace], most: int | None
) -> LaunchTrace | LaunchInPieces:
    """A launch: ``whole``, or in pieces where it has more than ``most`` warp instructions (None: any number may be
    held), all of them recorded."""
    if most is None:
        return whole()
    size = sum(streams.executed(launch_id).values())
    if size <= most or streams.recorded_blocks(launch_id) is not None:
        return whole()
    return LaunchInPieces(lambda: streams.block_batches(launch_id, PIECE), launch_id, size)


def _without_instructions(trace: LaunchTrace) -> LaunchTrace:
    """What a piece tells of the launch, without what keeps its instructions in memory."""
    none: dict[str, Any] = {
        name: np.zeros(1, np.int64) for name in ("block_warps", "warp_instructions", "warp_accesses")
    }
    per_instruction = ("instruction", "active", "accesses", "sector", "written")
    none |= {name: getattr(trace, name)[:0].copy() for name in per_instruction}
    return replace(trace, **none, warp_words=None, words=None)
