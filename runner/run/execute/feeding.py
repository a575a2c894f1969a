"""Who gets what next: decisions on a RunState, without I/O, for workers that take calls one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from manyscale.runner.run.execute.state import RunState
from manyscale.runner.run.execute.tail import Move, moves

CALLS_IN_FLIGHT: Final = 2  # per worker


@dataclass(eq=False)
class Seat:
    """A worker that is ready, on its node; ``num_calls`` with units are in flight, and it may take no further one until
    the one in flight is done (``is_closed``)."""

    worker: int
    node: str = ""
    num_calls: int = 0
    is_closed: bool = False


def next_calls(
    state: RunState, seats: Sequence[Seat], num_starting: int, now: float, calls_in_flight: int = CALLS_IN_FLIGHT
) -> Iterator[Move]:
    """Calls to make at once; they are in flight then. A first call goes to each worker before a second to any, and the
    last units are left to the ``num_starting`` workers that will have nothing else to do."""
    nodes = {seat.worker: seat.node for seat in seats}
    places = set(nodes.values())
    for depth in range(calls_in_flight):
        for seat in seats:
            if len(state.pending) <= (num_starting if depth else 0):
                break
            if seat.num_calls != depth or seat.is_closed:
                continue
            if depth and state.is_suspect(next(iter(state.pending))):
                break  # it travels alone
            if batch := state.next_batch(seat.worker, now, seat.node, places):
                seat.num_calls += 1
                seat.is_closed = state.is_suspect(batch[0].key)
                yield Move(seat.worker, [unit.key for unit in batch], {})
    idle = {seat.worker: seat for seat in seats if not seat.num_calls and not seat.is_closed}
    for move in moves(state, list(idle), nodes, now) if idle and state.copies else ():
        idle[move.worker].num_calls += 1
        yield move
