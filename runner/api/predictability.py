"""How well a few task instances predict the others: ``predictability``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from manyscale.models.workload.notes import Note, in_order
from manyscale.runner.api.answer import Answer, kept
from manyscale.runner.api.folders import Folder, Output
from manyscale.runner.api.inputs import TraceLike, read_workload
from manyscale.runner.errors import UserError
from manyscale.runner.notes import admit
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table

if TYPE_CHECKING:
    from manyscale.runner.run.questions.predictability import Executed


@dataclass(frozen=True, repr=False, eq=False)
class PredictabilityResult(Answer):
    """Errors of predictors. Table ``predictability``: a row per predictor and task type, and of all types together
    (``task_type`` empty); ``types``: a row per type, with percentiles of its IPC. ``executed``: the instances."""

    executed: Executed
    predictability: pa.Table
    types: pa.Table
    page: str
    notes: Sequence[Note] = ()
    folder: Folder | None = None

    @property
    def title(self) -> str:
        return f"predictability of {self.executed.name}"

    def facts(self) -> Mapping[str, str]:
        rows = [row for row in self.predictability.to_pylist() if not row["task_type"] and row["error"] is not None]
        return {row["predictor"]: f"error {row['error']:.2%} by {row['measured']:,} instances" for row in rows}

    @property
    def figures(self) -> Mapping[str, Any]:
        """What is predicted by what, and all rows of both tables."""
        return {
            "of": self.executed.of,
            "by": self.executed.by,
            "unit": self.executed.unit,
            "rows": self.predictability.to_pylist(),
            "types": self.types.to_pylist(),
        }

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        return {"predictability": lambda: self.predictability, "types": lambda: self.types}

    def _write(self, directory: Path) -> None:
        write_table(self.predictability, directory / "predictability.parquet")
        write_table(self.types, directory / "types.parquet")
        rundir.write_atomically(directory / "predictability.json", self.to_json() + "\n")
        if self.page:
            rundir.write_page(directory, self.page)


def predictability(
    trace: TraceLike,
    output: Output = None,
    *,
    of: str = "auto",
    by: str = "auto",
    format: str = "auto",
    cache: str | PathLike[str] | None = None,
    report: bool = True,
    accept: Collection[str] = (),
    strict: bool = False,
) -> PredictabilityResult:
    """How well few task instances predict the others, in the order of execution (Grass, UPC 2017, chapter 4).

    Of a trace with tasks: ``of``, what is predicted, a counter's name or "cpu-time" ("auto": cycles where they were
    counted, else CPU time), ``by`` instructions or another counter. Of a run directory: its simulated cycles by its
    instructions. Raises UserError for what has no task instances, or not what was asked for.
    """
    from manyscale.runner.report import predictability_page
    from manyscale.runner.run.questions import predictability as question

    path = Path(fspath(trace))
    if rundir.is_run(path):
        if (of, by) not in (("auto", "auto"), ("cycles", "instructions"), ("cycles", "auto"), ("auto", "instructions")):
            raise UserError(f"{path}: --of, --by: a run has cycles and instructions; name another for a trace")
        executed = question.of_run(path)
    else:
        executed = question.of_workload(read_workload(trace, cache, format=format), of, by)
    notes = in_order(executed.notes)
    admit(notes, accept, strict=strict)
    errors, types = question.errors_table(executed), question.types_table(executed)
    page = predictability_page.page(executed, errors, notes) if report else ""
    return kept(PredictabilityResult(executed, errors, types, page, notes), output, f"{executed.name}-predictability")
