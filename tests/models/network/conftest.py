"""A slow, obvious executor of schedules, independent of the project's replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from manyscale.models.network.collectives.schedules import Schedule, Step

LATENCY_S = 10e-6
BANDWIDTH_BYTES_PER_S = 1.25e9
ENVELOPE_BYTES = 16
EAGER_BYTES = 65536

Execute = Callable[..., list[float]]


class DeadlockError(AssertionError):
    """Some participants wait for ever."""


def execute_schedule(
    schedule: Schedule,
    arrival: Sequence[float] | None = None,
    overlap: Sequence[float] | None = None,
    eager_bytes: float = EAGER_BYTES,
) -> list[float]:
    """Time (s) at which each participant leaves, without contention or CPU overheads.

    A transfer starts when both sides are posted and takes L + (size + 16) / B (to oneself L / 2 + ...); the
    wait of a send below eager_bytes is free, that of a longer one lasts as long as the transfer. Participants
    enter at `arrival` (s); `overlap` (s) passes between the last post and the first wait.
    """
    n = schedule.num_participants
    clock = list(arrival) if arrival is not None else [0.0] * n
    posted: dict[tuple[Step, int], float] = {}
    position = [int(offset) for offset in schedule.participant_offsets]
    end = position[1:]
    pause = list(overlap) if overlap is not None else [0.0] * n
    if overlap is not None:  # non-blocking: the schedule must post everything before it waits
        for i in range(n):
            steps = schedule.step[position[i] : end[i]] >= Step.WAIT_SEND
            assert (steps[1:] >= steps[:-1]).all()

    def finish(message: int) -> float | None:
        send, receive = posted.get((Step.POST_SEND, message)), posted.get((Step.POST_RECEIVE, message))
        if send is None or receive is None:
            return None
        own = schedule.source[message] == schedule.destination[message]
        size = int(schedule.bytes[message]) + ENVELOPE_BYTES
        return max(send, receive) + (LATENCY_S / 2 if own else LATENCY_S) + size / BANDWIDTH_BYTES_PER_S

    progress = True
    while progress:
        progress = False
        for i in range(n):
            while position[i] < end[i]:
                step, message = Step(schedule.step[position[i]]), int(schedule.message[position[i]])
                if step in (Step.POST_SEND, Step.POST_RECEIVE):
                    posted[step, message] = clock[i]
                else:
                    start, pause[i] = clock[i] + pause[i], 0.0
                    if step is Step.WAIT_SEND and schedule.bytes[message] < eager_bytes:
                        clock[i] = start
                    elif (done := finish(message)) is None:
                        clock[i] = start
                        break
                    else:
                        clock[i] = max(start, done)
                position[i] += 1
                progress = True
    stuck = [i for i in range(n) if position[i] < end[i]]
    if stuck:
        raise DeadlockError(f"participants {stuck} wait for ever")
    return [time + rest for time, rest in zip(clock, pause, strict=True)]


@pytest.fixture(scope="session")
def execute() -> Execute:
    return execute_schedule
