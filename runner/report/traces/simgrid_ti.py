"""A workload as SimGrid's time-independent trace: ``ti.txt``, the list of rank files, and one file per rank.

Sizes are written as bytes and compute as flop at 1 Gflop/s, so one unit is one nanosecond. What the format cannot say
is refused: collectives on part of the ranks, and requests completed out of the order in which equal ones were opened.
What takes no time is left out: failed tests, calls that are not replayed, messages to and from MPI_PROC_NULL. A
``waitall`` becomes the waits that it covers, which SimGrid itself can then replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyscale.models.workload import (
    ANY_SOURCE,
    ANY_TAG,
    COLLECTIVES,
    NO_RANK,
    RECEIVES,
    SENDS,
    OperationKind,
    PhaseKind,
    Workload,
)
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.runner.errors import UserError
from manyscale.runner.readers.simgrid_ti.verbs import (
    COLLECTIVE_TAG,
    DATATYPE_BYTES,
    MPI_BYTE,
    TRACED_ANY_TAG,
    UNDEFINED_RANK,
)
from manyscale.runner.report.text_columns import contents, integers, join, picked
from manyscale.runner.report.traces.replayed import check_replayed

NAME = "simgrid-ti"

_K = OperationKind
_ELEMENT_TYPE: Final = {8: 0, 4: 1, 2: 3, 1: 6, 16: 26, 32: 27}  # datatype id of an element of so many bytes
_SILENT: Final = (_K.test, _K.other)
_WAITS: Final = (_K.wait, _K.waitall)


def write_trace(workload: Workload, path: Path) -> None:
    """Write the folder ``path``, which exists and is empty. Raises UserError for what the format cannot carry.

    O(operations), one rank in memory at a time.
    """
    check_replayed(workload, "simgrid-ti")
    if workload.tables["dependencies"].num_rows:
        raise UserError(f"{workload.name}: its ranks are graphs, which a time-independent trace cannot say; write goal")
    ranks = _Ranks(workload)
    names = [f"rank-{rank}.txt" for rank in range(workload.num_ranks)]
    for rank, name in enumerate(names):
        with (path / name).open("wb") as file:
            ranks.write(rank, file)
    (path / "ti.txt").write_text("".join(f"{name}\n" for name in names))


class _Ranks:
    """Columns of the workload, and the lines of one rank at a time."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.offsets = workload.rank_offsets
        names = ("kind", "peer", "source", "tag", "bytes", "receive_bytes", "communicator_id", "request")
        self.columns = {name: workload.column("operations", name) for name in names}
        self.phases = {
            name: workload.column("phases", name) for name in ("operation_id", "kind", "region_id", "duration_ps")
        }
        self.regions = [_location(name) for name in workload.tables["regions"].column("name").to_pylist()]
        self.completes = workload.lists("operations", "completes")
        self.counts = {side: workload.lists("operations", side) for side in ("send_counts", "receive_counts")}
        self.communicator_tag = self._tags_by_communicator()
        self._refuse_partial_collectives()

    def _refuse_partial_collectives(self) -> None:
        kind, communicator = self.columns["kind"], self.columns["communicator_id"]
        lists, members = self.workload.lists("communicators", "members")
        world = np.arange(self.workload.num_ranks)
        for number in np.unique(communicator[kind >= COLLECTIVES.start]).tolist():
            if not np.array_equal(members[lists[number] : lists[number + 1]], world):
                raise UserError(
                    f"{self.workload.name}: it has collectives on communicator {number}, a part of the ranks, which a "
                    "time-independent trace cannot say; write goal or workload"
                )

    def _tags_by_communicator(self) -> np.ndarray:
        """Tag of every operation: its own, or where messages run on several communicators, one per communicator and
        tag, since the format has no communicators."""
        kind, tag, communicator = (self.columns[name] for name in ("kind", "tag", "communicator_id"))
        messages = np.isin(kind, (*SENDS, *RECEIVES))
        if len(np.unique(communicator[messages])) < 2:
            return tag
        if np.any(tag[messages] == ANY_TAG):
            raise UserError(
                f"{self.workload.name}: it receives with any tag on one of several communicators, which a "
                "time-independent trace cannot tell apart; write workload"
            )
        pairs = np.stack((communicator[messages], tag[messages]), axis=1)
        renumbered = tag.copy()
        renumbered[messages] = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
        return renumbered

    def write(self, rank: int, file: BinaryIO) -> None:
        """All lines of one rank, by operation: the phases before it, then its own."""
        first, last = int(self.offsets[rank]), int(self.offsets[rank + 1])
        parts = [*self._phase_lines(rank), *self._operation_lines(rank, first, last)]
        begins = last > first and self.columns["kind"][first] == _K.init
        if not begins:  # it says that sizes are bytes
            parts.insert(0, (np.array([-1]), text_array([" init\n"])))
        order = np.argsort(np.concatenate([place for place, _ in parts]), kind="stable")
        lines = join(str(rank), pa.concat_arrays([text for _, text in parts]).take(to_arrow(order)))
        file.write(contents(lines))

    def _phase_lines(self, rank: int) -> Iterator[tuple[np.ndarray, pa.Array]]:
        bounds = self.workload.phase_offsets
        rows = slice(int(bounds[rank]), int(bounds[rank + 1]))
        operation = self.phases["operation_id"][rows].astype(np.int64)
        region = self.phases["region_id"][rows]
        duration, sleeps = self.phases["duration_ps"][rows], self.phases["kind"][rows] == PhaseKind.sleep
        changes = np.flatnonzero((region != np.concatenate(([-1], region[:-1]))) & (region >= 0))
        place = 4 * operation
        size = len(place) + len(changes)
        at = np.arange(len(place)) + np.searchsorted(changes, np.arange(len(place)), side="right")
        compute = join(" compute ", _thousandths(duration), "\n")
        sleep = join(" sleep ", _trillionths(duration), "\n")
        mask = np.zeros(size, np.bool_)
        mask[at] = True
        source = pa.concat_arrays([compute, sleep, picked(self.regions or [""], region[changes])])
        index = np.empty(size, np.int64)
        index[mask] = np.arange(len(place)) + len(place) * sleeps
        index[~mask] = 2 * len(place) + np.arange(len(changes))
        places = np.empty(size, np.int64)
        places[mask] = place
        places[~mask] = place[changes]
        yield places, source.take(to_arrow(index))

    def _operation_lines(self, rank: int, first: int, last: int) -> Iterator[tuple[np.ndarray, pa.Array]]:
        kind = self.columns["kind"][first:last]
        for value in np.unique(kind).tolist():
            rows = np.flatnonzero(kind == value)
            if value in _SILENT or value in _WAITS:
                continue
            if value in SENDS or value in RECEIVES:
                yield from self._message_lines(_K(value), rows, first, rank)
            elif value == _K.waitany:
                lengths = np.diff(self.completes[0])[first:last][rows]
                yield 4 * rows + 1, join(" waitAny ", integers(lengths), "\n")
            elif value in COLLECTIVES:
                yield 4 * rows + 1, self._collective_lines(_K(value), rows + first)
            else:
                yield 4 * rows + 1, picked([f" {_K(value).name}\n"], np.zeros(len(rows), np.int8))
        yield from self._wait_lines(rank, first, last)

    def _message_lines(
        self, kind: OperationKind, rows: np.ndarray, first: int, rank: int
    ) -> Iterator[tuple[np.ndarray, pa.Array]]:
        whole = rows + first
        peer, tag = self.columns["peer"][whole], self.communicator_tag[whole]
        tag = np.where(tag == ANY_TAG, TRACED_ANY_TAG, tag)
        sent, received = self.columns["bytes"][whole], self.columns["receive_bytes"][whole]
        if kind == _K.sendrecv:
            yield from self._sendrecv_lines(rows, peer, self.columns["source"][whole], tag, sent, received, rank)
            return
        there = peer != NO_RANK
        size = received if kind in RECEIVES else sent
        other = np.where(peer == ANY_SOURCE, UNDEFINED_RANK, peer)
        text = join(f" {kind.name} ", integers(other), " ", integers(tag), " ", integers(size), "\n")
        yield 4 * rows[there] + 1, text.take(_where(there))

    def _sendrecv_lines(
        self, rows: np.ndarray, peer: np.ndarray, source: np.ndarray, tag: np.ndarray, sent: np.ndarray,
        received: np.ndarray, rank: int,
    ) -> Iterator[tuple[np.ndarray, pa.Array]]:  # fmt: skip
        """The format's own sendRecv has no tag and no half without a partner: such are written as their parts."""
        other = np.where(source == ANY_SOURCE, UNDEFINED_RANK, source)
        whole = ((tag == 0) | ((peer == rank) & (source == rank))) & (peer != NO_RANK) & (source != NO_RANK)
        counted = integers(sent), " ", integers(peer), " ", integers(received), " ", integers(other)
        text = join(" sendRecv ", *counted, f" {MPI_BYTE} {MPI_BYTE}\n")
        yield 4 * rows[whole] + 1, text.take(_where(whole))
        sends, receives = ~whole & (peer != NO_RANK), ~whole & (source != NO_RANK)
        mine = integers(np.full(len(rows), rank))
        tags, blank = integers(tag), " "
        parts = (
            (receives, join(" irecv ", integers(other), blank, tags, blank, integers(received), "\n")),
            (sends, join(" isend ", integers(peer), blank, tags, blank, integers(sent), "\n")),
            (receives, join(" wait ", integers(other), blank, mine, blank, tags, "\n")),
            (sends, join(" wait ", mine, blank, integers(peer), blank, tags, "\n")),
        )
        for chosen, lines in parts:
            yield 4 * rows[chosen] + 1, lines.take(_where(chosen))

    def _wait_lines(self, rank: int, first: int, last: int) -> Iterator[tuple[np.ndarray, pa.Array]]:
        """One line per request that a wait or waitall completes, by the key of the operation that opened it."""
        kind = self.columns["kind"][first:last]
        request = self.columns["request"][first:last]
        opened = np.flatnonzero(request >= 0)
        if not len(opened):
            return
        post_of = np.full(int(request.max()) + 1, -1, np.int64)
        post_of[request[opened]] = opened
        offsets, values = self.completes
        bounds = offsets[first : last + 1]
        owner = np.repeat(np.arange(last - first), np.diff(bounds))
        posts = post_of[values[bounds[0] : bounds[-1]]]
        by_any = np.zeros(last - first, np.bool_)
        by_any[posts[kind[owner] == _K.waitany]] = True
        covers = kind[owner] == _K.waitall
        whole = np.unique(owner[covers & by_any[posts]])  # a waitall over what a waitAny may have taken stays one
        if len(whole):
            yield 4 * whole + 1, join(" waitall ", integers(np.diff(bounds)[whole]), "\n")
        named = np.isin(kind[owner], _WAITS) & ~np.isin(owner, whole)
        owner, posts = owner[named], posts[named]
        source, destination, tag = self._keys(posts, kind, first, rank)
        self._refuse_disorder(rank, owner, posts, source, destination, tag, by_any)
        peer = self.columns["peer"][first:last][posts]
        there = (peer != NO_RANK) | (kind[posts] >= COLLECTIVES.start)
        text = join(" wait ", integers(source), " ", integers(destination), " ", integers(tag), "\n")
        yield 4 * owner[there] + 1, text.take(_where(there))

    def _keys(
        self, posts: np.ndarray, kind: np.ndarray, first: int, rank: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        peer = self.columns["peer"][first + posts]
        peer = np.where(peer == ANY_SOURCE, UNDEFINED_RANK, peer)
        tag = self.communicator_tag[first + posts]
        tag = np.where(tag == ANY_TAG, TRACED_ANY_TAG, tag)
        sends = np.isin(kind[posts], SENDS)
        source, destination = np.where(sends, rank, peer), np.where(sends, peer, rank)
        for value in np.unique(kind[posts][kind[posts] >= COLLECTIVES.start]).tolist():
            chosen = kind[posts] == value
            source[chosen] = destination[chosen] = UNDEFINED_RANK
            tag[chosen] = COLLECTIVE_TAG[_K(value).name.removeprefix("i").replace("_", "")]
        return source, destination, tag

    def _refuse_disorder(
        self, rank: int, owner: np.ndarray, posts: np.ndarray, source: np.ndarray, destination: np.ndarray,
        tag: np.ndarray, by_any: np.ndarray,
    ) -> None:  # fmt: skip
        """A wait takes the earliest open request of its key: refuse a workload in which one takes another."""
        order = np.lexsort((posts, tag, destination, source))
        same = np.ones(max(0, len(order) - 1), np.bool_)
        for key in (source, destination, tag):
            same &= key[order][1:] == key[order][:-1]
        wrong = np.flatnonzero(same & (np.diff(owner[order]) < 0))
        taken = np.flatnonzero(by_any[posts])
        if len(wrong) or len(taken):
            row = owner[order][wrong[0]] if len(wrong) else owner[taken[0]]
            raise UserError(
                f"{self.workload.name}: rank {rank}, operation {row} completes a request out of the order in which "
                "a time-independent trace would name it; write goal or workload"
            )

    def _collective_lines(self, kind: OperationKind, rows: np.ndarray) -> pa.Array:
        verb = kind.name.replace("_", "")
        base = verb.removeprefix("i") if kind >= _K.ibarrier else verb
        sent, received = integers(self.columns["bytes"][rows]), integers(self.columns["receive_bytes"][rows])
        root = integers(np.maximum(0, self.columns["peer"][rows]))
        head = f" {verb}"
        if base == "barrier":
            return picked([f"{head}\n"], np.zeros(len(rows), np.int8))
        if base == "bcast":
            return join(f"{head} ", sent, " ", root, "\n")
        if base == "reduce":
            return join(f"{head} ", sent, " 0 ", root, "\n")
        if base in ("allreduce", "scan", "exscan"):
            return join(f"{head} ", sent, " 0\n")
        if base in ("alltoall", "allgather"):
            return join(f"{head} ", sent, " ", received, "\n")
        if base in ("gather", "scatter"):
            return join(f"{head} ", sent, " ", received, " ", root, "\n")
        if base == "gatherv":
            return join(f"{head} ", sent, self._vector("receive_counts", rows), " ", root, "\n")
        if base == "scatterv":
            return join(head, self._vector("send_counts", rows), " ", received, " ", root, "\n")
        if base == "allgatherv":
            return join(f"{head} ", sent, self._vector("receive_counts", rows), "\n")
        if base == "alltoallv":
            send, receive = self._vector("send_counts", rows), self._vector("receive_counts", rows)
            return join(f"{head} 0", send, " 0", receive, "\n")
        assert base == "reducescatter"
        element = np.maximum(1, self.columns["bytes"][rows])
        known = np.isin(element, list(_ELEMENT_TYPE))
        element = np.where(known, element, 1)
        types = np.array([_ELEMENT_TYPE[int(size)] for size in element])
        return join(head, self._vector("receive_counts", rows, element), " 0 ", integers(types), "\n")

    def _vector(self, side: str, rows: np.ndarray, element: np.ndarray | None = None) -> pa.Array:
        """The counts of each row, each behind a blank; zeros where the row has none."""
        offsets, values = self.counts[side]
        num_ranks = self.workload.num_ranks
        table = np.zeros((len(rows), num_ranks), np.int64)
        has = np.flatnonzero(offsets[rows + 1] - offsets[rows] == num_ranks)
        table[has] = values[offsets[rows[has]][:, None] + np.arange(num_ranks)]
        if element is not None:
            table //= element[:, None]
        bounds = to_arrow(np.arange(0, num_ranks * len(rows) + 1, num_ranks, dtype=np.int32))
        return join(" ", pc.binary_join(pa.ListArray.from_arrays(bounds, integers(table.ravel())), " "))


assert all(DATATYPE_BYTES[number] == size for size, number in _ELEMENT_TYPE.items())


def _where(chosen: np.ndarray) -> pa.Array:
    return to_arrow(np.flatnonzero(chosen))


def _location(name: str) -> str:
    """The line that names a region: a file and a line, or the name as it is and line 0."""
    file, _, line = name.rpartition(":")
    if not (file and line.isdigit()):
        file, line = name, "0"
    return f" location {'_'.join(file.split())} {line}\n"


def _thousandths(picoseconds: np.ndarray) -> pa.Array:
    """Picoseconds as nanoseconds, exact."""
    whole, rest = np.divmod(picoseconds, 1000)
    return join(integers(whole), ".", pc.ascii_lpad(integers(rest), 3, padding="0"))


def _trillionths(picoseconds: np.ndarray) -> pa.Array:
    """Picoseconds as seconds, exact."""
    whole, rest = np.divmod(picoseconds, 10**12)
    return join(integers(whole), ".", pc.ascii_lpad(integers(rest), 12, padding="0"))
