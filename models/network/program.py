"""The replay program: a workload's operations as arrays of sends, receives and waits, matched once.

Built from a workload and a choice of collective algorithms; independent of latency, bandwidth and compute times, so
that one program serves every point of a sweep. Collectives become schedules of messages (collectives.py).

Steps of one rank form a *strand*, executed in order; a non-blocking collective is a strand of its own, started by its
operation. Messages whose receive cannot be a wildcard are matched here: the k-th send with the k-th receive of the same
(communicator, source, destination, tag), as MPI's non-overtaking rule demands. Sends that a wildcard receive might take
(same communicator, destination and tag) are left to the replay, which decides in simulated time.

Cost: O(operations + messages). Memory: 5 B a step and 17 B a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numba import njit

from manyscale.models.hash_table import find_or_add, new_table
from manyscale.models.network.collectives import CollectiveCall, schedule
from manyscale.models.network.schedules import Schedule
from manyscale.models.workload import (
    ANY_SOURCE,
    ANY_TAG,
    COLLECTIVES,
    NONBLOCKING_COLLECTIVES,
    OperationKind,
    Workload,
    WorkloadError,
)

VERSION: Final = 1


class Step(IntEnum):
    """What a step does; bits FIRST and LAST are or-ed in at the borders of an operation."""

    post_send = 0
    post_receive = 1
    wait_send = 2
    wait_receive = 3
    post_open_send = 4  # a send that a wildcard receive may take
    post_open_receive = 5
    wait_open_receive = 6
    wait_any = 7
    start_strand = 8
    wait_strand = 9
    nothing = 10


FIRST: Final = 16
LAST: Final = 32
ACTION: Final = 15


class Mode(IntEnum):
    """How a message is sent; ``free`` costs nothing (the part of a sendrecv that goes to the rank itself)."""

    standard = 0
    synchronous = 1
    buffered = 2
    free = 3


_MODE_OF_KIND: Final = {
    OperationKind.send: Mode.standard,
    OperationKind.isend: Mode.standard,
    OperationKind.ssend: Mode.synchronous,
    OperationKind.issend: Mode.synchronous,
    OperationKind.bsend: Mode.buffered,
    OperationKind.ibsend: Mode.buffered,
    OperationKind.sendrecv: Mode.standard,
}


@dataclass(frozen=True)
class Program:
    """Arrays of the replay; see the module's docstring.

    Per step: ``step`` uint8 (a Step with border bits) and ``target`` int32 (message, open receive, candidate list or
    strand). Per strand: ``strand_steps`` int64[s + 1] bounds and ``strand_rank``; the first ``num_ranks`` strands are
    the ranks themselves. Per message: source, destination, bytes and mode; message i is sent by the i-th row of
    ``send_rows(workload)``, the messages of collectives follow. Open receives: ``open_source`` and ``open_tag``
    wanted, the queue (``open_queue``) they and their candidate sends meet in; per point-to-point message, if there are
    queues at all, ``send_queue`` (-1 for none), ``send_tag`` and ``send_operation`` (id within its rank). Wait-any
    candidates: ``candidate_action``, ``candidate_target`` in ``candidate_offsets`` lists.
    """

    num_ranks: int
    rank_offsets: np.ndarray
    step: np.ndarray
    target: np.ndarray
    strand_steps: np.ndarray
    strand_rank: np.ndarray
    source: np.ndarray
    destination: np.ndarray
    bytes: np.ndarray
    mode: np.ndarray
    send_queue: np.ndarray
    send_tag: np.ndarray
    send_operation: np.ndarray
    open_queue: np.ndarray
    open_source: np.ndarray
    open_tag: np.ndarray
    num_queues: int
    candidate_offsets: np.ndarray
    candidate_action: np.ndarray
    candidate_target: np.ndarray

    def __post_init__(self) -> None:
        for value in self.__dict__.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def num_messages(self) -> int:
        return len(self.source)

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays."""
        return sum(value.nbytes for value in self.__dict__.values() if isinstance(value, np.ndarray))


def build_program(workload: Workload, collectives: str) -> Program:
    """The program of a workload under a preset of collective algorithms.

    Raises WorkloadError, naming rank and operation, for sends and receives that do not match, for collectives that the
    ranks call in different order, and for requests that are not open.
    """
    return _Builder(workload, collectives).build()


