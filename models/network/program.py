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
from typing import Final

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.machine import CollectiveChoice
from manyscale.models.network.collectives.instances import Instances, collective_instances
from manyscale.models.network.collectives.rules import CollectiveRules
from manyscale.models.network.matching import Matching, Mode, match
from manyscale.models.network.operation_graph import OperationGraph, graph_of_dependencies, is_ordered
from manyscale.models.network.operations import Operations
from manyscale.models.network.replay.steps import (
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
    order (``graph_is_ordered``), there is nothing else: no steps.
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

    def __post_init__(self) -> None:
        for value in self.__dict__.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    @property
    def num_messages(self) -> int:
        return len(self.source)

    @property
    def num_bytes(self) -> int:
        """Memory of all arrays."""
        own = sum(value.nbytes for value in self.__dict__.values() if isinstance(value, np.ndarray))
        return own + (self.graph.num_bytes if self.graph is not None else 0)


def build_program(workload: Workload, collectives: CollectiveChoice, *, keep_graph: bool = False) -> Program:
    """The program of a workload under a preset of collective algorithms, or rules that choose them (as a network has
    them: Network.collectives).

    A workload whose operations are a graph that no order of each rank's stands for is refused, unless ``keep_graph``:
    for models that replay graphs. Raises WorkloadError, naming rank and operation, also for sends and receives that do
    not match, for collectives that the ranks call in different order, and for requests that are not open; ValueError
    for an unknown preset.
    """
    rules = CollectiveRules.model_validate(collectives)
    operations = Operations(workload)
    if not workload.tables["dependencies"].num_rows:
        matching = match(operations, workload)
        return _assemble(operations, matching, collective_instances(operations, rules, len(matching.sends)))
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
    """Where the steps of each operation go: from ``first_step`` on. Of a collective, ``length`` steps from ``begin`` of
    all schedules' steps, copied there, or for a non-blocking one (``children``) to ``child_steps`` of ``strand_of``."""

    first_step: np.ndarray
    begin: np.ndarray
    length: np.ndarray
    children: np.ndarray
    child_steps: np.ndarray
    strand_of: np.ndarray


def _assemble(operations: Operations, matching: Matching, instances: Instances) -> Program:
    kind = operations.kind
    plans = instances.schedules
    layout = _lay_out(operations, instances)
    step = np.empty(layout.child_steps[-1], np.uint8)
    target = np.empty(layout.child_steps[-1], np.int32)
    send_is_open = np.zeros(len(kind), np.bool_)
    send_is_open[matching.sends] = matching.send_queue >= 0
    offsets, _ = operations.completes
    any_rows = np.flatnonzero(kind == OperationKind.waitany)
    any_number = np.full(len(kind), -1, np.int32)
    any_number[any_rows] = np.arange(len(any_rows), dtype=np.int32)
    candidate_offsets = _offsets(np.diff(offsets)[any_rows])
    candidate_action = np.empty(candidate_offsets[-1], np.uint8)
    candidate_target = np.empty(candidate_offsets[-1], np.int32)
    _fill_steps(
        kind, matching.send_message, matching.receive_message, send_is_open, offsets, _completed_rows(operations),
        layout.first_step, instances.first_message, layout.begin, layout.length, layout.strand_of, layout.child_steps,
        np.concatenate([np.empty(0, np.uint8), *(plan.step.astype(np.uint8) for plan in plans)]),
        np.concatenate([np.empty(0, np.int32), *(plan.message for plan in plans)]),
        any_number, candidate_offsets, candidate_action, candidate_target, step, target,
    )  # fmt: skip
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
    )


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


def _lay_out(operations: Operations, instances: Instances) -> _Layout:
    kind = operations.kind
    steps = np.ones(len(kind), np.int64)
    steps[np.isin(kind, (OperationKind.send, OperationKind.ssend, OperationKind.bsend, OperationKind.recv))] = 2
    steps[kind == OperationKind.sendrecv] = 4
    waits = np.isin(kind, (OperationKind.wait, OperationKind.waitall))
    steps[waits] = np.maximum(1, np.diff(operations.completes[0])[waits])
    begin = np.zeros(len(kind), np.int64)
    length = np.zeros(len(kind), np.int64)
    collective = np.flatnonzero(instances.schedule_of >= 0)
    is_child = (kind >= NONBLOCKING_COLLECTIVES.start)[collective]
    if len(collective):
        plans = instances.schedules
        bounds = np.concatenate([plan.participant_offsets for plan in plans])
        first_bound = np.cumsum([0] + [len(plan.participant_offsets) for plan in plans[:-1]])
        first_step_of_plan = np.cumsum([0] + [len(plan.step) for plan in plans[:-1]])
        of = instances.schedule_of[collective]
        at = first_bound[of] + instances.participant[collective]
        begin[collective] = first_step_of_plan[of] + bounds[at]
        length[collective] = bounds[at + 1] - bounds[at]
        steps[collective] = np.where(is_child, 1, np.maximum(1, length[collective]))
    first_step = _offsets(steps)
    children = collective[is_child]
    strand_of = np.full(len(kind), -1, np.int32)
    strand_of[children] = operations.num_ranks + np.arange(len(children), dtype=np.int32)
    return _Layout(first_step, begin, length, children, first_step[-1] + _offsets(length[children]), strand_of)


