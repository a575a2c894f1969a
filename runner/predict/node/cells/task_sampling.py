"""Samplers of task instances (registry: seam ``task-sampler``), which decide while a cell is simulated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from manyscale.models.node.detailed import DetailedPhases
from manyscale.models.node.instance_profile import InstanceProfiles
from manyscale.models.workload.notes import Note
from manyscale.runner.predict.node.cells.open_cell import OpenCell
from manyscale.runner.predict.node.cells.sampled_kernel import SkippedLines
from manyscale.runner.predict.units import Arrays
from manyscale.runner.study import Study


@dataclass(frozen=True)
class Found:
    """``makespan_ps`` int64[phases], ``piece_ps`` int64[pieces] (0 elsewhere), ``row`` int64[]: instances that ran, and
    arrays of the unit's result; notes on the code."""

    makespan_ps: np.ndarray
    piece_ps: np.ndarray
    row: np.ndarray
    arrays: Arrays
    notes: tuple[Note, ...] = ()


class SampledPieces(Protocol):
    """Which pieces of a cell's task instances one simulation of it does in detail, and how long the others take."""

    @abstractmethod
    def watch(self, lines: SkippedLines) -> NamedTuple:
        """What decides in the loop (models/node/loop_watch.py): arrays, and functions registered for their class.
        ``lines``: what instances leave in the caches, as far as it is known."""

    @abstractmethod
    def skipped_cycles(self) -> np.ndarray:
        """float64[pieces], after the simulation: cycles of those that were not simulated, NaN for the others."""

    @abstractmethod
    def half_width(self, cell: OpenCell, result: DetailedPhases) -> float:
        """After the simulation: of the 95 % interval of the cell's time, relative; 0 where nothing was left out."""

    def resamples(self) -> np.ndarray:
        """int64[4]: how often sampling began anew, by reason (sampling/taskpoint/state.py)."""
        return np.zeros(4, np.int64)


Simulate: TypeAlias = Callable[[SampledPieces | None], Found]  # the cell, with these pieces in detail, or all of them


class TaskSampler(Protocol):
    """A class of this kind is what the registry names."""

    @staticmethod
    @abstractmethod
    def options(study: Study) -> dict[str, Any] | None:
        """What of a study changes results, as JSON has it."""

    @staticmethod
    @abstractmethod
    def needs_profile(study: Study) -> bool:
        """Whether cells are profiled first (predict/node/cells/profile_units.py)."""

    @staticmethod
    def needs_model(study: Study) -> bool:
        """Whether the analytical model predicts cells beside (predict/node/cells/analytical_cell.py)."""
        return False

    @staticmethod
    @abstractmethod
    def simulate(
        cell: OpenCell, parameters: Mapping[str, Any], profiles: InstanceProfiles | None, arrays: Arrays | None,
        simulate: Simulate,
    ) -> Found:  # fmt: skip
        """``parameters`` of the unit, the sampler's own options under ``taskpoint``; ``profiles`` and ``arrays`` of the
        cell's profile, if there is one. Raises ValueError where it cannot be."""


class EveryInstance(TaskSampler):
    """No sampling."""

    @staticmethod
    def options(study: Study) -> None:
        return None

    @staticmethod
    def needs_profile(study: Study) -> bool:
        return False

    @staticmethod
    def simulate(
        cell: OpenCell, parameters: Mapping[str, Any], profiles: InstanceProfiles | None, arrays: Arrays | None,
        simulate: Simulate,
    ) -> Found:  # fmt: skip
        return simulate(None)
