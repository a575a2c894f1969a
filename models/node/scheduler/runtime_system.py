"""What is chosen of the runtime system that schedules task instances on the cores of a rank."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, field_serializer

from manyscale.models.workload.parameters import Strict, TimePs

Policy: TypeAlias = Literal[
    "fifo", "lifo", "work-stealing", "critical-path", "data-reuse", "predicted-critical-path"
]  # fmt: skip
POLICIES: tuple[Policy, ...] = (
    "fifo", "lifo", "work-stealing", "critical-path", "data-reuse", "predicted-critical-path",
)  # fmt: skip


class RuntimeSystem(Strict):
    """``policy``: which ready instance a free core takes.

    ``fifo`` and ``lifo``: the one that has been ready longest, shortest. ``work-stealing``: the latest of the core's
    own queue, else the oldest of another core's, drawn by the study's seed. ``critical-path``: the one with the longest
    way to the end, by the times that the schedule has, which no runtime system knows beforehand.
    ``predicted-critical-path``: the same by times that it learns of each task type while it runs
    (scheduler/learning.py). ``data-reuse``: one whose last-finished predecessor (or, without predecessors, creator) ran
    on this core, else on one that shares its last cache, else the oldest. Within each, instances of higher priority go
    first.

    Costs: ``create``, of each instance, on the creating core; ``schedule``, of taking an instance, and ``complete``, of
    ending it and telling its successors, on the core that executes it; ``steal``, of taking from another core's queue,
    beside. In burst mode the traced times contain what the traced runtime system needed, so they are 0 by default.
    ``creator_speedup``: by how much all that is done between creations by instances that create others is faster (a
    what-if; the instances created are not). ``priorities``: of task types, by the name of their function or FILE:LINE.
    """

    policy: Policy = "fifo"
    """Which ready task instance a free core takes."""
    create_ps: TimePs = Field(default=0, alias="create")
    """The cost of creating an instance, on the creating core."""
    schedule_ps: TimePs = Field(default=0, alias="schedule")
    """The cost of taking an instance, on the core that executes it."""
    complete_ps: TimePs = Field(default=0, alias="complete")
    """The cost of ending an instance and telling its successors."""
    steal_ps: TimePs = Field(default=0, alias="steal")
    """What taking from another core's queue costs beside."""
    creator_speedup: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """How much faster everything is that instances do between creations of others. This is a what-if."""
    priorities: dict[str, int] = {}
    """Priorities of task types, by the name of their function or FILE:LINE. Higher ones go first."""

    @field_serializer("create_ps", "schedule_ps", "complete_ps", "steal_ps")
    def _with_unit(self, value: int) -> str:
        return f"{value} ps"

    def is_used(self, study: Any, features: Collection[str]) -> bool:
        """Whether a run with these features reads it."""
        return "tasks" in features
