"""Calls of collectives, and what a schedule of messages makes each participant depend on and add up."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from manyscale.models.network.collectives.algorithms import (
    ALGORITHMS,
    Choice,
    CollectiveCall,
    choose,
    schedule,
)
from manyscale.models.network.collectives.schedules import Schedule, Step

BLOCK = 24
MESSAGE_PRESETS = ("simgrid-3.32", "mpich", "openmpi")
EVERY_ALGORITHM = [(kind, name) for kind, table in ALGORITHMS.items() for name in table]
Execute = Callable[..., list[float]]


def call_of(kind: str, n: int, size: int = BLOCK, root: int = 0) -> CollectiveCall:
    """A call in which every block has `size` bytes."""
    base = kind.removeprefix("i")
    counted = {
        "gatherv": {"receive_counts": np.full(n, size)},
        "allgatherv": {"receive_counts": np.full(n, size)},
        "scatterv": {"send_counts": np.full(n, size)},
        "alltoallv": {"send_counts": np.full((n, n), size)},
    }
    sizes = {"receive_bytes" if base == "reduce_scatter" else "send_bytes": size}
    return CollectiveCall(kind, n, root, **sizes, **counted.get(base, {}))


def chosen(call: CollectiveCall, preset: str) -> str:
    """Name of the preset's algorithm."""
    choice = choose(call, preset)
    assert isinstance(choice, Choice)
    return choice.algorithm


def planned(call: CollectiveCall, preset: str) -> Schedule:
    """The messages of a preset's algorithm."""
    choice = choose(call, preset)
    assert isinstance(choice, Choice)
    return schedule(call, choice)


def roots_of(kind: str, n: int) -> set[int]:
    is_rooted = kind in ("bcast", "reduce", "gather", "gatherv", "scatter", "scatterv")
    return {0, n // 2, n - 1, min(1, n - 1)} if is_rooted else {0}


def walk(plan: Schedule, on_post: Callable[[int, int], object], on_receive: Callable[..., None]) -> None:
    """Run the steps in a causal order, all messages eager.

    on_post(participant, message) returns what the message carries; on_receive(participant, message, carried)
    takes it in.
    """
    position = [int(offset) for offset in plan.participant_offsets[:-1]]
    end = [int(offset) for offset in plan.participant_offsets[1:]]
    carried: dict[int, object] = {}
    progress = True
    while progress:
        progress = False
        for i in range(plan.num_participants):
            while position[i] < end[i]:
                step, message = plan.step[position[i]], int(plan.message[position[i]])
                if step == Step.POST_SEND:
                    carried[message] = on_post(i, message)
                elif step == Step.WAIT_RECEIVE:
                    if message not in carried:
                        break
                    on_receive(i, message, carried[message])
                position[i] += 1
                progress = True
    assert position == end, "some participants wait for ever"


def dependencies(plan: Schedule) -> list[set[int]]:
    """For each participant, on whose contributions it depends at the end."""
    known = [{i} for i in range(plan.num_participants)]
    walk(plan, lambda i, message: set(known[i]), lambda i, message, carried: known[i].update(carried))
    return known


def partial_sums(plan: Schedule, num_blocks: int) -> list[dict[int, set[int]]]:
    """Run a reduction whose block i has 2**i bytes, so that a message's size says which blocks it carries.

    Returns whose contributions each participant's partial sum of each block holds at the end. A contribution
    must not be added twice; a complete sum replaces what was there.
    """
    n = plan.num_participants
    sums = [{block: {i} for block in range(num_blocks)} for i in range(n)]

    def post(i: int, message: int) -> dict[int, set[int]]:
        size = int(plan.bytes[message])
        return {block: set(sums[i][block]) for block in range(num_blocks) if size >> block & 1}

    def receive(i: int, message: int, carried: dict[int, set[int]]) -> None:
        for block, contributions in carried.items():
            assert len(contributions) == n or not contributions & sums[i][block], "added twice"
            sums[i][block] |= contributions

    walk(plan, post, receive)
    return sums


def needed(kind: str, n: int, root: int) -> Iterator[set[int]]:
    """Whose contributions each participant must have seen."""
    for i in range(n):
        if kind in ("bcast", "scatter", "scatterv"):
            yield {root}
        elif kind in ("reduce", "gather", "gatherv"):
            yield set(range(n)) if i == root else set()
        elif kind in ("scan", "exscan"):
            yield set(range(i))
        else:
            yield set(range(n))
