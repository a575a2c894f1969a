"""Kernels over the bytes of a Paraver trace: one pass, O(bytes), no Python per record.

They keep a small state per task and put out finished things only: a call when it ends, with the hardware counters of
the compute before it. So memory grows with what is found, not with the text. See readers/paraver/records.py for what
comes out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, njit

# what ended the scan of a block
DONE: Final = 0
BAD_RECORD: Final = 1
UNKNOWN_RECORD: Final = 2
BAD_APPLICATION: Final = 3
BAD_TASK: Final = 4
BAD_THREAD: Final = 5
OUT_OF_ORDER: Final = 6
TOO_MANY_COUNTERS: Final = 7

# places in the tallies
RECORDS: Final = 0  # and the four behind it: by type of record
OTHER_APPLICATIONS: Final = 5  # records of other applications
OTHER_THREADS: Final = 6  # records of threads but the first
CALLS_OF_OTHER_THREADS: Final = 7
MESSAGES_OF_OTHER_THREADS: Final = 8
CUT_AT_BEGIN: Final = 9  # calls of which only the end is there
CUT_AT_END: Final = 10
NEVER_ENDED: Final = 11  # calls in which another one begins
LATE_LINES: Final = 12  # that go back in time
NUM_COUNTERS: Final = 13
MESSAGES_BETWEEN_APPLICATIONS: Final = 14
BACKWARD_STATES: Final = 15  # that end before they begin
NUM_TALLIES: Final = 16

_POINT_TO_POINT, _COLLECTIVE, _INPUT_OUTPUT = 50000001, 50000002, 50000005
_SEND_SIZE, _RECEIVE_SIZE, _ROOT, _COMMUNICATOR = 50100001, 50100002, 50100003, 50100004
_OUTLINED, _USER_FUNCTION, _CALLER = 60000018, 60000019, 70000001
_FIRST_COUNTER, _LAST_COUNTER = 42000000, 49999999
_RUNNING = 1
# states that are no part of the program's run: idle, not created, tracing disabled, others (the tracer's own work)
_NOT_THE_PROGRAM: Final = (0, 2, 14, 15)
MAX_DEPTH = 32
UNSET_REGION: Final = -2
NO_REGION: Final = -1
HASH_SIZE: Final = 2048


# columns of a task's state: the open call (group 0: none) and what its lines said; when its last MPI event was and
# whether counters came with it, its last event line and last record; its states; the user functions it is in
STATE_COLUMNS: Final = (
    "group", "value", "begin", "region", "caller", "communicator", "send", "receive", "is_root", "mpi_time",
    "had_counters", "line_time", "last_time", "state", "state_begin", "state_before", "held", "since", "depth",
)  # fmt: skip
(
    _GROUP, _VALUE, _BEGIN, _REGION, _CALLED_BY, _COMM, _SEND, _RECEIVE, _IS_ROOT, MPI_TIME,
    _HAD_COUNTERS, _LINE_TIME, LAST_TIME, STATE, STATE_BEGIN, STATE_BEFORE, HELD, _SINCE, _DEPTH,
) = range(19)  # fmt: skip


class TaskState(NamedTuple):
    """``fields`` int64[tasks, columns]; ``stack`` int64[tasks, depth] of user functions; ``sums`` int64 and ``seen``
    uint8 [tasks, counters]: counters since the last call. Few arrays: each costs at every call of a kernel."""

    fields: np.ndarray
    stack: np.ndarray
    sums: np.ndarray
    seen: np.ndarray


class Found(NamedTuple):
    """What a block yields, int64 matrices with a row per item (for the columns see prv_records); ``counts`` says how
    many rows of each are filled, in this order; behind them stand the number of the block's first call and that of the
    lines that were scanned."""

    counts: np.ndarray
    calls: np.ndarray
    collectives: np.ndarray
    counters: np.ndarray
    states: np.ndarray
    messages: np.ndarray


class Layout(NamedTuple):
    """``wanted`` application (from 0); tasks of application a are [first_task[a], first_task[a + 1]) of ``threads``."""

    wanted: int
    first_task: np.ndarray
    threads: np.ndarray


class Counters(NamedTuple):
    """Hash table from an event type to the counter's code, and the types by code."""

    key: np.ndarray
    code: np.ndarray
    types: np.ndarray


