"""Which requests the waits of a DUMPI trace complete: exactly, as the trace says.

DUMPI numbers a rank's requests, and names them in each wait and test; a number is used again once its request is gone.
Tests and waits for some are taken with what they completed in the traced run (flags, indices). A persistent request is
a template that each start opens anew. A number that no recorded call opened is passed over and counted: MPI 3's
non-blocking collectives have no records in DUMPI, and those of file access are not replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.workload import NO_REQUEST
from manyscale.runner.readers.dumpi.layouts import LAYOUTS, NUMBER
from manyscale.runner.readers.dumpi.records import Calls

REQUEST_NULL: Final = 1
LARGEST_ID: Final = 1 << 27

OPENING: Final = ("MPI_Isend", "MPI_Ibsend", "MPI_Issend", "MPI_Irsend", "MPI_Irecv")
TEMPLATES: Final = ("MPI_Send_init", "MPI_Bsend_init", "MPI_Ssend_init", "MPI_Rsend_init", "MPI_Recv_init")
_STARTING: Final = ("MPI_Start", "MPI_Startall")
_COMPLETING: Final = (
    "MPI_Wait", "MPI_Test", "MPI_Waitany", "MPI_Testany", "MPI_Waitall", "MPI_Testall", "MPI_Waitsome", "MPI_Testsome",
)  # fmt: skip
_OPEN, _TEMPLATE, _START, _COMPLETE, _FREE, _CANCEL = 1, 2, 3, 4, 5, 6


def _roles() -> np.ndarray:
    roles = np.zeros(len(LAYOUTS), np.uint8)
    for role, names in (
        (_OPEN, OPENING),
        (_TEMPLATE, TEMPLATES),
        (_START, _STARTING),
        (_COMPLETE, _COMPLETING),
        (_FREE, ("MPI_Request_free",)),
        (_CANCEL, ("MPI_Cancel",)),
    ):
        roles[[NUMBER[name] for name in names]] = role
    return roles


_ROLES: Final = _roles()


@dataclass(frozen=True)
class Named:
    """Requests that calls name: ``ids[i]`` by call ``calls[i]`` (ascending). ``statuses``: place of the status of its
    completion among the calls' values, -1 for none. ``num_named``: by each call."""

    calls: np.ndarray
    ids: np.ndarray
    statuses: np.ndarray
    num_named: np.ndarray


@dataclass(frozen=True)
class Requests:
    """Per operation: the ``request`` that it opens, the call that set up what it starts (``template``, -1), and what it
    completes (``offsets``, ``values``). Per request: ``opened_by`` operation, ``status`` of its completion (place
    among the calls' values, -1 for none), ``is_cancelled``, ``is_completed``. ``num_unknown``: completed, never
    opened. ``wrong_start``: the first call that starts what was never set up, -1 for none."""

    request: np.ndarray
    template: np.ndarray
    offsets: np.ndarray
    values: np.ndarray
    opened_by: np.ndarray
    status: np.ndarray
    is_cancelled: np.ndarray
    is_completed: np.ndarray
    num_unknown: int
    wrong_start: int


def named_requests(calls: Calls) -> Named:
    """The requests that each call opens, starts, completes, frees or cancels. O(calls + named requests)."""
    parts = []
    for name in (*OPENING, *TEMPLATES, "MPI_Start", "MPI_Request_free", "MPI_Cancel"):
        rows = calls.rows(name)
        parts.append((rows, calls.column(name, "request", rows), np.full(len(rows), -1)))
    parts.extend(_completions(calls, name) for name in _COMPLETING)
    rows = calls.rows("MPI_Startall")
    offsets, ids = calls.lists("MPI_Startall", "requests", rows)
    parts.append((np.repeat(rows, np.diff(offsets)), ids, np.full(len(ids), -1)))
    by_call, ids, statuses = (np.concatenate(columns).astype(np.int64) for columns in zip(*parts, strict=True))
    order = np.argsort(by_call, kind="stable")
    return Named(by_call[order], ids[order], statuses[order], np.bincount(by_call, minlength=len(calls)))


