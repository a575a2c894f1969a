"""Timeline as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open: ``trace.json.gz``.

Format: "Trace Event Format" (Google, 2016). One process, a track per rank (tid = rank + 1, since 0 is taken for the
idle thread), a complete event per state, an arrow per point-to-point message. Where cores were simulated each rank is
a process, its first track its states, the others its cores (cores.py). The critical path is a track of a process, the
use of links are counters of one, launches of kernels and SMs are tracks of two more. Times are microseconds with six
decimals, exact to the picosecond; Perfetto itself cuts them to nanoseconds.

* A state is named as the MPI call that it belongs to, compute as its region in the program, where the trace names one;
  its arguments are the state, the bytes that the rank sends and receives in the call, and the region.
* An arrow is tied to the state in which the message is sent (it begins at or contains the time of the send) and to that
  in which it arrives (it contains or ends at the arrival). A viewer ties an arrow to what is on the track at its time,
  so one that arrives as a state ends is drawn 2 ns earlier. An arrow that cannot be tied is left out.
* More than MAX_ARROWS messages: every k-th is drawn. Of many ranks, chosen ones are (run/chosen_ranks.py).
* What is left out is counted in ``otherData`` and logged.

Cost: O(events log events); measured 1.1 us of CPU an event, half of it compression. Memory: some 80 B an event and one
batch of text.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyscale.models.network.path_walk import KINDS
from manyscale.models.workload import SENDS, OperationKind, Workload
from manyscale.models.workload.columns import flags_array, text_array, to_numpy
from manyscale.runner.readers.paraver.labels import call_name
from manyscale.runner.report.collective_sizes import collective_sizes
from manyscale.runner.report.core_rows import core_rows
from manyscale.runner.report.operation_times import column, operation_rows, state_at
from manyscale.runner.report.perfetto.cores import (
    Creations,
    creations,
    waits_of,
    write_calls,
    write_cores,
    write_creations,
)
from manyscale.runner.report.perfetto.gpu import write_launches
from manyscale.runner.report.perfetto.tracks import MARGIN_PS, inside, named_tracks, tracks_of_ranks
from manyscale.runner.report.text_columns import batches, contents, integers, join, microseconds, picked
from manyscale.runner.run.chosen_ranks import chosen_ranks, of_ranks
from manyscale.runner.run.links import busy_ps, link_names
from manyscale.runner.run.places import places
from manyscale.runner.run.results import STATES, Result

MAX_ARROWS: Final = 1_000_000
MAX_COUNTERS: Final = 32
_COMPRESSION: Final = 1  # level 6 takes more than twice as long to save a sixth

_log = logging.getLogger(__name__)


def write(result: Result, directory: Path) -> None:
    """Write the file; equal results give equal bytes. What is left out is logged as a warning."""
    chosen = chosen_ranks(result)
    of_all = result
    if chosen is not None:
        _log.warning("trace.json.gz: %s", chosen.words)
        result = of_ranks(result, chosen.ranks)
    rows = core_rows(result)
    tracks = tracks_of_ranks(result.workload.num_ranks, has_cores=rows is not None)
    arrows = _arrows(result)
    waits = waits_of(result)
    created = None if rows is None else creations(rows, MAX_ARROWS)
    for note in [*arrows.notes, *([] if created is None else created.notes)]:
        _log.warning("trace.json.gz: %s", note)
    with (
        (directory / "trace.json.gz").open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=_COMPRESSION) as file,
    ):
        file.write(b'{"traceEvents":[\n')
        _write_states(file, result, tracks)
        _write_arrows(file, result, arrows, tracks)
        _write_critical_path(file, result)
        _write_links(file, result.links)
        if rows is not None and created is not None:
            write_cores(file, rows)
            write_creations(file, rows, created)
            write_calls(file, result.workload, waits)
        for note in write_launches(file, result):
            _log.warning("trace.json.gz: %s", note)
        ranks = range(result.workload.num_ranks) if chosen is None else chosen.ranks.tolist()
        file.write(named_tracks(ranks, rows, (waits.rank, waits.core)).encode())
        file.write(b'\n],\n"displayTimeUnit":"ns",\n"otherData":')
        file.write(json.dumps(_metadata(of_all, arrows, created, [] if chosen is None else [chosen.words])).encode())
        file.write(b"}\n")


def _write_states(file: gzip.GzipFile, result: Result, tracks: Sequence[str]) -> None:
    """A slice per state: named as its MPI call, or, of compute, as its region where the trace names one."""
    workload, ranks = result.workload, result.ranks
    rank, state, operation = (column(ranks, name) for name in ("rank", "state", "operation_id"))
    start, end = column(ranks, "start_ps"), column(ranks, "end_ps")
    row = operation_rows(workload, ranks)
    sent, received, region = _sizes_and_regions(workload)
    regions = [json.dumps(name) for name in workload.tables["regions"].column("name").to_pylist()]
    computes = state == STATES.index("compute")
    calls = [f'"{call_name(known)}"' for known in OperationKind]
    head = [f'{{"ph":"X",{track},"ts":' for track in tracks]
    name = [f',"name":{each},"args":{{"operation_id":' for each in (*calls, '"compute"', *regions)]
    index = np.where(computes, len(calls) + 1 + region[row], workload.column("operations", "kind")[row])
    said = [f',"state":"{each}"' for each in STATES]
    within = [*(f',"region":{each}' for each in regions), ""]  # the last for -1
    for batch in batches(len(rank)):
        mine, is_call = row[batch], ~computes[batch]
        text = join(
            picked(head, rank[batch]), microseconds(start[batch]),
            ',"dur":', microseconds(end[batch] - start[batch]),
            picked(name, index[batch]), integers(operation[batch]), picked(said, state[batch]),
            _where("send_bytes", sent[mine], is_call), _where("receive_bytes", received[mine], is_call),
            picked(within, region[mine] % len(within)), "}},\n",
        )  # fmt: skip
        file.write(contents(text))


def _where(key: str, values: np.ndarray, is_call: np.ndarray) -> pa.Array:
    """An argument of the slices of calls whose value is not 0."""
    return pc.if_else(flags_array(is_call & (values > 0)), join(f',"{key}":', integers(values)), text_array([""])[0])


def _sizes_and_regions(workload: Workload) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per operation: int64 bytes that its rank sends and receives in it, and the region (-1: none) of the longest phase
    before it."""
    kind = workload.column("operations", "kind")
    own = [workload.column("operations", name) for name in ("bytes", "receive_bytes")]
    only_receives = np.isin(kind, (OperationKind.recv, OperationKind.irecv))
    sent = np.where(np.isin(kind, SENDS), own[0], 0)
    received = np.where(only_receives, np.maximum(*own), np.where(kind == OperationKind.sendrecv, own[1], 0))
    of_all = collective_sizes(workload)
    sent[of_all.row], received[of_all.row] = of_all.send_bytes, of_all.receive_bytes
    known = 2 * len(OperationKind)
    return sent, received, np.maximum(places(workload).compute.astype(np.int64) - known, -1)


