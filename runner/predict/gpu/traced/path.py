"""The critical path of steps: what the end of a run waited for, through streams, collectives, messages and threads.

It is walked back from what ends last. An operation of a stream began behind another one (its cause), or when its host
gave it; a collective when its last member came to it; a receive ended with a message, which began with its sender's
operation; a host computed since its last call, or went on when what it waited for was done. So the segments cover the
time from 0 to the end without a gap. O(segments): the walk is a loop over these, not over operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from manyscale.models.gpu.device.hosts import Given
from manyscale.models.workload import OperationKind, Workload
from manyscale.models.workload.columns import text_array, to_arrow, to_numpy
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.predict.gpu.streams.given import traced_columns
from manyscale.runner.predict.gpu.traced.meetings import StreamCollectives
from manyscale.runner.predict.statistic import Statistic

_G: Final = GpuOperationKind
KINDS: Final = ("host", "launch", "kernel", "copy", "transfer", "message")
HOST, LAUNCH, KERNEL, COPY, TRANSFER, MESSAGE = range(6)
_MEANINGS: Final = (
    "threads of hosts compute, or call",
    "between the call of a host, or what a stream did before, and the begin of an operation",
    "kernels",
    "copies and sets",
    "collectives, once all members are there",
    "messages",
)
# In the order of time, without a gap
PATH_SCHEMA: Final = pa.schema(
    [
        pa.field("start_ps", pa.int64(), nullable=False),  # when the segment begins
        pa.field("end_ps", pa.int64(), nullable=False),  # when it ends, and the next one begins
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False),  # host, launch, kernel, ...
        pa.field("rank", pa.int32(), nullable=False),  # whose thread, stream or receive it is
        pa.field("stream", pa.int64(), nullable=False),  # -1: a thread
        pa.field("operation_id", pa.int32(), nullable=False),  # of the rank, that the segment belongs to
        pa.field("name", pa.dictionary(pa.int32(), pa.string()), nullable=False),  # kernel, collective and group, or ""
    ]
)


_GIVES: Final = tuple(int(kind) for kind in _G if kind < _G.synchronize_stream)


class _At(NamedTuple):
    """Where a walk is: done with a row of operations, on its thread, or with an operation of a stream (index of given;
    else -1), at a time."""

    row: int
    place: int
    time: int


@dataclass
class _Walk:
    """What is known of a run, and the segments, the last first: (start, end, kind, row of operations, index of given
    or -1)."""

    workload: Workload
    given: Given
    of: StreamCollectives
    arrays: Mapping[str, np.ndarray]
    segments: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows = self.workload.num_operations
        self.given_of_row = np.full(rows, -1, np.int64)
        mine = self.given.row >= 0
        self.given_of_row[self.given.row[mine]] = np.flatnonzero(mine)
        thread = np.zeros(rows, np.int64)
        thread[self.given.row[mine]] = self.given.thread[mine]
        rank = self.workload.column("operations", "rank").astype(np.int64)
        order = np.lexsort((np.arange(rows), thread, rank))
        same = (np.diff(rank[order], prepend=-1) == 0) & (np.diff(thread[order], prepend=-1) == 0)
        self.before = np.full(rows, -1, np.int64)  # the row before in its thread
        self.before[order[same]] = order[np.flatnonzero(same) - 1]
        number = self.of.of_given
        order = np.lexsort((self.arrays["given_start_ps"], number))
        last = np.flatnonzero(np.diff(number[order], append=-2) != 0)
        self.last_member = np.full(len(self.of), -1, np.int64)
        known = last[number[order[last]] >= 0]
        self.last_member[number[order[known]]] = order[known]

    def add(self, start: int, end: int, kind: int, row: int, place: int = -1) -> None:
        if end > start:
            self.segments.append((start, end, kind, row, place))

    def back(self) -> None:
        """From what ends last to time 0."""
        ends, rows = self.arrays["given_end_ps"], self.arrays["end_ps"]
        begin = _At(int(np.argmax(rows)), -1, int(rows.max(initial=0)))
        if len(ends) and ends.max() > begin.time:
            begin = _At(-1, int(np.argmax(ends)), int(ends.max()))
        at: _At | None = begin
        while at is not None and at.time > 0:
            at = self._host(at) if at.place < 0 else self._operation(at)

    def _host(self, at: _At) -> _At | None:
        """A thread that is done with a row: before, it computed since its row before, or it waited."""
        row, place = at.row, int(self.given_of_row[at.row])
        begin, before = int(self.arrays["begin_ps"][row]), int(self.before[row])
        cause = int(self.arrays["given_cause"][place]) if place >= 0 else -1
        waits = place >= 0 and int(self.given.kind[place]) not in _GIVES
        if cause >= 0 and begin < at.time and (waits or int(self.arrays["given_end_ps"][place]) == at.time):
            other = int(self.given.row[cause])
            if int(self.given.kind[cause]) == _G.signal_thread:
                return _At(other, -1, at.time)
            return self._after(at, row, cause)
        if place >= 0 and not waits and begin < at.time and int(self.arrays["given_end_ps"][place]) == at.time:
            return _At(-1, place, at.time)  # a copy that the host waits for
        came = int(self.arrays["end_ps"][before]) if before >= 0 else 0
        came = min(came, at.time)
        self.add(came, at.time, HOST, row)
        return _At(before, -1, came) if before >= 0 else None

    def _after(self, at: _At, row: int, cause: int) -> _At:
        """Behind an operation of a stream, which ended some time before."""
        ended = min(int(self.arrays["given_end_ps"][cause]), at.time)
        self.add(ended, at.time, LAUNCH, row)
        return _At(-1, cause, ended)

    def _operation(self, at: _At) -> _At:
        """An operation of a stream that ends at a time."""
        place, row = at.place, int(self.given.row[at.place])
        start, kind = int(self.arrays["given_start_ps"][place]), int(self.given.kind[place])
        number = int(self.of.of_given[place])
        if number >= 0:
            place = int(self.last_member[number])
            start = min(int(self.arrays["given_runs_ps"][place]), at.time)
            self.add(start, at.time, TRANSFER, row, at.place)
            row = int(self.given.row[place])
        elif kind == _G.communication:
            found = self._sent(place, at.time)
            if found is not None:
                other, came = found
                self.add(came, at.time, MESSAGE, row, place)
                return self._begun(_At(-1, other, came), came)
            start = min(start, at.time)
            self.add(start, at.time, MESSAGE, row, place)
        else:
            start = min(start, at.time)
            self.add(start, at.time, KERNEL if kind == _G.launch else COPY, row, place)
        return self._begun(_At(-1, place, start), start)

    def _begun(self, at: _At, start: int) -> _At:
        """What an operation began behind."""
        place = at.place
        row, cause = int(self.given.row[place]), int(self.arrays["given_cause"][place])
        if cause >= 0:
            return self._after(_At(-1, place, start), row, cause)
        given = min(int(self.arrays["given_given_ps"][place]), start)
        self.add(given, start, LAUNCH, row, place)
        before = int(self.before[row])
        came = min(int(self.arrays["end_ps"][before]) if before >= 0 else 0, given)
        self.add(came, given, HOST, row)
        return _At(before, -1, came)

    @cached_property
    def _arrivals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of messages at each end that waits for the other, by its rank, arrival and begin, int64: where those of each
        rank begin ([ranks + 1]); when each arrives, when it began, and what of ``given`` is its other end (-1: not a
        stream's). Between streams a sender waits, too: such a message begins once both have come to it."""
        arrives, sent, sends = self.arrays["receive_ps"], self.arrays["send_ps"], self.workload.send_rows
        waits = self.workload.column("operations", "peer")[sends].astype(np.int64)
        other = self.given_of_row[sends]
        if len(start := self.arrays.get("message_start_ps", sent[:0])):
            both = np.flatnonzero(start >= 0)
            waits = np.append(waits, self.workload.column("operations", "rank")[sends[both]])
            other = np.append(other, self.given_of_row[self.arrays["message_receive_row"][both]])
            arrives, sent = np.append(arrives, arrives[both]), np.append(sent, start[both])
        order = np.lexsort((sent, arrives, waits))
        first = np.searchsorted(waits[order], np.arange(self.workload.num_ranks + 1))
        return first, arrives[order], sent[order], other[order]

    def _sent(self, place: int, time: int) -> tuple[int, int] | None:
        """The other end of the message that arrived as an operation ended, and when that came to it; None: no later
        than the operation."""
        first, arrives, sent, other = self._arrivals
        rank = int(self.given.rank[place])
        begin, end = int(first[rank]), int(first[rank + 1])
        last = begin + int(np.searchsorted(arrives[begin:end], time, "right")) - 1
        if last < begin or int(arrives[last]) != time:
            return None
        came, end_of = int(sent[last]), int(other[last])
        if end_of < 0 or came <= int(self.arrays["given_start_ps"][place]):
            return None
        return end_of, came


