"""Operations, phases, counters and measured times from the records of a Paraver trace."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from manyscale.models.workload import (
    COLLECTIVES,
    COMMUNICATORS_SCHEMA,
    COUNTERS_SCHEMA,
    KIND_NAMES,
    MEASURED_SCHEMA,
    NO_RANK,
    NO_REQUEST,
    NONBLOCKING_COLLECTIVES,
    OPERATIONS_SCHEMA,
    PHASES_SCHEMA,
    REGIONS_SCHEMA,
    SENDS,
    OperationKind,
    PhaseKind,
)
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.polls import Poll, marked, polling
from manyscale.runner.readers.paraver import messages as prv_messages
from manyscale.runner.readers.paraver.calls import name_calls
from manyscale.runner.readers.paraver.collectives import Collectives, Communicators
from manyscale.runner.readers.paraver.label_files import Labels
from manyscale.runner.readers.paraver.records import Records

_K = OperationKind
_POSTS = (_K.recv, _K.irecv, _K.sendrecv)
_WAITS = {_K.wait: prv_messages.SINGLE, _K.waitany: prv_messages.SINGLE, _K.waitall: prv_messages.ALL}
_CALLER, _OUTLINED, _USER_FUNCTION = 70000001, 60000018, 60000019


@dataclass
class Counts:
    """What could not be read as it stands, for the workload's notes."""

    others: dict[str, int] = field(default_factory=dict)  # calls that are none of our operations, by name
    alone: dict[str, int] = field(default_factory=dict)  # sends and receives of which the trace has no message, by name
    halves: int = 0  # sendrecvs of which the trace has one message
    point_to_point: int = 0
    homeless: int = 0  # messages of which one end lies in no call
    one_end: int = 0  # messages of which only one end lies in a call that can be replayed
    collectives_cut: int = 0
    undeclared: int = 0
    without_root: int = 0
    spread: int = 0
    never_completed: int = 0
    guessed_waits: int = 0
    overtaking: int = 0


