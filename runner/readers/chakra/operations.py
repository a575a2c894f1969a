"""The operations of one rank from its nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind
from manyscale.models.workload.quantities import PS_PER_SECOND
from manyscale.runner.errors import UserError
from manyscale.runner.readers.chakra import order as in_order
from manyscale.runner.readers.chakra.groups import ROOTED, Groups
from manyscale.runner.readers.chakra.nodes import Node, RankNodes, columns
from manyscale.runner.readers.chakra.schemas import COLLECTIVE, COMPUTE, LOAD, RECEIVE, SEND, STORE
from manyscale.runner.readers.stream_tables import RankRows, blank, rank_rows

_K: Final = OperationKind
_G: Final = GpuOperationKind
# Guesses, which decide nothing but an order where the trace tells none: flop/s, bytes/s of memory and of a network, and
# the seconds that any communication takes
_FLOPS, _MEMORY, _NETWORK, _LATENCY = 1e14, 1e12, 1e11, 1e-5
_COPIES: Final = (
    (re.compile(r"memcpy h(ost)?\s*to\s*d|memcpy htod", re.IGNORECASE), _G.copy_to_device),
    (re.compile(r"memcpy d(evice)?\s*to\s*h|memcpy dtoh", re.IGNORECASE), _G.copy_to_host),
    (re.compile(r"memcpy (d(evice)?\s*to\s*d|dtod|p\s*to\s*p|ptop)", re.IGNORECASE), _G.copy_on_device),
    (re.compile(r"memset", re.IGNORECASE), _G.set),
)
_WAIT, _OWN, _COMPLETE, _TELL = range(4)  # order of the rows of one node


@dataclass
class Kernels:
    """Rows of ``kernels``: (name, flops, bytes) of each, -1 for what is not told; the places of regions by name."""

    number: dict[tuple[str, float, float], int] = field(default_factory=dict)
    region: dict[str, int] = field(default_factory=dict)

    def of(self, node: Node) -> int:
        return self.number.setdefault((node.name, node.flops, node.bytes), len(self.number))


@dataclass
class Counts:
    """What is assumed of nodes, in numbers."""

    zero: int = 0  # kernels and copies that take 0 us
    twins: int = 0  # collectives of threads
    typeless: int = 0  # communications that tell no type, size or partner
    partnerless: int = 0  # messages whose partner has no trace
    rootless: int = 0
    missing: int = 0  # parents that are in no node
    without_stream: int = 0
    memory: int = 0
    early: int = 0  # receives that do not wait for sends
    ordered: int = 0  # collectives that wait for kernels before them by assumption
    shaped: int = 0  # kernels whose operations and bytes are told and not their time


@dataclass
class RankMade:
    """``rows``; ``collectives``: (communicator, row, node) of each in its order; ``sends`` and ``receives``: (partner,
    tag, row)."""

    rows: RankRows
    collectives: list[tuple[int, int, Node]]
    sends: list[tuple[int, int]]
    receives: list[tuple[int, int]]


def rank_operations(
    rank: int, trace: RankNodes, places: dict[int, int], groups: Groups, kernels: Kernels, counts: Counts
) -> RankMade:
    """``places`` of ranks that have traces. Raises UserError for nodes that require each other."""
    nodes = trace.nodes
    column = columns(nodes, trace.metadata)
    counts.missing += int(column["missing"].sum())
    counts.twins += sum(node.is_cpu and node.type == COLLECTIVE for node in nodes)
    partner = np.array([_partner(node, places, counts) for node in nodes], np.int64)
    lane, streams = _lanes(rank, nodes, column["is_cpu"] != 0, partner, groups, counts)
    threads = int(lane.max() + 1) - len(streams)
    is_cpu = column["is_cpu"] != 0
    is_launched = ~is_cpu & is_cpu.any()
    first_parent, parent = _without_sends(column, counts)
    if not len(parent) and not is_launched.any():  # nothing waits for anything: no kernel is needed
        nothing = np.zeros(0, np.int64)
        return _rows(
            rank, nodes, is_cpu, np.arange(len(nodes)), np.zeros(len(nodes), np.int64), streams, lane - threads,
            threads, partner, nothing, nothing, groups, kernels, counts,
        )  # fmt: skip
    order = np.empty(len(nodes), np.int64)
    guess = np.where(column["duration"] > 0, column["duration"], [_guess(node) for node in nodes]).astype(np.int64)
    done = in_order.dispatch(lane, guess, is_launched, is_cpu, first_parent, parent, order)
    if done < len(nodes):
        raise UserError(_cycle(trace, nodes, order[:done]))
    communicates = np.array([node.type in (COLLECTIVE, SEND, RECEIVE) and not node.is_cpu for node in nodes], np.bool_)
    if is_launched.any() and not (~is_cpu[parent]).any():
        first_parent, parent, added = _behind_kernels(order, communicates, ~is_cpu, first_parent, parent)
        counts.ordered += added
    thread, is_needed = np.zeros(len(nodes), np.int64), np.zeros(len(parent), np.uint8)
    in_order.needed(lane, is_cpu, first_parent, parent, order, thread, is_needed)
    waits = np.flatnonzero(is_needed)
    waiting = (np.searchsorted(first_parent, waits, "right") - 1).astype(np.int64)
    return _rows(
        rank, nodes, is_cpu, order, thread, streams, lane - threads, threads, partner, waiting, parent[waits], groups,
        kernels, counts,
    )  # fmt: skip


def _partner(node: Node, places: dict[int, int], counts: Counts) -> int:
    """Of a message: the place of the rank at the other end; -1 for what is none or has none."""
    if node.is_cpu or node.type not in (SEND, RECEIVE):
        return -1
    other = places.get(node.destination if node.type == SEND else node.source, -1)
    counts.partnerless += other < 0
    return other


def _lanes(
    rank: int, nodes: Sequence[Node], is_cpu: np.ndarray, partner: np.ndarray, groups: Groups, counts: Counts
) -> tuple[np.ndarray, np.ndarray]:
    """The lane of each node, int64[nodes], threads first (at least one), and the numbers of the streams behind them.
    Where a node tells no stream: kernels have one, each process group, and messages one to and one from each other
    rank, which no order between them blocks."""
    thread: dict[int, int] = {}
    stream: dict[tuple[str, int], int] = {}
    for at, node in enumerate(nodes):
        if is_cpu[at]:
            thread.setdefault(node.lane, len(thread))
            continue
        stream.setdefault(_stream(rank, node, int(partner[at]), groups), len(stream))
        counts.without_stream += node.lane < 0
    threads = max(1, len(thread))
    lane = np.array(
        [thread[node.lane] if is_cpu[at] else threads + stream[_stream(rank, node, int(partner[at]), groups)]
         for at, node in enumerate(nodes)], np.int64)  # fmt: skip
    top = max((number for kind, number in stream if kind == "told"), default=0)
    others = [key for key in stream if key[0] != "told"]
    number = {key: key[1] if key[0] == "told" else top + 1 + others.index(key) for key in stream}
    return lane, np.array([number[key] for key in stream], np.int64)


def _stream(rank: int, node: Node, partner: int, groups: Groups) -> tuple[str, int]:
    if node.lane >= 0:
        return "told", node.lane
    if node.type == COLLECTIVE:
        return "group", groups.number.get((rank, node.group), 0)
    if node.type in (SEND, RECEIVE):
        return ("sends" if node.type == SEND else "receives"), partner
    return ("memory" if node.type in (LOAD, STORE) else "kernels"), 0


def _guess(node: Node) -> int:
    """Picoseconds that a node whose time is not told may take."""
    if node.is_cpu:
        return 0
    if node.type in (COLLECTIVE, SEND, RECEIVE):
        return round((_LATENCY + max(node.size, 0) / _NETWORK) * PS_PER_SECOND)
    return round(min(max(0.0, node.flops / _FLOPS, node.bytes / _MEMORY), 1e6) * PS_PER_SECOND)


def _without_sends(column: dict[str, np.ndarray], counts: Counts) -> tuple[np.ndarray, np.ndarray]:
    """Parents without sends that receives require: a send of NCCL's may wait for its receiver, and ranks that send to
    each other in a ring before they receive would wait for ever. Such a receive is posted early."""
    first, parent, kind = column["first_parent"], column["parent"], column["type"]
    child = np.repeat(np.arange(len(kind)), np.diff(first))
    left_out = (kind[child] == RECEIVE) & (kind[parent] == SEND)
    if not left_out.any():
        return first, parent
    counts.early += len(np.unique(child[left_out]))
    kept = child[~left_out]
    return np.concatenate(([0], np.cumsum(np.bincount(kept, minlength=len(kind))))).astype(np.int64), parent[~left_out]


def _behind_kernels(
    order: np.ndarray, communicates: np.ndarray, of_gpu: np.ndarray, first_parent: np.ndarray, parent: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Parents with the kernel before each communication, and how many were added: PyTorch's process groups have their
    stream wait for all that was launched before (ProcessGroupNCCL: syncStream), which linked traces lose."""
    step = np.arange(len(order))
    last = np.maximum.accumulate(np.where((of_gpu & ~communicates)[order], step, -1))
    mine = communicates[order] & (last >= 0)
    child, before = order[mine], order[last[mine]]
    every = np.concatenate((np.repeat(np.arange(len(order)), np.diff(first_parent)), child))
    sorted_by = np.argsort(every, kind="stable")
    bounds = np.concatenate(([0], np.cumsum(np.bincount(every, minlength=len(order))))).astype(np.int64)
    return bounds, np.concatenate((parent, before))[sorted_by], len(child)


