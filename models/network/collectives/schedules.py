"""Schedules: a collective operation written as point-to-point messages in program order.

A schedule says, for each participant of a collective, which messages it posts and which it waits for, in
the order in which the algorithm does so. It knows no times: the replay copies it into its program, once per
instance, and times it like any other traffic. Participants are indices within the communicator.

Blocking operations are a post followed by its wait; the replay makes the wait of an eager send free.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Integers: TypeAlias = NDArray[np.int64]


class Step(IntEnum):
    """What one step of a participant does with its message."""

    POST_SEND = 0
    POST_RECEIVE = 1
    WAIT_SEND = 2
    WAIT_RECEIVE = 3


@dataclass(frozen=True, eq=False)
class Schedule:
    """Messages of a collective and the steps of each participant, in program order.

    participant_offsets: int64 (n + 1), the steps of participant i are [offsets[i], offsets[i + 1]).
    step: int8 (num_steps), codes of `Step`. message: int32 (num_steps), the message each step acts on.
    source, destination: int32 (num_messages), participant indices. bytes: int64 (num_messages).
    """

    participant_offsets: Integers
    step: NDArray[np.int8]
    message: NDArray[np.int32]
    source: NDArray[np.int32]
    destination: NDArray[np.int32]
    bytes: Integers

    @property
    def num_participants(self) -> int:
        return len(self.participant_offsets) - 1

    @property
    def num_messages(self) -> int:
        return len(self.source)

    @property
    def num_steps(self) -> int:
        return len(self.step)

    def validate(self) -> None:
        """Raise ValueError unless each message is posted, then waited for, once by each of its two sides."""
        n, messages, offsets = self.num_participants, self.num_messages, self.participant_offsets
        if not len(self.destination) == len(self.bytes) == messages or len(self.message) != self.num_steps:
            raise ValueError("schedule: columns of different lengths")
        if n < 0 or offsets[0] != 0 or offsets[-1] != self.num_steps or (np.diff(offsets) < 0).any():
            raise ValueError(f"schedule: participant_offsets do not partition {self.num_steps} steps")
        for name, column, limit in (
            ("source", self.source, n),
            ("destination", self.destination, n),
            ("message", self.message, messages),
            ("step", self.step, len(Step)),
        ):
            if len(column) and (column.min() < 0 or column.max() >= limit):
                raise ValueError(f"schedule: {name} outside 0..{limit - 1}")
        if (self.bytes < 0).any():
            raise ValueError("schedule: negative message size")
        if self.num_steps != len(Step) * messages:
            raise ValueError(f"schedule: {self.num_steps} steps for {messages} messages")

        key = self.step.astype(np.int64) * messages + self.message
        position = np.full(len(Step) * messages, -1, np.int64)
        position[key] = np.arange(self.num_steps)
        if (position < 0).any():
            code, message = divmod(int(np.flatnonzero(position < 0)[0]), messages)
            raise ValueError(f"schedule: message {message} has no {Step(code).name}, or another step twice")
        owner = np.repeat(np.arange(n), np.diff(offsets))
        at = position.reshape(len(Step), messages)
        for code, side in (
            (Step.POST_SEND, self.source),
            (Step.POST_RECEIVE, self.destination),
            (Step.WAIT_SEND, self.source),
            (Step.WAIT_RECEIVE, self.destination),
        ):
            wrong = np.flatnonzero(owner[at[code]] != side)
            if len(wrong):
                message = int(wrong[0])
                raise ValueError(
                    f"schedule: {code.name} of message {message} stands at participant "
                    f"{owner[at[code][message]]}, not {side[message]}"
                )
        for post, wait in ((Step.POST_SEND, Step.WAIT_SEND), (Step.POST_RECEIVE, Step.WAIT_RECEIVE)):
            wrong = np.flatnonzero(at[wait] <= at[post])
            if len(wrong):
                raise ValueError(f"schedule: {wait.name} of message {wrong[0]} precedes its {post.name}")


class ScheduleBuilder:
    """Collects rounds of messages; a participant's steps keep the order in which they were appended.

    Sources, destinations and sizes are arrays (or scalars, broadcast) with one element per message. The
    cost is NumPy's: a call may hold a single message or a million.
    """

    def __init__(self, num_participants: int) -> None:
        if num_participants < 1:
            raise ValueError(f"a schedule needs at least one participant, got {num_participants}")
        self.num_participants = num_participants
        self._num_messages = 0
        self._messages: list[tuple[NDArray[np.int32], NDArray[np.int32], Integers]] = []
        self._steps: list[tuple[NDArray[np.int8], NDArray[np.int32]]] = []

    def messages(self, source: ArrayLike, destination: ArrayLike, bytes: ArrayLike) -> NDArray[np.int32]:
        """Declare messages, without any step yet; returns their indices."""
        sources, destinations, sizes = np.broadcast_arrays(
            np.asarray(source, np.int32), np.asarray(destination, np.int32), np.asarray(bytes, np.int64)
        )
        first = self._num_messages
        self._num_messages += sources.size
        self._messages.append((sources.ravel(), destinations.ravel(), sizes.ravel()))
        return np.arange(first, self._num_messages, dtype=np.int32)

    def append(self, step: ArrayLike, message: ArrayLike) -> None:
        """Append steps (`Step` codes, broadcast against the messages), each at the side it belongs to."""
        steps, messages = np.broadcast_arrays(np.asarray(step, np.int8), np.asarray(message, np.int32))
        self._steps.append((steps.ravel(), messages.ravel()))

    def post_sends(self, message: ArrayLike) -> None:
        self.append(Step.POST_SEND, message)

    def post_receives(self, message: ArrayLike) -> None:
        self.append(Step.POST_RECEIVE, message)

    def wait_sends(self, message: ArrayLike) -> None:
        self.append(Step.WAIT_SEND, message)

    def wait_receives(self, message: ArrayLike) -> None:
        self.append(Step.WAIT_RECEIVE, message)

    def send(self, source: ArrayLike, destination: ArrayLike, bytes: ArrayLike) -> NDArray[np.int32]:
        """Blocking sends matched by blocking receives.

        A participant that appears more than once on a side does so in the order of the elements; one that
        appears on both sides does its sends first.
        """
        messages = self.messages(source, destination, bytes)
        pairs = np.repeat(messages, 2)
        self.append(np.tile(np.array([Step.POST_SEND, Step.WAIT_SEND]), len(messages)), pairs)
        self.append(np.tile(np.array([Step.POST_RECEIVE, Step.WAIT_RECEIVE]), len(messages)), pairs)
        return messages

    def exchange(self, source: ArrayLike, destination: ArrayLike, bytes: ArrayLike) -> NDArray[np.int32]:
        """MPI_Sendrecv: each participant posts its receive, then its send, and waits for both."""
        messages = self.messages(source, destination, bytes)
        self.post_receives(messages)
        self.post_sends(messages)
        self.wait_receives(messages)
        self.wait_sends(messages)
        return messages

    def build(self) -> Schedule:
        """The schedule: one stable sort of all steps by participant."""
        source, destination, sizes = (
            np.concatenate([*(part[i] for part in self._messages), np.empty(0, dtype)])
            for i, dtype in enumerate((np.int32, np.int32, np.int64))
        )
        step = np.concatenate([*(part[0] for part in self._steps), np.empty(0, np.int8)])
        message = np.concatenate([*(part[1] for part in self._steps), np.empty(0, np.int32)])
        # NumPy sorts 16-bit keys by radix, several times faster than wider ones.
        key = np.int32 if self.num_participants > np.iinfo(np.int16).max else np.int16
        owner = np.where((step & 1) == Step.POST_SEND, source[message], destination[message]).astype(key)
        if (owner[1:] < owner[:-1]).any():
            order = np.argsort(owner, kind="stable")
            step, message = step[order], message[order]
        offsets = np.zeros(self.num_participants + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=self.num_participants), out=offsets[1:])
        return Schedule(offsets, step, message, source, destination, sizes)
