"""The study's block ``taskpoint``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import Field

from manyscale.models.workload.parameters import Count, CountOrNone
from manyscale.sampling.taskpoint.state import TaskPointParameters


class TaskPointChoice(TaskPointParameters):
    """Parameters of ``sampling: {tasks: periodic|lazy}``; ``lazy`` is ``period: lazy``. Beside TaskPoint's own:

    ``classes``: what shares its samples, task ``types`` or classes of like basic-block vectors (``bbv``).
    ``correction``: of the samples' mean for each instance, by the ``interval`` model (equation 5.1), or ``none``.
    ``fast_forward``: caches keep what was there when fast-forwarding began (``stale``, as in the source), or the
    distinct lines of skipped instances are touched (``warm``).

    Defaults are what has the smallest errors for its time (tests/validation/taskpoint), not the source's, which
    ``source_choices`` gives.
    """

    classes: Literal["types", "bbv"] = "bbv"
    """What shares its samples: task `types`, or classes of alike basic-block vectors (`bbv`)."""
    correction: Literal["none", "interval"] = "none"
    """How the samples' mean is corrected for each instance: by the `interval` model (equation 5.1), or not."""
    fast_forward: Literal["stale", "warm"] = "warm"
    """The caches while instances are skipped: `stale`, as they were left, or `warm`, the lines that skipped instances
    use are touched."""
    resample_warm_up: CountOrNone = 2
    history: Count = 16
    settle: CountOrNone = 8
    stagger: Annotated[float, Field(ge=0, lt=1)] = 0.5
    rare: Annotated[float, Field(ge=0, lt=1)] = 0.005
    cut_off: Count = 2
    longest: Count | None = 8
    admit: Literal["finish", "start"] = "start"
    complete: Literal["seen", "current"] = "current"
    mean: Literal["ipc", "cycles"] = "cycles"
    busy_change: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["never", "levels"] = "levels"

    def is_used(self, study: Any, features: Collection[str]) -> bool:
        """Whether a run with these features reads it."""
        return bool(study.sampling.tasks != "full")


def source_choices() -> dict[str, Any]:
    """TaskPoint's own parameters, and what the source chooses beside: all keys of ``taskpoint`` that differ. (But for
    ``count`` and the two of busy cores, whose source's values keep cores in detail that have nothing to do.)"""
    own = {name: field.default for name, field in TaskPointParameters.model_fields.items()}
    own |= {"classes": "types", "correction": "none", "fast_forward": "stale"}
    return {name: value for name, value in own.items() if value != TaskPointChoice.model_fields[name].default}