def _write_critical_path(file: gzip.GzipFile, result: Result) -> None:
    """A track of its own, in a process of its own: what the end of the run waited for."""
    path = result.critical_path
    if path is None:
        return
    names = ("start_ps", "end_ps", "kind", "rank", "operation_id")
    start, end, kind, rank, operation = (to_numpy(path.column(name)) for name in names)
    tail = [f',"name":"{name}","args":{{"rank":' for name in KINDS]
    for batch in batches(len(start)):
        text = join(
            '{"ph":"X","pid":2,"tid":1,"ts":', microseconds(start[batch]),
            ',"dur":', microseconds(end[batch] - start[batch]),
            picked(tail, kind[batch]), integers(rank[batch]), ',"operation_id":', integers(operation[batch]), "}},\n",
        )  # fmt: skip
        file.write(contents(text))
    named = {"ph": "M", "pid": 2, "tid": 1, "name": "process_name", "args": {"name": "critical path"}}
    file.write((json.dumps(named, separators=(",", ":")) + ",\n").encode())


def _write_links(file: gzip.GzipFile, links: pa.Table | None) -> None:
    """Per cent of the capacity of at most MAX_COUNTERS links, the most used first; nothing where links are not known. A
    counter keeps its value until the next event, so a link that goes idle is set to 0."""
    if links is None:
        return
    names = link_names(links)
    shown = np.argsort(-busy_ps(links), kind="stable")[:MAX_COUNTERS]
    code, start, end, used = (to_numpy(links.column(name)) for name in ("link", "start_ps", "end_ps", "utilisation"))
    rows = np.flatnonzero(np.isin(code, shown))
    code, start, end, used = code[rows], start[rows], end[rows], used[rows]
    follows = np.zeros(len(code), np.bool_)
    follows[:-1] = (code[1:] == code[:-1]) & (start[1:] == end[:-1])  # rows are sorted by link and time
    # a change per row, and one to zero after each row that no other one follows
    link = np.concatenate((code, code[~follows]))
    time = np.concatenate((start, end[~follows]))
    percent = np.concatenate((np.rint(100 * used), np.zeros(np.count_nonzero(~follows)))).astype(np.int64)
    order = np.lexsort((time, link))
    link, time, percent = link[order], time[order], percent[order]
    head = [f'{{"ph":"C","pid":3,"name":{json.dumps(name)},"ts":' for name in names]
    for batch in batches(len(time)):
        text = join(
            picked(head, link[batch]), microseconds(time[batch]),
            ',"args":{"percent":', integers(percent[batch]), "}},\n",
        )  # fmt: skip
        file.write(contents(text))
    if len(time):
        named = {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "most used links"}}
        file.write((json.dumps(named, separators=(",", ":")) + ",\n").encode())


