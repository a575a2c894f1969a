"""How long the threads of a hybrid run compute, from all threads of a Paraver trace.

POP's hybrid metrics need three times (PyPOP's pypop/cfgs: omp_total_runtime, serial_useful_computation, ...): what each
thread computes (state Running), how long the first thread of a rank is in parallel regions (event 60000001, as Extrae
records OpenMP), and what it computes outside of them. The workload has the first thread of each rank alone.

Cost: one pass over the text, some 50 MB/s; memory: the state records.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from manyscale.runner.readers.archive import guarded, open_stream
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.paraver.header import read_header

_RUNNING: Final = 1
_BLOCK_BYTES: Final = 1 << 24
_STATES: Final = re.compile(rb"^1:.*$", re.MULTILINE)
_REGIONS: Final = re.compile(rb"^2:\d+:(\d+):(\d+):1:(\d+):(?:\d+:\d+:)*?60000001:(\d+)", re.MULTILINE)
_COLUMNS: Final = ("record", "cpu", "application", "task", "thread", "begin", "end", "state")


@dataclass(frozen=True)
class ThreadTimes:
    """int64 per rank: ``num_threads``; ``useful_ps``, what all of them compute; ``region_ps``, how long the first one
    is in parallel regions; ``serial_ps``, what it computes outside of them."""

    num_threads: np.ndarray
    useful_ps: np.ndarray
    region_ps: np.ndarray
    serial_ps: np.ndarray


def thread_times(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> ThreadTimes | None:
    """Those of a trace's application; None where a rank has several threads, but no parallel region is recorded. Of
    ranks of one thread each the times are 0: nothing was read. Raises UserError as the reader does."""
    with guarded(path), open_stream(path) as stream:
        header = read_header(path, stream)
        threads = header.threads[options.application - 1]
        if threads.max(initial=0) < 2:
            return ThreadTimes(threads, *np.zeros((3, len(threads)), np.int64))
        states, regions = _records(header.first, stream, options.application)
    if not len(regions):
        return None
    useful, region, serial = np.zeros((3, len(threads)), np.int64)
    running = states[states[:, 4] == _RUNNING]
    np.add.at(useful, running[:, 0] - 1, running[:, 3] - running[:, 2])
    for rank in range(len(threads)):
        inside = _spans(regions[regions[:, 0] == rank + 1, 1:])
        region[rank] = (inside[:, 1] - inside[:, 0]).sum()
        first = running[(running[:, 0] == rank + 1) & (running[:, 1] == 1)]
        serial[rank] = (first[:, 3] - first[:, 2]).sum() - _overlap(first[:, 2:4], inside)
    scale = header.ps_per_unit
    return ThreadTimes(threads, useful * scale, region * scale, serial * scale)


def _records(first: bytes, stream: IO[bytes], application: int) -> tuple[np.ndarray, np.ndarray]:
    """int64[states, 5]: task, thread, begin, end, state; int64[events, 3]: task, time, value of event 60000001."""
    states, regions = [], []
    for block in _blocks(first, stream):
        lines = b"\n".join(_STATES.findall(block))
        if lines:
            table = pa.csv.read_csv(
                io.BytesIO(lines + b"\n"), pa.csv.ReadOptions(column_names=_COLUMNS),
                pa.csv.ParseOptions(delimiter=":"),
                pa.csv.ConvertOptions(column_types=dict.fromkeys(_COLUMNS, pa.int64())),
            )  # fmt: skip
            mine = table.filter(pa.compute.equal(table.column("application"), application))
            states.append(np.stack([mine.column(name).to_numpy() for name in _COLUMNS[3:]], axis=1))
        found = [each for each in _REGIONS.findall(block) if int(each[0]) == application]
        regions.append(np.array([[int(value) for value in each[1:]] for each in found], np.int64).reshape(-1, 3))
    none = [np.empty((0, 5), np.int64)]
    return np.concatenate(states or none), np.concatenate(regions) if regions else np.empty((0, 3), np.int64)


def _blocks(first: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    """The text in pieces of whole lines, ``first`` before what the stream still has."""
    rest = first
    while block := stream.read(_BLOCK_BYTES):
        whole, separator, rest_of = (rest + block).rpartition(b"\n")
        yield whole + separator
        rest = rest_of
    yield rest


def _spans(events: np.ndarray) -> np.ndarray:
    """int64[regions, 2]: when outermost regions begin and end. ``events`` int64[events, 2]: time, value (0 ends)."""
    spans, depth, begin = [], 0, 0
    for time, value in events.tolist():
        if value:
            begin = time if depth == 0 else begin
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                spans.append((begin, time))
    return np.array(spans, np.int64).reshape(-1, 2)


def _overlap(times: np.ndarray, spans: np.ndarray) -> int:
    """How long ``times`` lie in ``spans``, both int64[n, 2] in order, without overlaps among themselves."""

    def until(when: np.ndarray) -> np.ndarray:
        before = np.concatenate(([0], np.cumsum(spans[:, 1] - spans[:, 0])))
        last = np.searchsorted(spans[:, 0], when, "right")
        inside = np.minimum(when, spans[np.maximum(last - 1, 0), 1]) - spans[np.maximum(last - 1, 0), 0]
        return np.where(last > 0, before[np.maximum(last - 1, 0)] + inside, 0)

    return int((until(times[:, 1]) - until(times[:, 0])).sum()) if len(spans) and len(times) else 0
