"""Which collectives NCCL does on streams, and who takes part in each: the k-th of a group at each of its members."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from manyscale.models.gpu.device.hosts import Given
from manyscale.models.workload import COLLECTIVES, OperationKind, Workload
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.errors import UserError

_SCATTERED = (int(OperationKind.reduce_scatter), int(OperationKind.ireduce_scatter))
UNEVEN = (int(OperationKind.alltoallv), int(OperationKind.ialltoallv))
SCATTERV = (int(OperationKind.scatterv), int(OperationKind.iscatterv))
_GATHERED = tuple(int(OperationKind[name]) for name in ("gather", "gatherv", "igather", "igatherv"))
_ROOTED = (*_GATHERED, *SCATTERV, int(OperationKind.scatter), int(OperationKind.iscatter))  # and their root has links
_ALLGATHERED = tuple(int(OperationKind[name]) for name in ("allgather", "allgatherv", "iallgather", "iallgatherv"))
_BY_MEMBER = (*_GATHERED, *_ALLGATHERED, *_SCATTERED)  # each has a part of its own
_MOST_NAMED = 8  # ranks of a message


@dataclass(frozen=True)
class StreamCollectives:
    """``of_given`` int32[given]: the number of each row's collective, -1 for what is none. Of each: ``kind`` int8,
    ``communicator`` int32, which of its communicator's it is (``place`` int32), ``bytes`` int64 (the most of a member,
    as the table of operations has them, of a reduce-scatter its own part) and ``traced_ps`` int64, from the last
    member's arrival, -1: unknown. ``members``: ranks of each communicator; ``names`` of those that have one;
    ``counts`` of uneven ones, by their number: of all-to-alls, gathers and scatters int64[members, members], the bytes
    from each to each (gathers and scatters, too, whose root is not the first member), and of all-gathers and
    reduce-scatters int64[members], the part of each. Without, parts are taken to be equal."""

    of_given: np.ndarray
    kind: np.ndarray
    communicator: np.ndarray
    place: np.ndarray
    bytes: np.ndarray
    traced_ps: np.ndarray
    members: tuple[np.ndarray, ...]
    names: dict[int, str]
    counts: dict[int, np.ndarray]

    def __len__(self) -> int:
        return len(self.kind)

    def told(self, number: int, arrived: list[int]) -> str:
        """A collective that some of its members have come to, and others have not."""
        of = int(self.communicator[number])
        missing = np.setdiff1d(self.members[of], arrived).tolist()
        what = f"{OperationKind(int(self.kind[number])).name} {int(self.place[number])}"
        wait = "wait" if len(arrived) > 1 else "waits"
        return f"{what} of {_group(of, self.names)} waits for {_ranks(missing)}, and {_ranks(arrived)} {wait} in it"


def _group(communicator: int, names: dict[int, str]) -> str:
    name = names.get(communicator)
    return f"communicator {communicator}" if name is None else f"group {name} (communicator {communicator})"


def _ranks(ranks: list[int]) -> str:
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks[:_MOST_NAMED]))}{more}"


def stream_collectives(workload: Workload, given: Given, traced_ps: np.ndarray, *, by_model: bool) -> StreamCollectives:
    """``traced_ps`` int64[given], -1: unknown; ``by_model``: a model of NCCL says what those take whose times are not
    known. Where neither is known of a communicator, its collectives are none. Raises UserError for members that call
    different ones. O(given log given)."""
    kind = workload.column("operations", "kind")
    communicator = workload.column("operations", "communicator_id")
    bounds, values = workload.lists("communicators", "members")
    members = tuple(values[first:last] for first, last in pairwise(bounds))
    groups = workload.tables["groups"].to_pylist()
    names = {int(each["communicator_id"]): str(each["group_name"]) for each in groups}
    is_collective = kind >= int(COLLECTIVES.start)
    mine = np.flatnonzero((given.kind == GpuOperationKind.communication) & (given.row >= 0))
    mine = mine[is_collective[given.row[mine]]]
    of = communicator[given.row[mine]]
    on_streams = np.bincount(of, minlength=len(members))
    every = np.bincount(communicator[is_collective], minlength=len(members))
    known = np.bincount(of, traced_ps[mine] >= 0, minlength=len(members))
    meets = (on_streams == every) & (by_model | (known == on_streams))
    mine, of = mine[meets[of]], of[meets[of]]
    order = np.lexsort((given.rank[mine], of))  # stable: in the order of each rank
    mine, of = mine[order], of[order]
    rank = given.rank[mine]
    first = np.flatnonzero((np.diff(of, prepend=-1) != 0) | (np.diff(rank, prepend=-1) != 0))
    count = np.diff(np.append(first, len(mine)))
    place = np.arange(len(mine)) - np.repeat(first, count)
    _check_counts(of[first], rank[first], count, members, names)
    key = of.astype(np.int64) * (int(place.max(initial=0)) + 1) + place
    _, leader, number = np.unique(key, return_index=True, return_inverse=True)
    row = given.row[mine]
    _check_kinds(kind[row], leader, number, rank, of, place, names)
    size, took = np.zeros(len(leader), np.int64), np.full(len(leader), np.iinfo(np.int64).max)
    sizes = _sizes(workload, row)
    np.maximum.at(size, number, sizes)
    np.minimum.at(took, number, np.where(traced_ps[mine] >= 0, traced_ps[mine], -1))
    of_given = np.full(len(given), -1, np.int32)
    of_given[mine] = number
    counts = _counts(workload, row, number, rank, of, members, sizes)
    return StreamCollectives(
        of_given, kind[row[leader]], of[leader].astype(np.int32), place[leader].astype(np.int32), size, took, members,
        names, counts,
    )  # fmt: skip


def _sizes(workload: Workload, row: np.ndarray) -> np.ndarray:
    """int64[rows]: bytes of operations, of a reduce-scatter a member's own part."""
    found = workload.column("operations", "bytes")[row]
    scattered = np.isin(workload.column("operations", "kind")[row], _SCATTERED)
    if not scattered.any():
        return found
    bounds, values = workload.lists("operations", "receive_counts")
    before = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    whole, parts = before[bounds[row + 1]] - before[bounds[row]], bounds[row + 1] - bounds[row]
    part = np.where(parts > 0, -(-whole // np.maximum(parts, 1)), workload.column("operations", "receive_bytes")[row])
    return np.where(scattered, part, found)


def _counts(
    workload: Workload, row: np.ndarray, number: np.ndarray, rank: np.ndarray, of: np.ndarray,
    members: tuple[np.ndarray, ...], size: np.ndarray,
) -> dict[int, np.ndarray]:  # fmt: skip
    """Of uneven collectives, and of those whose root is not the first member; ``size`` int64[rows]: of each row."""
    kind, peer = (workload.column("operations", name)[row] for name in ("kind", "peer"))
    most = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    least = np.full(len(most), np.iinfo(np.int64).max)
    np.maximum.at(most, number, size)
    np.minimum.at(least, number, size)
    differs = (least != most)[number] & np.isin(kind, _BY_MEMBER)
    listed = np.isin(kind, _SCATTERED) & (_spread(workload, row) > 0)
    able = np.flatnonzero(
        np.isin(kind, (*UNEVEN, *SCATTERV)) | differs | listed | (np.isin(kind, _ROOTED) & (peer > 0))
    )
    able = able[np.argsort(number[able], kind="stable")]
    found: dict[int, np.ndarray] = {}
    for mine in np.split(able, np.flatnonzero(np.diff(number[able])) + 1) if len(able) else []:
        group = members[int(of[mine[0]])]
        if len(mine) < len(group):  # some may tell that all are even
            mine = np.flatnonzero(number == number[mine[0]])
        order = np.argsort(np.argsort(group, kind="stable"), kind="stable")  # members' places among their ranks
        mine = mine[np.argsort(rank[mine], kind="stable")][order]
        parts = _parts(workload, row[mine], int(kind[mine[0]]), size[mine], int(max(peer[mine].max(), 0)))
        if parts is not None:
            found[int(number[mine[0]])] = parts
    return found


def _spread(workload: Workload, row: np.ndarray) -> np.ndarray:
    """int64[rows]: by how much the parts differ that operations list as received."""
    found = np.zeros(len(row), np.int64)
    bounds, values = workload.lists("operations", "receive_counts")
    has = np.flatnonzero(bounds[row + 1] > bounds[row])
    if len(has):
        edges = np.stack((bounds[row[has]], bounds[row[has] + 1]), axis=1).ravel()
        padded = np.append(values, 0)
        found[has] = (np.maximum.reduceat(padded, edges) - np.minimum.reduceat(padded, edges))[::2]
    return found


def _parts(workload: Workload, rows: np.ndarray, kind: int, size: np.ndarray, root: int) -> np.ndarray | None:
    """As StreamCollectives has them, of a collective whose operations are ``rows``, in the group's order, of ``size``;
    None where they are not all known."""
    count = len(rows)
    if kind in UNEVEN:
        sent = _lists(workload, "send_counts", rows)
        return np.stack(sent) if all(len(each) == count for each in sent) else None
    if kind in _SCATTERED:
        listed = _lists(workload, "receive_counts", rows[:1])[0]
        return listed if len(listed) == count else size
    if kind not in _ROOTED:
        return size
    if root >= count:
        return None
    found = np.zeros((count, count), np.int64)
    if kind in SCATTERV:
        of_root = _lists(workload, "send_counts", rows[root : root + 1])[0]
        parts = of_root if len(of_root) == count else workload.column("operations", "receive_bytes")[rows]
        if not parts.any():
            return None
        found[root] = parts
    elif kind in _GATHERED:
        found[:, root] = size
    else:
        found[root] = size.max()
    return found


def _lists(workload: Workload, name: str, rows: np.ndarray) -> list[np.ndarray]:
    bounds, values = workload.lists("operations", name)
    return [values[bounds[row] : bounds[row + 1]] for row in rows.tolist()]


def _check_counts(
    of: np.ndarray, rank: np.ndarray, count: np.ndarray, members: tuple[np.ndarray, ...], names: dict[int, str]
) -> None:
    """All members of a communicator call as many. ``of``, ``rank`` and ``count``: of ranks that call some."""
    sizes = np.array([len(each) for each in members])
    least = np.full(len(members), np.iinfo(np.int64).max)
    most = np.zeros(len(members), np.int64)
    np.minimum.at(least, of, count)
    np.maximum.at(most, of, count)
    wrong = np.flatnonzero((most > 0) & ((least != most) | (np.bincount(of, minlength=len(members)) != sizes)))
    if not len(wrong):
        return
    first = int(wrong[0])
    mine = of == first
    calls = dict(zip(rank[mine].tolist(), count[mine].tolist(), strict=True))
    fewest = min(members[first].tolist(), key=lambda each: calls.get(each, 0))
    caller = max(calls, key=lambda each: calls[each])
    raise UserError(
        f"{_group(first, names)}: rank {caller} calls {calls[caller]} collectives on streams, rank {fewest} "
        f"{calls.get(fewest, 0)}; the trace is incomplete"
    )


def _check_kinds(
    kind: np.ndarray, leader: np.ndarray, number: np.ndarray, rank: np.ndarray, of: np.ndarray, place: np.ndarray,
    names: dict[int, str],
) -> None:  # fmt: skip
    """All members call the same."""
    wrong = np.flatnonzero(kind != kind[leader][number])
    if not len(wrong):
        return
    first = int(wrong[np.argmin(place[wrong])])
    other = int(leader[number[first]])
    mine, its = (OperationKind(int(kind[each])).name for each in (first, other))
    raise UserError(
        f"{_group(int(of[first]), names)}: its collective {int(place[first])} is {mine} of rank {int(rank[first])}, "
        f"and {its} of rank {int(rank[other])}; all members must call the same one"
    )
