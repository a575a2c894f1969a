"""Which calls sent and received the messages of a Paraver trace, and which waits completed them.

A communication record says when its message was sent and its receive posted (logical times): that lies in the call.
Extrae puts it at the call's begin, of an immediate receive at its end. It says when the receive completed, not by what:
the first wait that ends at or after it, one per MPI_Wait. Of requests without such a time (sends, non-blocking
collectives) an MPI_Waitall completes all, any other wait without a receive the oldest. Each step is O(n log n) with
n calls and messages, but for calls of no duration at one time: O(k) for each of k.
"""

from __future__ import annotations

import numpy as np

from manyscale.models.kernels import njit

SINGLE, SOME, ALL, TEST = 0, 1, 2, 3  # how many requests a wait completes


def calls_of_messages(
    call_task: np.ndarray, begin: np.ndarray, end: np.ndarray, at_end: np.ndarray, task: np.ndarray, time: np.ndarray
) -> np.ndarray:
    """int64 per message: which of some calls (sorted by task and time) it belongs to, by the message's ``task`` and
    ``time``; -1 for none. ``at_end``: calls whose messages are marked at their end. Each call takes one message."""
    found = np.full(len(task), -1, np.int64)
    order = np.lexsort((time, task))
    _assign(call_task, begin, end, at_end, task, time, order, np.zeros(len(call_task), np.bool_), found)
    return found


@njit(cache=True, nogil=True)
def _last_before(call_task, begin, task, time):  # type: ignore[no-untyped-def]
    """Index of the task's last call that begins at or before a time, or of a call of an earlier task. O(log calls)."""
    low = 0
    high = call_task.shape[0]
    while low < high:
        middle = (low + high) // 2
        if call_task[middle] < task or (call_task[middle] == task and begin[middle] <= time):
            low = middle + 1
        else:
            high = middle
    return low - 1


@njit(cache=True, nogil=True)
def _assign(call_task, begin, end, at_end, task, time, order, used, found):  # type: ignore[no-untyped-def]
    """Give each message, in order, the first free call that is marked at its time, else one that spans it."""
    for index in range(order.shape[0]):
        message = order[index]
        mine, now = task[message], time[message]
        last = _last_before(call_task, begin, mine, now)
        first = last + 1
        while first > 0 and call_task[first - 1] == mine and end[first - 1] >= now:
            first -= 1
        spans = -1
        for call in range(first, last + 1):
            if not used[call]:
                mark = end[call] if at_end[call] else begin[call]
                if mark == now:
                    spans = call
                    break
                if spans < 0:
                    spans = call
        if spans >= 0:
            used[spans] = True
            found[message] = spans


def waits_of_receives(
    wait_task: np.ndarray, wait_row: np.ndarray, wait_end: np.ndarray, extent: np.ndarray,
    task: np.ndarray, row: np.ndarray, time: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """int64 per receive: which wait completes it, -1 for none. Waits are sorted by row; ``row`` is that of the posted
    receive and ``time`` its completion."""
    found = np.full(len(task), -1, np.int64)
    order = np.lexsort((time, task))
    _complete(wait_task, wait_row, wait_end, extent, task, row, time, order, np.arange(len(wait_row) + 1), found)
    return found


@njit(cache=True, nogil=True)
def _complete(wait_task, wait_row, wait_end, extent, task, row, time, order, free, found):  # type: ignore[no-untyped-def]
    """First the receives that end with a wait, then the others; ``free[w]``: the first wait from w on with room."""
    for exactly in range(2):
        for index in range(order.shape[0]):
            receive = order[index]
            if found[receive] >= 0:
                continue
            mine = task[receive]
            # ends do not decrease within a task, so they can be searched as begins are
            wait = _last_before(wait_task, wait_end, mine, time[receive] - 1) + 1
            while True:
                while free[wait] != wait:
                    free[wait] = free[free[wait]]
                    wait = free[wait]
                if wait == wait_row.shape[0] or wait_task[wait] != mine:
                    break
                if exactly == 0 and wait_end[wait] != time[receive]:
                    break
                if wait_row[wait] > row[receive] and (exactly == 0 or extent[wait] != TEST):
                    found[receive] = wait
                    if extent[wait] == SINGLE:
                        free[wait] = wait + 1
                    break
                wait += 1


def waits_of_others(task: np.ndarray, opens: np.ndarray, extent: np.ndarray, has_receives: np.ndarray) -> np.ndarray:
    """int64 per row of all operations: row of the wait that completes the request it opens, -1 for none. ``opens``:
    rows that open a request other than a known receive; ``extent`` int8: of waits, -1 elsewhere. O(rows)."""
    completed_by = np.full(len(task), -1, np.int64)
    _first_in_first_out(task, opens, extent, has_receives, np.empty(int(opens.sum()) + 1, np.int64), completed_by)
    return completed_by


@njit(cache=True, nogil=True)
def _first_in_first_out(task, opens, extent, has_receives, queue, completed_by):  # type: ignore[no-untyped-def]
    head = 0
    tail = 0
    for row in range(task.shape[0]):
        if row > 0 and task[row] != task[row - 1]:
            head = tail
        if opens[row]:
            queue[tail] = row
            tail += 1
        elif extent[row] == ALL or (extent[row] == SOME and not has_receives[row]):
            while head < tail:
                completed_by[queue[head]] = row
                head += 1
        elif extent[row] == SINGLE and not has_receives[row] and head < tail:
            completed_by[queue[head]] = row
            head += 1


@njit(cache=True, nogil=True)
def time_in_states(  # type: ignore[no-untyped-def]
    call_task, call_begin, call_end, has_states, state_task, state_begin, state_end, running
):
    """Per call int64[calls, 2]: time in running and in other states between the end of the task's call before and its
    begin. Calls and states are sorted by task and begin. A task without states runs all the time. O(calls + states)."""
    result = np.zeros((call_task.shape[0], 2), np.int64)
    state = 0
    number = state_task.shape[0]
    covered = np.int64(0)  # states until here are accounted for
    for call in range(call_task.shape[0]):
        task = call_task[call]
        since = np.int64(0)
        if call > 0 and call_task[call - 1] == task:
            since = call_end[call - 1]
        while state < number and state_task[state] < task:
            state += 1
        if call == 0 or call_task[call - 1] != task:
            covered = np.int64(0)
        until = call_begin[call]
        if not has_states[task]:
            result[call, 0] = max(0, until - since)
            continue
        covered = max(covered, since)
        while state < number and state_task[state] == task and state_begin[state] < until:
            begin = max(state_begin[state], covered)
            end = min(state_end[state], until)
            if end > begin:
                result[call, 0 if running[state] else 1] += end - begin
                covered = end
            if state_end[state] > until:
                break
            state += 1
    return result
