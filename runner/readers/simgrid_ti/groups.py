"""Who takes part in a collective that only some ranks call: time-independent traces name no communicators.

Where all ranks call the same collectives in the same order, they are the world's. Else those that all ranks call
equally often (same kind, size and root) and in the same order are the world's, and part the rest into stretches. Within
a stretch, a collective's group is the ranks that call it. That is the only answer if these call it equally often, and
if, with each collective done as soon as all of its group have come to it, all are done. If it is not, the user
chooses (``workload.unequal_collectives``): with ``group``, a collective that cannot wait for all of its ranks is done
by those that have come to it, first by those with most calls left; ``local`` does the same, but what is not the world's
is each rank's own, and takes no time.

O(collectives), but O(unequal collectives x ranks) for what is in stretches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from manyscale.models.workload import COLLECTIVES, OperationKind
from manyscale.models.workload.notes import Note, changes, forbids
from manyscale.runner.errors import UserError

_K = OperationKind
_ROOTED = (_K.bcast, _K.reduce, _K.gather, _K.scatter, _K.gatherv, _K.scatterv)
_BY_RECEIVED = (_K.allgather, _K.alltoall)  # what is sent may be in place
_UNSIZED = (_K.gather, _K.scatter, _K.gatherv, _K.scatterv, _K.allgatherv, _K.alltoallv, _K.reduce_scatter)


def _with_nonblocking(kinds: tuple[OperationKind, ...]) -> list[int]:
    return [int(each) for kind in kinds for each in (kind, OperationKind[f"i{kind.name}"])]


@dataclass
class Groups:
    """``members`` of each communicator, the world first; ``communicator`` of each collective; ``unlisted``: those whose
    counts for each member play no part."""

    members: list[np.ndarray]
    communicator: np.ndarray
    unlisted: np.ndarray
    notes: list[Note] = field(default_factory=list)


def settle(
    operations: Mapping[str, np.ndarray],
    num_counts: np.ndarray,
    num_ranks: int,
    choice: str,
    place: Callable[[int], str],
    cut: str,
) -> Groups | None:
    """The groups of all collectives, None where all are the world's. ``operations``: columns of all ranks, whose roots
    may be changed; ``num_counts``: how many members each collective has a count for, 0 for none; ``place``: file and
    line of a row; ``cut``: why the trace may be cut short, or "": then nothing is inferred. Raises UserError where more
    than one answer is possible and ``choice`` is ``infer``."""
    rows = np.flatnonzero(operations["kind"] >= COLLECTIVES.start)
    counts = np.bincount(operations["rank"][rows], minlength=num_ranks)
    equal_at_members = np.vstack((_equal_at_members(operations, rows), num_counts))
    if np.all(counts == counts[0]) and np.all((num_counts == 0) | (num_counts == num_ranks)):
        each = equal_at_members.reshape(len(equal_at_members), num_ranks, -1)
        if np.all(each == each[:, :1]):
            return None
    return _Settler(operations, rows, equal_at_members, num_ranks, choice, place, cut).settle()


def _equal_at_members(operations: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """int64[3, rows]: kind, size and root of collectives, as far as they must be equal at all members."""
    kind = operations["kind"][rows].astype(np.int64)
    received = np.isin(kind, _with_nonblocking(_BY_RECEIVED))
    sizes = np.where(received, operations["receive_bytes"][rows], operations["bytes"][rows])
    sizes[np.isin(kind, _with_nonblocking(_UNSIZED))] = 0
    root = np.where(np.isin(kind, _with_nonblocking(_ROOTED)), operations["peer"][rows], 0)
    return np.stack([kind, sizes, root])


class _Settler:
    def __init__(
        self,
        operations: Mapping[str, np.ndarray],
        rows: np.ndarray,
        equal_at_members: np.ndarray,
        num_ranks: int,
        choice: str,
        place: Callable[[int], str],
        cut: str,
    ) -> None:
        self.operations, self.rows, self.num_ranks = operations, rows, num_ranks
        self.choice, self.place, self.cut = choice, place, cut
        self.rank = operations["rank"][rows].astype(np.int64)
        self.kind, self.num_counts = equal_at_members[0], equal_at_members[-1]
        self.code = np.unique(equal_at_members, axis=1, return_inverse=True)[1].ravel()
        self.members = [np.arange(num_ranks)]
        self.number_of: dict[bytes, int] = {self.members[0].tobytes(): 0}
        self.communicator = np.zeros(len(rows), np.int32)

    def settle(self) -> Groups:
        is_world = self._of_the_world()
        before = np.cumsum(is_world)
        first = np.searchsorted(self.rank, np.arange(self.num_ranks))
        stretch = before - np.append(0, before)[first[self.rank]]
        unequal = np.flatnonzero(~is_world)
        if self.cut and self.choice == "infer":
            text = (
                f"{self._call(int(unequal[0]))} is not called by all ranks alike, and {self.cut}: the trace may be cut "
                f"short; trace the program again{self._ways()}"
            )
            note = forbids("unequal-collectives-cut", text, self._place(int(unequal[0])))
            return Groups(self.members, self.communicator, np.empty(0, np.int64), [note])
        order = unequal[np.argsort(stretch[unequal], kind="stable")]
        for calls in np.split(order, np.flatnonzero(np.diff(stretch[order])) + 1):
            self._stretch(calls)
        of_some = np.flatnonzero(self.communicator)
        if not len(of_some):
            return Groups(self.members, self.communicator, np.empty(0, np.int64))
        how = "without communication" if self.choice == "local" else "on groups of the ranks that call them"
        text = (
            f"{len(of_some)} calls of collectives that not all ranks make (the first: {self._call(int(of_some[0]))}) "
            f"are replayed {how}: the format names no communicators"
        )
        note = changes("unequal-collectives", text, self._place(int(of_some[0])), len(of_some))
        unlisted = of_some[self.num_counts[of_some] > 0] if self.choice == "local" else np.empty(0, np.int64)
        return Groups(self.members, self.communicator, unlisted, [note])

    def _of_the_world(self) -> np.ndarray:
        """Which calls all ranks make equally often and in the same order; none if there is no such order."""
        number = np.bincount(
            self.rank * (int(self.code.max()) + 1) + self.code,
            minlength=self.num_ranks * (int(self.code.max()) + 1),
        ).reshape(self.num_ranks, -1)
        is_world = np.all(number == number[0], axis=0)[self.code]
        is_world &= (self.num_counts == 0) | (self.num_counts == self.num_ranks)
        world = self.code[is_world].reshape(self.num_ranks, -1)
        return is_world if np.all(world == world[0]) else np.zeros(len(is_world), np.bool_)

    def _stretch(self, calls: np.ndarray) -> None:
        """Find the groups of the calls between two collectives of the world."""
        calls = calls[np.argsort(self.rank[calls], kind="stable")]
        ranks, start, total = np.unique(self.rank[calls], return_index=True, return_counts=True)
        codes, code = np.unique(self.code[calls], return_inverse=True)
        left = np.zeros((len(codes), len(ranks)), np.int64)
        np.add.at(left, (code, np.repeat(np.arange(len(ranks)), total)), 1)
        done = np.zeros(len(ranks), np.int64)
        while np.any(done < total):
            head = np.where(done < total, code[np.minimum(start + done, len(code) - 1)], -1)
            present = np.unique(head[head >= 0])
            whole = [each for each in present if np.all((left[each] > 0) == (head == each))]
            equal = [each for each in whole if len(np.unique(left[each][left[each] > 0])) == 1]
            if self.choice == "infer" and not equal:
                self._refuse(calls, start, done, total, left, head, whole or list(present))
            most = [int((total - done)[head == each].max()) for each in present]
            chosen = (equal or whole or [present[int(np.argmax(most))]])[0]
            here = np.flatnonzero(head == chosen)
            self._done(calls[start[here] + done[here]])
            left[chosen, here] -= 1
            done[here] += 1

    def _done(self, calls: np.ndarray) -> None:
        """These calls are one collective."""
        members = self.rank[calls]
        call = int(calls[0])
        kind, peers, listed = int(self.kind[call]), self.operations["peer"], int(self.num_counts[call])
        if self.choice != "local" and listed not in (0, len(members)):
            raise UserError(
                f"{self._where(call)} has counts for {listed} ranks where {len(members)} call it, and the format names "
                f"no communicators{self._ways(only_local=True)}"
            )
        if len(members) == self.num_ranks and listed in (0, self.num_ranks):
            return
        is_rooted = kind in _with_nonblocking(_ROOTED)
        if is_rooted and self.choice != "local" and int(peers[self.rows[call]]) >= len(members):
            raise UserError(
                f"{self._where(call)} has a root beyond the {len(members)} ranks that call it: the trace is incomplete"
                f"{self._ways(only_local=True)}"
            )
        groups = [members] if self.choice != "local" else [members[i : i + 1] for i in range(len(members))]
        for group, own in zip(groups, [calls] if self.choice != "local" else calls[:, None], strict=True):
            number = self.number_of.setdefault(group.tobytes(), len(self.members))
            if number == len(self.members):
                self.members.append(group)
            self.communicator[own] = number
        if self.choice == "local" and is_rooted:
            peers[self.rows[calls]] = 0

    def _refuse(
        self,
        calls: np.ndarray,
        start: np.ndarray,
        done: np.ndarray,
        total: np.ndarray,
        left: np.ndarray,
        head: np.ndarray,
        among: list[int],
    ) -> None:
        """Raise UserError for a collective whose group cannot be told."""
        which = among[0]
        here = int(np.flatnonzero(head == which)[0])
        call = int(calls[start[here] + done[here]])
        own = left[which]
        ranks = np.unique(self.rank[calls])
        most, least = int(np.argmax(own)), int(np.argmin(np.where(own > 0, own, own.max() + 1)))
        if own[most] != own[least]:
            why = f"rank {ranks[most]} calls it {own[most]} times where rank {ranks[least]} calls it {own[least]} times"
        else:
            why = "the ranks that call it come to it in different orders"
        raise UserError(
            f"{self._where(call)} is not called by all ranks alike ({why}), and the format names no communicators, so "
            f"that its group cannot be told; trace the program with manyscale trace{self._ways()}"
        )

    def _ways(self, *, only_local: bool = False) -> str:
        return f", or choose with --set workload.unequal_collectives={'' if only_local else 'group or ='}local"

    def _call(self, call: int) -> str:
        kind = int(self.kind[call])
        size = int(self.operations["bytes"][self.rows[call]])
        return f"{OperationKind(kind).name}" + (f" of {size} B" if size else "")

    def _where(self, call: int) -> str:
        return f"{self._place(call)}: {self._call(call)}"

    def _place(self, call: int) -> str:
        return self.place(int(self.rows[call]))
