"""The records of a Paraver trace as compact columns: calls, collectives, counters, states and messages of one
application, from blocks of bytes.

Only the first thread of each task is read: it is the one that Extrae lets call MPI. What the others hold is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any, Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers.paraver import record_kernels as kernels
from manyscale.runner.readers.paraver.header import Header

BLOCK_BYTES: Final = 1 << 20
_LONGEST_LINE: Final = 1 << 20
_STATE_BYTES: Final = 1 << 23  # counter sums held at once, in entries

# group of a call: of which of Extrae's event types it is
END, POINT_TO_POINT, COLLECTIVE, OTHER, ONE_SIDED, INPUT_OUTPUT = range(6)

# what the kernels put out: the columns of each kind of item, and the types in which they are kept
_CALLS: Final = {
    "call_task": np.int32, "call_group": np.int8, "call_value": np.int32, "call_begin": np.int64,
    "call_region": np.int64, "call_caller": np.int32, "call_end": np.int64, "call_counters": np.int16,
}  # fmt: skip
_COLLECTIVES: Final = {
    "collective_call": np.int64, "collective_communicator": np.int32, "collective_send": np.int64,
    "collective_receive": np.int64, "collective_root": np.int8,
}  # fmt: skip
_COUNTERS: Final = {"counter_code": np.int16, "counter_value": np.int64}
_STATES: Final = {"state_task": np.int32, "state_begin": np.int64, "state_end": np.int64, "state_running": np.bool_}
_MESSAGES: Final = {
    "message_source": np.int32, "message_destination": np.int32, "message_sent": np.int64,
    "message_posted": np.int64, "message_received": np.int64, "message_bytes": np.int64, "message_tag": np.int32,
}  # fmt: skip
_GROUPS: Final[tuple[dict[str, Any], ...]] = (_CALLS, _COLLECTIVES, _COUNTERS, _STATES, _MESSAGES)


@dataclass(frozen=True)
class Records:
    """Columns by name, in the order of the file; times in the trace's units, tasks from 0.

    ``call_*``: group and value (Extrae's number) of each call, begin and end, region (2 x value of the user function,
    plus 1 for an outlined one; -1 where not one alone ran in the compute before), value of the caller. A call of group
    END stands for what follows a task's last call. ``collective_*``: of the calls ``collective_call`` (their numbers).
    ``counter_*``: increase of a counter over the compute before a call: ``call_counters`` of them for each call, in the
    order of the calls. ``state_*``: states outside the tracer.
    ``message_*``: times of the send, of the posted receive and of its completion. ``counter_types`` by code.
    ``tally``: see prv_kernels. Per task int64 ``last_time`` and whether it ``has_states`` of any kind.
    """

    columns: dict[str, np.ndarray]
    counter_types: np.ndarray
    tally: np.ndarray
    last_time: np.ndarray
    has_states: np.ndarray

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def take(self, name: str) -> np.ndarray:
        """A column that nobody needs any more: its memory goes with the caller's reference."""
        return self.columns.pop(name)


class _Column:
    """An array that grows in place, with a little room to spare: no second copy is ever held."""

    def __init__(self, dtype: Any) -> None:
        self._values = np.empty(1 << 10, dtype)
        self._count = 0

    def extend(self, values: np.ndarray) -> None:
        needed = self._count + len(values)
        if needed > len(self._values):
            self._values.resize(max(needed, len(self._values) + (len(self._values) >> 2)), refcheck=False)
        self._values[self._count : needed] = values
        self._count = needed

    def finished(self) -> np.ndarray:
        self._values.resize(self._count, refcheck=False)
        return self._values


