"""What is chosen of the runtime system that schedules task instances on the cores of a rank."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, field_serializer

from manyscale.models.machine import Node
from manyscale.models.machine.blocks import Block
from manyscale.models.workload.parameters import Strict, TimePs

Policy: TypeAlias = Literal[
    "fifo", "lifo", "work-stealing", "critical-path", "data-reuse", "predicted-critical-path"
]  # fmt: skip
POLICIES: tuple[Policy, ...] = (
    "fifo", "lifo", "work-stealing", "critical-path", "data-reuse", "predicted-critical-path",
)  # fmt: skip


class RuntimeCosts(Strict):
    """What a runtime system takes beside what a trace of one thread contains.

    ``create``, of each task instance, on the creating core; ``schedule``, of taking one, and ``complete``, of ending it
    and telling its successors, on the core that executes it; ``steal``, of taking from another core's queue, beside.
    ``chunk``, of taking a chunk of a loop: where it is given, of loops with dynamic or guided schedule alone, else
    ``schedule`` for every chunk. ``barrier``, of a barrier or a loop that ends with one, and ``fork``, of a parallel
    region that begins with a loop, on the core that meets it: each for every doubling of the number of cores, as
    threads meet in trees (Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", International
    Journal of Parallel Programming 17(1), 1988). ``lock``, of a lock that another core held last, while it is held.
    """

    create_ps: TimePs = Field(default=0, alias="create")
    """The cost of creating an instance, on the creating core."""
    schedule_ps: TimePs = Field(default=0, alias="schedule")
    """The cost of taking an instance, on the core that executes it."""
    complete_ps: TimePs = Field(default=0, alias="complete")
    """The cost of ending an instance and telling its successors."""
    steal_ps: TimePs = Field(default=0, alias="steal")
    """What taking from another core's queue costs beside."""
    chunk_ps: TimePs | None = Field(default=None, alias="chunk")
    """The cost of taking a chunk of a loop of dynamic or guided schedule. By default `schedule`, for all loops."""
    fork_ps: TimePs = Field(default=0, alias="fork")
    """The cost of beginning a parallel region, for each doubling of the cores."""
    barrier_ps: TimePs = Field(default=0, alias="barrier")
    """The cost of a barrier, or a loop that ends with one, for each doubling of the cores."""
    lock_ps: TimePs = Field(default=0, alias="lock")
    """The cost of taking a lock that another core held last."""

    @field_serializer(
        "create_ps", "schedule_ps", "complete_ps", "steal_ps", "chunk_ps", "fork_ps", "barrier_ps", "lock_ps"
    )
    def _with_unit(self, value: int | None) -> str | None:
        return None if value is None else f"{value} ps"


class NodeRuntime(RuntimeCosts, Block):
    """The runtime system of a machine's nodes: what it takes on several cores beside what it took on one."""

    key: ClassVar[str] = "node.runtime_system"


class RuntimeSystem(RuntimeCosts):
    """``policy``: which ready instance a free core takes.

    ``fifo`` and ``lifo``: the one that has been ready longest, shortest. ``work-stealing``: the latest of the core's
    own queue, else the oldest of another core's, drawn by the study's seed. ``critical-path``: the one with the longest
    way to the end, by the times that the schedule has, which no runtime system knows beforehand.
    ``predicted-critical-path``: the same by times that it learns of each task type while it runs
    (scheduler/learning.py). ``data-reuse``: the one whose data this core's caches still hold most of, where a detailed
    trace tells data (scheduler/held_data.py); of equal ones, or where it does not, one whose last-finished predecessor
    (or, without predecessors, creator) ran on this core, else on one that shares its last cache, else the oldest.
    Within each, instances of higher priority go first.

    Costs (RuntimeCosts): those that are not given are the machine's (``on``), else 0.
    ``creator_speedup``: by how much all that is done between creations by instances that create others is faster (a
    what-if; the instances created are not). ``priorities``: of task types, by the name of their function or FILE:LINE.
    """

    policy: Policy = "fifo"
    """Which ready task instance a free core takes."""
    creator_speedup: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """How much faster everything is that instances do between creations of others. This is a what-if."""
    priorities: dict[str, int] = {}
    """Priorities of task types, by the name of their function or FILE:LINE. Higher ones go first."""

    def on(self, node: Node, num_cores: int) -> RuntimeSystem:
        """With the costs of a machine's node where none are given. On one core the trace contains them: as it is."""
        costs = NodeRuntime.of(node)
        if costs is None or num_cores == 1:
            return self
        given = set(self.model_fields_set)
        if "schedule_ps" in given:
            given.add("chunk_ps")  # which it is by default
        names = costs.model_fields_set - given
        return self.model_copy(update={name: getattr(costs, name) for name in sorted(names)})

    def is_used(self, study: Any, features: Collection[str]) -> bool:
        """Whether a run with these features reads it."""
        return "tasks" in features