@njit(cache=True, nogil=True, inline="always")
def _integer(text, place):  # type: ignore[no-untyped-def]
    """The integer behind the colon at ``place``: (its value, the place behind it), -1 if there is none."""
    if text[place] != 58:
        return np.int64(0), -1
    place += 1
    negative = text[place] == 45
    if negative:
        place += 1
    start = place
    value = np.int64(0)
    digit = np.int64(text[place]) - 48
    while 0 <= digit <= 9:
        value = value * 10 + digit
        place += 1
        digit = np.int64(text[place]) - 48
    if place == start:
        return value, -1
    return (-value if negative else value), place


@allocation_free
def _integers(text, place, values, count):  # type: ignore[no-untyped-def]
    """Read ``count`` integers, each behind a colon; the place behind them, -1 if they are not there."""
    for k in range(count):
        values[k], place = _integer(text, place)
        if place < 0:
            break
    return place


@allocation_free
def _owner(layout, application, task, thread):  # type: ignore[no-untyped-def]
    """Error code of a record's application, task and thread, 0 if they exist."""
    if application < 1 or application >= layout.first_task.shape[0]:
        return BAD_APPLICATION
    first = layout.first_task[application - 1]
    if task < 1 or task > layout.first_task[application] - first:
        return BAD_TASK
    if thread < 1 or thread > layout.threads[first + task - 1]:
        return BAD_THREAD
    return 0


@allocation_free
def _counter_code(counters, event, tally):  # type: ignore[no-untyped-def]
    """Code of a counter's event type, -1 where there is no room for one more."""
    place = (event * 40503) & (HASH_SIZE - 1)
    while counters.key[place] != event:
        if counters.key[place] == 0:
            number = tally[NUM_COUNTERS]
            if number == counters.types.shape[0]:
                return -1
            counters.key[place] = event
            counters.code[place] = number
            counters.types[number] = event
            tally[NUM_COUNTERS] = number + 1
            return number
        place = (place + 1) & (HASH_SIZE - 1)
    return np.int64(counters.code[place])


@allocation_free
def _hold_region(state, task, time):  # type: ignore[no-untyped-def]
    """Account for the user function that ran since the last change; one that is not alone in its phase is none."""
    mine = state.fields[task]
    if time > mine[_SINCE]:
        depth = min(mine[_DEPTH], MAX_DEPTH)
        top = state.stack[task, depth - 1] if depth > 0 else np.int64(NO_REGION)
        if mine[HELD] == UNSET_REGION:
            mine[HELD] = top
        elif mine[HELD] != top:
            mine[HELD] = NO_REGION
            mine[_SINCE] = time
            # nothing else can be held in this phase
            return
    mine[_SINCE] = time


@allocation_free
def _put_call(state, found, task, end, num_counters):  # type: ignore[no-untyped-def]
    """Put out the task's open call and the counters of the compute before it. O(counters)."""
    mine = state.fields[task]
    row = found.counts[0]
    found.counts[0] = row + 1
    found.calls[row, 0] = task
    for k in range(5):
        found.calls[row, 1 + k] = mine[_GROUP + k]
    found.calls[row, 6] = end
    if mine[_GROUP] == 2:
        at = found.counts[1]
        found.counts[1] = at + 1
        found.collectives[at, 0] = found.counts[5] + row
        for k in range(4):
            found.collectives[at, 1 + k] = mine[_COMM + k]
    first = found.counts[2]
    for code in range(num_counters):
        if state.seen[task, code]:
            at = found.counts[2]
            found.counts[2] = at + 1
            found.counters[at, 0] = code
            found.counters[at, 1] = state.sums[task, code]
            state.seen[task, code] = 0
            state.sums[task, code] = 0
    found.calls[row, 7] = found.counts[2] - first
    mine[_GROUP] = 0
    mine[HELD] = UNSET_REGION
    mine[_SINCE] = end


@allocation_free
def _open_call(state, task, group, value, time):  # type: ignore[no-untyped-def]
    mine = state.fields[task]
    _hold_region(state, task, time)
    mine[_GROUP] = group
    mine[_VALUE] = value
    mine[_BEGIN] = time
    mine[_COMM] = 0
    mine[_SEND] = 0
    mine[_RECEIVE] = 0
    mine[_IS_ROOT] = 0
    mine[_CALLED_BY] = 0
    mine[_REGION] = mine[HELD] if mine[HELD] >= 0 else NO_REGION


