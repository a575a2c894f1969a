"""The timeline of a run as one Paraver trace: ``trace.prv``, ``trace.pcf`` and ``trace.row``.

Format: BSC's "Paraver: Parallel Program Visualization and Analysis tool; Trace file description" (2001) as Extrae
writes it. One application, a task per rank with a thread per core where cores are shown, else one (hierarchy.py); what
cores did is in instances.py. Streams of GPUs and their SMs are a second one (gpu.py).

* Times are nanoseconds, rounded to nearest. States that round to no duration are left out.
* Every MPI operation has an event at its begin and one of value 0 at its end, those without duration too. They are on
  the first thread of their rank, but for those that a core waits in (calls.py).
* A communication's logical and physical send are the time at which the send was posted, its physical receive is the
  arrival. The logical receive is the time at which the receive was posted, or the arrival where a wildcard receive may
  have taken the message.
* Sizes of a collective are what the rank itself sends and receives, scaled as Extrae's wrappers do: the send size of
  alltoall is that to one member.
* Of many ranks, chosen ones have records (run/chosen_ranks.py); all are tasks, so that numbers are the ranks'.
* The date is fixed: equal results give equal bytes.

Cost: O(records log records); measured 0.4 us of CPU a record, 1 us of those with counters. A million task instances
take 2 to 3 s. Memory: some 60 B a record, 120 B with counters, and one batch of text.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.workload import OperationKind
from manyscale.runner.readers.paraver import labels
from manyscale.runner.report.collective_sizes import CollectiveSizes, collective_sizes
from manyscale.runner.report.core_rows import CoreRows, core_rows
from manyscale.runner.report.operation_times import column, receive_rows
from manyscale.runner.report.paraver.calls import Calls, calls_of, waiting
from manyscale.runner.report.paraver.files import opened_prv
from manyscale.runner.report.paraver.gpu import VIEWED, part_of
from manyscale.runner.report.paraver.hierarchy import Hierarchy
from manyscale.runner.report.paraver.instances import computing, records_of
from manyscale.runner.report.paraver.records import Records, nanoseconds, states, write_sorted
from manyscale.runner.report.paraver.views import write_views
from manyscale.runner.report.text_columns import integers, join, picked, where
from manyscale.runner.run.chosen_ranks import chosen_ranks, of_ranks
from manyscale.runner.run.results import STATES, Result

_log = logging.getLogger(__name__)


def write(result: Result, directory: Path) -> None:
    """Write the three files, and views (views.py); equal results give equal bytes. Of many ranks, what chosen ones do
    (run/chosen_ranks.py), which is logged as a warning."""
    chosen = chosen_ranks(result)
    if chosen is not None:
        _log.warning("trace.prv: %s", chosen.words)
        result = of_ranks(result, chosen.ranks)
    rows = core_rows(result)
    threads = _hierarchy(result, rows)
    who = threads.who_of_ranks
    instances = [] if rows is None else records_of(rows, threads)
    calls = calls_of(result, threads)
    gpu = part_of(result, int(threads.first[-1]))
    records = [_states(result, who, rows, calls), *instances[:1], waiting(calls, threads.who), *gpu.states]
    records += [_events(result, calls, threads.who), *instances[1:], *gpu.events]
    records.append(_communications(result, calls, threads.who))
    end_ns = max((int(part.last_ns.max(initial=0)) for part in records), default=0)
    with opened_prv(directory / "trace.prv") as file:
        file.write(threads.header(result.workload, end_ns, len(gpu.threads)).encode())
        write_sorted(file, records)
    names = "" if rows is None else labels.of_instances(rows.types, rows.models)
    values = labels.configuration() + names + gpu.values
    (directory / "trace.pcf").write_text(values, encoding="utf-8", errors="backslashreplace")
    (directory / "trace.row").write_text(threads.names(gpu.threads), encoding="utf-8", errors="backslashreplace")
    write_views(directory, rows, VIEWED if gpu.threads else {})


def _hierarchy(result: Result, rows: CoreRows | None) -> Hierarchy:
    """Ranks on their nodes; those whose cores are shown with a thread for each core that they have."""
    placement: Any = result.resolved.get("placement")
    num_ranks = result.workload.num_ranks
    nodes = np.arange(num_ranks) if placement is None else np.asarray(placement, np.int64)
    if nodes.shape != (num_ranks,):
        raise ValueError(f"the placement has {nodes.size} entries for {num_ranks} ranks")
    used, index = np.unique(nodes, return_inverse=True)
    width = np.ones(num_ranks, np.int64)
    if rows is not None:
        mapping: Any = result.resolved.get("mapping")
        width[rows.rank] = 1 if mapping is None else int(mapping.get("cores_per_rank", 1))
        np.maximum.at(width, rows.rank, rows.core + 1)
    return Hierarchy(index, width, used)


def _states(result: Result, who: list[str], rows: CoreRows | None, calls: Calls) -> Records:
    """Of first threads: states of ranks; where cores tell what a rank computes or waits for, what they leave over."""
    rank, state = column(result.ranks, "rank"), column(result.ranks, "state")
    start, stop = column(result.ranks, "start_ps"), column(result.ranks, "end_ps")
    number = np.array([labels.STATE_NUMBERS[name] for name in STATES], np.int64)[state]
    if rows is not None:
        is_compute = state == STATES.index("compute")
        mine = np.flatnonzero(is_compute)
        index, *parts, own = computing(rank[mine], start[mine], stop[mine], calls.with_waiting(rows))
        others = np.flatnonzero(~is_compute & ~calls.of_cores[rank])
        rank = np.concatenate((rank[others], rank[mine][index]))
        start, stop = (np.concatenate((a[others], b)) for a, b in zip((start, stop), parts, strict=True))
        number = np.concatenate((number[others], own))
        order = np.lexsort((start, rank))
        rank, start, stop, number = (each[order] for each in (rank, start, stop, number))
    return states(who, rank, nanoseconds(start), nanoseconds(stop), number)


def _events(result: Result, calls: Calls, who: list[str]) -> Records:
    """Record 2i is the begin of operation i, record 2i + 1 its end."""
    workload = result.workload
    time = nanoseconds(np.stack((calls.begin_ps, calls.end_ps), axis=1)).ravel()
    kind, place = workload.column("operations", "kind"), calls.thread
    prefix = [f"2:{name}" for name in who]
    known = [labels.CALLS[each] for each in OperationKind]
    label = [f":{event}:{value}" for event, value in known] + [f":{event}:0" for event, _ in known]
    sizes = collective_sizes(workload)

    def lines(rows: np.ndarray) -> pa.Array:
        operation, is_end = np.divmod(rows, 2)
        call = picked(label, kind[operation] + is_end * len(known))
        details = collective_details(sizes, np.where(is_end, -1, operation))
        return join(picked(prefix, place[operation]), integers(time[rows]), call, details, "\n")

    return Records(time, time, lines)


def collective_details(sizes: CollectiveSizes, operation: np.ndarray) -> pa.Array:
    """Further pairs of type and value for the operations that are collectives, else nothing."""
    at = np.searchsorted(sizes.row, operation)
    is_collective = np.append(sizes.row, -2)[at] == operation
    at = at[is_collective]
    root = picked(["", f":{labels.ROOT}:1"], sizes.is_root[at].astype(np.int8))
    texts = join(
        f":{labels.SEND_SIZE}:", integers(sizes.send_bytes[at]),
        f":{labels.RECEIVE_SIZE}:", integers(sizes.receive_bytes[at]),
        f":{labels.COMMUNICATOR}:", integers(sizes.communicator_id[at] + 1), root,
    )  # fmt: skip
    return where(is_collective, texts)


def _communications(result: Result, calls: Calls, who: list[str]) -> Records:
    """Messages in the order of their sends."""
    messages = result.messages
    destination = column(messages, "destination")
    send, physical = (nanoseconds(column(messages, name)) for name in ("send_ps", "receive_ps"))
    size, tag = column(messages, "bytes"), column(messages, "tag")
    row = receive_rows(result.workload)[column(messages, "message_id")]
    logical = np.where(row >= 0, nanoseconds(np.append(calls.begin_ps, 0)[row]), physical)
    source = calls.thread[result.workload.send_rows[column(messages, "message_id")]]
    destination = np.where(row >= 0, np.append(calls.thread, 0)[row], calls.first[destination])

    def lines(rows: np.ndarray) -> pa.Array:
        sent = integers(send[rows])
        return join(
            "3:", picked(who, source[rows]), sent, ":", sent, ":",
            picked(who, destination[rows]), integers(logical[rows]), ":", integers(physical[rows]), ":",
            integers(size[rows]), ":", integers(tag[rows]), "\n",
        )  # fmt: skip

    return Records(send, physical, lines)
