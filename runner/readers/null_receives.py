"""Receives from MPI_PROC_NULL in formats that write it as they write MPI_ANY_SOURCE.

A receive from nobody is one that no message is left for: of the messages to its rank, with its tag and communicator,
those that receives from a named rank take are not for it. Where fewer messages are left than receives might take,
those receives take them that waited longest in the traced run (in a format without times: the first ones), since a
receive from nobody returns at once; of a trace that is cut short, all may take them. O(operations log operations).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from manyscale.models.workload import ANY_SOURCE, ANY_TAG, NO_RANK, RECEIVES, SENDS, OperationKind
from manyscale.models.workload.notes import Note, changes, informs


@dataclass(frozen=True)
class NullReceives:
    """How many receives were taken as from nobody (``nobody``), of these by a guess (``guessed``), and how many
    remain from any source (``anybody``)."""

    nobody: int = 0
    guessed: int = 0
    anybody: int = 0

    @property
    def notes(self) -> list[Note]:
        """What is to be said of those from nobody."""
        found = []
        if self.nobody > self.guessed:
            count = self.nobody - self.guessed
            text = f"{count} receives whose source is not recorded have no send that fits: taken as MPI_PROC_NULL"
            found.append(informs("null-receives", text, count=count))
        if self.guessed:
            text = (
                f"{self.guessed} receives are from MPI_PROC_NULL, but which ones is not recorded: taken are those that "
                "waited least in the traced run, without times the last ones"
            )
            found.append(changes("sources-guessed", text, count=self.guessed))
        return found


def settle(
    operations: Mapping[str, np.ndarray], waited: np.ndarray | None = None, is_cut: bool = False
) -> NullReceives:
    """Set ``peer`` (of a sendrecv ``source``) of receives from nobody to NO_RANK, in place. ``operations``: columns
    rank, kind, peer, source, tag and communicator_id of all ranks, peers as world ranks; ``waited``: per row, how long
    the traced run waited for what it received; ``is_cut``: whether messages may be missing."""
    kind, tag = operations["kind"], operations["tag"].astype(np.int64)
    is_pair = kind == OperationKind.sendrecv
    from_whom = np.where(is_pair, operations["source"], operations["peer"])
    receives = np.flatnonzero(np.isin(kind, RECEIVES) & (from_whom >= ANY_SOURCE))
    wild = receives[from_whom[receives] == ANY_SOURCE]
    if not len(wild):
        return NullReceives()
    asks = np.zeros(int(operations["rank"].max()) + 1, np.bool_)
    asks[operations["rank"][wild]] = True
    sends = np.flatnonzero(np.isin(kind, SENDS) & (operations["peer"] >= 0))
    sends = sends[asks[operations["peer"][sends]]]
    receives = receives[asks[operations["rank"][receives]]]
    left = _Left(operations, sends, receives[from_whom[receives] >= 0], from_whom, tag)
    place = np.stack([operations["rank"][wild], operations["communicator_id"][wild], tag[wild]]).astype(np.int64)
    has_tag = place[2] != ANY_TAG
    nobody, guessed = [], 0
    for group in (*_groups(place, has_tag), *_groups(place, ~has_tag)):
        rows = wild[group]
        count = left.take(place[:, group[0]], len(rows))
        if count < len(rows) and not (is_cut and count):
            guessed += len(rows) - count if count else 0
            order = np.argsort(-waited[rows], kind="stable") if waited is not None else np.arange(len(rows))
            nobody.append(rows[order[count:]])
    rows = np.concatenate([np.empty(0, np.int64), *nobody])
    operations["source"][rows[is_pair[rows]]] = NO_RANK
    operations["peer"][rows[~is_pair[rows]]] = NO_RANK
    return NullReceives(len(rows), guessed, len(wild) - len(rows))


def _groups(place: np.ndarray, chosen: np.ndarray) -> list[np.ndarray]:
    """The chosen columns of ``place``, equal ones together, in order."""
    columns = np.flatnonzero(chosen)
    if not len(columns):
        return []
    which = _numbers(*place[:, columns])
    order = np.argsort(which, kind="stable")
    return np.split(columns[order], np.cumsum(np.bincount(which))[:-1])


def _numbers(*columns: np.ndarray) -> np.ndarray:
    """One number for each row of some columns, from 0, in the order of the rows' values; equal rows have the same."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, code = np.unique(column, return_inverse=True)
        number = np.unique(number * len(values) + code, return_inverse=True)[1]
    return number


class _Left:
    """Messages that no receive from a named rank takes, by destination, communicator, source and tag (``keys``, in this
    order)."""

    def __init__(
        self,
        operations: Mapping[str, np.ndarray],
        sends: np.ndarray,
        named: np.ndarray,
        from_whom: np.ndarray,
        tag: np.ndarray,
    ) -> None:
        communicator = operations["communicator_id"]
        sent = (operations["peer"][sends], communicator[sends], operations["rank"][sends], tag[sends])
        taken = (operations["rank"][named], communicator[named], from_whom[named], tag[named])
        columns = [np.concatenate(both).astype(np.int64) for both in zip(sent, taken, strict=True)]
        which = _numbers(*columns)
        number = np.bincount(which[: len(sends)], minlength=int(which.max(initial=-1)) + 1)
        number -= np.bincount(which[len(sends) :], minlength=len(number))
        first = np.empty(len(number), np.int64)
        first[which] = np.arange(len(which))
        self.keys = np.stack([column[first] for column in columns])
        self.number = self._less_any_tag(number)

    def _less_any_tag(self, number: np.ndarray) -> np.ndarray:
        """Receives of any tag from a named rank take what is left of that rank's, if they take all of it."""
        is_any = self.keys[3] == ANY_TAG
        left = np.where(is_any, 0, np.maximum(number, 0))
        pair = _numbers(*self.keys[:3])
        wanted = np.bincount(pair[is_any], -number[is_any], int(pair.max(initial=-1)) + 1)
        total = np.bincount(pair, left, len(wanted))
        return np.where((total <= wanted)[pair], 0, left)

    def take(self, place: np.ndarray, most: int) -> int:
        """Take up to ``most`` messages to (rank, communicator, tag); says how many there were."""
        first, end = np.searchsorted(self.keys[0], (place[0], place[0] + 1))
        keys = self.keys[:, first:end]
        fits = (keys[1] == place[1]) & (self.number[first:end] > 0)
        if place[2] != ANY_TAG:
            fits &= keys[3] == place[2]
        rows = first + np.flatnonzero(fits)
        before = np.cumsum(self.number[rows]) - self.number[rows]
        part = np.clip(most - before, 0, self.number[rows])
        self.number[rows] -= part
        return int(part.sum())
