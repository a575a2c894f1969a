"""The shipped validation cases: predictions against figures that were made elsewhere."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyscale.models.spelling import unknown
from manyscale.runner import shipped
from manyscale.runner.errors import UserError
from manyscale.runner.run import study_runs
from manyscale.runner.study import assign, load_study_content


@dataclass(frozen=True)
class Row:
    """One case: seconds predicted and in the reference, and the largest accepted difference."""

    name: str
    predicted: float
    reference: float
    tolerance: float

    @property
    def error(self) -> float:
        return self.predicted - self.reference

    @property
    def holds(self) -> bool:
        return abs(self.error) <= self.tolerance  # false for NaN


def evaluate_cases(names: Sequence[str], cache: Path | None) -> list[Row]:
    """Predict the named cases (all by default). Raises UserError for an unknown name."""
    cases = shipped.validation_cases()
    for name in names:
        if name not in cases:
            raise UserError(unknown("case", name, cases))
    return [_evaluate(name, cases[name], cache) for name in names or cases]


def _evaluate(name: str, case: dict[str, Any], cache: Path | None) -> Row:
    path = shipped.find(case["example"])
    content = load_study_content(path)
    for key, value in case.get("set", {}).items():
        content = assign(content, key, value)
    with tempfile.TemporaryDirectory() as scratch:
        options = study_runs.Options(output=Path(scratch) / "run", executor="local", cache=cache, report=False)
        (point,) = study_runs.run_study(content, str(path), path.parent, options).points
    return Row(
        name,
        float(point.statistics["application.makespan"].value),
        float(case["reference_s"]),
        float(case["tolerance_s"]),
    )