def _completions(calls: Calls, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(calls, requests, statuses) that the calls of one function complete."""
    rows = calls.rows(name)
    if "flag" in LAYOUTS[NUMBER[name]].fields:
        rows = rows[calls.column(name, "flag", rows) != 0]
    if name in ("MPI_Wait", "MPI_Test"):
        ids, place = calls.column(name, "request", rows), np.zeros(len(rows), np.int64)
        of_call = np.arange(len(rows))
    else:
        of_call, ids, place = _listed(calls, name, rows)
    many = "statuses" in LAYOUTS[NUMBER[name]].fields
    at = calls.starts(name, "statuses" if many else "status", rows)[of_call]
    statuses = np.where(place < calls.values[at], at + 1 + 5 * place, -1)
    return rows[of_call], ids, statuses


def _listed(calls: Calls, name: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a function with a list of requests: which of ``rows``, the request completed, the place of its status."""
    offsets, ids = calls.lists(name, "requests", rows)
    counts = np.diff(offsets)
    layout = LAYOUTS[NUMBER[name]].fields
    if "indices" in layout:
        index_offsets, indices = calls.lists(name, "indices", rows)
        of_call = np.repeat(np.arange(len(rows)), np.diff(index_offsets))
        place = np.arange(len(indices)) - index_offsets[of_call]
    elif "index" in layout:
        of_call, indices = np.arange(len(rows)), calls.column(name, "index", rows)
        place = np.zeros(len(rows), np.int64)
    else:
        of_call = np.repeat(np.arange(len(rows)), counts)
        return of_call, ids, np.arange(len(ids)) - offsets[of_call]
    inside = (indices >= 0) & (indices < counts[of_call])  # MPI_UNDEFINED: nothing was active
    of_call = of_call[inside]
    return of_call, ids[offsets[of_call] + indices[inside]], place[inside]


def resolve(calls: Calls, named: Named, first_operation: np.ndarray) -> Requests:
    """Requests of one rank; ``first_operation``: int64[calls + 1], the first operation that each call became."""
    num_operations = int(first_operation[-1])
    request = np.full(num_operations, NO_REQUEST, np.int32)
    template = np.full(num_operations, -1, np.int64)
    counts = np.zeros(num_operations, np.int64)
    values = np.empty(len(named.ids), np.int32)
    opened_by = np.empty(len(named.ids), np.int64)
    status = np.full(len(named.ids), -1, np.int64)
    flags = np.zeros((len(named.ids), 2), np.bool_)
    num_requests, num_values, num_unknown, wrong_start = _follow(
        _ROLES[calls.function], named.num_named, named.ids, named.statuses, first_operation,
        int(named.ids.max(initial=0)), request, template, counts, values, opened_by, status, flags,
    )  # fmt: skip
    return Requests(
        request=request,
        template=template,
        offsets=np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))),
        values=values[:num_values],
        opened_by=opened_by[:num_requests],
        status=status[:num_requests],
        is_cancelled=flags[:num_requests, 0],
        is_completed=flags[:num_requests, 1],
        num_unknown=num_unknown,
        wrong_start=wrong_start,
    )


@njit(cache=True, nogil=True)
def _follow(  # type: ignore[no-untyped-def]
    role, num_named, ids, statuses, first_operation, largest, request, template, counts, values, opened_by, status,
    flags,
):  # fmt: skip
    """Follow every number from its opening to its completion. O(calls + named requests + largest number)."""
    open_request = np.full(largest + 1, -1, np.int64)
    set_up_by = np.full(largest + 1, -1, np.int64)
    num_requests = 0
    num_values = 0
    num_unknown = 0
    at = 0
    for call in range(role.shape[0]):
        for k in range(num_named[call]):
            name = ids[at]
            row = first_operation[call]
            what = role[call]
            if what == _TEMPLATE:
                set_up_by[name] = call
                open_request[name] = -1
            elif what == _OPEN or what == _START:
                if what == _START:
                    row += k
                    if set_up_by[name] < 0:
                        return num_requests, num_values, num_unknown, call
                    template[row] = set_up_by[name]
                else:
                    set_up_by[name] = -1
                request[row] = num_requests
                opened_by[num_requests] = row
                open_request[name] = num_requests
                num_requests += 1
            elif what == _COMPLETE:
                number = open_request[name]
                if number >= 0:
                    values[num_values] = number
                    num_values += 1
                    counts[row] += 1
                    status[number] = statuses[at]
                    flags[number, 1] = True
                    open_request[name] = -1
                elif name != REQUEST_NULL and set_up_by[name] < 0:
                    num_unknown += 1
            elif what == _CANCEL:
                if open_request[name] >= 0:
                    flags[open_request[name], 0] = True
            else:
                open_request[name] = -1
                set_up_by[name] = -1
            at += 1
    return num_requests, num_values, num_unknown, -1