def path_table(workload: Workload, given: Given, of: StreamCollectives, arrays: Mapping[str, np.ndarray]) -> pa.Table:
    """Table of PATH_SCHEMA. ``arrays``: the result of the unit that replayed the run (run/devices.py)."""
    walk = _Walk(workload, given, of, arrays)
    walk.back()
    found = np.array(walk.segments[::-1], np.int64).reshape(-1, 5)
    start, end, kind, row, place = found.T
    rank = workload.column("operations", "rank")[row]
    names, name = _names(workload, of, place, kind)
    columns = [
        to_arrow(start.copy()),
        to_arrow(end.copy()),
        pa.DictionaryArray.from_arrays(to_arrow(kind.astype(np.int8)), text_array(KINDS)),
        to_arrow(rank),
        to_arrow(np.where(place >= 0, given.stream[np.maximum(place, 0)], -1)),
        to_arrow((row - workload.rank_offsets[rank]).astype(np.int32)),
        pa.DictionaryArray.from_arrays(to_arrow(name), text_array(names)),
    ]
    return pa.Table.from_arrays(columns, schema=PATH_SCHEMA)


def _names(
    workload: Workload, of: StreamCollectives, place: np.ndarray, kind: np.ndarray
) -> tuple[list[str], np.ndarray]:
    kernel, _ = traced_columns(workload)
    kernels = workload.tables["kernels"].column("kernel_name").to_pylist()
    said = []
    for each, what in zip(place.tolist(), kind.tolist(), strict=True):
        text = ""
        if what == KERNEL and kernel[each] >= 0:
            text = kernels[kernel[each]]
        elif what == TRANSFER:
            number = int(of.of_given[each])
            group = of.names.get(int(of.communicator[number]), "")
            text = f"{OperationKind(int(of.kind[number])).name}{f' of {group}' if group else ''}"
        said.append(text)
    names, name = np.unique([*said, ""], return_inverse=True)
    return names.tolist(), name[:-1].astype(np.int32)


def path_statistics(table: pa.Table) -> dict[str, Statistic]:
    """Figures of the path, which sum to its end."""
    start, end = (to_numpy(table.column(name)) for name in ("start_ps", "end_ps"))
    kind = to_numpy(table.column("kind"))
    total = np.zeros(len(KINDS), np.int64)
    np.add.at(total, kind, end - start)
    figures = {
        f"step_path.{name}": Statistic(value / PS_PER_SECOND, "s", "total", f"critical path of the steps: {text}")
        for name, text, value in zip(KINDS, _MEANINGS, total.tolist(), strict=True)
    }
    ranks = len(np.unique(to_numpy(table.column("rank"))))
    figures["step_path.ranks"] = Statistic(ranks, "1", "count", "critical path of the steps: ranks that it visits")
    return figures
