"""Schedules and their builder: order of steps, and everything that validate() must refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyscale.models.network.collectives.schedules import Schedule, ScheduleBuilder, Step


def steps_of(schedule: Schedule, participant: int) -> list[tuple[Step, int]]:
    first, end = schedule.participant_offsets[participant : participant + 2]
    return [
        (Step(step), int(message))
        for step, message in zip(schedule.step[first:end], schedule.message[first:end], strict=True)
    ]


def two_messages() -> Schedule:
    """Participant 0 sends to 1, then 1 to 2."""
    builder = ScheduleBuilder(3)
    builder.send([0], [1], 10)
    builder.send([1], [2], [20])
    return builder.build()


@pytest.mark.theory
def test_blocking_send_is_a_post_followed_by_its_wait() -> None:
    schedule = two_messages()
    schedule.validate()
    assert steps_of(schedule, 0) == [(Step.POST_SEND, 0), (Step.WAIT_SEND, 0)]
    assert steps_of(schedule, 1) == [
        *((Step.POST_RECEIVE, 0), (Step.WAIT_RECEIVE, 0)),
        *((Step.POST_SEND, 1), (Step.WAIT_SEND, 1)),
    ]
    assert steps_of(schedule, 2) == [(Step.POST_RECEIVE, 1), (Step.WAIT_RECEIVE, 1)]
    assert schedule.bytes.tolist() == [10, 20]


@pytest.mark.theory
def test_sends_of_one_participant_keep_the_order_of_the_elements() -> None:
    builder = ScheduleBuilder(3)
    builder.send([0, 0], [2, 1], 1)
    schedule = builder.build()
    assert schedule.destination.tolist() == [2, 1]
    assert [message for _, message in steps_of(schedule, 0)] == [0, 0, 1, 1]


@pytest.mark.theory
def test_exchange_posts_receive_and_send_before_it_waits() -> None:
    builder = ScheduleBuilder(2)
    builder.exchange([0, 1], [1, 0], [3, 4])
    schedule = builder.build()
    schedule.validate()
    assert steps_of(schedule, 0) == [
        *((Step.POST_RECEIVE, 1), (Step.POST_SEND, 0)),
        *((Step.WAIT_RECEIVE, 1), (Step.WAIT_SEND, 0)),
    ]


@pytest.mark.theory
def test_columns_have_the_declared_types() -> None:
    for schedule in (two_messages(), ScheduleBuilder(2).build()):
        assert schedule.participant_offsets.dtype == np.int64
        assert schedule.step.dtype == np.int8
        assert schedule.message.dtype == schedule.source.dtype == schedule.destination.dtype == np.int32
        assert schedule.bytes.dtype == np.int64


@pytest.mark.theory
def test_empty_schedule_is_valid() -> None:
    schedule = ScheduleBuilder(1).build()
    schedule.validate()
    assert (schedule.num_participants, schedule.num_messages, schedule.num_steps) == (1, 0, 0)
    with pytest.raises(ValueError, match="at least one"):
        ScheduleBuilder(0)


@pytest.mark.theory
def test_more_participants_than_sixteen_bits_hold() -> None:
    builder = ScheduleBuilder(70000)
    builder.send([69999, 40000], [5, 69998], 1)
    schedule = builder.build()
    schedule.validate()
    assert steps_of(schedule, 69999) == [(Step.POST_SEND, 0), (Step.WAIT_SEND, 0)]
    assert steps_of(schedule, 5) == [(Step.POST_RECEIVE, 0), (Step.WAIT_RECEIVE, 0)]


@pytest.mark.property
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=40))
def test_any_sequence_of_rounds_keeps_each_participants_order(rounds: list[tuple[int, int, bool]]) -> None:
    builder = ScheduleBuilder(7)
    for source, destination, is_exchange in rounds:
        (builder.exchange if is_exchange else builder.send)(source, destination, 8)
    schedule = builder.build()
    schedule.validate()
    for participant in range(7):
        messages = [message for _, message in steps_of(schedule, participant)]
        assert messages == sorted(messages)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bytes": np.array([10, -1])}, "negative"),
        ({"bytes": np.array([10])}, "lengths"),
        ({"source": np.array([0, 3], np.int32)}, "source outside"),
        ({"destination": np.array([-1, 2], np.int32)}, "destination outside"),
        ({"destination": np.array([0, 2], np.int32)}, "stands at participant"),
        ({"source": np.array([2, 1], np.int32)}, "stands at participant"),
        ({"message": np.array([0, 0, 0, 0, 1, 1, 1, 2], np.int32)}, "message outside"),
        ({"message": np.array([0, 0, 0, 0, 0, 1, 1, 1], np.int32)}, "has no"),
        ({"step": np.array([2, 0, 1, 3, 0, 2, 1, 3], np.int8)}, "precedes"),
        ({"step": np.array([0, 2, 3, 1, 0, 2, 1, 3], np.int8)}, "precedes"),
        ({"step": np.array([0, 0, 1, 3, 0, 2, 1, 3], np.int8)}, "has no WAIT_SEND"),
        ({"participant_offsets": np.array([0, 2, 6, 7])}, "partition"),
        ({"participant_offsets": np.array([0, 6, 2, 8])}, "partition"),
        ({"participant_offsets": np.array([0, 4, 6, 8])}, "stands at participant"),
    ],
)
def test_validate_refuses(change: dict[str, np.ndarray], reason: str) -> None:
    schedule = two_messages()
    schedule.validate()
    with pytest.raises(ValueError, match=reason):
        replace(schedule, **change).validate()


@pytest.mark.theory
def test_validate_refuses_a_message_without_steps() -> None:
    builder = ScheduleBuilder(2)
    builder.messages(0, 1, 5)
    with pytest.raises(ValueError, match="0 steps for 1 messages"):
        builder.build().validate()
