"""TaskPoint inside a cell (registry: ``task-sampler``), whose instances are pieces of task instances
(predict/node/cells/sampled_kernel.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from manyscale.models.node.detailed import DetailedPhases
from manyscale.models.node.instance_profile import InstanceProfiles
from manyscale.runner.predict.node.cells import analytical_cell
from manyscale.runner.predict.node.cells.open_cell import OpenCell
from manyscale.runner.predict.node.cells.sampled_kernel import Sampled, SkippedLines, new_sampled, no_lines
from manyscale.runner.predict.node.cells.sampled_uncertainty import relative_half_width
from manyscale.runner.predict.node.cells.stale_caches import hidden_cycles
from manyscale.runner.predict.node.cells.task_sampling import Found, SampledPieces, Simulate, TaskSampler
from manyscale.runner.predict.units import Arrays
from manyscale.runner.study import Study
from manyscale.sampling.taskpoint.decisions import (
    LEAST_SPREAD,
    TaskPoint,
    TaskPointParameters,
    new_taskpoint,
)
from manyscale.sampling.taskpoint.estimate import estimate
from manyscale.sampling.taskpoint.options import TaskPointChoice
from manyscale.sampling.taskpoint.state import FORWARDED, FORWARDED_BY_ALL

LEAST_SHARE = 0.01  # of the busy time
MOST_PARTS = 4  # of an instance, that are told apart


class Periodic(TaskSampler):
    """Sampled again after a period."""

    @staticmethod
    def options(study: Study) -> dict[str, Any]:
        return study.options(TaskPointChoice).model_dump(mode="json")

    @staticmethod
    def needs_profile(study: Study) -> bool:
        return True  # classes, lines to touch, or what untouched lines hide

    @staticmethod
    def needs_model(study: Study) -> bool:
        return study.options(TaskPointChoice).correction == "interval"

    @classmethod
    def simulate(
        cls, cell: OpenCell, parameters: Mapping[str, Any], profiles: InstanceProfiles | None, arrays: Arrays | None,
        simulate: Simulate,
    ) -> Found:  # fmt: skip
        """Without the model first: it corrects nothing where samples of a class agree."""
        asked, cores = cls._asked(parameters), parameters["cores"]
        classes = _classes(cell, arrays if asked.classes == "bbv" else None)
        begins_warm = parameters["detailed"]["caches"] != "cold"
        pieces = TaskPointPieces(cell, cores, asked, classes, None, begins_warm)
        found = simulate(pieces)
        if asked.correction == "none" or (asked.correct == "explained" and not _differ(pieces.point)):
            return found
        assert arrays is not None
        model = analytical_cell.predict(cell, parameters, arrays).cycles_per_instruction(cell)
        return simulate(TaskPointPieces(cell, cores, asked, classes, model, begins_warm))

    @classmethod
    def _asked(cls, parameters: Mapping[str, Any]) -> TaskPointChoice:
        return TaskPointChoice.model_validate(parameters["taskpoint"])


class Lazy(Periodic):
    """Sampled but once."""

    @classmethod
    def _asked(cls, parameters: Mapping[str, Any]) -> TaskPointChoice:
        return TaskPointChoice.model_validate(parameters["taskpoint"] | {"period": "lazy"})


class TaskPointPieces(SampledPieces):
    """``classes`` int32[instances] from 0; ``model`` float64[pieces]: cycles per instruction by a model, or None;
    ``begins_warm``: whether caches begin as if the phases had run before."""

    def __init__(
        self, cell: OpenCell, cores: int, asked: TaskPointChoice, classes: np.ndarray, model: np.ndarray | None,
        begins_warm: bool = False,
    ) -> None:  # fmt: skip
        owner, instructions = cell.program.piece_instance, cell.pieces.num_instructions
        instructions = np.where(owner == 0, 0, instructions)  # the initial task is simulated, whatever its size
        rules = TaskPointParameters.model_validate(asked.model_dump(include=set(TaskPointParameters.model_fields)))
        of_piece = _classes_of_pieces(owner, instructions, classes)
        self.point: TaskPoint = new_taskpoint(of_piece, instructions, model, cores, rules)
        self._cell, self._cores, self._touches = cell, cores, asked.fast_forward == "warm"
        self._lines, self._begins_warm = no_lines(cores), begins_warm

    def watch(self, lines: SkippedLines) -> Sampled:
        self._lines = lines
        touched = lines if self._touches else no_lines(self._cores)
        program, instructions = self._cell.program, self._cell.pieces.num_instructions
        return new_sampled(self.point, instructions, program.num_instances, self._cores, touched)

    def skipped_cycles(self) -> np.ndarray:
        skipped = (self.point.role == FORWARDED) | (self.point.role == FORWARDED_BY_ALL)
        return np.where(skipped, self.point.instructions * self.point.cpi, np.nan)

    def half_width(self, cell: OpenCell, result: DetailedPhases) -> float:
        hidden = 0.0
        if not self._touches and len(self._lines.line):
            hidden = hidden_cycles(self.point, result, cell.program, self._lines, cell.node, self._begins_warm)
        return relative_half_width(cell, result, self.point, hidden)

    def resamples(self) -> np.ndarray:
        return self.point.resamples


def _differ(point: TaskPoint) -> bool:
    """Whether samples of a class that matters differ so much that a model might say why."""
    classes = estimate(point).classes
    matters = classes.forwarded_cycles > LEAST_SHARE * classes.cycles.sum()
    return bool(np.any(classes.deviation[matters] > LEAST_SPREAD))


def _classes_of_pieces(owner: np.ndarray, instructions: np.ndarray, class_of: np.ndarray) -> np.ndarray:
    """int32[pieces]: classes from 0. The first, second, ... pieces with instructions of the instances of a class are
    classes of their own, the MOST_PARTS-th and later ones one. O(pieces log pieces)."""
    works = np.flatnonzero(instructions)
    works = works[np.argsort(owner[works], kind="stable")]
    mine = owner[works]
    begins = np.flatnonzero(np.diff(mine, prepend=-1))
    part = np.arange(len(works)) - np.repeat(begins, np.diff(begins, append=len(works)))
    code = np.zeros(len(owner), np.int64)
    code[works] = 1 + class_of[mine].astype(np.int64) * MOST_PARTS + np.minimum(part, MOST_PARTS - 1)
    number = np.cumsum(np.bincount(code) > 0) - 1
    return number[code].astype(np.int32)


def _classes(cell: OpenCell, profile: Arrays | None) -> np.ndarray:
    """int32[instances]: classes from 0, those of the profile or of task types."""
    if profile is not None:
        return profile["task_class"]
    return np.unique(cell.program.task_type, return_inverse=True)[1].astype(np.int32)
