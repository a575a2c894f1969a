"""What a workload holds, before anything is predicted: a section for each level that it has.

Cost: O(rows log rows) of the tables; of streams of blocks, addresses and instructions only what the tables say of them
is read. Memory: a few arrays as long as the longest table, and what ``task_graph`` says.
"""

from __future__ import annotations

from manyscale.models.workload import Workload
from manyscale.runner.run.questions.contents import communication, compute, launches, profiles, tasks
from manyscale.runner.run.questions.contents.section import Section
from manyscale.runner.run.questions.contents.uses import Use, uses

__all__ = ["Section", "Use", "contents", "uses"]


def contents(workload: Workload) -> tuple[Section, ...]:
    """The sections of a workload, in the order of a page; levels that it does not have have none."""
    makers = (
        compute.whole, compute.ranks, communication.messages, communication.collectives, communication.files,
        compute.regions, compute.iterations, tasks.tasks, tasks.loops, tasks.graph, launches.launches,
        launches.host_calls, profiles.detail, profiles.intervals, profiles.stacks, compute.counters,
    )  # fmt: skip
    found = (make(workload) for make in makers)
    return tuple(section for section in found if section is not None)
