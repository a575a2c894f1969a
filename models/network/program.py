"""The replay program: a workload's operations as arrays of sends, receives and waits, matched once.

Built from a workload and a choice of collective algorithms; independent of latency, bandwidth and compute times, so
that one program serves every point of a sweep. Collectives become schedules of messages
(network/collectives/algorithms.py), or gates that all of their participants pass together
(network/collectives/formulas.py).

Steps of one rank form a *strand*, executed in order; a non-blocking collective is a strand of its own, started by its
operation. Messages are matched here (matching.py), but for those that wildcard receives might take: they are left to
the replay, which decides in simulated time.

Cost: O(operations + messages). Memory: 5 B a step and 17 B a message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, merged
from manyscale.models.machine import CollectiveChoice
from manyscale.models.network.collectives.calls import Calls, calls_of
from manyscale.models.network.collectives.formulas import Gates
from manyscale.models.network.collectives.instances import Instances, collective_instances
from manyscale.models.network.collectives.rules import CollectiveRules
from manyscale.models.network.matching import Matching, Mode, match
from manyscale.models.network.operation_graph import OperationGraph, graph_of_dependencies, is_ordered
from manyscale.models.network.operations import Operations
from manyscale.models.network.replay.steps import (
    ACTION,
    FIRST,
    LAST,
    NOTHING,
    POST_OPEN_RECEIVE,
    POST_OPEN_SEND,
    POST_RECEIVE,
    POST_SEND,
    START_STRAND,
    WAIT_ANY,
    WAIT_OPEN_RECEIVE,
    WAIT_RECEIVE,
    WAIT_SEND,
    WAIT_STRAND,
)
from manyscale.models.workload import NONBLOCKING_COLLECTIVES, OperationKind, Workload, WorkloadError

VERSION: Final = 1


_WAIT, _WAITALL, _WAITANY = (int(kind) for kind in (OperationKind.wait, OperationKind.waitall, OperationKind.waitany))
_RECV, _SENDRECV = int(OperationKind.recv), int(OperationKind.sendrecv)
_SEND, _SSEND, _BSEND = (int(kind) for kind in (OperationKind.send, OperationKind.ssend, OperationKind.bsend))

_STEPS_OF_KIND: Final = np.ones(len(OperationKind), np.int32)  # of what does not say how many elsewhere
_STEPS_OF_KIND[[_SEND, _SSEND, _BSEND, _RECV]] = 2
_STEPS_OF_KIND[_SENDRECV] = 4


@dataclass(frozen=True)
class Program:
    """Arrays of the replay; see the module's docstring.

    Per step: ``step`` uint8 (a Step with border bits) and ``target`` int32 (message, open receive, candidate list or
    strand). Per strand: ``strand_steps`` int64[s + 1] bounds and ``strand_rank``; the first ``num_ranks`` strands are
    the ranks themselves. Per message: source, destination, bytes and mode; message i is sent by the i-th row of
    ``workload.send_rows``, the messages of collectives follow. Open receives: ``open_source`` and ``open_tag``
    wanted, the queue (``open_queue``) they and their candidate sends meet in; per point-to-point message, if there are
    queues at all, ``send_queue`` (-1 for none), ``send_tag`` and ``send_operation`` (id within its rank). Wait-any
    candidates: ``candidate_action``, ``candidate_target`` in ``candidate_offsets`` lists. Gates (collectives that cost
    what a formula says): ``gate_size`` strands enter, then fan-in and fan-out take their time: ``gate_model``
    uint8[g, 2] (FanModel) and ``gate_bytes`` int64[g, 2].

    ``graph``: the dependencies of a workload that has such, for models that replay them. If they leave its ranks no
    order (``graph_is_ordered``), there is nothing else: no steps. ``calls``: the collectives whose messages are not
    among these (replay/calls.py), None where there are none.
    """

    num_ranks: int
    rank_offsets: np.ndarray
    step: np.ndarray
    target: np.ndarray
    strand_steps: np.ndarray
    strand_rank: np.ndarray
    source: np.ndarray
    destination: np.ndarray
    bytes: np.ndarray
    mode: np.ndarray
    send_queue: np.ndarray
    send_tag: np.ndarray
    send_operation: np.ndarray
    open_queue: np.ndarray
    open_source: np.ndarray
    open_tag: np.ndarray
    num_queues: int
    candidate_offsets: np.ndarray
    candidate_action: np.ndarray
    candidate_target: np.ndarray
    gate_size: np.ndarray
    gate_model: np.ndarray
    gate_bytes: np.ndarray
    graph: OperationGraph | None = None
    graph_is_ordered: bool = True
    calls: Calls | None = None

    def __post_init__(self) -> None:
        for value in self.__dict__.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def num_messages(self) -> int:
        return len(self.source)

    @property
    def only_computes(self) -> bool:
        """Whether no step sends, receives or waits: ranks know nothing of each other."""
        alone = len(self.strand_rank) == self.num_ranks and self.graph_is_ordered and not self.num_messages
        return alone and bool((self.step & ACTION == NOTHING).all())

    @property
    def gates(self) -> Gates:
        return Gates(self.gate_size, self.gate_model, self.gate_bytes)

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays."""
        own = sum(value.nbytes for value in self.__dict__.values() if isinstance(value, np.ndarray))
        return own + sum(part.num_bytes for part in (self.graph, self.calls) if part is not None)


