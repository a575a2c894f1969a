"""Timeline as a Paraver trace: ``trace.prv``, ``trace.pcf`` and ``trace.row``.

Format: BSC's "Paraver: Parallel Program Visualization and Analysis tool; Trace file description" (2001) as Extrae
writes it. One application, a task per rank with one thread, a CPU per rank on the node where the rank is placed.

* Times are nanoseconds, rounded to nearest. States that round to no duration are left out.
* Every MPI operation has an event at its begin and one of value 0 at its end, those without duration too.
* A communication's logical and physical send are the time at which the send was posted, its physical receive is the
  arrival. The logical receive is the time at which the receive was posted, or the arrival where a wildcard receive may
  have taken the message.
* Sizes of a collective are what the rank itself sends and receives, scaled as Extrae's wrappers do: the send size of
  alltoall is that to one member.
* The date is fixed: equal results give equal bytes.

Cost: O(records log records); measured 0.4 us of CPU a record. Memory: some 60 B a record and one batch of text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import OperationKind, Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.runner.readers.paraver import labels
from manyscale.runner.report.collective_sizes import CollectiveSizes, collective_sizes
from manyscale.runner.report.operation_times import column, operation_times, receive_rows
from manyscale.runner.report.paraver.files import opened_prv
from manyscale.runner.report.text_columns import batches, contents, integers, join, picked
from manyscale.runner.run.results import STATES, Result

_DATE: Final = "01/01/2000 at 00:00"
_PS_PER_NS: Final = 1000


def write(result: Result, directory: Path) -> None:
    """Write the three files; equal results give equal bytes."""
    nodes, node_of_rank = _nodes(result)
    cpu_of_rank = np.empty(len(node_of_rank), np.int64)
    cpu_of_rank[np.argsort(node_of_rank, kind="stable")] = np.arange(1, len(node_of_rank) + 1)
    who = [f"{cpu}:1:{rank}:1:" for rank, cpu in enumerate(cpu_of_rank.tolist(), start=1)]
    records = [_states(result, who), _events(result, who), _communications(result, who)]
    end_ns = max((int(part.last_ns.max(initial=0)) for part in records), default=0)
    with opened_prv(directory / "trace.prv") as file:
        file.write(header(result.workload, node_of_rank, end_ns).encode())
        write_sorted(file, records)
    (directory / "trace.pcf").write_text(labels.configuration())
    (directory / "trace.row").write_text(names(nodes, node_of_rank))


def _nodes(result: Result) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the nodes in use, and per rank the index of its node among them."""
    placement: Any = result.resolved.get("placement")
    num_ranks = result.workload.num_ranks
    nodes = np.arange(num_ranks) if placement is None else np.asarray(placement, np.int64)
    if nodes.shape != (num_ranks,):
        raise ValueError(f"the placement has {nodes.size} entries for {num_ranks} ranks")
    used, index = np.unique(nodes, return_inverse=True)
    return used, index


