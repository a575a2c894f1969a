"""A measured workload as a Paraver trace, as Extrae would have written it: ``.prv``, ``.pcf`` and ``.row``.

Reading it back gives the same operations, compute and measured times, to the nanosecond, with these exceptions of the
format: all messages are on the world, sendrecvs have one tag, sizes per member of alltoallv are spread evenly, and the
waits that complete sends follow the reader's rule, and phases between the same two calls are one. So do task instances,
loops, iterations and their counters (paraver_tasks.py). One application, a task per rank with one thread, all on one
node: where the ranks ran is not known.

* Running and, before it, what else the program did stand at the end of the time between two calls; the rest of it is
  in state Others.
* A communication's logical send is the begin of the call that sends, its logical receive the begin of the call that
  receives, or the end of an immediate receive; its physical receive is the end of the call that completes it. Where a
  wildcard receive may have taken the message, both are the end of the send.

Cost: O(records log records).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import COLLECTIVES, OperationKind, PhaseKind, Workload
from manyscale.models.workload.columns import one_chunk
from manyscale.runner.errors import UserError
from manyscale.runner.readers.paraver import labels
from manyscale.runner.report.collective_sizes import collective_sizes
from manyscale.runner.report.operation_times import receive_rows
from manyscale.runner.report.paraver.hierarchy import Hierarchy
from manyscale.runner.report.paraver.ranks import collective_details
from manyscale.runner.report.paraver.records import Records, nanoseconds, states, write_sorted
from manyscale.runner.report.paraver.views import write_files
from manyscale.runner.report.text_columns import integers, join, picked, where
from manyscale.runner.report.traces.paraver_tasks import configuration as configuration_of_tasks
from manyscale.runner.report.traces.paraver_tasks import records_of as records_of_tasks
from manyscale.runner.report.traces.paraver_tasks import views as views_of_tasks

_PRESETS: Final = {"PAPI_TOT_INS": 42000050, "PAPI_TOT_CYC": 42000059}
_FIRST_OTHER_COUNTER: Final = 42001000  # where PAPI's native counters start
_RUNNING, _SCHEDULING, _OTHERS = 1, 7, 15
_USER_FUNCTION: Final = 60000019


def _state_of_kind() -> np.ndarray:
    """State that Extrae writes for each OperationKind."""
    kinds = OperationKind
    states = {
        3: (kinds.recv,), 4: (kinds.send, kinds.ssend, kinds.bsend), 6: (kinds.test,),
        8: (kinds.wait, kinds.waitall, kinds.waitany), 10: (kinds.isend, kinds.issend, kinds.ibsend),
        11: (kinds.irecv,), 13: tuple(COLLECTIVES), 16: (kinds.sendrecv,),
    }  # fmt: skip
    state = np.full(len(OperationKind), _OTHERS, np.int64)
    for number, members in states.items():
        state[list(members)] = number
    return state


_STATE_OF_KIND: Final = _state_of_kind()


def write_trace(workload: Workload, path: Path) -> None:
    """Write ``path`` (.prv; of a folder: its trace.prv), the two files beside it and views; equal workloads give equal
    bytes.

    Raises UserError for a workload without measured times and for a path that does not end in .prv.
    """
    if path.is_dir():
        path = path / "trace.prv"
    if path.suffix != ".prv":
        raise UserError(f"{path}: a Paraver trace is a .prv file; name it so")
    if not workload.is_measured:
        raise UserError(
            f"{workload.name}: the trace does not say when its operations ran, so there is no timeline to write; a "
            "run's directory has the predicted one (trace.prv)"
        )
    begin, end = (nanoseconds(workload.column("measured", name)) for name in ("start_ps", "end_ps"))
    one = np.ones(workload.num_ranks, np.int64)
    threads = Hierarchy(0 * one, one, np.zeros(1, np.int64))
    who = threads.who
    types = _counter_types(workload)
    records = [
        _states(workload, begin, end, who),
        _first_regions(workload, who),
        _events(workload, begin, end, who, types),
        _communications(workload, begin, end, who),
    ]
    records += records_of_tasks(workload, _running(workload, begin, end), begin, who)
    end_ns = max((int(part.last_ns.max(initial=0)) for part in records), default=0)
    with path.open("wb") as file:
        file.write(threads.header(workload, end_ns).encode())
        write_sorted(file, records)
    names = _counter_labels(types) + _region_labels(workload) + configuration_of_tasks(workload)
    path.with_suffix(".pcf").write_text(labels.configuration() + names, encoding="utf-8", errors="backslashreplace")
    path.with_suffix(".row").write_text(threads.names())
    write_files(views_of_tasks(workload), path.parent, path.stem)


def _counter_types(workload: Workload) -> dict[str, int]:
    """Event type of each counter."""
    known = one_chunk(workload.tables["counters"].column("counter")).dictionary.to_pylist()
    others = [name for name in known if name not in _PRESETS]
    return {
        name: _PRESETS.get(name, _FIRST_OTHER_COUNTER + others.index(name) if name in others else 0) for name in known
    }


def _counter_labels(types: dict[str, int]) -> str:
    if not types:
        return ""
    return "\n\nEVENT_TYPE\n" + "".join(f"7    {event_type}    {name}\n" for name, event_type in types.items())


def _region_labels(workload: Workload) -> str:
    regions = workload.tables["regions"].column("name").to_pylist()
    if not regions:
        return ""
    values = "".join(f"{number}   {name}\n" for number, name in enumerate(regions, start=1))
    return f"\n\nEVENT_TYPE\n4    {_USER_FUNCTION}    User function\nVALUES\n0   End\n{values}"


def _states(workload: Workload, begin: np.ndarray, end: np.ndarray, who: list[str]) -> Records:
    """Per operation: Others, scheduling, running, then the state of its call; those without duration are left out."""
    rank = workload.column("operations", "rank")
    since, rest = _since(workload, end), _phase_time(workload, PhaseKind.sleep)
    running = _running(workload, begin, end)
    scheduling = np.maximum(running - nanoseconds(rest), since)
    own = _STATE_OF_KIND[workload.column("operations", "kind")]
    count = len(rank)
    starts = np.stack([since, scheduling, running, begin], axis=1).ravel()
    ends = np.stack([scheduling, running, begin, end], axis=1).ravel()
    number = np.stack(
        [np.full(count, _OTHERS), np.full(count, _SCHEDULING), np.full(count, _RUNNING), own],
        axis=1,
    ).ravel()
    return states(who, np.repeat(rank, 4), starts, ends, number)


def _since(workload: Workload, end: np.ndarray) -> np.ndarray:
    """When the operation before each ended."""
    first = np.zeros(workload.num_operations, np.bool_)
    first[workload.rank_offsets[:-1][np.diff(workload.rank_offsets) > 0]] = True
    return np.where(first, 0, np.concatenate(([0], end[:-1])))


def _running(workload: Workload, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """From when on the rank computes before each operation."""
    return np.maximum(begin - nanoseconds(_phase_time(workload, PhaseKind.compute)), _since(workload, end))


def _phase_time(workload: Workload, kind: PhaseKind) -> np.ndarray:
    """int64 ps per operation: phases of a kind that precede it."""
    mine = workload.column("phases", "kind") == kind
    row = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    time = np.zeros(workload.num_operations, np.int64)
    np.add.at(time, row[mine], workload.column("phases", "duration_ps")[mine])
    return time


def _regions(workload: Workload) -> np.ndarray:
    """int64 per operation: region of the compute before it, -1 for none."""
    region = np.full(workload.num_operations, -1, np.int64)
    computing = workload.column("phases", "kind") == PhaseKind.compute
    row = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    region[row[computing]] = workload.column("phases", "region_id")[computing]
    return region


def _first_regions(workload: Workload, who: list[str]) -> Records:
    """Per rank whose run begins in a region, the event that enters it."""
    ranks = np.flatnonzero(np.diff(workload.rank_offsets))
    region = _regions(workload)[workload.rank_offsets[ranks]]
    ranks, region = ranks[region >= 0], region[region >= 0]
    zero = np.zeros(len(ranks), np.int64)
    prefix = [f"2:{name}0:{_USER_FUNCTION}:" for name in who]
    return Records(zero, zero, lambda rows: join(picked(prefix, ranks[rows]), integers(region[rows] + 1), "\n"))


def _region_changes(workload: Workload, operation: np.ndarray) -> pa.Array:
    """What follows the end of an operation (-1: of none): the region that was left and the one that is entered."""
    here = _regions(workload)
    after = np.append(here[1:], -1)
    after[workload.rank_offsets[1:] - 1] = -1
    here, after = (np.where(operation >= 0, region[operation], -1) for region in (here, after))
    left = picked(["", f":{_USER_FUNCTION}:0"], (here >= 0).astype(np.int8))
    enters = after >= 0
    return join(left, where(enters, join(f":{_USER_FUNCTION}:", integers(after[enters] + 1))))


def _events(workload: Workload, begin: np.ndarray, end: np.ndarray, who: list[str], types: dict[str, int]) -> Records:
    """Record 2i is the begin of operation i, with the counters of the compute before it; record 2i + 1 its end."""
    time = np.stack([begin, end], axis=1).ravel()
    kind, rank = workload.column("operations", "kind"), workload.column("operations", "rank")
    prefix = [f"2:{name}" for name in who]
    calls = [labels.CALLS[known] for known in OperationKind]
    label = [f":{event}:{value}" for event, value in calls] + [f":{event}:0" for event, _ in calls]
    sizes = collective_sizes(workload)
    counters = _counters(workload, types)

    def lines(rows: np.ndarray) -> pa.Array:
        operation, is_end = np.divmod(rows, 2)
        call = picked(label, kind[operation] + is_end * len(calls))
        begins = np.where(is_end, -1, operation)
        counted = [_counter_text(event_type, *part, begins) for event_type, part in counters]
        details = collective_details(sizes, begins)
        regions = _region_changes(workload, np.where(is_end, operation, -1))
        return join(picked(prefix, rank[operation]), integers(time[rows]), call, details, *counted, regions, "\n")

    return Records(time, time, lines)


def _counters(workload: Workload, types: dict[str, int]) -> list[tuple[int, tuple[np.ndarray, np.ndarray]]]:
    """Per counter its event type, the operations before which it was measured (ascending) and its values."""
    phase = workload.column("counters", "phase_id")
    row = (workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id"))[phase]
    code, value = workload.column("counters", "counter"), workload.column("counters", "value")
    found = []
    for number, event_type in enumerate(types.values()):
        mine = np.flatnonzero(code == number)
        rows, inverse = np.unique(row[mine], return_inverse=True)
        total = np.zeros(len(rows), np.int64)
        np.add.at(total, inverse, value[mine])
        found.append((event_type, (rows, total)))
    return found


def _counter_text(event_type: int, rows: np.ndarray, values: np.ndarray, operation: np.ndarray) -> pa.Array:
    at = np.searchsorted(rows, operation)
    has = np.append(rows, -2)[at] == operation
    return where(has, join(f":{event_type}:", integers(values[at[has]])))


def _communications(workload: Workload, begin: np.ndarray, end: np.ndarray, who: list[str]) -> Records:
    sends = workload.send_rows
    source, destination, size, tag = (
        workload.column("operations", name)[sends] for name in ("rank", "peer", "bytes", "tag")
    )
    row = receive_rows(workload)
    immediate = np.append(workload.column("operations", "kind"), -1)[row] == OperationKind.irecv
    known = row >= 0
    posted = np.where(known, np.where(immediate, end[row], begin[row]), end[sends])
    done = np.where(known, np.where(immediate, _completion(workload, end)[row], end[row]), end[sends])

    def lines(rows: np.ndarray) -> pa.Array:
        return join(
            "3:", picked(who, source[rows]), integers(begin[sends[rows]]), ":", integers(end[sends[rows]]), ":",
            picked(who, destination[rows]), integers(posted[rows]), ":", integers(done[rows]), ":",
            integers(size[rows]), ":", integers(tag[rows]), "\n",
        )  # fmt: skip

    return Records(end[sends], done, lines)


def _completion(workload: Workload, end: np.ndarray) -> np.ndarray:
    """Per operation, in ns: the end of the wait that completes its request; the end of the trace if none does."""
    offsets, requests = workload.lists("operations", "completes")
    owner = np.repeat(np.arange(workload.num_operations), np.diff(offsets))
    rank, request = workload.column("operations", "rank").astype(np.int64), workload.column("operations", "request")
    width = max(int(request.max(initial=0)), int(requests.max(initial=0))) + 1
    opened = np.flatnonzero(request >= 0)
    keys = rank[opened] * width + request[opened]
    order = np.argsort(keys)
    found = opened[order[np.searchsorted(keys, rank[owner] * width + requests, sorter=order)]]
    completion = np.full(workload.num_operations, int(end.max(initial=0)), np.int64)
    completion[found] = end[owner]
    return completion