def send_rows(workload: Workload) -> np.ndarray:
    """int64[]: the rows of ``operations`` that send a point-to-point message, in order: row i sends message i."""
    sends = np.isin(np.arange(len(OperationKind)), list(_MODE_OF_KIND))[workload.column("operations", "kind")]
    return np.flatnonzero(sends & (workload.column("operations", "peer") >= 0))


class _Builder:
    def __init__(self, workload: Workload, collectives: str) -> None:
        self.workload = workload
        self.collectives = collectives
        self.kind = workload.column("operations", "kind")
        self.rank = workload.column("operations", "rank")
        self.peer = workload.column("operations", "peer")
        self.tag = workload.column("operations", "tag")
        self.source = workload.column("operations", "source")
        self.communicator = workload.column("operations", "communicator_id")
        self.send_bytes = workload.column("operations", "bytes")
        self.request = workload.column("operations", "request")
        self.completes = workload.lists("operations", "completes")
        self.rank_offsets = workload.rank_offsets

    def place(self, row: int) -> str:
        """Where an operation stands, for messages."""
        rank = int(self.rank[row])
        name = OperationKind(int(self.kind[row])).name
        return f"rank {rank}, operation {int(row - self.rank_offsets[rank])} ({name})"

    def build(self) -> Program:
        self._match()
        self._schedule_collectives()
        self._resolve_requests()
        return self._emit()

    def _match(self) -> None:
        """Messages of point-to-point operations: ``send_message`` and ``receive_message`` per operation, -1 for none;
        an open receive is stored as -2 - its number."""
        kind = self.kind
        kinds = np.arange(len(OperationKind))
        receives_from = np.where(kind == OperationKind.sendrecv, self.source, self.peer)
        is_receive = np.isin(kinds, [OperationKind.recv, OperationKind.irecv, OperationKind.sendrecv])[kind]
        is_receive &= (receives_from >= 0) | (receives_from == ANY_SOURCE)
        sends = send_rows(self.workload)
        receives = np.flatnonzero(is_receive)
        self.sends = sends
        source = self.rank[sends]
        destination = self.peer[sends]
        self.messages = {
            "source": source.astype(np.int32),
            "destination": destination.astype(np.int32),
            "bytes": self.send_bytes[sends],
            "mode": self._modes(sends),
        }
        wanted = receives_from[receives]
        send_queue, receive_queue, self.num_queues = self._queues(sends, receives, wanted)
        # keys: (communicator, tag) and (source, destination); messages that meet in a queue are left out
        scope = self.communicator.astype(np.int64) << 32
        send_key = (scope[sends] | self.tag[sends], (source.astype(np.int64) << 32) | destination)
        receive_key = (scope[receives] | self.tag[receives], (wanted.astype(np.int64) << 32) | self.rank[receives])
        table = new_table(len(sends))
        message_of_receive, first_unmatched = _match_static(
            *send_key, send_queue, *receive_key, receive_queue, *table
        )
        self._refuse_unmatched(sends, receives, message_of_receive, send_queue, receive_queue, first_unmatched)
        self.send_message = np.full(len(kind), -1, np.int32)
        self.send_message[sends] = np.arange(len(sends), dtype=np.int32)
        self.receive_message = np.full(len(kind), -1, np.int32)
        is_open = receive_queue >= 0
        numbers = np.cumsum(is_open) - 1
        self.receive_message[receives] = np.where(is_open, -2 - numbers, message_of_receive)
        self.send_queue = send_queue
        self.open = {
            "queue": receive_queue[is_open],
            "source": wanted[is_open].astype(np.int32),
            "tag": self.tag[receives][is_open],
        }

    def _modes(self, sends: np.ndarray) -> np.ndarray:
        table = np.zeros(len(OperationKind), np.uint8)
        for kind, mode in _MODE_OF_KIND.items():
            table[kind] = mode
        modes = table[self.kind[sends]]
        to_self = (self.kind[sends] == OperationKind.sendrecv) & (self.peer[sends] == self.rank[sends])
        modes[to_self] = Mode.free
        return modes

    def _queues(
        self, sends: np.ndarray, receives: np.ndarray, wanted: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Queue of each send and receive, -1 for those that are matched statically; and the number of queues.

        One queue per (communicator, destination, tag) on which some receive takes any source; one per (communicator,
        destination), for all tags, where some receive takes any tag.
        """
        send_queue = np.full(len(sends), -1, np.int32)
        receive_queue = np.full(len(receives), -1, np.int32)
        any_tag = self.tag[receives] == ANY_TAG
        wild = np.flatnonzero((wanted == ANY_SOURCE) | any_tag)
        if not len(wild):
            return send_queue, receive_queue, 0
        send_pair = (self.communicator[sends].astype(np.int64) << 32) | self.peer[sends]
        receive_pair = (self.communicator[receives].astype(np.int64) << 32) | self.rank[receives]
        whole = np.unique(receive_pair[any_tag])
        base = int(max(self.tag[sends].max(initial=0), self.tag[receives].max(initial=0))) + 2

        def keys(pair: np.ndarray, tag: np.ndarray) -> np.ndarray:
            # the tag plays no part where some receive of the pair takes any
            pairs, inverse = np.unique(pair, return_inverse=True)
            tag_part = np.where(np.isin(pairs, whole)[inverse], base - 1, tag)
            return np.searchsorted(every_pair, pair) * np.int64(base) + tag_part

        every_pair = np.unique(np.concatenate([send_pair, receive_pair]))
        send_keys = keys(send_pair, self.tag[sends])
        receive_keys = keys(receive_pair, self.tag[receives])
        queues = np.unique(receive_keys[wild])
        for numbers, found in ((send_queue, send_keys), (receive_queue, receive_keys)):
            position = np.minimum(np.searchsorted(queues, found), len(queues) - 1)
            inside = queues[position] == found
            numbers[inside] = position[inside]
        is_wild = np.zeros(len(receives), np.bool_)
        is_wild[wild] = True
        self._settle_specific(sends, receives, wanted, is_wild, send_queue, receive_queue, len(queues))
        return send_queue, receive_queue, len(queues)

    def _settle_specific(
        self,
        sends: np.ndarray,
        receives: np.ndarray,
        wanted: np.ndarray,
        is_wild: np.ndarray,
        send_queue: np.ndarray,
        receive_queue: np.ndarray,
        num_queues: int,
    ) -> None:
        """Take out of the queues what is settled although wildcards are about.

        Where all wildcard receives of a queue are posted before its specific ones, a message goes to a wildcard as
        long as one that fits is left. So of the S sends of one (source, tag) with R specific receives the first S - R
        meet wildcards, and the others match the specific receives in order.
        """
        last_wild = np.full(num_queues, -1, np.int64)
        np.maximum.at(last_wild, receive_queue[is_wild], receives[is_wild])
        specific = np.flatnonzero((receive_queue >= 0) & ~is_wild)
        first_specific = np.full(num_queues, np.iinfo(np.int64).max)
        np.minimum.at(first_specific, receive_queue[specific], receives[specific])
        settled = last_wild < first_specific
        of_send = np.flatnonzero((send_queue >= 0) & settled[send_queue])
        of_receive = specific[settled[receive_queue[specific]]]
        tags, tag_number = np.unique(
            np.concatenate([self.tag[sends[of_send]], self.tag[receives[of_receive]]]), return_inverse=True
        )
        queue = np.concatenate([send_queue[of_send], receive_queue[of_receive]]).astype(np.int64)
        source = np.concatenate([self.rank[sends[of_send]], wanted[of_receive]])
        channel = (queue * self.workload.num_ranks + source) * len(tags) + tag_number
        channels, number = np.unique(channel, return_inverse=True)
        of_sends, of_receives = number[: len(of_send)], number[len(of_send) :]
        num_sent = np.bincount(of_sends, minlength=len(channels))
        num_wild = num_sent - np.bincount(of_receives, minlength=len(channels))
        order = np.argsort(of_sends, kind="stable")
        position = np.empty(len(of_send), np.int64)
        position[order] = np.arange(len(of_send)) - np.repeat(np.cumsum(num_sent) - num_sent, num_sent)
        send_queue[of_send[position >= num_wild[of_sends]]] = -1
        receive_queue[of_receive] = -1

    def _refuse_unmatched(
        self,
        sends: np.ndarray,
        receives: np.ndarray,
        message_of_receive: np.ndarray,
        send_queue: np.ndarray,
        receive_queue: np.ndarray,
        first_unmatched_send: int,
    ) -> None:
        lonely = np.flatnonzero((message_of_receive < 0) & (receive_queue < 0))
        if first_unmatched_send >= 0:
            row = int(sends[first_unmatched_send])
            raise WorkloadError(
                f"{self.workload.name}: {self.place(row)} sends {int(self.send_bytes[row])} B with tag "
                f"{int(self.tag[row])} to rank {int(self.peer[row])}, which never receives it; the trace is incomplete"
            )
        if len(lonely):
            row = int(receives[lonely[0]])
            source = int(self.source[row] if self.kind[row] == OperationKind.sendrecv else self.peer[row])
            raise WorkloadError(
                f"{self.workload.name}: {self.place(row)} expects a message with tag {int(self.tag[row])} from rank "
                f"{source}, which never sends it; the trace is incomplete"
            )

    def _schedule_collectives(self) -> None:
        """One schedule per distinct call; per instance a block of messages. Sets ``schedule_of`` (per operation, -1
        for none), ``participant`` and ``first_message``."""
        kind = self.kind
        rows = np.flatnonzero(kind >= COLLECTIVES.start)
        self.schedules: list[Schedule] = []
        self.schedule_of = np.full(len(kind), -1, np.int32)
        self.participant = np.zeros(len(kind), np.int32)
        self.first_message = np.zeros(len(kind), np.int64)
        total = len(self.sends)
        blocks = []
        known: dict[tuple[object, ...], int] = {}
        for members, instances in self._instances(rows):
            for instance in instances:
                key, call = self._call(instance, len(members))
                if key not in known:
                    known[key] = len(self.schedules)
                    self.schedules.append(schedule(call, self.collectives))
                number = known[key]
                self.schedule_of[instance] = number
                self.participant[instance] = np.arange(len(members))
                self.first_message[instance] = total
                plan = self.schedules[number]
                total += len(plan.source)
                blocks.append((members, plan))
        if total > 2**31 - 1:
            raise WorkloadError(f"{self.workload.name}: {total} messages; at most 2^31 - 1 can be replayed")
        for name in ("source", "destination"):
            parts = [self.messages[name], *(members[getattr(plan, name)] for members, plan in blocks)]
            self.messages[name] = np.concatenate(parts).astype(np.int32)
        self.messages["bytes"] = np.concatenate([self.messages["bytes"], *(plan.bytes for _, plan in blocks)])
        extra = total - len(self.sends)
        self.messages["mode"] = np.concatenate([self.messages["mode"], np.full(extra, Mode.standard, np.uint8)])

    def _instances(self, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """(members int32[n], rows int64[instances, n]) per communicator: its k-th collective on every member."""
        found = []
        _, members_of = self.workload.lists("communicators", "members")
        bounds = self.workload.lists("communicators", "members")[0]
        for communicator in np.unique(self.communicator[rows]):
            members = members_of[bounds[communicator] : bounds[communicator + 1]].astype(np.int32)
            mine = rows[self.communicator[rows] == communicator]
            counts = np.bincount(self.rank[mine], minlength=self.workload.num_ranks)[members]
            if np.any(counts != counts[0]):
                least, most = members[np.argmin(counts)], members[np.argmax(counts)]
                raise WorkloadError(
                    f"{self.workload.name}: rank {most} calls {counts.max()} collectives on communicator "
                    f"{communicator}, rank {least} only {counts.min()}; the trace is incomplete"
                )
            order = np.argsort(members, kind="stable")
            table = np.empty((len(members), counts[0]), np.int64)
            table[order] = mine.reshape(len(members), counts[0])
            kinds = self.kind[table]
            differs = np.flatnonzero((kinds != kinds[0]).any(axis=0))
            if len(differs):
                k = differs[0]
                other = table[np.argmax(kinds[:, k] != kinds[0, k]), k]
                raise WorkloadError(
                    f"{self.workload.name}: {self.place(int(other))} meets {self.place(int(table[0, k]))} as collective "
                    f"{k} of communicator {communicator}; all members must call the same one"
                )
            found.append((members, np.ascontiguousarray(table.T)))
        return found

    def _call(self, rows: np.ndarray, size: int) -> tuple[tuple[object, ...], CollectiveCall]:
        """The call of one instance, and a key that is equal for equal calls."""
        name = OperationKind(int(self.kind[rows[0]])).name
        root = max(0, int(self.peer[rows[0]]))
        if root >= size:
            raise WorkloadError(f"{self.workload.name}: {self.place(int(rows[0]))} names root {root} of {size} members")
        base = name.removeprefix("i")
        send = int(self.send_bytes[rows].max())
        receive = int(self._receive_bytes[rows].max())
        counts: dict[str, np.ndarray | None] = {"send_counts": None, "receive_counts": None}
        if base in ("alltoallv", "scatterv", "gatherv", "allgatherv", "reduce_scatter"):
            for side in counts:
                table = self._counts(side, rows, size)
                if table is not None:
                    counts[side] = table if base == "alltoallv" else table[root]
        key = (name, size, root, send, receive, *(None if c is None else c.tobytes() for c in counts.values()))
        return key, CollectiveCall(name, size, root, send, receive, counts["send_counts"], counts["receive_counts"])

    @property
    def _receive_bytes(self) -> np.ndarray:
        if not hasattr(self, "_receive_bytes_column"):
            self._receive_bytes_column = self.workload.column("operations", "receive_bytes")
        return self._receive_bytes_column

    def _counts(self, side: str, rows: np.ndarray, size: int) -> np.ndarray | None:
        if not hasattr(self, f"_{side}_lists"):
            setattr(self, f"_{side}_lists", self.workload.lists("operations", side))
        offsets, values = getattr(self, f"_{side}_lists")
        lengths = offsets[rows + 1] - offsets[rows]
        if not lengths.any():
            return None
        table = np.zeros((size, size), np.int64)
        for participant, row in enumerate(rows):
            if lengths[participant] == size:
                table[participant] = values[offsets[row] : offsets[row + 1]]
            elif lengths[participant]:
                raise WorkloadError(
                    f"{self.workload.name}: {self.place(int(row))} has {lengths[participant]} counts for {size} members"
                )
        return table

    def _resolve_requests(self) -> None:
        """Row of the operation that opened each completed request: ``completed_rows`` parallel to the list values."""
        offsets, values = self.completes
        opened = np.flatnonzero(self.request >= 0)
        per_rank = np.zeros(self.workload.num_ranks + 1, np.int64)
        highest = np.zeros(self.workload.num_ranks, np.int64)
        np.maximum.at(highest, self.rank[opened], self.request[opened].astype(np.int64) + 1)
        np.cumsum(highest, out=per_rank[1:])
        row_of = np.full(per_rank[-1], -1, np.int64)
        row_of[per_rank[self.rank[opened]] + self.request[opened]] = opened
        owner = np.repeat(np.arange(len(self.kind)), np.diff(offsets))
        rank = self.rank[owner]
        valid = (values >= 0) & (values < highest[rank])
        rows = np.full(len(values), -1, np.int64)
        rows[valid] = row_of[per_rank[rank[valid]] + values[valid]]
        wrong = np.flatnonzero((rows < 0) | (rows >= owner))
        if len(wrong):
            raise WorkloadError(
                f"{self.workload.name}: {self.place(int(owner[wrong[0]]))} completes request {int(values[wrong[0]])}, "
                "which no earlier operation of its rank opened"
            )
        self.completed_rows = rows

    def _emit(self) -> Program:
        kind = self.kind
        num_ranks = self.workload.num_ranks
        offsets, _ = self.completes
        # steps of each operation
        steps = np.ones(len(kind), np.int64)
        steps[np.isin(kind, (OperationKind.send, OperationKind.ssend, OperationKind.bsend, OperationKind.recv))] = 2
        steps[kind == OperationKind.sendrecv] = 4
        waits = np.isin(kind, (OperationKind.wait, OperationKind.waitall))
        steps[waits] = np.maximum(1, np.diff(offsets)[waits])
        plans = self.schedules or [schedule(CollectiveCall("barrier", 1, 0, 0, 0, None, None), self.collectives)]
        plan_first = np.cumsum([0] + [len(plan.participant_offsets) for plan in plans[:-1]])
        plan_bounds = np.concatenate([plan.participant_offsets for plan in plans])
        plan_base = np.cumsum([0] + [len(plan.step) for plan in plans[:-1]])
        collective = np.flatnonzero(self.schedule_of >= 0)
        at = plan_first[self.schedule_of[collective]] + self.participant[collective]
        lengths = plan_bounds[at + 1] - plan_bounds[at]
        begin = np.zeros(len(kind), np.int64)
        begin[collective] = plan_base[self.schedule_of[collective]] + plan_bounds[at]
        nonblocking = (kind >= NONBLOCKING_COLLECTIVES.start)[collective]
        steps[collective] = np.where(nonblocking, 1, np.maximum(1, lengths))
        first_step = np.zeros(len(kind) + 1, np.int64)
        np.cumsum(steps, out=first_step[1:])
        children = collective[nonblocking]
        child_steps = first_step[-1] + np.concatenate(([0], np.cumsum(lengths[nonblocking])))
        length = np.zeros(len(kind), np.int64)
        length[collective] = lengths
        strand_of = np.full(len(kind), -1, np.int32)
        strand_of[children] = num_ranks + np.arange(len(children), dtype=np.int32)

        step = np.empty(child_steps[-1], np.uint8)
        target = np.empty(child_steps[-1], np.int32)
        any_rows = np.flatnonzero(kind == OperationKind.waitany)
        any_number = np.full(len(kind), -1, np.int32)
        any_number[any_rows] = np.arange(len(any_rows), dtype=np.int32)
        candidate_lengths = np.diff(offsets)[any_rows]
        candidate_offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(candidate_lengths)))
        candidate_action = np.empty(candidate_offsets[-1], np.uint8)
        candidate_target = np.empty(candidate_offsets[-1], np.int32)
        _fill_steps(
            kind, self.send_message, self.receive_message, self._send_is_open(), offsets, self.completed_rows,
            first_step, self.first_message, begin, length, strand_of, child_steps,
            np.concatenate([plan.step for plan in plans]).astype(np.uint8),
            np.concatenate([plan.message for plan in plans]).astype(np.int32),
            any_number, candidate_offsets, candidate_action, candidate_target, step, target,
        )  # fmt: skip
        strand_steps = np.concatenate((first_step[self.rank_offsets[:-1]], child_steps))
        return Program(
            num_ranks=num_ranks,
            rank_offsets=self.rank_offsets,
            step=step,
            target=target,
            strand_steps=strand_steps,
            strand_rank=np.concatenate((np.arange(num_ranks), self.rank[children])).astype(np.int32),
            source=self.messages["source"],
            destination=self.messages["destination"],
            bytes=self.messages["bytes"],
            mode=self.messages["mode"],
            send_queue=self.send_queue if self.num_queues else np.empty(0, np.int32),
            send_tag=self.tag[self.sends] if self.num_queues else np.empty(0, np.int32),
            send_operation=self._send_operation() if self.num_queues else np.empty(0, np.int32),
            open_queue=self.open["queue"],
            open_source=self.open["source"],
            open_tag=self.open["tag"],
            num_queues=self.num_queues,
            candidate_offsets=candidate_offsets,
            candidate_action=candidate_action,
            candidate_target=candidate_target,
        )

    def _send_operation(self) -> np.ndarray:
        return (self.sends - self.rank_offsets[self.rank[self.sends]]).astype(np.int32)

    def _send_is_open(self) -> np.ndarray:
        is_open = np.zeros(len(self.kind), np.bool_)
        is_open[self.sends] = self.send_queue >= 0
        return is_open


@njit(cache=True, nogil=True)
def _match_static(  # type: ignore[no-untyped-def]
    send_scope, send_pair, send_queue, receive_scope, receive_pair, receive_queue, keys, slots
):
    """Message (send number) of each receive, -1 for none, by first in first out per key; and the first send without a
    receive, -1 if all have one. Sends and receives stand in program order of their ranks. Expected O(n)."""
    num_sends = send_scope.shape[0]
    head = np.full(num_sends, -1, np.int32)
    tail = np.full(num_sends, -1, np.int32)
    following = np.full(num_sends, -1, np.int32)
    for i in range(num_sends):
        if send_queue[i] >= 0:
            continue
        slot = find_or_add(keys, slots, send_scope[i], send_pair[i], i)
        if head[slot] < 0:
            head[slot] = i
        else:
            following[tail[slot]] = i
        tail[slot] = i
    message = np.full(receive_scope.shape[0], -1, np.int32)
    for i in range(receive_scope.shape[0]):
        if receive_queue[i] >= 0:
            continue
        slot = find_or_add(keys, slots, receive_scope[i], receive_pair[i], -1)
        if slot >= 0 and head[slot] >= 0:
            message[i] = head[slot]
            head[slot] = following[head[slot]]
    first = -1
    for i in range(num_sends):
        if head[i] >= 0 and (first < 0 or head[i] < first):
            first = head[i]
    return message, first


@njit(cache=True, nogil=True)
def _fill_steps(  # type: ignore[no-untyped-def]
    kind, send_message, receive_message, send_is_open, completes_offsets, completed_rows, first_step, first_message,
    begin, length, strand_of, child_steps, plan_step, plan_message, any_number, candidate_offsets, candidate_action,
    candidate_target, step, target,
):  # fmt: skip
    """Write the steps of every operation. O(steps)."""
    child = 0
    for row in range(kind.shape[0]):
        place = first_step[row]
        end = first_step[row + 1]
        what = kind[row]
        send = send_message[row]
        receive = receive_message[row]
        if strand_of[row] >= 0:
            step[place] = 8
            target[place] = strand_of[row]
            at = child_steps[child]
            child += 1
            for k in range(length[row]):
                step[at + k] = plan_step[begin[row] + k]
                target[at + k] = first_message[row] + plan_message[begin[row] + k]
            place += 1
        elif length[row] > 0:
            for k in range(length[row]):
                step[place + k] = plan_step[begin[row] + k]
                target[place + k] = first_message[row] + plan_message[begin[row] + k]
            place += length[row]
        elif what == 13:  # waitany
            number = any_number[row]
            step[place] = 7
            target[place] = number
            for k in range(completes_offsets[row], completes_offsets[row + 1]):
                other = completed_rows[k]
                action, message = _wait_for(other, strand_of, send_message, receive_message)
                at = candidate_offsets[number] + k - completes_offsets[row]
                candidate_action[at] = action
                candidate_target[at] = message
            place += 1
        elif what == 11 or what == 12:  # wait, waitall
            for k in range(completes_offsets[row], completes_offsets[row + 1]):
                action, message = _wait_for(completed_rows[k], strand_of, send_message, receive_message)
                step[place] = action
                target[place] = message
                place += 1
        else:
            if receive != -1:
                step[place] = 1 if receive >= 0 else 5
                target[place] = receive if receive >= 0 else -2 - receive
                place += 1
            if send >= 0:
                step[place] = 4 if send_is_open[row] else 0
                target[place] = send
                place += 1
            if (what == 8 or what == 10) and receive != -1:  # recv, sendrecv
                step[place] = 3 if receive >= 0 else 6
                target[place] = receive if receive >= 0 else -2 - receive
                place += 1
            if (what == 2 or what == 4 or what == 6 or what == 10) and send >= 0:  # send, ssend, bsend, sendrecv
                step[place] = 2
                target[place] = send
                place += 1
        while place < end:
            step[place] = 10
            target[place] = 0
            place += 1
        step[first_step[row]] |= 16
        step[end - 1] |= 32


@njit(cache=True, nogil=True)
def _wait_for(row, strand_of, send_message, receive_message):  # type: ignore[no-untyped-def]
    """The step that waits for the request opened by operation ``row``: (action, target)."""
    if strand_of[row] >= 0:
        return 9, strand_of[row]
    if send_message[row] >= 0:
        return 2, send_message[row]
    if receive_message[row] >= 0:
        return 3, receive_message[row]
    if receive_message[row] <= -2:
        return 6, -2 - receive_message[row]
    return 10, np.int32(0)