def header(workload: Workload, node_of_rank: np.ndarray, end_ns: int) -> str:
    cpus = ",".join(map(str, np.bincount(node_of_rank).tolist()))
    tasks = ",".join(f"1:{node}" for node in (node_of_rank + 1).tolist())
    offsets, members = workload.lists("communicators", "members")
    groups = [members[a:b] + 1 for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    lines = [
        f"c:1:{number}:{len(group)}:{':'.join(map(str, group.tolist()))}\n"
        for number, group in enumerate(groups, start=1)
        if len(group)
    ]
    num_nodes, num_ranks = int(node_of_rank.max()) + 1, workload.num_ranks
    head = f"#Paraver ({_DATE}):{end_ns}_ns:{num_nodes}({cpus}):1:{num_ranks}({tasks}),{len(lines)}\n"
    return head + "".join(lines)


def names(nodes: np.ndarray, node_of_rank: np.ndarray) -> str:
    """The .row file: names of CPUs, nodes and threads."""
    num_ranks = len(node_of_rank)
    on_node = np.sort(node_of_rank)
    cpus = "".join(f"{cpu}.node{nodes[node]}\n" for cpu, node in enumerate(on_node.tolist(), start=1))
    threads = "".join(f"THREAD 1.{rank}.1\n" for rank in range(1, num_ranks + 1))
    on_nodes = "".join(f"node{node}\n" for node in nodes.tolist())
    return (
        f"LEVEL CPU SIZE {num_ranks}\n{cpus}\n"
        f"LEVEL NODE SIZE {len(nodes)}\n{on_nodes}\n"
        f"LEVEL THREAD SIZE {num_ranks}\n{threads}"
    )


@dataclass(frozen=True)
class Records:
    """Records of one type, each rank's in order of time: when each happens and ends, and the lines of some of them."""

    time_ns: np.ndarray
    last_ns: np.ndarray
    lines: Callable[[np.ndarray], pa.Array]


def write_sorted(file: BinaryIO, records: list[Records]) -> None:
    """All records by time; at equal time by type, and within a type in their own order."""
    bounds = np.cumsum([0, *(len(part.time_ns) for part in records)])
    order = np.argsort(np.concatenate([part.time_ns for part in records]), kind="stable")
    for batch in batches(len(order)):
        rows = order[batch]
        owner = np.searchsorted(bounds, rows, side="right") - 1
        places = [np.flatnonzero(owner == index) for index in range(len(records))]
        texts = [part.lines(rows[at] - bounds[i]) for i, (part, at) in enumerate(zip(records, places, strict=True))]
        place = np.empty(len(rows), np.int64)
        place[np.concatenate(places)] = np.arange(len(rows))
        file.write(contents(pa.concat_arrays(texts).take(to_arrow(place))))


def nanoseconds(picoseconds: np.ndarray) -> np.ndarray:
    return (picoseconds + _PS_PER_NS // 2) // _PS_PER_NS


def _states(result: Result, who: list[str]) -> Records:
    begin, end = (nanoseconds(column(result.ranks, name)) for name in ("start_ps", "end_ps"))
    keep = begin < end
    begin, end = begin[keep], end[keep]
    rank, state = column(result.ranks, "rank")[keep], column(result.ranks, "state")[keep]
    prefix = [f"1:{name}" for name in who]
    suffix = [f":{labels.STATE_NUMBERS[name]}\n" for name in STATES]

    def lines(rows: np.ndarray) -> pa.Array:
        return join(
            picked(prefix, rank[rows]), integers(begin[rows]), ":", integers(end[rows]),
            picked(suffix, state[rows]),
        )  # fmt: skip

    return Records(begin, end, lines)


def _events(result: Result, who: list[str]) -> Records:
    """Record 2i is the begin of operation i, record 2i + 1 its end."""
    workload = result.workload
    time = nanoseconds(np.stack(operation_times(workload, result.ranks), axis=1)).ravel()
    kind, rank = workload.column("operations", "kind"), workload.column("operations", "rank")
    prefix = [f"2:{name}" for name in who]
    calls = [labels.CALLS[known] for known in OperationKind]
    label = [f":{event}:{value}" for event, value in calls] + [f":{event}:0" for event, _ in calls]
    sizes = collective_sizes(workload)

    def lines(rows: np.ndarray) -> pa.Array:
        operation, is_end = np.divmod(rows, 2)
        call = picked(label, kind[operation] + is_end * len(calls))
        details = collective_details(sizes, np.where(is_end, -1, operation))
        return join(picked(prefix, rank[operation]), integers(time[rows]), call, details, "\n")

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
    place = np.full(len(operation), len(at))
    place[is_collective] = np.arange(len(at))
    return pa.concat_arrays([texts, text_array([""])]).take(to_arrow(place))


def _communications(result: Result, who: list[str]) -> Records:
    """Messages in the order of their sends."""
    messages = result.messages
    source, destination = column(messages, "source"), column(messages, "destination")
    send, physical = (nanoseconds(column(messages, name)) for name in ("send_ps", "receive_ps"))
    size, tag = column(messages, "bytes"), column(messages, "tag")
    row = receive_rows(result.workload)[column(messages, "message_id")]
    begin, _ = operation_times(result.workload, result.ranks)
    logical = np.where(row >= 0, nanoseconds(np.append(begin, 0)[row]), physical)

    def lines(rows: np.ndarray) -> pa.Array:
        sent = integers(send[rows])
        return join(
            "3:", picked(who, source[rows]), sent, ":", sent, ":",
            picked(who, destination[rows]), integers(logical[rows]), ":", integers(physical[rows]), ":",
            integers(size[rows]), ":", integers(tag[rows]), "\n",
        )  # fmt: skip

    return Records(send, physical, lines)