def build_program(
    workload: Workload, collectives: CollectiveChoice, *, keep_graph: bool = False, called_from: int | None = None
) -> Program:
    """The program of a workload under a preset of collective algorithms, or rules that choose them (as a network has
    them: Network.collectives).

    A workload whose operations are a graph that no order of each rank's stands for is refused, unless ``keep_graph``:
    for models that replay graphs. Collectives of ``called_from`` ranks or more are called where nothing depends on the
    order of execution: for models whose messages do not hinder each other. Raises WorkloadError, naming rank and
    operation, also for sends and receives that do not match, for collectives that the ranks call in different order,
    and for requests that are not open; ValueError for an unknown preset.
    """
    rules = CollectiveRules.model_validate(collectives)
    operations = Operations(workload)
    if not workload.tables["dependencies"].num_rows:
        matching = match(operations, workload)
        if matching.num_queues or np.any(operations.kind == _WAITANY):
            called_from = None
        instances = collective_instances(operations, rules, len(matching.sends), called_from)
        return _assemble(operations, matching, instances)
    graph = graph_of_dependencies(workload, (operations.completes[0], _completed_rows(operations)))
    if is_ordered(workload):
        matching = match(operations, workload)
        instances = collective_instances(operations, rules, len(matching.sends))
        return replace(_assemble(operations, matching, instances), graph=graph)
    if not keep_graph:
        raise WorkloadError(
            "the operations of the ranks are a graph that no order of them stands for; choose the network model loggops"
        )
    return _graph_only(operations, graph, workload.send_rows)


def _graph_only(operations: Operations, graph: OperationGraph, sends: np.ndarray) -> Program:
    """A program without steps: messages, and the graph that sends them."""
    numbers, codes, offset = np.empty(0, np.int32), np.empty(0, np.uint8), np.zeros(1, np.int64)
    return Program(
        num_ranks=operations.num_ranks, rank_offsets=operations.rank_offsets, step=codes, target=numbers,
        strand_steps=np.zeros(operations.num_ranks + 1, np.int64),
        strand_rank=np.arange(operations.num_ranks, dtype=np.int32), source=operations.rank[sends],
        destination=operations.peer[sends], bytes=operations.bytes[sends],
        mode=np.full(len(sends), Mode.standard, np.uint8), send_queue=numbers, send_tag=numbers,
        send_operation=numbers, open_queue=numbers, open_source=numbers, open_tag=numbers, num_queues=0,
        candidate_offsets=offset, candidate_action=codes, candidate_target=numbers, gate_size=numbers,
        gate_model=np.empty((0, 2), np.uint8), gate_bytes=np.empty((0, 2), np.int64), graph=graph,
        graph_is_ordered=False,
    )  # fmt: skip