@allocation_free
def _mpi_event(state, found, task, group, value, time, tally):  # type: ignore[no-untyped-def]
    """Begin (value > 0) or end of an MPI call."""
    mine = state.fields[task]
    if value > 0:
        if mine[_GROUP] != 0:
            tally[NEVER_ENDED] += 1
            _put_call(state, found, task, time, tally[NUM_COUNTERS])
        _open_call(state, task, group, value, time)
    elif mine[_GROUP] != 0:
        _put_call(state, found, task, time, tally[NUM_COUNTERS])
    elif mine[MPI_TIME] < 0:  # the call began before the trace
        tally[CUT_AT_BEGIN] += 1
        for code in range(tally[NUM_COUNTERS]):
            state.seen[task, code] = 0
            state.sums[task, code] = 0
        _open_call(state, task, group, 0, 0)
        _put_call(state, found, task, time, tally[NUM_COUNTERS])
    mine[MPI_TIME] = time
    mine[_HAD_COUNTERS] = 0


@allocation_free
def _event(text, place, task, time, state, found, counters, tally, values):  # type: ignore[no-untyped-def]
    """The pairs of type and value of one line of a task: (place behind them, error code)."""
    mine = state.fields[task]
    was_open = mine[_GROUP] != 0
    if was_open:
        # counters that follow the line of the call's begin, at its time, are those of the compute before it
        counts = time == mine[_BEGIN] and mine[_HAD_COUNTERS] == 0
    else:
        # so do those that follow the line of its end belong to the call
        counts = not (time == mine[MPI_TIME] and mine[_HAD_COUNTERS] == 0)
    latest = mine[STATE] if mine[STATE_BEGIN] < time else mine[STATE_BEFORE]
    runs = latest == _RUNNING or (mine[STATE] < 0 and time > 0)  # without states: all the time
    counts = counts and runs and time >= mine[MPI_TIME]
    if time < mine[_LINE_TIME]:
        tally[LATE_LINES] += 1
    mine[_LINE_TIME] = max(time, mine[_LINE_TIME])
    mine[LAST_TIME] = max(time, mine[LAST_TIME])
    has_counters = False
    while text[place] == 58:
        event, place = _integer(text, place)
        value = np.int64(0)
        if place >= 0:
            value, place = _integer(text, place)
        if place < 0:
            return -1, BAD_RECORD
        if _FIRST_COUNTER <= event <= _LAST_COUNTER:
            has_counters = True
            if counts:
                code = _counter_code(counters, event, tally)
                if code < 0:
                    return -1, TOO_MANY_COUNTERS
                state.sums[task, code] += value
                state.seen[task, code] = 1
        elif _POINT_TO_POINT <= event <= _INPUT_OUTPUT:
            if time < mine[MPI_TIME]:
                return -1, OUT_OF_ORDER
            _mpi_event(state, found, task, event - _POINT_TO_POINT + 1, value, time, tally)
        elif _SEND_SIZE <= event <= _COMMUNICATOR:
            if event == _SEND_SIZE:
                mine[_SEND] = value
            elif event == _RECEIVE_SIZE:
                mine[_RECEIVE] = value
            elif event == _ROOT:
                mine[_IS_ROOT] = value
            else:
                mine[_COMM] = value
        elif event == _CALLER:
            mine[_CALLED_BY] = value
        elif event == _USER_FUNCTION or event == _OUTLINED:
            if mine[_GROUP] == 0:
                _hold_region(state, task, time)
            depth = mine[_DEPTH]
            if value > 0:
                if depth < MAX_DEPTH:
                    state.stack[task, depth] = 2 * value + (event == _OUTLINED)
                mine[_DEPTH] = depth + 1
            else:
                mine[_DEPTH] = max(0, depth - 1)
    if has_counters:
        mine[_HAD_COUNTERS] = 1
    return place, 0


@allocation_free
def _state(task, values, state, found):  # type: ignore[no-untyped-def]
    """A state of a task: ``values`` are those of its record."""
    mine = state.fields[task]
    begin, end, what = values[4], values[5], values[6]
    if begin > mine[STATE_BEGIN]:
        mine[STATE_BEFORE] = mine[STATE]
        mine[STATE_BEGIN] = begin
    mine[STATE] = what
    if end > mine[LAST_TIME]:
        mine[LAST_TIME] = end
    for other in _NOT_THE_PROGRAM:
        if what == other:
            return
    if end > begin:
        at = found.counts[3]
        found.counts[3] = at + 1
        found.states[at, 0] = task
        found.states[at, 1] = begin
        found.states[at, 2] = end
        found.states[at, 3] = what == _RUNNING


