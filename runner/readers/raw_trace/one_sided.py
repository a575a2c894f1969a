"""One-sided communication of a native trace as messages (MPI 4.1, chapter 12).

What is put goes from the origin to the target, what is got from the target to the origin, each in synchronous mode: the
origin's part is over once the data is there, as completion at the target and a reply ask for. The target takes part
without doing anything: all its receives and sends are posted where the window is made, and complete

- fences: at the target's fence that closes the epoch; a fence is a barrier, too;
- MPI_Win_post, start, complete, wait: at the target's MPI_Win_wait. A message without data goes from post to start, and
  one from complete to wait;
- locks: where the window is freed. To get a lock costs nothing, nor does waiting for another's.

The origin waits at the fence, MPI_Win_complete, MPI_Win_unlock or flush; for an operation with a request at the wait
for that. Making and freeing a window are barriers. What a rank puts into its own window, or gets from it, is no
message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.workload import NO_RANK, OperationKind
from manyscale.runner.readers.raw_trace.calls import COMPLETED, TABLE, Calls, Expansion

_K = OperationKind
_PUT, _GOT, _POSTED, _COMPLETE = range(4)  # tags; a window is a communicator of its own
_FREE: Final = "free"
_Due = tuple[str, int, int]


class _Access(NamedTuple):
    """A one-sided operation: what it moves between origin and target, and when the target's part is over."""

    origin: int
    put: int
    got: int
    due: _Due


class _Row(NamedTuple):
    kind: int
    peer: int = NO_RANK
    tag: int = 0
    bytes: int = 0
    receive_bytes: int = 0


@dataclass
class _State:
    """What a rank is about on one window. ``pending``: (record, row, target) of what it has yet to wait for."""

    made: int = -1
    num_fences: int = 0
    locked: set[int] = field(default_factory=set)
    all_locked: bool = False
    started: dict[int, int] = field(default_factory=dict)  # by target: how often it was started before
    starts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    posts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    posted: list[tuple[int, int]] = field(default_factory=list)  # (origin, how often before)
    pending: list[tuple[int, int, int]] = field(default_factory=list)
    post_sends: list[tuple[int, int]] = field(default_factory=list)


def expand(calls: Sequence[Calls], communicator_of: Sequence[np.ndarray]) -> None:
    """Give each process's calls the rows that those on windows become. ``communicator_of``: per process, what each of
    its communicators is. O(calls on windows)."""
    if not any(np.any(TABLE.on_window[each.call]) for each in calls):
        return
    ranks = [_Rank(rank, each, of) for rank, (each, of) in enumerate(zip(calls, communicator_of, strict=True))]
    accesses: dict[tuple[int, int], list[_Access]] = defaultdict(list)  # by window and target
    for rank in ranks:
        for window, target, access in rank.accesses():
            accesses[window, target].append(access)
    for rank in ranks:
        rank.calls.expansion = rank.expansion(accesses)


