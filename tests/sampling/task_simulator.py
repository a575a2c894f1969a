"""A simulator of task instances, as small as can be: cores take them in order, each has given cycles in detail.

It calls TaskPoint as a simulator of a node does, and writes down what happened.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.sampling.taskpoint.decisions import FAST, decide, new_taskpoint, observe
from manyscale.sampling.taskpoint.state import TaskPoint, TaskPointParameters


@dataclass
class Run:
    """``log``: ("begin" | "end", instance, core, time, mode after it) in order. ``end``: of the last instance."""

    state: TaskPoint
    log: list[tuple[str, int, int, float, int]] = field(default_factory=list)
    end: float = 0.0

    @property
    def roles(self) -> list[int]:
        return self.state.role.tolist()


def run(
    parameters: TaskPointParameters,
    cycles: Sequence[float],
    num_cores: int,
    *,
    classes: Sequence[int] | None = None,
    instructions: Sequence[int] | None = None,
    model: Sequence[float] | None = None,
    phases: Sequence[tuple[int, int]] = (),
) -> Run:
    """``cycles`` of each instance in detail, 1,000 instructions each if none are given. ``phases``: (instances, cores
    that may work on them), one after the other, each once the one before has ended; else one with all cores."""
    count = len(cycles)
    state = new_taskpoint(
        np.zeros(count, int) if classes is None else np.array(classes),
        np.full(count, 1000) if instructions is None else np.array(instructions),
        None if model is None else np.array(model, float),
        num_cores,
        parameters,
    )
    result = Run(state)
    first = 0
    for size, cores in phases or [(count, num_cores)]:
        _phase(result, cycles, range(first, first + size), cores)
        first += size
    return result


def _phase(result: Run, cycles: Sequence[float], instances: Sequence[int], num_cores: int) -> None:
    state, waiting = result.state, list(reversed(instances))
    running: list[tuple[float, int, int]] = []  # end, core, instance

    def begin(core: int, time: float) -> None:
        instance = waiting.pop()
        if decide(state, instance, core, len(running) + 1) == FAST:
            taken = state.instructions[instance] * state.cpi[instance]
        else:
            taken = cycles[instance]
        heapq.heappush(running, (time + taken, core, instance))
        result.log.append(("begin", instance, core, time, int(state.now["mode"][0])))

    for core in range(min(num_cores, len(waiting))):
        begin(core, result.end)
    while running:
        time, core, instance = heapq.heappop(running)
        observe(state, instance, core, float(cycles[instance]), len(running) + 1)
        result.log.append(("end", instance, core, time, int(state.now["mode"][0])))
        result.end = time
        if waiting:
            begin(core, time)


@allocation_free
def run_in_turn(state, cycles):  # type: ignore[no-untyped-def]
    """Cores take instances in turn, each begins when the one before it in order has ended: for many runs, fast."""
    num_cores = state.core_forwarded.shape[0]
    for i in range(cycles.shape[0]):
        if decide(state, i, i % num_cores, num_cores) != FAST:
            observe(state, i, i % num_cores, cycles[i], num_cores)
