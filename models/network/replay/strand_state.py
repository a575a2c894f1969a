"""Where the strands of a replay program are in the order of simulated time, as records that the kernels of
``timed_strands`` move on."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels.event_heap import event_record
from manyscale.models.network.program import Program

NEVER: Final = 1 << 62
SEND_POSTED: Final = 1  # bits of a message's status
RECEIVE_POSTED: Final = 2
BOTH_POSTED: Final = 3
ARRIVED: Final = 4


class Steps(NamedTuple):
    """What strands run on; none of it changes. See Program; ``compute`` per operation, ``delay`` before each send."""

    step: np.ndarray
    target: np.ndarray
    strand_end: np.ndarray
    compute: np.ndarray
    is_eager: np.ndarray
    delay: np.ndarray
    send: np.ndarray  # records: queue, tag, source
    open: np.ndarray  # records: queue, source, tag
    candidate_offsets: np.ndarray
    candidate: np.ndarray  # records: action, target
    gate: np.ndarray  # records: size, cost


class State(NamedTuple):
    """Where the strands are. Results: ``end`` per operation; ``sent`` and ``arrived`` per message; ``finished``."""

    now: np.ndarray  # [1]
    end: np.ndarray
    message: np.ndarray  # records, see _message_record
    posted: np.ndarray
    strand: np.ndarray  # records, see _strand_record
    finished: np.ndarray
    heap: np.ndarray  # of parked strands
    heap_size: np.ndarray  # [1]
    open: np.ndarray  # records: message, waiter, following, consumed
    queue: np.ndarray  # records: unmatched sends and unmatched open receives, in order of posting
    send_following: np.ndarray
    consumed: np.ndarray  # per message, by wait-any: bit 0 as a send, bit 1 as a receive
    gate: np.ndarray  # records: opens, entered, waiter (first of the strands that wait, linked by their ``following``)

    @property
    def sent(self) -> np.ndarray:
        """When each message was posted, -1 for one that was not."""
        return np.ascontiguousarray(self.message["sent"])

    @property
    def arrived(self) -> np.ndarray:
        """When each arrived, -1 for one that has not."""
        return np.ascontiguousarray(self.message["arrived"])

    @property
    def status(self) -> np.ndarray:
        """Which sides of each have been posted, and whether it has arrived: bits."""
        return np.ascontiguousarray(self.message["status"])


# Many small arrays would cost more to hand on than what is done with them: so records.
_SEND: Final = np.dtype([("queue", "i4"), ("tag", "i4"), ("source", "i4")])
_OPEN: Final = np.dtype([("queue", "i4"), ("source", "i4"), ("tag", "i4")])
_CANDIDATE: Final = np.dtype([("action", "i4"), ("target", "i4")])
_OPEN_STATE: Final = np.dtype([("message", "i4"), ("waiter", "i4"), ("following", "i4"), ("consumed", "i4")])
_QUEUE: Final = np.dtype([("send_first", "i4"), ("send_last", "i4"), ("open_first", "i4"), ("open_last", "i4")])


def _message_record(time: np.dtype) -> np.dtype:
    """When a message and its receive were posted and when it arrived, the strands that wait as its sender and receiver,
    and bits: together, for what looks at one looks at the others, and a large machine's are in no cache."""
    return np.dtype(
        [
            ("sent", time), ("received", time), ("arrived", time), ("sender", "i4"), ("receiver", "i4"),
            ("status", "u4"), ("unused", "u4"),
        ]
    )  # fmt: skip


def _strand_record(time: np.dtype) -> np.dtype:
    """``clock``: end of a finished strand; ``following``: next of those that wait at a gate."""
    return np.dtype(
        [
            ("place", "i8"), ("operation", "i8"), ("clock", time), ("waiter", "i4"), ("following", "i4"),
            ("phase", "i4"), ("waiting", "i4"), ("consumed", "i4"), ("unused", "i4"),
        ]
    )  # fmt: skip


def new_state(
    program: Program,
    compute: np.ndarray,
    is_eager: np.ndarray,
    delay: np.ndarray,
    gate_cost: np.ndarray,
) -> tuple[Steps, State]:
    """Strands before their first step: all ranks are parked at time 0.

    ``compute`` per operation, ``delay`` per message (the sender's time before its post) and ``gate_cost`` per gate have
    one dtype, int64 or float64, which all times take.
    """
    time = compute.dtype
    if not time == delay.dtype == gate_cost.dtype:
        raise TypeError("compute, delay and gate_cost differ in dtype")
    strands, messages, opens = len(program.strand_rank), program.num_messages, len(program.open_queue)
    sends, gates = len(program.send_queue), len(program.gate_size)
    steps = Steps(
        step=program.step,
        target=program.target,
        strand_end=_read_only(program.strand_steps[1:]),
        compute=_read_only(compute),
        is_eager=_read_only(is_eager),
        delay=_read_only(delay),
        send=_records(_SEND, sends, queue=program.send_queue, tag=program.send_tag, source=program.source[:sends]),
        open=_records(_OPEN, opens, queue=program.open_queue, source=program.open_source, tag=program.open_tag),
        candidate_offsets=_read_only(program.candidate_offsets),
        candidate=_records(
            _CANDIDATE, len(program.candidate_action), action=program.candidate_action, target=program.candidate_target
        ),
        gate=_records(np.dtype([("size", "i8"), ("cost", time)]), gates, size=program.gate_size, cost=gate_cost),
    )
    operation = np.zeros(strands, np.int64)
    operation[: program.num_ranks] = program.rank_offsets[:-1]
    state = State(
        now=np.zeros(1, time),
        end=np.zeros(int(program.rank_offsets[-1]), time),
        message=_records(_message_record(time), messages, sent=-1, received=-1, arrived=-1, sender=-1, receiver=-1),
        posted=np.zeros(int(np.diff(program.strand_steps).max(initial=0)), np.int32),
        strand=_records(
            _strand_record(time), strands, place=program.strand_steps[:-1], operation=operation, waiter=-1, following=-1
        ),
        finished=np.zeros(strands, np.uint8),
        heap=_records(event_record(time), strands, number=np.arange(strands)),
        heap_size=np.array([program.num_ranks]),
        open=_records(_OPEN_STATE, opens, message=-1, waiter=-1, following=-1),
        queue=_records(_QUEUE, program.num_queues, send_first=-1, send_last=-1, open_first=-1, open_last=-1),
        send_following=np.full(sends, -1, np.int32),
        consumed=np.zeros(messages if len(program.candidate_target) else 0, np.uint8),
        gate=_records(np.dtype([("opens", time), ("entered", "i4"), ("waiter", "i4")]), gates, opens=-1, waiter=-1),
    )
    return steps, state


def _records(dtype: np.dtype, count: int, **columns: object) -> np.ndarray:
    """Records of the given columns; the others are 0."""
    records = np.zeros(count, dtype)
    for name, values in columns.items():
        records[name] = values
    return records


def _read_only(values: np.ndarray) -> np.ndarray:
    """A view that cannot be written, as Ray and Arrow hand arrays over: one compiled kernel for all."""
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view