@dataclass(frozen=True)
class _Arrows:
    """Rows of ``messages`` that are drawn, times of both ends as drawn, and what is left out."""

    message: np.ndarray
    send_ps: np.ndarray
    receive_ps: np.ndarray
    notes: list[str]


def _arrows(result: Result) -> _Arrows:
    messages, ranks = result.messages, result.ranks
    num_messages = messages.num_rows
    step = -(-num_messages // MAX_ARROWS) if num_messages else 1
    chosen = np.arange(0, num_messages, step)
    notes = [f"an arrow for one message in {step} of {num_messages}"] if step > 1 else []
    send, receive, source, destination = (
        column(messages, name)[chosen] for name in ("send_ps", "receive_ps", "source", "destination")
    )
    start, end = (np.append(column(ranks, name), 0) for name in ("start_ps", "end_ps"))
    # (a message quicker than the margin arrives where it is sent: in what begins then)
    quick = receive - send < 2 * MARGIN_PS
    num_ranks = result.workload.num_ranks
    sender = state_at(ranks, num_ranks, source, send, starts_before=False)
    receiver = state_at(ranks, num_ranks, destination, receive, starts_before=True)
    at_once = state_at(ranks, num_ranks, destination, receive, starts_before=False)
    receiver = np.where(quick, at_once, receiver)
    drawn_send = inside(send, start[sender], end[sender])
    drawn_receive = inside(receive, start[receiver], end[receiver])
    tied = (sender >= 0) & (receiver >= 0) & (drawn_send <= drawn_receive)
    if not tied.all():
        notes.append(f"no arrow for {np.count_nonzero(~tied)} messages that no two states tie")
    return _Arrows(chosen[tied], drawn_send[tied], drawn_receive[tied], notes)


def _write_arrows(file: gzip.GzipFile, result: Result, arrows: _Arrows, tracks: Sequence[str]) -> None:
    names = ("message_id", "source", "destination", "bytes", "tag")
    number, source, destination, size, tag = (column(result.messages, name)[arrows.message] for name in names)
    shared = '"name":"message","cat":"message"'
    begin = [f'{{"ph":"s",{shared},{track},"id":' for track in tracks]
    finish = [f'{{"ph":"f","bp":"e",{shared},{track},"id":' for track in tracks]
    for batch in batches(len(number)):
        identity = integers(number[batch])
        text = join(
            picked(begin, source[batch]), identity, ',"ts":', microseconds(arrows.send_ps[batch]),
            ',"args":{"bytes":', integers(size[batch]), ',"tag":', integers(tag[batch]), "}},\n",
            picked(finish, destination[batch]), identity, ',"ts":', microseconds(arrows.receive_ps[batch]),
            "},\n",
        )  # fmt: skip
        file.write(contents(text))


def _metadata(result: Result, arrows: _Arrows, created: Creations | None, words: list[str]) -> dict[str, Any]:
    of_tasks = {} if created is None else {"creations": len(created.row)}
    return {
        "application": result.name,
        "target": result.machine.name,
        "ranks": result.workload.num_ranks,
        "messages": result.messages.num_rows,
        "arrows": len(arrows.message),
        **of_tasks,
        "left_out": [*words, *arrows.notes, *([] if created is None else created.notes)],
        "time": "ts and dur in us, exact to the picosecond",
    }