def _cycle(trace: RankNodes, nodes: Sequence[Node], done: np.ndarray) -> str:
    left = np.setdiff1d(np.arange(len(nodes)), done)
    names = ", ".join(str(nodes[at].id) for at in left[:6].tolist())
    return (
        f"{trace.file.path}: {len(left)} nodes require each other, or nodes that do, among them {names}; take one of "
        "their dependencies out"
    )


def _rows(
    rank: int, nodes: Sequence[Node], is_cpu: np.ndarray, order: np.ndarray, thread: np.ndarray, streams: np.ndarray,
    stream_at: np.ndarray, threads: int, partner: np.ndarray, waiting: np.ndarray, awaited: np.ndarray, groups: Groups,
    kernels: Kernels, counts: Counts,
) -> RankMade:  # fmt: skip
    """Rows in the order of nodes: what a node waits for, itself, and what tells others that it has ended."""
    place = np.empty(len(nodes), np.int64)
    place[order] = np.arange(len(nodes))
    is_told = np.zeros(len(nodes), bool)
    is_told[awaited] = True
    told = np.flatnonzero(is_told)
    event = np.zeros(len(nodes), np.int64)
    event[told] = np.arange(1, len(told) + 1)
    given = order[~is_cpu[order]]
    messages = given[partner[given] >= 0]
    subject = np.concatenate((waiting, given, messages, told))
    part = np.repeat((_WAIT, _OWN, _COMPLETE, _TELL), (len(waiting), len(given), len(messages), len(told)))
    other = np.concatenate((awaited, given, messages, told))
    sorted_by = np.argsort(place[subject] * 4 + part, kind="stable")
    subject, part, other = subject[sorted_by], part[sorted_by], other[sorted_by]
    count = len(subject)
    first, ends = 1, 2 * (threads - 1) + 2
    rows = blank(first + count + ends)
    body = rows[first : first + count]
    body["thread"] = thread[subject]
    body["stream"] = np.where(is_cpu[subject], 0, streams[np.where(is_cpu[subject], 0, stream_at[subject])]
                              if len(streams) else 0)  # fmt: skip
    body["flags"] = np.where(is_cpu[subject], 0, int(GpuFlag.non_blocking))
    is_wait, is_tell = part == _WAIT, part == _TELL
    body["event"] = np.where(is_wait | is_tell, event[other], 0)
    kind = np.where(is_cpu[subject], int(_G.synchronize_event), int(_G.wait_event))
    kind = np.where(is_cpu[other], int(_G.await_thread), kind)
    body["gpu_kind"][is_wait] = kind[is_wait]
    body["gpu_kind"][is_tell] = np.where(is_cpu[other[is_tell]], int(_G.signal_thread), int(_G.record_event))
    of_threads = (body["gpu_kind"] == int(_G.await_thread)) | (body["gpu_kind"] == int(_G.signal_thread))
    for name in ("stream", "flags"):
        body[name][of_threads] = 0
    collectives: list[tuple[int, int, Node]] = []
    sends: list[tuple[int, int]] = []
    receives: list[tuple[int, int]] = []
    for at in np.flatnonzero(part == _OWN).tolist():
        node, row = nodes[subject[at]], first + at
        _fill(rows[row], rank, node, int(partner[subject[at]]), row, groups, kernels, counts)
        if node.collective is not None and rows[row]["gpu_kind"] == _G.communication:
            collectives.append((int(rows[row]["communicator"]), row, node))
        elif rows[row]["gpu_kind"] == _G.communication:
            (sends if node.type == SEND else receives).append((int(partner[subject[at]]), node.tag))
    completing = np.flatnonzero(part == _COMPLETE)
    body["kind"][completing] = int(_K.waitall)
    body["completes"][completing] = body["request"][completing - 1]
    body["stream"][completing] = body["flags"][completing] = 0
    _finish(rows, first + count, threads, int(event.max(initial=0)))
    phases = _phases(nodes, is_cpu, place, rows, first, count, subject, part, kernels)
    return RankMade(rank_rows(rows, *phases), collectives, sends, receives)