@allocation_free
def _message(layout, values, found, tally):  # type: ignore[no-untyped-def]
    """A communication: sender, its times, receiver, its times, size, tag. Returns an error code."""
    wrong = _owner(layout, values[7], values[8], values[9])
    if wrong:
        return wrong
    if values[1] != values[7]:
        tally[MESSAGES_BETWEEN_APPLICATIONS] += 1
    elif values[1] - 1 == layout.wanted:
        if values[3] != 1 or values[9] != 1:
            tally[MESSAGES_OF_OTHER_THREADS] += 1
            return 0
        at = found.counts[4]
        found.counts[4] = at + 1
        found.messages[at, 0] = values[2] - 1
        found.messages[at, 1] = values[8] - 1
        found.messages[at, 2] = values[4]
        for k in range(3):
            found.messages[at, 3 + k] = values[10 + k]
        found.messages[at, 6] = values[13] & 0x7FFFFFFF
    return 0


@allocation_free
def _is_call(text, place, values):  # type: ignore[no-untyped-def]
    """Whether the pairs of a line begin an MPI call: (place behind them, 0 or 1)."""
    begins = 0
    while place >= 0 and text[place] == 58:
        place = _integers(text, place, values, 2)
        if _POINT_TO_POINT <= values[0] <= _INPUT_OUTPUT and values[1] > 0:
            begins = 1
    return place, begins


@allocation_free
def scan(text, layout, state, found, counters, tally, values):  # type: ignore[no-untyped-def]
    """Scan a block of whole lines: (code of what ended it, place of the line where it did). ``values``: room for the 14
    numbers of a record. O(bytes)."""
    place = 0
    size = text.shape[0]
    while place < size:
        line = place
        kind = text[place]
        if kind == 10 or kind == 13 or kind == 32:
            found.counts[6] += kind == 10
            place += 1
            continue
        if kind == 35:  # a comment
            while text[place] != 10:
                place += 1
            continue
        if kind < 49 or kind > 52 or text[place + 1] != 58:
            return UNKNOWN_RECORD, line
        count = 7 if kind == 49 else (14 if kind == 51 else (5 if kind == 50 else 4))
        place = _integers(text, place + 1, values, count)
        if place < 0:
            return BAD_RECORD, line
        tally[RECORDS + kind - 48] += 1
        wrong = _owner(layout, values[1], values[2], values[3])
        if wrong:
            return wrong, line
        mine = values[1] - 1 == layout.wanted
        if kind == 51:
            wrong = _message(layout, values, found, tally)
        elif not mine:
            tally[OTHER_APPLICATIONS] += 1
        elif values[3] != 1:
            tally[OTHER_THREADS] += 1
            if kind == 50:
                place, begins = _is_call(text, place, values)
                tally[CALLS_OF_OTHER_THREADS] += begins
        elif kind == 49:
            if values[5] < values[4]:
                tally[BACKWARD_STATES] += 1
            else:
                _state(values[2] - 1, values, state, found)
        elif kind == 50:
            place, wrong = _event(text, place, values[2] - 1, values[4], state, found, counters, tally, values)
        if wrong:
            return wrong, line
        if place < 0:
            return BAD_RECORD, line
        # what is not looked at (type 4, other applications) may go on
        if kind == 52 or not mine:
            while text[place] != 10:
                place += 1
        while text[place] == 32 or text[place] == 13 or text[place] == 9:
            place += 1
        if text[place] != 10:
            return BAD_RECORD, line
        found.counts[6] += 1
        place += 1
    return DONE, size


@allocation_free
def finish(state, found, tally):  # type: ignore[no-untyped-def]
    """Put out the calls that are still open, and per task what follows its last call, as one of group 0. O(tasks)."""
    for task in range(state.fields.shape[0]):
        mine = state.fields[task]
        if mine[_GROUP] != 0:
            tally[CUT_AT_END] += 1
            end = max(mine[LAST_TIME], mine[_BEGIN])
            _put_call(state, found, task, end, tally[NUM_COUNTERS])
            mine[MPI_TIME] = end
        if mine[LAST_TIME] > mine[MPI_TIME]:
            _open_call(state, task, 0, 0, mine[LAST_TIME])
            _put_call(state, found, task, mine[LAST_TIME], tally[NUM_COUNTERS])
