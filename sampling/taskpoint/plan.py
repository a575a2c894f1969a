"""TaskPoint's offline part: which task instances it would simulate in detail, and what each stands for.

What TaskPoint does depends on when instances begin and end, so it is played through (taskpoint/decisions.py): cores
take the instances in their order, each as soon as it is free, dependences left aside, and an instance in detail takes
given cycles (those of a model of the core, or one per instruction). The unit is the instance.

A simulated instance stands for itself; those fast-forwarded are stood for by the valid samples of their class (by all
of it in detail where it has none), by their instructions.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference
from manyscale.models.kernels.event_heap import event_record, pop, push
from manyscale.sampling.population import Choice
from manyscale.sampling.taskpoint.decisions import FAST, decide, observe
from manyscale.sampling.taskpoint.state import FORWARDED, FORWARDED_BY_ALL, VALID, WARM_UP, TaskPoint


def play(state: TaskPoint, cycles: np.ndarray) -> None:
    """Decides for every instance. ``cycles`` float64[instances]: what each takes in detail. O(instances log cores)."""
    num_cores = len(state.core_done)
    running = np.full(num_cores, -1)
    heap = np.zeros(num_cores + 1, event_record(np.dtype("f8")))
    _play(state, np.ascontiguousarray(cycles, np.float64), running, heap, np.zeros(1, np.int64))


def choice_of(state: TaskPoint, labels: np.ndarray) -> Choice:
    """Of instances that were played. ``labels`` int32[instances]: the classes that they were given."""
    instructions = state.instructions.astype(np.float64)
    forwarded = (state.role == FORWARDED) | (state.role == FORWARDED_BY_ALL)
    detailed = is_detailed(state)
    count = int(labels.max(initial=-1)) + 1
    sampled = np.bincount(labels[state.role == VALID], minlength=count) > 0
    stands = (state.role == VALID) | (detailed & ~sampled[labels])
    weight = np.where(detailed, instructions, 0.0)
    left = np.bincount(labels, np.where(forwarded, instructions, 0.0), count)
    own = np.bincount(labels, np.where(stands, instructions, 0.0), count)
    weight += np.where(stands, instructions * (left / np.where(own > 0, own, 1.0))[labels], 0.0)
    element = np.flatnonzero(detailed)
    return Choice(
        element, labels[element].astype(np.int32), weight[element] / instructions.sum(), labels.astype(np.int32)
    )


def is_detailed(state: TaskPoint) -> np.ndarray:
    """bool[instances]: those that were simulated in detail."""
    return state.role >= WARM_UP


@allocation_free
def _play(state, cycles, running, heap, heap_size):  # type: ignore[no-untyped-def]
    state = by_reference(state)
    count = cycles.shape[0]
    ready = 0
    for core in range(min(running.shape[0], count)):
        push(heap, heap_size, core, 0.0)
    busy = 0
    while heap_size[0] > 0:
        time = heap[0].time
        core = pop(heap, heap_size)
        if running[core] >= 0:
            observe(state, running[core], core, cycles[running[core]], busy)
            running[core] = -1
            busy -= 1
        if ready == count:
            continue
        instance = ready
        ready += 1
        busy += 1
        running[core] = instance
        taken = cycles[instance]
        if decide(state, instance, core, busy) == FAST:
            taken = state.instructions[instance] * state.cpi[instance]
        push(heap, heap_size, core, time + taken)
