"""Task instances on cores as states and events of the threads of a Paraver trace.

A state Running while a core executes an instance. At its begin events with the number of its task type, its id, that
of its creator (each + 1), the model that its time is from, and 1,000 times its IPC, and where it begins for the first
time how long ago it was created, and became ready; at its end all of these are 0. What
was counted of it, under the numbers of PAPI's presets, stands at its end, as Extrae writes counters, after zeros at its
begin, so that configurations for hardware counters hold. Times are nanoseconds, rounded to nearest; what rounds to no
duration is left out.

Time in which a rank computes but none of its cores has a row is Scheduling of its first thread: the runtime system's,
or not shown. A rank whose computing lies before all rows, or between, as a whole, is Running there.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.runner.readers.paraver import labels
from manyscale.runner.report.core_rows import CoreRows
from manyscale.runner.report.paraver.hierarchy import Hierarchy
from manyscale.runner.report.paraver.records import Records, nanoseconds, states
from manyscale.runner.report.text_columns import integers, join, picked, where

RUNNING: Final = 1
SCHEDULING: Final = 7
IPC_UNIT: Final = 1000


def records_of(rows: CoreRows, threads: Hierarchy) -> list[Records]:
    """States, and events with ends before begins. O(rows)."""
    begin, end = nanoseconds(rows.start_ps), nanoseconds(rows.end_ps)
    kept = np.flatnonzero(begin < end)
    place = threads.first[rows.rank[kept]] + rows.core[kept]
    begin, end = begin[kept], end[kept]
    running = states(threads.who, place, begin, end, np.full(len(kept), RUNNING))
    return [running, _events(threads.who, place, begin, end, rows, kept)]


def _events(
    who: list[str], place: np.ndarray, begin: np.ndarray, end: np.ndarray, rows: CoreRows, kept: np.ndarray
) -> Records:
    """Record i is the end of the i-th row that is kept, those behind are the begins."""
    count = len(kept)
    prefix = [f"2:{name}" for name in who]
    types = (
        labels.TASK_TYPE, labels.TASK_INSTANCE, labels.CREATOR, labels.SINCE_CREATED, labels.SINCE_READY, labels.MODEL,
        labels.IPC,
    )  # fmt: skip
    has_ipc = not np.isnan(rows.ipc).all()
    ended = "".join(f":{each}:0" for each in (types if has_ipc else types[:-1]))
    counted = {
        labels.INSTRUCTIONS: rows.instructions, labels.CYCLES: rows.cycles,
        **{labels.MISSES[min(level, len(labels.MISSES)) - 1]: each for level, each in rows.misses.items()},
    }  # fmt: skip
    counters = {each: values for each, values in counted.items() if (values >= 0).any()}
    ipc = np.where(np.isnan(rows.ipc), -1, np.rint(np.nan_to_num(rows.ipc) * IPC_UNIT)).astype(np.int64)
    time = np.concatenate((end, begin))
    first = np.zeros(len(rows), np.bool_)
    first[np.unique(rows.instance_id, return_index=True)[1]] = True  # rows of an instance are in the order of time
    since = [
        np.where(first & (each >= 0), nanoseconds(rows.start_ps) - nanoseconds(each), 0)
        for each in (rows.created_ps, rows.ready_ps)
    ]

    def lines(records: np.ndarray) -> pa.Array:
        is_end = records < count
        row = kept[records % max(count, 1)]
        starts = row[~is_end]
        values = [each[starts] + 1 for each in (rows.kind, rows.instance_id, rows.creator_id)]
        values += [*(each[starts] for each in since), rows.model[starts] + 1]
        texts = [
            part for each, value in zip(types[:-1], values, strict=True) for part in (f":{each}:", integers(value))
        ]
        shown = join(*texts, _known(f":{labels.IPC}:", ipc[starts], ipc[starts]))
        what = where(~is_end, shown, ended)
        counts = [_known(f":{each}:", np.where(is_end, total[row], 0), total[row]) for each, total in counters.items()]
        thread = picked(prefix, place[records % max(count, 1)])
        return join(thread, integers(time[records]), what, *counts, "\n")

    return Records(time, time, lines)


def _known(key: str, values: np.ndarray, known: np.ndarray) -> pa.Array:
    """A pair of type and value where ``known`` is not negative, else nothing."""
    has = known >= 0
    return where(has, join(key, integers(values[has])))


def computing(
    rank: np.ndarray, begin_ps: np.ndarray, end_ps: np.ndarray, rows: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of states in which ranks compute, in the order of rank and time: (index of the state, begin, end, number of the
    Paraver state) of what their first threads show. ``rows``: rank, begin and end of what cores do, in the order of
    rank and begin. O((states + rows) log)."""
    own: list[tuple[np.ndarray, ...]] = []
    of_row, start_ps, stop_ps = rows
    known = np.unique(of_row)
    states, places = (np.searchsorted(each, known) for each in (rank, of_row))
    states_end, places_end = (np.searchsorted(each, known, "right") for each in (rank, of_row))
    has_rows = np.isin(rank, of_row)
    for first, last, row, row_end in zip(
        states.tolist(), states_end.tolist(), places.tolist(), places_end.tolist(), strict=True
    ):
        own.append(_uncovered(first, begin_ps[first:last], end_ps[first:last], start_ps[row:row_end],
                              stop_ps[row:row_end]))  # fmt: skip
    alone = np.flatnonzero(~has_rows)
    own.append((alone, begin_ps[alone], end_ps[alone], np.full(len(alone), RUNNING)))
    index, begin, end, number = (np.concatenate(each) for each in zip(*own, strict=True))
    order = np.lexsort((begin, rank[index]))
    return index[order], begin[order], end[order], number[order]


def _uncovered(
    first: int, begin: np.ndarray, end: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Of one rank: what of its states no row covers. ``start`` is ascending, states do not overlap."""
    count = len(begin)
    time = np.concatenate((begin, end, start, stop))
    computes = np.concatenate((np.ones(count), -np.ones(count), np.zeros(2 * len(start)))).astype(np.int64)
    busy = np.concatenate((np.zeros(2 * count), np.ones(len(start)), -np.ones(len(stop)))).astype(np.int64)
    order = np.argsort(time, kind="stable")
    time = time[order]
    computes, busy = np.cumsum(computes[order]), np.cumsum(busy[order])
    since = np.flatnonzero((computes[:-1] > 0) & (busy[:-1] == 0) & (time[1:] > time[:-1]))
    begins, ends = time[since], time[since + 1]
    index = np.searchsorted(begin, begins, "right") - 1
    # (begins of rows in a state: those before its end, less those before its begin)
    inside = np.searchsorted(start, end, "left") - np.searchsorted(start, begin, "left")
    number = np.where(inside[index] > 0, SCHEDULING, RUNNING)
    joins = np.append(False, (index[1:] == index[:-1]) & (begins[1:] == ends[:-1])) if len(since) else since > 0
    heads = np.flatnonzero(~joins)
    tails = np.append(heads[1:], len(since))[: len(heads)] - 1
    return first + index[heads], begins[heads], ends[tails], number[heads]
