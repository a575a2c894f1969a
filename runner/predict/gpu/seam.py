"""Whether a study predicts kernel launches of GPUs, beside what its CPU model predicts (seam ``phase-times``)."""

from __future__ import annotations

from typing import Any

from manyscale.models.machine import Machine
from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.study import Study


def with_launches(workload: Workload, study: Study, machine: Machine, inner: Any) -> Any:
    """What predicts the times of phases: ``inner`` (that of the CPU model; None: they are as traced) where there are no
    launches, else one that adds them to it. Raises UserError for a study of launches whose workload has none."""
    base = getattr(workload, "base", workload)  # of a repeated workload
    if study.mapping.launches is None and not base.tables["launches"].num_rows:
        if study.model.gpu is not None or study.sampling.launches != "full" or study.sampling.blocks != "full":
            raise UserError(
                f"{study.workload.path}: has no kernel launches, which model.gpu and sampling.launches are about; name "
                "a folder with a kernelslist.g, or leave these keys out"
            )
        return inner
    if base is not workload:
        raise UserError(f"{study.workload.path}: a workload with kernel launches cannot be repeated")
    from manyscale.runner.predict.gpu.phase_times import of_workload  # costs more than a small run

    return of_workload(workload, study, machine, inner)