def _finish(rows: np.ndarray, at: int, threads: int, last_event: int) -> None:
    """The end of the rank: the first thread waits for the others, and for all streams."""
    for number in range(1, threads):
        signal, wait = rows[at + number - 1], rows[at + threads - 2 + number]
        signal["thread"], signal["event"], signal["gpu_kind"] = number, last_event + number, int(_G.signal_thread)
        wait["event"], wait["gpu_kind"] = last_event + number, int(_G.await_thread)
    rows[-2]["gpu_kind"] = int(_G.synchronize_device)


def _phases(
    nodes: Sequence[Node], is_cpu: np.ndarray, place: np.ndarray, rows: np.ndarray, first: int, count: int,
    subject: np.ndarray, part: np.ndarray, kernels: Kernels,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """(row behind, region, picoseconds) of the nodes of threads that take time."""
    key = np.full(len(rows), 4 * len(nodes), np.int64)
    key[:first] = -1
    key[first : first + count] = 4 * place[subject] + part
    lasting = np.array([at for at, node in enumerate(nodes) if node.is_cpu and node.duration_ps > 0], np.int64)
    lanes: dict[int, int] = {}
    for node in nodes:
        if node.is_cpu:
            lanes.setdefault(node.lane, len(lanes))
    thread_of = np.array([lanes[nodes[at].lane] for at in lasting.tolist()], np.int64)
    behind = np.zeros(len(lasting), np.int64)
    for number in range(len(lanes)):
        mine = np.flatnonzero(rows["thread"] == number)
        chosen = thread_of == number
        behind[chosen] = mine[np.searchsorted(key[mine], 4 * place[lasting[chosen]] + _OWN, "right")]
    region = np.array([kernels.region.setdefault(nodes[at].name, len(kernels.region)) for at in lasting.tolist()],
                      np.int64)  # fmt: skip
    took = np.array([nodes[at].duration_ps for at in lasting.tolist()], np.int64)
    sorted_by = np.argsort(place[lasting], kind="stable")
    return behind[sorted_by], region[sorted_by], took[sorted_by]


def _fill(
    row: np.void, rank: int, node: Node, partner: int, number: int, groups: Groups, kernels: Kernels, counts: Counts
) -> None:
    """What a node of a stream is."""
    row["gpu_kind"] = int(_G.launch)
    row["duration_ps"] = node.duration_ps
    if node.type in (LOAD, STORE):
        counts.memory += 1
        row["gpu_kind"] = int(_G.copy_to_device if node.type == LOAD else _G.copy_to_host)
        row["gpu_bytes"] = max(0, int(node.bytes))
        row["duration_ps"] = node.duration_ps or -1
        return
    if node.type == COMPUTE:
        copy = next((kind for pattern, kind in _COPIES if pattern.match(node.name)), None)
        if copy is not None:
            row["gpu_kind"] = int(copy)
            row["gpu_bytes"] = max(0, int(node.bytes))
            if not node.duration_ps:
                row["duration_ps"] = -1 if node.bytes > 0 else 0
                counts.zero += node.bytes <= 0
            return
        row["kernel"] = kernels.of(node)
        is_shaped = node.flops >= 0 or node.bytes >= 0
        if not node.duration_ps:
            row["duration_ps"] = -1 if is_shaped else 0
            counts.shaped += is_shaped
            counts.zero += not is_shaped
        return
    if node.size < 0 or (node.collective is None and partner < 0):
        is_known = node.type != COLLECTIVE and node.size >= 0  # told as one without partner
        counts.typeless += not is_known
        row["kernel"] = kernels.of(node)
        return
    row["gpu_kind"] = int(_G.communication)
    row["duration_ps"] = node.duration_ps or -1
    if node.collective is None:
        row["kind"] = int(_K.isend if node.type == SEND else _K.irecv)
        row["peer"], row["tag"], row["request"] = partner, node.tag, number
        row["bytes" if node.type == SEND else "receive_bytes"] = node.size
        return
    communicator = groups.number.get((rank, node.group), 0)
    row["kind"], row["communicator"] = int(node.collective), communicator
    if node.collective in ROOTED:
        counts.rootless += node.root < 0
        row["peer"] = groups.root(communicator, node.root)


def with_sizes(made: RankMade, members: Sequence[int]) -> None:
    """Bytes of collectives, as OPERATIONS_SCHEMA has them, from those of nodes: the whole input of a rank; of an
    all-gather its part. ``members``: how many each communicator has, those of which there is no trace among them."""
    for communicator, number, node in made.collectives:
        count, size, row = members[communicator], node.size, made.rows.rows[number]
        part = -(-size // count)
        sent, received = size, size
        if node.collective in (_K.alltoall, _K.scatter):
            sent = received = part
        elif node.collective == _K.reduce_scatter:
            sent, received = 1, part
        elif node.collective == _K.barrier:
            sent = received = 0
        row["bytes"], row["receive_bytes"] = sent, received
