"""Instances of collectives: which calls of the ranks belong together, and the messages, or the gate, of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.network.collectives.algorithms import CollectiveCall, schedule
from manyscale.models.network.collectives.formulas import Formula
from manyscale.models.network.collectives.rules import CollectiveRules
from manyscale.models.network.collectives.schedules import Schedule
from manyscale.models.network.operations import Operations
from manyscale.models.network.replay.steps import CALL, ENTER_GATE, WAIT_GATE
from manyscale.models.workload import COLLECTIVES, NONBLOCKING_COLLECTIVES, OperationKind


@dataclass(frozen=True)
class Instances:
    """``schedules``: one per distinct call. ``rows`` int64: the operations that are collectives, in order; of each the
    ``schedule`` int32, its ``participant`` int32 in it, and the ``first_message`` int64 of its instance. ``blocks``:
    (members, schedule) per instance that sends messages, in the order in which these follow the point-to-point ones.

    An instance that costs what a formula says has a gate instead of messages, and in place of the first message the
    gate's number. Gates: as in Program. One that is called has one step, and in place of the first message its number
    among ``called``: (members, schedule, rows of its operations) of each."""

    schedules: list[Schedule]
    rows: np.ndarray
    schedule: np.ndarray
    participant: np.ndarray
    first_message: np.ndarray
    blocks: list[tuple[np.ndarray, Schedule]]
    gate_size: np.ndarray
    gate_model: np.ndarray
    gate_bytes: np.ndarray
    called: list[tuple[np.ndarray, Schedule, np.ndarray]]


def collective_instances(
    operations: Operations, collectives: CollectiveRules, num_messages: int, called_from: int | None = None
) -> Instances:
    """All instances under a choice of algorithms; their messages are numbered from ``num_messages`` on. Blocking ones
    of ``called_from`` participants or more are called (None: none). Raises WorkloadError for members that call
    different collectives."""
    return _Finder(operations, collectives, called_from).find(num_messages)


def _same_steps(num_participants: int, *steps: int) -> Schedule:
    """What each participant does at gate or call 0, in the form of a schedule without messages."""
    every = np.tile(np.array(steps, np.int8), num_participants)
    none, index = np.empty(0, np.int32), np.zeros(len(every), np.int32)
    return Schedule(len(steps) * np.arange(num_participants + 1), every, index, none, none, np.empty(0, np.int64))


class _Finder:
    def __init__(self, operations: Operations, collectives: CollectiveRules, called_from: int | None) -> None:
        self.operations = operations
        self.collectives = collectives
        self.called_from = called_from

    def find(self, num_messages: int) -> Instances:
        kind = self.operations.kind
        rows = np.flatnonzero(kind >= COLLECTIVES.start)
        schedules: list[Schedule] = []
        schedule_of = np.full(len(rows), -1, np.int32)
        participant = np.zeros(len(rows), np.int32)
        first_message = np.zeros(len(rows), np.int64)
        blocks = []
        formulas: list[tuple[tuple[int, int], tuple[int, int]] | None] = []  # of each schedule: models and sizes
        gates: list[tuple[int, tuple[int, int], tuple[int, int]]] = []
        plans: dict[int, Schedule] = {}  # of schedules that are called
        called: list[tuple[np.ndarray, Schedule, np.ndarray]] = []
        known: dict[tuple[object, ...], int] = {}
        total = num_messages
        for members, instances in self._instances(rows):
            for instance in instances:
                key, call = self._call(instance, len(members))
                if key not in known:
                    known[key] = len(schedules)
                    choice = self.collectives.choice(call)
                    if isinstance(choice, Formula):
                        schedules.append(_same_steps(len(members), ENTER_GATE, WAIT_GATE))
                        formulas.append((choice.models, choice.sizes(call)))
                    else:
                        schedules.append(schedule(call, choice))
                        formulas.append(None)
                        if self._is_called(instance, schedules[-1]):
                            plans[known[key]] = schedules[-1]
                            schedules[-1] = _same_steps(len(members), CALL)
                at = np.searchsorted(rows, instance)
                schedule_of[at] = known[key]
                participant[at] = np.arange(len(members))
                formula = formulas[known[key]]
                if formula is not None:
                    first_message[at] = len(gates)
                    gates.append((len(members), *formula))
                    continue
                if known[key] in plans:
                    first_message[at] = len(called)
                    called.append((members, plans[known[key]], instance))
                    continue
                first_message[at] = total
                plan = schedules[known[key]]
                total += len(plan.source)
                blocks.append((members, plan))
        if total > 2**31 - 1:
            raise self.operations.error(f"{total} messages; at most 2^31 - 1 can be replayed")
        return Instances(
            *(schedules, rows, schedule_of, participant, first_message, blocks),
            gate_size=np.array([size for size, _, _ in gates], np.int32),
            gate_model=np.array([models for _, models, _ in gates], np.uint8).reshape(-1, 2),
            gate_bytes=np.array([sizes for _, _, sizes in gates], np.int64).reshape(-1, 2),
            called=called,
        )

    def _is_called(self, rows: np.ndarray, plan: Schedule) -> bool:
        """Whether instances like that of ``rows`` share the steps of one: those of many ranks, which all take part and
        wait there."""
        if self.called_from is None or len(rows) < self.called_from:
            return False
        blocks = int(self.operations.kind[rows[0]]) < NONBLOCKING_COLLECTIVES.start
        return blocks and bool(np.diff(plan.participant_offsets).all())

    def _instances(self, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """(members int32[n], rows int64[instances, n]) per communicator: its k-th collective on every member."""
        found = []
        for communicator in np.unique(self.operations.communicator[rows]):
            members = self.operations.members[communicator]
            mine = rows[self.operations.communicator[rows] == communicator]
            counts = np.bincount(self.operations.rank[mine], minlength=self.operations.num_ranks)[members]
            if np.any(counts != counts[0]):
                least, most = members[np.argmin(counts)], members[np.argmax(counts)]
                raise self.operations.error(
                    f"rank {most} calls {counts.max()} collectives on communicator "
                    f"{communicator}, rank {least} only {counts.min()}; the trace is incomplete"
                )
            order = np.argsort(members, kind="stable")
            table = np.empty((len(members), counts[0]), np.int64)
            table[order] = mine.reshape(len(members), counts[0])
            kinds = self.operations.kind[table]
            differs = np.flatnonzero((kinds != kinds[0]).any(axis=0))
            if len(differs):
                k = differs[0]
                other = table[np.argmax(kinds[:, k] != kinds[0, k]), k]
                raise self.operations.error(
                    f"{self.operations.place(int(other))} meets {self.operations.place(int(table[0, k]))} as "
                    f"collective {k} of communicator {communicator}; all members must call the same one"
                )
            found.append((members, np.ascontiguousarray(table.T)))
        return found

    def _call(self, rows: np.ndarray, size: int) -> tuple[tuple[object, ...], CollectiveCall]:
        """The call of one instance, and a key that is equal for equal calls."""
        name = OperationKind(int(self.operations.kind[rows[0]])).name
        root = max(0, int(self.operations.peer[rows[0]]))
        if root >= size:
            raise self.operations.error(f"{self.operations.place(int(rows[0]))} names root {root} of {size} members")
        base = name.removeprefix("i")
        significant = rows[root : root + 1] if base == "scatter" else rows  # the others may pass anything
        send = int(self.operations.bytes[significant].max())
        receive = int(self.operations.receive_bytes[rows].max())
        counts: dict[str, np.ndarray | None] = {"send_counts": None, "receive_counts": None}
        if base in ("alltoallv", "scatterv", "gatherv", "allgatherv", "reduce_scatter"):
            for side in counts:
                table = self._counts(side, rows, size)
                if table is not None:
                    counts[side] = table if base == "alltoallv" else table[root]
        element = max(1, send) if base == "reduce_scatter" else 1
        key = (name, size, root, send, receive, *(None if c is None else c.tobytes() for c in counts.values()))
        call = CollectiveCall(
            name, size, root, send, receive, counts["send_counts"], counts["receive_counts"], element_bytes=element
        )
        return key, call

    def _counts(self, side: str, rows: np.ndarray, size: int) -> np.ndarray | None:
        offsets, values = self.operations.counts[side]
        lengths = offsets[rows + 1] - offsets[rows]
        if not lengths.any():
            return None
        table = np.zeros((size, size), np.int64)
        for participant, row in enumerate(rows):
            if lengths[participant] == size:
                table[participant] = values[offsets[row] : offsets[row + 1]]
            elif lengths[participant]:
                raise self.operations.error(
                    f"{self.operations.place(int(row))} has {lengths[participant]} counts for {size} members"
                )
        return table