@dataclass(frozen=True)
class _Layout:
    """Where the steps of each operation go: from ``first_step`` on. ``collectives``: their rows; ``copies``: _COPY of
    each; ``children``: rows of non-blocking ones, whose strands begin at ``child_steps``."""

    first_step: np.ndarray
    collectives: np.ndarray
    copies: np.ndarray
    children: np.ndarray
    child_steps: np.ndarray


# Steps of a schedule that go to a collective's own place, or to that of its strand
_COPY: Final = np.dtype([("begin", "i8"), ("length", "i8"), ("to", "i8"), ("first_message", "i8")])


def _assemble(operations: Operations, matching: Matching, instances: Instances) -> Program:
    kind = operations.kind
    plans = instances.schedules
    layout = _lay_out(operations, instances)
    step = np.full(layout.child_steps[-1], NOTHING, np.uint8)
    target = np.zeros(layout.child_steps[-1], np.int32)
    strand_of = np.full(len(kind), -1, np.int32)
    strand_of[layout.children] = operations.num_ranks + np.arange(len(layout.children), dtype=np.int32)
    if len(layout.collectives):
        _copy_schedules(
            layout.copies, np.concatenate([plan.step.astype(np.uint8) for plan in plans]),
            np.concatenate([plan.message for plan in plans]), step, target,
        )  # fmt: skip
        step[layout.first_step[layout.children]] = START_STRAND
        target[layout.first_step[layout.children]] = strand_of[layout.children]
    send_is_open = np.zeros(len(kind), np.bool_)
    send_is_open[matching.sends] = matching.send_queue >= 0
    offsets, _ = operations.completes
    any_of = np.flatnonzero(kind == OperationKind.waitany)
    candidate_offsets = _offsets(offsets[any_of + 1] - offsets[any_of])
    candidate_action = np.empty(candidate_offsets[-1], np.uint8)
    candidate_target = np.empty(candidate_offsets[-1], np.int32)
    if len(matching.sends) or offsets[-1] or len(candidate_offsets) > 1 or np.any(matching.receive_message != -1):
        _fill_steps(
            _Rows(
                kind, matching.send_message, matching.receive_message, send_is_open, strand_of, offsets,
                _completed_rows(operations), layout.first_step,
            ),
            step, target, candidate_action, candidate_target,
        )  # fmt: skip
    else:  # nothing is sent, and no kernel is compiled for it
        step[layout.first_step[:-1]] |= FIRST
        step[layout.first_step[1:] - 1] |= LAST
    blocks = instances.blocks
    rank_steps = layout.first_step[operations.rank_offsets[:-1]]
    open_parts = slice(None) if matching.num_queues else slice(0)
    sends = matching.sends[open_parts]
    return Program(
        num_ranks=operations.num_ranks,
        rank_offsets=operations.rank_offsets,
        step=step,
        target=target,
        strand_steps=np.concatenate((rank_steps, layout.child_steps)),
        strand_rank=np.concatenate((np.arange(operations.num_ranks), operations.rank[layout.children])).astype(
            np.int32
        ),
        source=np.concatenate([matching.source, *(who[plan.source] for who, plan in blocks)]),
        destination=np.concatenate([matching.destination, *(who[plan.destination] for who, plan in blocks)]),
        bytes=np.concatenate([matching.bytes, *(plan.bytes for _, plan in blocks)]),
        mode=np.concatenate(
            [matching.mode, *(np.full(len(plan.bytes), Mode.standard, np.uint8) for _, plan in blocks)]
        ),
        send_queue=matching.send_queue[open_parts],
        send_tag=operations.tag[sends],
        send_operation=(sends - operations.rank_offsets[operations.rank[sends]]).astype(np.int32),
        open_queue=matching.open_queue,
        open_source=matching.open_source,
        open_tag=matching.open_tag,
        num_queues=matching.num_queues,
        candidate_offsets=candidate_offsets,
        candidate_action=candidate_action,
        candidate_target=candidate_target,
        gate_size=instances.gate_size,
        gate_model=instances.gate_model,
        gate_bytes=instances.gate_bytes,
        calls=calls_of(instances.called),
    )


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _lay_out(operations: Operations, instances: Instances) -> _Layout:
    kind = operations.kind
    steps = _STEPS_OF_KIND[kind]
    waits = np.flatnonzero((kind == OperationKind.wait) | (kind == OperationKind.waitall))
    offsets, _ = operations.completes
    steps[waits] = np.maximum(1, offsets[waits + 1] - offsets[waits])
    collectives = instances.rows
    is_child = kind[collectives] >= NONBLOCKING_COLLECTIVES.start
    children = collectives[is_child]
    copies = np.zeros(len(collectives), _COPY)
    if len(collectives):
        plans = instances.schedules
        bounds = np.concatenate([plan.participant_offsets for plan in plans])
        first_bound = np.cumsum([0] + [len(plan.participant_offsets) for plan in plans[:-1]])
        first_step_of_plan = np.cumsum([0] + [len(plan.step) for plan in plans[:-1]])
        of = instances.schedule
        at = first_bound[of] + instances.participant
        copies["begin"] = first_step_of_plan[of] + bounds[at]
        copies["length"] = bounds[at + 1] - bounds[at]
        copies["first_message"] = instances.first_message
        steps[collectives] = np.where(is_child, 1, np.maximum(1, copies["length"]))
    first_step = _offsets(steps)
    child_steps = first_step[-1] + _offsets(copies["length"][is_child])
    copies["to"] = first_step[collectives]
    copies["to"][is_child] = child_steps[:-1]
    return _Layout(first_step, collectives, copies, children, child_steps)