class OperationReader:
    """Builds the tables of one application; ``counts`` tell what had to be settled."""

    def __init__(self, records: Records, groups: Communicators, labels: Labels, num_ranks: int, ps_per_unit: int):
        self._records = records
        self._groups = groups
        self._labels = labels
        self._num_ranks = num_ranks
        self._ps_per_unit = ps_per_unit
        self.counts = Counts()
        order = np.argsort(records["call_task"], kind="stable")
        self._row_of_call = np.empty(len(order), np.int64)
        self._row_of_call[order] = np.arange(len(order))
        self._order = order
        self._rank = records["call_task"][order]
        self._begin = records["call_begin"][order]
        self._end = records["call_end"][order]
        calls = name_calls(records["call_group"][order], records["call_value"][order], labels)
        self._kind = calls.kind
        self._some = calls.completes_some
        self.counts.others = calls.others
        self.counts.point_to_point = len(self._rows_of((*SENDS, *_POSTS)))
        count = len(order)
        self._peer = np.full(count, NO_RANK, np.int32)
        self._source = np.full(count, NO_RANK, np.int32)
        self._tag = np.zeros(count, np.int32)
        self._bytes = np.zeros(count, np.int64)
        self._receive_bytes = np.zeros(count, np.int64)
        self._communicator = np.zeros(count, np.int32)
        self._request = np.full(count, NO_REQUEST, np.int32)

    def tables(self) -> dict[str, pa.Table]:
        """All tables of the workload."""
        received = self._messages()
        for name in [name for name in self._records.columns if name.startswith("message_")]:
            self._records.take(name)
        collectives = self._collectives()
        completes = self._requests(received)
        return {
            "operations": self._operations(collectives, completes),
            **self._phases(),
            "communicators": pa.table({"members": _lists(self._groups.members)}, schema=COMMUNICATORS_SCHEMA),
            "measured": pa.Table.from_arrays(
                [to_arrow(self._begin * self._ps_per_unit), to_arrow(self._end * self._ps_per_unit)],
                schema=MEASURED_SCHEMA,
            ),
        }

    # -- messages ------------------------------------------------------------------------------------------------------

    def _rows_of(self, kinds: tuple[int, ...]) -> np.ndarray:
        return np.flatnonzero(np.isin(np.arange(len(OperationKind)), kinds)[self._kind])

    def _calls_of(self, kinds: tuple[int, ...], task: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Row of the call of each message, -1 for none."""
        rows = self._rows_of(kinds)
        found = prv_messages.calls_of_messages(
            self._rank[rows], self._begin[rows], self._end[rows], self._kind[rows] == _K.irecv, task, time
        )
        return np.where(found >= 0, np.append(rows, 0)[found], -1)

    def _messages(self) -> tuple[np.ndarray, np.ndarray]:
        """Give sends and receives their messages: (rows of receives, time of their completion)."""
        records = self._records
        source, destination = records["message_source"], records["message_destination"]
        sends = self._calls_of(SENDS, source, records["message_sent"])
        receives = self._calls_of(_POSTS, destination, records["message_posted"])
        whole = (sends >= 0) & (receives >= 0)
        none = (sends < 0) & (receives < 0)
        self.counts.homeless = int(np.count_nonzero(none))
        self.counts.one_end = int(np.count_nonzero(~whole & ~none))
        send, receive = sends[whole], receives[whole]
        size, tag = records["message_bytes"][whole], records["message_tag"][whole]
        self._peer[send] = destination[whole]
        self._tag[send] = tag
        self._bytes[send] = size
        both = self._kind[receive] == _K.sendrecv
        self._source[receive[both]] = source[whole][both]
        self._peer[receive[~both]] = source[whole][~both]
        # a sendrecv has one tag here: that of its send, unless it only receives
        alone = ~both | (self._peer[receive] == NO_RANK)
        self._tag[receive[alone]] = tag[alone]
        self._receive_bytes[receive[both]] = size[both]
        self._bytes[receive[~both]] = size[~both]
        self._count_overtaking(send, receive, tag)
        self._drop_unmatched()
        immediate = self._kind[receive] == _K.irecv
        return receive[immediate], records["message_received"][whole][immediate]

    def _count_overtaking(self, send: np.ndarray, receive: np.ndarray, tag: np.ndarray) -> None:
        """Messages of one pair and tag that are received in another order than sent: of different communicators."""
        order = np.lexsort((send, tag, self._rank[receive], self._rank[send]))
        keys = [array[order] for array in (self._rank[send], self._rank[receive], tag)]
        same = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
        self.counts.overtaking = int(np.count_nonzero(same & (np.diff(receive[order]) < 0)))

    def _drop_unmatched(self) -> None:
        """Sends and receives without a message become ``other``: to no rank, or beyond a cut."""
        rows = self._rows_of((*SENDS, *_POSTS))
        pairs = rows[self._kind[rows] == _K.sendrecv]
        self.counts.halves = int(np.count_nonzero((self._peer[pairs] == NO_RANK) != (self._source[pairs] == NO_RANK)))
        rows = rows[(self._peer[rows] == NO_RANK) & (self._source[rows] == NO_RANK)]
        names = Counter(self._kind[rows].tolist())
        self.counts.alone = {OperationKind(kind).name: number for kind, number in sorted(names.items())}
        self._opened_nothing = np.zeros(len(self._kind), np.bool_)
        self._opened_nothing[rows] = np.isin(self._kind[rows], (_K.isend, _K.irecv, _K.issend, _K.ibsend))
        self._kind[rows] = _K.other

    # -- collectives ---------------------------------------------------------------------------------------------------

    def _collectives(self) -> Collectives:
        records = self._records
        row = self._row_of_call[records["collective_call"]]
        order = np.argsort(row)
        row = row[order]
        known = self._kind[row] >= COLLECTIVES.start
        order, row = order[known], row[known]
        found = Collectives(
            row=row,
            kind=self._kind[row],
            rank=self._rank[row],
            number=records["collective_communicator"][order],
            send=records["collective_send"][order],
            receive=records["collective_receive"][order],
            is_root=records["collective_root"][order] > 0,
            end=self._end[row],
        )
        found.settle(self._groups)
        self.counts.collectives_cut = int(np.count_nonzero(~found.kept))
        self.counts.undeclared = found.undeclared
        self.counts.without_root = found.without_root
        self.counts.spread = found.spread
        self._kind[row[~found.kept]] = _K.other
        self._peer[row] = found.peer
        self._bytes[row] = found.bytes
        self._receive_bytes[row] = found.receive_bytes
        self._communicator[row] = np.where(found.kept, found.communicator, 0)
        return found

    # -- requests ------------------------------------------------------------------------------------------------------

    def _requests(self, received: tuple[np.ndarray, np.ndarray]) -> pa.Array:
        """Number the requests and find the waits that complete them; the column ``completes``."""
        kind = self._kind
        opens = np.isin(kind, (_K.isend, _K.issend, _K.ibsend, _K.irecv)) | (kind >= NONBLOCKING_COLLECTIVES.start)
        rows = np.flatnonzero(opens)
        first = np.searchsorted(self._rank[rows], self._rank[rows])
        self._request[rows] = np.arange(len(rows)) - first

        extent = np.full(len(kind), -1, np.int8)
        for each, value in _WAITS.items():
            extent[kind == each] = value
        extent[self._some & (extent >= 0)] = prv_messages.SOME
        extent[kind == _K.test] = prv_messages.TEST
        is_test = kind == _K.test
        waits = np.flatnonzero(extent >= 0)
        receive, time = received
        found = prv_messages.waits_of_receives(
            self._rank[waits], waits, self._end[waits], extent[waits], self._rank[receive], receive, time
        )
        completed_by = np.full(len(kind), -1, np.int64)
        known = found >= 0
        completed_by[receive[known]] = waits[found[known]]
        self.counts.guessed_waits = int(np.count_nonzero(self._end[waits[found[known]]] != time[known]))

        has_receives = np.zeros(len(kind), np.bool_)
        has_receives[completed_by[receive[known]]] = True
        others = (opens & (kind != _K.irecv)) | self._opened_nothing
        by_order = prv_messages.waits_of_others(self._rank, others, extent, has_receives)
        completed_by = np.where(others & opens, by_order, completed_by)
        self.counts.never_completed = int(np.count_nonzero(completed_by[rows] < 0))

        done = rows[completed_by[rows] >= 0]
        done = done[np.argsort(completed_by[done], kind="stable")]
        lengths = np.bincount(completed_by[done], minlength=len(kind))
        completes = np.flatnonzero(extent >= 0)
        several = completes[lengths[completes] > 1]
        one = completes[lengths[completes] == 1]
        kind[several] = _K.waitall
        # which one a waitany or a test completed is known, so nothing is left to chance
        kind[one[np.isin(kind[one], (_K.waitany, _K.test))]] = _K.wait
        self._polls = np.where(is_test, np.where(kind == _K.test, Poll.failed, Poll.found), Poll.ends).astype(np.int8)
        return _list_array(np.concatenate(([0], np.cumsum(lengths))), self._request[done], lengths > 0)

    # -- tables --------------------------------------------------------------------------------------------------------

    def _operations(self, collectives: Collectives, completes: pa.Array) -> pa.Table:
        count = len(self._kind)
        columns = {
            "rank": to_arrow(self._rank),
            "kind": pa.DictionaryArray.from_arrays(to_arrow(self._kind), KIND_NAMES),
            "peer": to_arrow(self._peer),
            "source": to_arrow(self._source),
            "tag": to_arrow(self._tag),
            "bytes": to_arrow(self._bytes),
            "receive_bytes": to_arrow(self._receive_bytes),
            "communicator_id": to_arrow(self._communicator),
            "request": to_arrow(self._request),
            "completes": completes,
            "send_counts": _counts(collectives.send_counts, count),
            "receive_counts": _counts(collectives.receive_counts, count),
        }
        return pa.Table.from_arrays([columns[name] for name in OPERATIONS_SCHEMA.names], schema=OPERATIONS_SCHEMA)

    def _phases(self) -> dict[str, pa.Table]:
        """Phases, regions and counters: per call the running time before it, and the rest of what the program did."""
        records = self._records
        order = np.lexsort((records["state_begin"], records["state_task"]))
        columns = ("state_task", "state_begin", "state_end", "state_running")
        states = [records.take(name)[order] for name in columns]
        del order
        times = prv_messages.time_in_states(self._rank, self._begin, self._end, records.has_states, *states)
        del states
        per_call = records["call_counters"][self._order].astype(np.int64)
        counted = per_call > 0
        keep = np.stack([(times[:, 0] > 0) | counted, times[:, 1] > 0], axis=1)
        row, what = np.nonzero(keep)
        region, names = self._regions()
        first = np.searchsorted(self._rank, np.arange(self._num_ranks))
        duration = times[row, what] * self._ps_per_unit
        kind = np.where(what == 0, PhaseKind.compute, PhaseKind.sleep)
        phases = {
            "rank": self._rank[row],
            "operation_id": (row - first[self._rank[row]]).astype(np.int32),
            "kind": marked(kind, self._polled(row, duration)),
            "region_id": np.where(what == 0, region[row], -1).astype(np.int32),
            "duration_ps": duration,
        }
        phase_of_row = np.cumsum(keep.sum(axis=1)) - keep.sum(axis=1)
        by_phase = _regrouped(records["call_counters"].astype(np.int64), self._order)
        labels = [self._labels.counter(int(event)) for event in records.counter_types]
        codes = to_arrow(records.take("counter_code")[by_phase])
        values = to_arrow(records.take("counter_value")[by_phase])
        del by_phase
        counters = [
            to_arrow(np.repeat(phase_of_row, per_call)),
            pa.DictionaryArray.from_arrays(codes, text_array(labels)),
            values,
        ]
        return {
            "phases": pa.Table.from_arrays([to_arrow(each) for each in phases.values()], schema=PHASES_SCHEMA),
            "regions": pa.Table.from_arrays([text_array(names)], schema=REGIONS_SCHEMA),
            "counters": pa.Table.from_arrays(counters, schema=COUNTERS_SCHEMA),
        }

    def _polled(self, row: np.ndarray, duration: np.ndarray) -> np.ndarray:
        """Which phases only polling did; ``row``: the call that follows each."""
        bounds = np.searchsorted(self._rank, np.arange(self._num_ranks + 1))
        parts = [
            polling(self._polls[first:end], row[start:stop] - first, duration[start:stop])
            for first, end, start, stop in zip(
                bounds, bounds[1:], *(np.searchsorted(row, each) for each in (bounds[:-1], bounds[1:])), strict=False
            )
        ]
        return np.concatenate(parts)

    def _regions(self) -> tuple[np.ndarray, list[str]]:
        """Region of the compute before each call, -1 for none, and the regions' names: the user function that ran all
        the time, else the caller of MPI if the calls at both ends have the same."""
        value = self._records["call_region"][self._order]
        caller = self._records["call_caller"][self._order].astype(np.int64)
        before = np.concatenate(([0], caller[:-1]))
        same = (caller > 0) & (caller == before)
        same[1:] &= self._rank[1:] == self._rank[:-1]
        key = np.where(value >= 0, value, np.where(same, -2 - caller, -1))
        keys, at, inverse = np.unique(key, return_index=True, return_inverse=True)
        names: dict[str, int] = {}
        regions = np.full(len(keys), -1, np.int32)
        for index in np.argsort(at).tolist():  # numbered as they come
            if keys[index] != -1:
                regions[index] = names.setdefault(self._region_name(int(keys[index])), len(names))
        return regions[inverse], list(names)

    def _region_name(self, key: int) -> str:
        if key < 0:
            event, value = _CALLER, -2 - key
        else:
            event, value = (_OUTLINED if key & 1 else _USER_FUNCTION), key >> 1
        label = self._labels.value(event, value)
        if label is None:
            return f"{'caller' if event == _CALLER else 'function'} {value}"
        full = label.rstrip("]").split("[")  # Extrae shortens long names and puts the whole behind
        return full[1] if len(full) == 2 and full[1] else label


def _regrouped(lengths: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Indices that put runs of ``lengths`` into another order of the runs. O(items)."""
    starts = (np.cumsum(lengths) - lengths)[order]
    total = int(lengths.sum())
    lengths = lengths[order]
    dtype = np.int32 if total < 2**31 else np.int64
    index = np.repeat((starts - (np.cumsum(lengths) - lengths)).astype(dtype), lengths)
    index += np.arange(total, dtype=dtype)
    return index


def _lists(parts: list[np.ndarray]) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    return _list_array(offsets, np.concatenate(parts), np.ones(len(parts), np.bool_))


def _list_array(offsets: np.ndarray, values: np.ndarray, valid: np.ndarray) -> pa.Array:
    """A list column, null where not ``valid``."""
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    child = to_arrow(values)
    buffers = [mask, pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(pa.list_(child.type), len(valid), buffers, children=[child])


def _counts(parts: list[tuple[np.ndarray, np.ndarray]], count: int) -> pa.Array:
    """The counts of some rows as a list column of ``count`` rows."""
    lengths = np.zeros(count, np.int64)
    for rows, table in parts:
        lengths[rows] = table.shape[1]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    values = np.empty(offsets[-1], np.int64)
    for rows, table in parts:
        values[offsets[rows][:, None] + np.arange(table.shape[1])] = table
    return _list_array(offsets, values, lengths > 0)