def _completed_rows(operations: Operations) -> np.ndarray:
    """Row of the operation that opened each completed request, parallel to the values of ``completes``."""
    offsets, values = operations.completes
    rank_of, request = operations.rank, operations.request
    opened = np.flatnonzero(request >= 0)
    highest = np.zeros(operations.num_ranks, np.int64)
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
            f"{operations.place(int(owner[wrong[0]]))} completes request {int(values[wrong[0]])}, "
            "which no earlier operation of its rank opened"
        )
    return rows


@njit(cache=True, nogil=True)
def _fill_steps(  # type: ignore[no-untyped-def]
    kind, send_message, receive_message, send_is_open, completes_offsets, completed_rows, first_step, first_message,
    begin, length, strand_of, child_steps, plan_step, plan_message, any_number, candidate_offsets, candidate_action,
    candidate_target, step, target,
):  # fmt: skip
    """Write the steps of every operation. O(steps)."""
    child = 0
    for row in range(kind.shape[0]):
        place = first_step[row]
        end = first_step[row + 1]
        what = kind[row]
        send = send_message[row]
        receive = receive_message[row]
        if strand_of[row] >= 0:
            step[place] = START_STRAND
            target[place] = strand_of[row]
            at = child_steps[child]
            child += 1
            for k in range(length[row]):
                step[at + k] = plan_step[begin[row] + k]
                target[at + k] = first_message[row] + plan_message[begin[row] + k]
            place += 1
        elif length[row] > 0:
            for k in range(length[row]):
                step[place + k] = plan_step[begin[row] + k]
                target[place + k] = first_message[row] + plan_message[begin[row] + k]
            place += length[row]
        elif what == _WAITANY:
            number = any_number[row]
            step[place] = WAIT_ANY
            target[place] = number
            for k in range(completes_offsets[row], completes_offsets[row + 1]):
                other = completed_rows[k]
                action, message = _wait_for(other, strand_of, send_message, receive_message)
                at = candidate_offsets[number] + k - completes_offsets[row]
                candidate_action[at] = action
                candidate_target[at] = message
            place += 1
        elif what == _WAIT or what == _WAITALL:
            for k in range(completes_offsets[row], completes_offsets[row + 1]):
                action, message = _wait_for(completed_rows[k], strand_of, send_message, receive_message)
                step[place] = action
                target[place] = message
                place += 1
        else:
            if receive != -1:
                step[place] = POST_RECEIVE if receive >= 0 else POST_OPEN_RECEIVE
                target[place] = receive if receive >= 0 else -2 - receive
                place += 1
            if send >= 0:
                step[place] = POST_OPEN_SEND if send_is_open[row] else POST_SEND
                target[place] = send
                place += 1
            if (what == _RECV or what == _SENDRECV) and receive != -1:
                step[place] = WAIT_RECEIVE if receive >= 0 else WAIT_OPEN_RECEIVE
                target[place] = receive if receive >= 0 else -2 - receive
                place += 1
            if (what == _SEND or what == _SSEND or what == _BSEND or what == _SENDRECV) and send >= 0:
                step[place] = WAIT_SEND
                target[place] = send
                place += 1
        while place < end:
            step[place] = NOTHING
            target[place] = 0
            place += 1
        step[first_step[row]] |= FIRST
        step[end - 1] |= LAST


@njit(cache=True, nogil=True)
def _wait_for(row, strand_of, send_message, receive_message):  # type: ignore[no-untyped-def]
    """The step that waits for the request opened by operation ``row``: (action, target)."""
    if strand_of[row] >= 0:
        return WAIT_STRAND, strand_of[row]
    if send_message[row] >= 0:
        return WAIT_SEND, send_message[row]
    if receive_message[row] >= 0:
        return WAIT_RECEIVE, receive_message[row]
    if receive_message[row] <= -2:
        return WAIT_OPEN_RECEIVE, -2 - receive_message[row]
    return NOTHING, np.int32(0)
