"""Whether a study needs the models inside nodes (registry: seam ``phase-times``), which take a second to load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manyscale.models.node.scheduler.runtime_system import RuntimeSystem
from manyscale.models.workload import Workload
from manyscale.runner.errors import UserError
from manyscale.runner.study import Study

if TYPE_CHECKING:
    from manyscale.runner.predict.intervals.sampled_phases import SampledPhases
    from manyscale.runner.predict.node.phase_times import NodePhases


def scheduled(workload: Workload, study: Study) -> NodePhases | SampledPhases | None:
    """Model burst; None where one core executes a rank's phases as traced. Raises UserError where the trace has no
    tasks to schedule."""
    jitter = getattr(workload, "jitter", 0.0)  # of a repeated workload
    wide = study.mapping.cores_per_rank > 1
    if not (wide or jitter or study.runtime != RuntimeSystem() or study.ipc_correction.task_types):
        return None
    if not getattr(workload, "base", workload).tables["events"].num_rows:
        what = f"{study.mapping.cores_per_rank} cores a rank" if wide else "its runtime system"
        raise UserError(
            f"{study.workload.path}: has no task level, so nothing is known to schedule on {what}; trace the program "
            "with `manyscale trace --level tasks`, or leave mapping.cores_per_rank and runtime out"
        )
    return simulated(workload, study)


def simulated(workload: Workload, study: Study) -> NodePhases | SampledPhases:
    """Models detailed and interval. Raises UserError where there is nothing to simulate."""
    if study.sampling.intervals is not None:
        from manyscale.runner.predict.intervals import sampled_phases

        return sampled_phases.of_workload(workload, study)
    from manyscale.runner.predict.node.phase_times import of_workload

    return of_workload(workload, study)