_ROWS_AT_ONCE: Final = 1 << 20  # operations that are looked at together, at least


def _completed_rows(operations: Operations) -> np.ndarray:
    """Row of the operation that opened each completed request, parallel to the values of ``completes``."""
    offsets, values = operations.completes
    rows = np.empty(len(values), np.int64)
    first = 0
    while first < operations.num_ranks:
        least = operations.rank_offsets[first] + _ROWS_AT_ONCE
        end = max(first + 1, int(np.searchsorted(operations.rank_offsets, least, "right")) - 1)
        mine = slice(*(int(operations.rank_offsets[rank]) for rank in (first, end)))
        rows[offsets[mine.start] : offsets[mine.stop]] = _completed_of_ranks(operations, mine)
        first = end
    return rows


def _completed_of_ranks(operations: Operations, mine: slice) -> np.ndarray:
    """The same of whole ranks, whose operations are ``mine``."""
    offsets = operations.completes[0][mine.start : mine.stop + 1]
    values = operations.completes[1][offsets[0] : offsets[-1]]
    rank_of, request = operations.rank[mine], operations.request[mine]
    if not len(values):
        return np.empty(0, np.int64)
    rank_of = rank_of - rank_of[0]
    opened = np.flatnonzero(request >= 0)
    highest = np.zeros(int(rank_of[-1]) + 1, np.int64)
    np.maximum.at(highest, rank_of[opened], request[opened].astype(np.int64) + 1)
    per_rank = _offsets(highest)
    row_of = np.full(per_rank[-1], -1, np.int64)
    row_of[per_rank[rank_of[opened]] + request[opened]] = opened
    owner = np.repeat(np.arange(len(request)), np.diff(offsets))
    rank = rank_of[owner]
    valid = (values >= 0) & (values < highest[rank])
    rows = np.full(len(values), -1, np.int64)
    rows[valid] = row_of[per_rank[rank[valid]] + values[valid]]
    wrong = np.flatnonzero((rows < 0) | (rows >= owner))
    if len(wrong):
        raise operations.error(
            f"{operations.place(int(owner[wrong[0]]) + mine.start)} completes request {int(values[wrong[0]])}, "
            "which no earlier operation of its rank opened"
        )
    return rows + mine.start


