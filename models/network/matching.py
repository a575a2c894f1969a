"""Which receive takes which send: MPI's matching, as far as it does not depend on simulated time.

The k-th send matches the k-th receive of the same (communicator, source, destination, tag), as the non-overtaking rule
demands. Sends that a wildcard receive might take are left open: they and the receives meet in queues during the replay.
Expected cost O(operations); O(n log n) for those near wildcards.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free
from manyscale.models.kernels.hash_table import find_or_add, new_table
from manyscale.models.network.operations import Operations
from manyscale.models.workload import ANY_SOURCE, ANY_TAG, RECEIVES, OperationKind, Workload


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
class Matching:
    """Point-to-point messages, one per row of ``sends``: ``source``, ``destination``, ``bytes``, ``mode``, and
    ``send_queue`` (-1: matched here). ``send_message`` and ``receive_message``: message per operation, -1 for none; an
    open receive is stored as -2 - its number. Open receives: ``open_queue``, ``open_source``, ``open_tag``."""

    sends: np.ndarray
    source: np.ndarray
    destination: np.ndarray
    bytes: np.ndarray
    mode: np.ndarray
    send_queue: np.ndarray
    send_message: np.ndarray
    receive_message: np.ndarray
    open_queue: np.ndarray
    open_source: np.ndarray
    open_tag: np.ndarray
    num_queues: int


def match(operations: Operations, workload: Workload) -> Matching:
    """Match what can be. Raises WorkloadError for a send or a receive without its counterpart."""
    return _Matcher(operations, workload.send_rows).match()


class _Matcher:
    def __init__(self, operations: Operations, sends: np.ndarray) -> None:
        self.operations = operations
        kind = operations.kind
        self.sends = sends
        source = np.where(kind == OperationKind.sendrecv, operations.source, operations.peer)
        is_receive = np.isin(np.arange(len(OperationKind)), RECEIVES)[kind]
        self.receives = np.flatnonzero(is_receive & ((source >= 0) | (source == ANY_SOURCE)))
        self.wanted = source[self.receives]  # source that each receive takes

    def match(self) -> Matching:
        operations, sends, receives = self.operations, self.sends, self.receives
        source, destination = operations.rank[sends], operations.peer[sends]
        send_queue, receive_queue, num_queues = self._queues(sends, receives, self.wanted)
        message_of_receive, first_unmatched = self._match_static(destination, send_queue, receive_queue)
        self._refuse_unmatched(sends, receives, message_of_receive, receive_queue, first_unmatched)
        send_message = np.full(len(operations.kind), -1, np.int32)
        send_message[sends] = np.arange(len(sends), dtype=np.int32)
        is_open = receive_queue >= 0
        receive_message = np.full(len(operations.kind), -1, np.int32)
        receive_message[receives] = np.where(is_open, -1 - np.cumsum(is_open), message_of_receive)
        return Matching(
            sends=sends,
            source=source.astype(np.int32),
            destination=destination.astype(np.int32),
            bytes=operations.bytes[sends],
            mode=self._modes(sends),
            send_queue=send_queue,
            send_message=send_message,
            receive_message=receive_message,
            open_queue=receive_queue[is_open],
            open_source=self.wanted[is_open].astype(np.int32),
            open_tag=operations.tag[receives][is_open],
            num_queues=num_queues,
        )

    def _match_static(
        self, destination: np.ndarray, send_queue: np.ndarray, receive_queue: np.ndarray
    ) -> tuple[np.ndarray, int]:
        """Message of each receive that is matched here, -1 for others; and the first send without a receive, or -1."""
        sends, receives, operations = self.sends, self.receives, self.operations
        message_of_receive = np.full(len(receives), -1, np.int32)
        first_unmatched = -1
        room = min(len(sends), _FEW_CHANNELS)  # most messages follow others of the same ranks and tag
        while room:
            first_unmatched = _match_static(
                _Keys(operations.communicator, operations.tag, operations.rank),
                _Side(sends, destination, send_queue),
                _Side(receives, self.wanted, receive_queue),
                *new_table(room),
                np.full(3 * len(sends), -1, np.int32).view(_CHAIN),
                message_of_receive,
            )
            if first_unmatched != _FULL:
                break
            room = min(len(sends), 8 * room)
        return message_of_receive, first_unmatched

    def _modes(self, sends: np.ndarray) -> np.ndarray:
        table = np.zeros(len(OperationKind), np.uint8)
        for kind, mode in _MODE_OF_KIND.items():
            table[kind] = mode
        modes = table[self.operations.kind[sends]]
        to_self = self.operations.kind[sends] == OperationKind.sendrecv  # both halves of it: a copy
        for other in (self.operations.peer, self.operations.source):
            to_self &= other[sends] == self.operations.rank[sends]
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
        any_tag = self.operations.tag[receives] == ANY_TAG
        wild = np.flatnonzero((wanted == ANY_SOURCE) | any_tag)
        if not len(wild):
            return send_queue, receive_queue, 0
        send_pair = (self.operations.communicator[sends].astype(np.int64) << 32) | self.operations.peer[sends]
        receive_pair = (self.operations.communicator[receives].astype(np.int64) << 32) | self.operations.rank[receives]
        whole = np.unique(receive_pair[any_tag])
        base = int(max(self.operations.tag[sends].max(initial=0), self.operations.tag[receives].max(initial=0))) + 2

        def keys(pair: np.ndarray, tag: np.ndarray) -> np.ndarray:
            # the tag plays no part where some receive of the pair takes any
            pairs, inverse = np.unique(pair, return_inverse=True)
            tag_part = np.where(np.isin(pairs, whole)[inverse], base - 1, tag)
            return np.searchsorted(every_pair, pair) * np.int64(base) + tag_part

        every_pair = np.unique(np.concatenate([send_pair, receive_pair]))
        send_keys = keys(send_pair, self.operations.tag[sends])
        receive_keys = keys(receive_pair, self.operations.tag[receives])
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
            np.concatenate([self.operations.tag[sends[of_send]], self.operations.tag[receives[of_receive]]]),
            return_inverse=True,
        )
        queue = np.concatenate([send_queue[of_send], receive_queue[of_receive]]).astype(np.int64)
        source = np.concatenate([self.operations.rank[sends[of_send]], wanted[of_receive]])
        channel = (queue * self.operations.num_ranks + source) * len(tags) + tag_number
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
        receive_queue: np.ndarray,
        first_unmatched_send: int,
    ) -> None:
        lonely = np.flatnonzero((message_of_receive < 0) & (receive_queue < 0))
        if first_unmatched_send >= 0:
            row = int(sends[first_unmatched_send])
            raise self.operations.error(
                f"{self.operations.place(row)} sends {int(self.operations.bytes[row])} B with tag "
                f"{int(self.operations.tag[row])} to rank {int(self.operations.peer[row])}, which never "
                "receives it; the trace is incomplete"
            )
        if len(lonely):
            row = int(receives[lonely[0]])
            source = int(
                self.operations.source[row]
                if self.operations.kind[row] == OperationKind.sendrecv
                else self.operations.peer[row]
            )
            raise self.operations.error(
                f"{self.operations.place(row)} expects a message with tag {int(self.operations.tag[row])} from rank "
                f"{source}, which never sends it; the trace is incomplete"
            )


class _Keys(NamedTuple):
    """What matching looks at, per operation."""

    communicator: np.ndarray
    tag: np.ndarray
    rank: np.ndarray


class _Side(NamedTuple):
    """Sends or receives in program order of their ranks: ``row`` of the operation, the rank on the ``other`` side, and
    ``queue``, -1 for those that are matched here."""

    row: np.ndarray
    other: np.ndarray
    queue: np.ndarray


_CHAIN: Final = np.dtype([("head", "i4"), ("tail", "i4"), ("following", "i4")])
_FEW_CHANNELS: Final = 1 << 18  # (communicator, source, destination, tag); beyond, the table of them grows
_FULL: Final = -2


@allocation_free
def _match_static(columns, sends, receives, keys, slots, chain, message):  # type: ignore[no-untyped-def]
    """Fill ``message`` (send number, else -1) of each receive, by first in first out per key: the first send without a
    receive, -1 if all have one; _FULL, and nothing filled, if the table has no room for all keys. ``chain``: all -1,
    one for each send. Expected O(n)."""
    room = np.int64(slots.shape[0] >> 1)
    for i in range(sends.queue.shape[0]):
        if sends.queue[i] >= 0:
            continue
        row = sends.row[i]
        scope = (np.int64(columns.communicator[row]) << 32) | np.int64(columns.tag[row])
        pair = (np.int64(columns.rank[row]) << 32) | np.int64(sends.other[i])
        slot = find_or_add(keys, slots, scope, pair, i)
        if chain[slot].head < 0:
            chain[slot].head = i
            room -= 1
            if room < 0:
                return _FULL
        else:
            chain[chain[slot].tail].following = i
        chain[slot].tail = i
    for i in range(receives.queue.shape[0]):
        if receives.queue[i] >= 0:
            continue
        row = receives.row[i]
        scope = (np.int64(columns.communicator[row]) << 32) | np.int64(columns.tag[row])
        pair = (np.int64(receives.other[i]) << 32) | np.int64(columns.rank[row])
        slot = find_or_add(keys, slots, scope, pair, -1)
        if slot >= 0 and chain[slot].head >= 0:
            message[i] = chain[slot].head
            chain[slot].head = chain[chain[slot].head].following
    first = -1
    for i in range(sends.queue.shape[0]):
        if chain[i].head >= 0 and (first < 0 or chain[i].head < first):
            first = chain[i].head
    return first