class _Rank:
    def __init__(self, rank: int, calls: Calls, communicator_of: np.ndarray) -> None:
        self.rank, self.calls = rank, calls
        records = calls.records
        chosen = np.flatnonzero(TABLE.on_window[calls.call] & calls.takes_part)
        window = communicator_of[records["communicator"][chosen]]
        self.todo = [
            (int(record), TABLE.names[calls.call[record]].removeprefix("MPI_"), int(which))
            for record, which in zip(chosen, window, strict=True)
        ]
        completing = np.flatnonzero(TABLE.is_completing[calls.call])
        self.waited = {
            int(calls.lists[calls.list_start[record] + 4 * part])
            for record in completing
            for part in range(int(calls.num_lists[record]) // 4)
        }

    def _group(self, record: int) -> list[int]:
        start = self.calls.list_start[record]
        return [int(rank) for rank in self.calls.lists[start : start + self.calls.num_lists[record]]]

    def _walk(self) -> Iterator[tuple[int, str, int, _State]]:
        """(record, name, window, state before it) of each call; what state a call leaves is set afterwards."""
        states: dict[int, _State] = defaultdict(_State)
        for record, name, window in self.todo:
            state = states[window]
            yield record, name, window, state
            peer = int(self.calls.records["peer"][record])
            if name in _MAKERS:
                state.made = record
            elif name == "Win_fence":
                state.num_fences += 1
            elif name in ("Win_lock", "Win_unlock"):
                (state.locked.add if name == "Win_lock" else state.locked.discard)(peer)
            elif name in ("Win_lock_all", "Win_unlock_all"):
                state.all_locked = name == "Win_lock_all"
            elif name == "Win_start":
                state.started = {target: state.starts[target] for target in self._group(record)}
                for target in state.started:
                    state.starts[target] += 1
            elif name == "Win_complete":
                state.started = {}
            elif name == "Win_post":
                state.posted = [(origin, state.posts[origin]) for origin in self._group(record)]
                for origin, _ in state.posted:
                    state.posts[origin] += 1
            elif name == "Win_wait" or (name == "Win_test" and self._is_over(record)):
                state.posted = []

    def _is_over(self, record: int) -> bool:
        return bool(self.calls.records["flags"][record] & COMPLETED)

    def _moves(self, record: int) -> tuple[int, int, int]:
        """(target, bytes put, bytes got); target -1 for what is no message."""
        fields = self.calls.records[record]
        target = int(fields["peer"])
        return (-1 if target < 0 or target == self.rank else target, int(fields["bytes"]), int(fields["receive_bytes"]))

    def accesses(self) -> Iterator[tuple[int, int, _Access]]:
        """(window, target, access) of each one-sided operation, in order."""
        for record, name, window, state in self._walk():
            target, put, got = self._moves(record)
            if name not in ONE_SIDED or target < 0:
                continue
            if state.all_locked or target in state.locked:
                due: _Due = (_FREE, 0, 0)
            elif target in state.started:
                due = ("wait", self.rank, state.started[target])
            else:
                due = ("fence", state.num_fences, 0)
            yield (
                window,
                target,
                _Access(self.rank, _moved(name, put, is_put=True), _moved(name, got, is_put=False), due),
            )

    def expansion(self, accesses: dict[tuple[int, int], list[_Access]]) -> Expansion:
        made = Expansion()
        due: dict[tuple[int, _Due], list[tuple[int, int]]] = defaultdict(list)  # (record, row) by window
        for record, name, window, state in self._walk():
            rows: list[_Row] = []
            waits: list[tuple[int, int, int]] = []  # (row, record, row of it)
            if name in _MAKERS:
                rows.append(_Row(_K.barrier))
                for access in accesses[window, self.rank]:
                    for moved, row in (
                        (access.put, _Row(_K.irecv, access.origin, _PUT, 0, access.put)),
                        (access.got, _Row(_K.issend, access.origin, _GOT, access.got, 0)),
                    ):
                        if moved >= 0:
                            due[window, access.due].append((record, len(rows)))
                            rows.append(row)
            elif name in ONE_SIDED:
                rows += self._operation(record, name, state)
            elif name == "Win_start":
                rows += [_Row(_K.recv, target, _POSTED) for target in self._group(record)]
            elif name == "Win_post":
                rows += [_Row(_K.isend, origin, _POSTED) for origin in self._group(record)]
                state.post_sends = [(record, part) for part in range(len(rows))]
            else:
                rows, waits = self._synchronisation(record, name, state, window, due)
            made.add(record, rows or [_Row(_K.other)], waits)
        return made

    def _operation(self, record: int, name: str, state: _State) -> list[_Row]:
        target, put, got = self._moves(record)
        rows = []
        if target >= 0:
            if _moved(name, put, is_put=True) >= 0:
                rows.append(_Row(_K.issend, target, _PUT, put, 0))
            if _moved(name, got, is_put=False) >= 0:
                rows.append(_Row(_K.irecv, target, _GOT, 0, got))
        if int(self.calls.records["request"][record]) not in self.waited:
            state.pending += [(record, part, target) for part in range(len(rows))]
        return rows

    def _synchronisation(
        self, record: int, name: str, state: _State, window: int, due: dict[tuple[int, _Due], list[tuple[int, int]]]
    ) -> tuple[list[_Row], list[tuple[int, int, int]]]:
        peer = int(self.calls.records["peer"][record])
        rows: list[_Row] = []
        over: list[tuple[int, int]] = []
        if name == "Win_test" and not self._is_over(record):
            return [_Row(_K.test)], []
        if name in ("Win_unlock", "Win_flush", "Win_flush_local"):
            over += _taken(state, {peer})
        elif name in ("Win_unlock_all", "Win_flush_all", "Win_flush_local_all", "Win_fence"):
            over += _taken(state, None)
        elif name == "Win_complete":
            over += _taken(state, state.started)
        elif name in ("Win_wait", "Win_test"):
            rows += [_Row(_K.recv, origin, _COMPLETE) for origin, _ in state.posted]
            over += state.post_sends
            state.post_sends = []
            for origin, before in state.posted:
                over += due.pop((window, ("wait", origin, before)), [])
        elif name == "Win_free":
            over += _taken(state, None) + state.post_sends
            for key in [key for key in due if key[0] == window]:
                over += due.pop(key)
        if name == "Win_fence":
            over += due.pop((window, ("fence", state.num_fences, 0)), [])
        waits = [(len(rows), of, part) for of, part in over]
        if over:
            rows.append(_Row(_K.waitall))
        if name in ("Win_fence", "Win_free"):
            rows.append(_Row(_K.barrier))
        if name == "Win_complete":
            state.pending += [(record, len(rows) + place, NO_RANK) for place in range(len(state.started))]
            rows += [_Row(_K.isend, target, _COMPLETE) for target in state.started]
        return rows, waits


ONE_SIDED: Final = frozenset(
    ("Put", "Get", "Accumulate", "Get_accumulate", "Fetch_and_op", "Compare_and_swap", "Rput", "Rget", "Raccumulate",
     "Rget_accumulate")
)  # fmt: skip
_MAKERS: Final = frozenset(("Win_create", "Win_allocate", "Win_allocate_shared", "Win_create_dynamic"))


def _moved(name: str, count: int, *, is_put: bool) -> int:
    """Bytes that an operation moves one way; -1 if it moves none that way (0 is a message without data)."""
    only_puts, only_gets = name in ("Put", "Rput", "Accumulate", "Raccumulate"), name in ("Get", "Rget")
    return -1 if (only_gets if is_put else only_puts) else count


def _taken(state: _State, targets: Iterable[int] | None) -> list[tuple[int, int]]:
    """What was pending for these targets, or for all, and is no longer."""
    wanted = None if targets is None else set(targets)
    taken = [(record, part) for record, part, target in state.pending if wanted is None or target in wanted]
    state.pending = [] if wanted is None else [each for each in state.pending if each[2] not in wanted]
    return taken