class _Rows(NamedTuple):
    """Of each operation: its kind; the message that it sends, the one that it receives (see Matching), and whether a
    wildcard receive may take what it sends; the strand that it starts; and where its steps begin. The operations that
    opened the requests that it completes stand in ``completed``, from ``completes`` on."""

    kind: np.ndarray
    send: np.ndarray
    receive: np.ndarray
    send_is_open: np.ndarray
    strand_of: np.ndarray
    completes: np.ndarray
    completed: np.ndarray
    first_step: np.ndarray


@allocation_free
def _copy_schedules(copies, plan_step, plan_message, step, target):  # type: ignore[no-untyped-def]
    """Write the steps of collectives. O(steps)."""
    for number in range(copies.shape[0]):
        copy = copies[number]
        for k in range(copy.length):
            step[copy.to + k] = plan_step[copy.begin + k]
            target[copy.to + k] = copy.first_message + plan_message[copy.begin + k]


@allocation_free
def _fill_steps(rows, step, target, candidate_action, candidate_target):  # type: ignore[no-untyped-def]
    """Write the steps of all operations but collectives, and mark the first and last of each. O(steps)."""
    rows = by_reference(rows)
    number = candidate = np.int64(0)
    for row in range(rows.kind.shape[0]):
        place = rows.first_step[row]
        kind = rows.kind[row]
        if kind == _WAITANY:
            step[place] = WAIT_ANY
            target[place] = number
            number += 1
            candidate += _wait_for_requests(rows, row, candidate_action, candidate_target, candidate)
        elif kind == _WAIT or kind == _WAITALL:
            _wait_for_requests(rows, row, step, target, place)
        else:
            _post_and_wait(rows, row, step, target, place)
        step[place] |= FIRST
        step[rows.first_step[row + 1] - 1] |= LAST


@merged
def _post_and_wait(rows, row, step, target, place):  # type: ignore[no-untyped-def]
    """Steps of an operation that sends, receives or both, and waits for it if it is blocking."""
    kind, send, receive = rows.kind[row], rows.send[row], rows.receive[row]
    if receive != -1:
        step[place] = POST_RECEIVE if receive >= 0 else POST_OPEN_RECEIVE
        target[place] = receive if receive >= 0 else -2 - receive
        place += 1
    if send >= 0:
        step[place] = POST_OPEN_SEND if rows.send_is_open[row] else POST_SEND
        target[place] = send
        place += 1
    if receive != -1 and (kind == _RECV or kind == _SENDRECV):
        step[place] = WAIT_RECEIVE if receive >= 0 else WAIT_OPEN_RECEIVE
        target[place] = receive if receive >= 0 else -2 - receive
        place += 1
    if send >= 0 and (kind == _SEND or kind == _SSEND or kind == _BSEND or kind == _SENDRECV):
        step[place] = WAIT_SEND
        target[place] = send


@inner
def _wait_for_requests(rows, row, action, target, place):  # type: ignore[no-untyped-def]
    """Write the steps that wait for the requests that an operation completes, from ``place`` on: how many."""
    begin, end = rows.completes[row], rows.completes[row + 1]
    for k in range(begin, end):
        opened = rows.completed[k]
        at = place + k - begin
        receive = rows.receive[opened]
        if rows.strand_of[opened] >= 0:
            action[at], target[at] = WAIT_STRAND, rows.strand_of[opened]
        elif rows.send[opened] >= 0:
            action[at], target[at] = WAIT_SEND, rows.send[opened]
        elif receive >= 0:
            action[at], target[at] = WAIT_RECEIVE, receive
        elif receive <= -2:
            action[at], target[at] = WAIT_OPEN_RECEIVE, -2 - receive
        else:
            action[at], target[at] = NOTHING, 0
    return end - begin