class RecordReader:
    """Reads the records of application ``application`` (from 0) of a trace, block by block."""

    def __init__(self, name: str, header: Header, application: int) -> None:
        self._name = name
        sizes = [len(threads) for threads in header.threads]
        self._layout = kernels.Layout(
            application,
            np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
            np.concatenate(header.threads),
        )
        tasks = sizes[application]
        self._num_counters = int(np.clip(_STATE_BYTES // tasks, 32, 512))
        self._state = _new_state(tasks, self._num_counters)
        self._counters = kernels.Counters(
            np.zeros(kernels.HASH_SIZE, np.int64),
            np.zeros(kernels.HASH_SIZE, np.int16),
            np.zeros(self._num_counters, np.int64),
        )
        self._tally = np.zeros(kernels.NUM_TALLIES, np.int64)
        self._columns = {name: _Column(dtype) for group in _GROUPS for name, dtype in group.items()}
        self._num_calls = 0
        self._found: kernels.Found | None = None
        self._line = header.num_lines + 1

    def read(self, first: bytes, stream: IO[bytes]) -> Records:
        """All records: ``first`` and the rest of the stream. Raises UserError for one that is wrong, with its line."""
        rest = first
        while True:
            block = stream.read(BLOCK_BYTES)
            text = rest + block
            if not block and text and not text.endswith(b"\n"):
                text += b"\n"
            cut = text.rfind(b"\n") + 1
            rest = text[cut:]
            if len(rest) > _LONGEST_LINE:
                raise UserError(f"{self._name}: a line is longer than {_LONGEST_LINE} bytes; this is no Paraver trace")
            if cut:
                self._scan(text[:cut])
            if not block:
                break
        found = self._room(0)
        kernels.finish(self._state, found, self._tally)
        self._keep(found)
        self._found = None
        columns = {name: column.finished() for name, column in self._columns.items()}
        types = self._counters.types[: self._tally[kernels.NUM_COUNTERS]]
        fields = self._state.fields
        return Records(columns, types, self._tally, fields[:, kernels.LAST_TIME], fields[:, kernels.STATE] >= 0)

    def _scan(self, text: bytes) -> None:
        found = self._room(len(text))
        code, place = kernels.scan(
            np.frombuffer(text, np.uint8),
            self._layout,
            self._state,
            found,
            self._counters,
            self._tally,
            np.zeros(14, np.int64),
        )
        self._line += int(found.counts[6])
        if code != kernels.DONE:
            self._refuse(int(code), text, int(place))
        self._keep(found)

    def _room(self, num_bytes: int) -> kernels.Found:
        """Room for what so many bytes can yield at most: a record has 14 bytes or more, a pair of an event 4. Memory
        that is not written to is never really taken."""
        num_records, num_pairs = num_bytes // 14 + 1, num_bytes // 4 + 1
        num_tasks = len(self._state.fields)
        num_calls = num_pairs + 2 * num_tasks
        sizes = [num_calls, num_calls, num_pairs + num_tasks * self._num_counters, num_records, num_records]
        present = [] if self._found is None else [len(matrix) for matrix in _matrices(self._found)]
        if self._found is None or any(has < size for has, size in zip(present, sizes, strict=True)):
            matrices = [np.empty((size, len(group)), np.int64) for size, group in zip(sizes, _GROUPS, strict=True)]
            self._found = kernels.Found(np.zeros(7, np.int64), *matrices)
        self._found.counts[:] = 0
        self._found.counts[5] = self._num_calls
        return self._found

    def _keep(self, found: kernels.Found) -> None:
        for count, group, matrix in zip(found.counts[:5].tolist(), _GROUPS, _matrices(found), strict=True):
            for place, name in enumerate(group):
                self._columns[name].extend(matrix[:count, place])
        self._num_calls += int(found.counts[0])

    def _refuse(self, code: int, text: bytes, place: int) -> None:
        shown = repr(text[place : text.find(b"\n", place)][:70].decode(errors="replace"))
        what = {
            kernels.BAD_RECORD: f"{shown} is not a whole record; mend or remove the line",
            kernels.UNKNOWN_RECORD: f"{shown} is no record of type 1 to 4; mend or remove the line",
            kernels.BAD_APPLICATION: f"{shown} names an application that line 1 does not declare; mend one of them",
            kernels.BAD_TASK: f"{shown} names a task that line 1 does not declare; mend one of them",
            kernels.BAD_THREAD: f"{shown} names a thread that line 1 does not declare; mend one of them",
            kernels.OUT_OF_ORDER: f"{shown} goes back in time among the MPI calls of its thread; sort the trace",
            kernels.TOO_MANY_COUNTERS: f"{shown} has one counter more than {self._num_counters}; filter some out",
        }
        raise UserError(f"{self._name}:{self._line}: {what[code]}")


def _matrices(found: kernels.Found) -> tuple[np.ndarray, ...]:
    return found.calls, found.collectives, found.counters, found.states, found.messages


def _new_state(tasks: int, counters: int) -> kernels.TaskState:
    """Before the first record."""
    fields = np.zeros((tasks, len(kernels.STATE_COLUMNS)), np.int64)
    fields[:, [kernels.MPI_TIME, kernels.STATE, kernels.STATE_BEGIN, kernels.STATE_BEFORE]] = -1
    fields[:, kernels.HELD] = kernels.UNSET_REGION
    return kernels.TaskState(
        fields,
        np.zeros((tasks, kernels.MAX_DEPTH), np.int64),
        np.zeros((tasks, counters), np.int64),
        np.zeros((tasks, counters), np.uint8),
    )
