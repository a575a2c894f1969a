"""Samplers of the thread blocks of a launch (registry: seam ``block-sampler``), which decide while it is simulated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.runner.study import Study

if TYPE_CHECKING:  # takes a second to load
    from manyscale.models.gpu.memory_state import Memory


class SampledBlocks(Protocol):
    """The choice of one launch (models.gpu.detailed.BlockChoice), and what follows from it."""

    def next(self) -> tuple[int, int]:
        """(first, block): ``block`` is dispatched next (the number of blocks: none is), blocks [first, block) are
        skipped."""

    def dispatched(self, block: int, time: int, issued: float) -> None:
        """``block`` begins; ``issued``: warp instructions of the whole GPU up to then."""

    def ended(self, block: int, time: int, issued: float) -> None:
        """``block`` has ended."""

    def skipped(self, memory: Memory, first: int, end: int) -> None:
        """Change L2 as those of the skipped blocks [first, end) would that it could still hold."""

    def of_all(self, simulated: LaunchResult, asked_at: np.ndarray, asked_counts: np.ndarray) -> LaunchResult:
        """The launch, from what was simulated of it; ``asked_at`` and ``asked_counts``: of the detailed model's
        result."""


class BlockSampler(Protocol):
    """A class of this kind is what the registry names."""

    @staticmethod
    def options(study: Study) -> dict[str, Any]:
        """What of a study changes results, as JSON has it; its name among it, so that it is told from others."""
        return {"blocks": study.sampling.blocks}

    @staticmethod
    @abstractmethod
    def begin(trace: LaunchTrace, gpu: Gpu, options: Mapping[str, Any]) -> SampledBlocks | None:
        """For one launch, None to simulate it all. ``options`` as above, and ``regions``: how a launch's regions are
        found (sampling/tbpoint/rules.py)."""


class EveryBlock(BlockSampler):
    """No sampling."""

    @staticmethod
    def options(study: Study) -> dict[str, Any]:
        return {"warming": None}

    @staticmethod
    def begin(trace: LaunchTrace, gpu: Gpu, options: Mapping[str, Any]) -> None:
        return None
