"""The study's blocks ``pka`` and ``stem``, apart from what computes with them, which takes longer to load."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from pydantic import Field

from manyscale.models.workload.parameters import Strict


class PkaRules(Strict):
    """Parameters of Principal Kernel Selection, `sampling: {launches: pka}`."""

    error: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """The error of the projected times, or of instructions, that is small enough for a number of clusters."""
    times: str | None = None
    """A table of the times that launches took somewhere: the columns launch_id and cycles, as CSV, or the
    `timeline/launches.parquet` of a run. Without it, instructions are projected."""

    def is_used(self, study: Any, features: Collection[str]) -> bool:
        """Whether a run with these features reads it."""
        return bool(study.sampling.launches == "pka")


class StemRules(Strict):
    """Parameters of STEM with ROOT, `sampling: {launches: stem}`."""

    error: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """The relative error of each cluster's mean that is asked for with 95 %."""
    times: str | None = None
    """A table of the times that launches took somewhere: the columns launch_id and cycles, as CSV, or the
    `timeline/launches.parquet` of a run, for example with `model: {gpu: gpumech}`."""

    def is_used(self, study: Any, features: Collection[str]) -> bool:
        """Whether a run with these features reads it."""
        return bool(study.sampling.launches == "stem")
