"""What is asked of ``manyscale plan --method``, and what a method has planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note
from manyscale.models.workload.parameters import Strict
from manyscale.runner.cache import default_cache
from manyscale.runner.errors import UserError
from manyscale.runner.problems import first_problem
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import read_workload
from manyscale.sampling.plan import Plan
from manyscale.sampling.population import Choice

_Rules = TypeVar("_Rules", bound=Strict)


@dataclass(frozen=True)
class PlanRequest:
    """A ``method`` for the profile or trace at ``path``, in format ``form``; ``rules``: keys that are set of it.

    ``target``: of kernel launches and task instances; ``launches``: numbers of those to read, ``cycles``: a table of
    them. Of intervals: ``exports`` (names), ``warmup`` intervals that these run before each one, ``projection``: a file
    with SimPoint's matrix, ``stem``: the name of files beside the plan (default: the workload's). Of call stacks:
    ``sensitivity``, profiles on other inputs, and ``measured``, a table of what was simulated.
    """

    method: str
    path: str
    form: str = "auto"
    rules: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    cache: Path | None = None
    target: str | None = None
    launches: Sequence[int] | None = None
    cycles: Path | None = None
    exports: Sequence[str] = ()
    warmup: int = 0
    projection: Path | None = None
    stem: str | None = None
    sensitivity: Sequence[str] = ()
    measured: Path | None = None

    def read(self, choice: WorkloadChoice | None = None) -> Workload:
        """The workload, or what ``choice`` says. Raises UserError."""
        return read_workload(choice or WorkloadChoice(path=self.path, format=self.form), self.cache or default_cache())

    def rules_of(self, kind: type[_Rules], preset: Mapping[str, Any] | None = None) -> _Rules:
        """Of a method that has ``preset`` some. Raises UserError."""
        return validated(kind, {**(preset or {}), **self.rules})


@dataclass(frozen=True)
class Planned:
    """Elements of a ``kind`` of the workload called ``name``: the choice, what is said of it, files beside the plan by
    suffix, and notes."""

    name: str
    kind: str
    method: str
    choice: Choice
    summary: str
    files: Mapping[str, str]
    notes: Sequence[Note] = ()

    @property
    def plan(self) -> Plan:
        """Weights are shares of the instructions."""
        return Plan(self.kind, self.choice.element, self.choice.stratum, self.choice.weight, self.method, 1)


def validated(kind: type[_Rules], content: Mapping[str, Any]) -> _Rules:
    """Rules with their values. Raises UserError for those that make no sense."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise UserError(f"--set: {first_problem(error, kind)}") from None
