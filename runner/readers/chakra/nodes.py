"""The nodes of one rank's file as columns."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import IO, Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from manyscale.models.workload import OperationKind
from manyscale.models.workload.quantities import MOST_PS
from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream
from manyscale.runner.readers.bounds import finite, whole
from manyscale.runner.readers.chakra import schemas
from manyscale.runner.readers.chakra.files import TraceFile, varint
from manyscale.runner.readers.chakra.schemas import COLLECTIVE, COMPUTE, METADATA, RECEIVE, SEND, Schema

_MOST_MESSAGE: Final = 1 << 28  # bytes of a node: protobuf takes 2 GiB, but none is real
_TRIED: Final = 64  # nodes by which the schema is told
_MOST_NUMBER: Final = 2**63 - 1
_MOST_AMOUNT: Final = 2.0**60  # bytes or operations of a node
_NUMBERS: Final = ("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "root_rank", "tensor_size", "num_ops",
                   "tid", "stream", "runtime", "communicator_id")  # fmt: skip
_KNOWN: Final = frozenset((*_NUMBERS, "is_cpu_op", "pg_name"))
_OF_KERNEL: Final = (  # NCCL's kernels by their names, where a node tells no type
    ("allreduce", OperationKind.allreduce), ("all_reduce", OperationKind.allreduce),
    ("reducescatter", OperationKind.reduce_scatter), ("reduce_scatter", OperationKind.reduce_scatter),
    ("allgather", OperationKind.allgather), ("all_gather", OperationKind.allgather),
    ("alltoall", OperationKind.alltoall), ("all_to_all", OperationKind.alltoall),
    ("broadcast", OperationKind.bcast), ("barrier", OperationKind.barrier), ("reduce", OperationKind.reduce),
)  # fmt: skip


@dataclass(slots=True)
class Node:
    """A node. ``collective``: its kind, None for no collective, or one that tells none; ``lane``: its thread or stream,
    -1 where it tells none; ``group``: the name of its process group. Sizes are -1 where they are not told."""

    id: int
    name: str
    type: int
    is_cpu: bool
    duration_ps: int
    start: int
    parents: tuple[int, ...]
    lane: int = -1
    collective: OperationKind | None = None
    size: int = -1
    source: int = -1
    destination: int = -1
    tag: int = 0
    root: int = -1
    group: str = ""
    flops: float = -1.0
    bytes: float = -1.0


@dataclass
class RankNodes:
    """What a file holds. ``groups``: members of process groups by name, of nodes that tell them. ``without_value``:
    attributes that have none, by name; ``metadata``: numbers of nodes that do nothing; ``is_newer``: nodes have fields
    that no schema has."""

    file: TraceFile
    schema: str
    nodes: list[Node] = field(default_factory=list)
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    without_value: Counter[str] = field(default_factory=Counter)
    metadata: set[int] = field(default_factory=set)
    is_newer: bool = False
    run_time_is_assumed: bool = False


def read_nodes(file: TraceFile) -> RankNodes:
    """The nodes of a file, in its order. Raises UserError with file, and byte or node."""
    found = _read_json(file) if file.is_json else _read_protobuf(file)
    if not found.nodes:
        raise UserError(f"{file.path}: the trace has no node; write it again")
    seen: set[int] = set()
    for node in found.nodes:
        if node.id in seen:
            raise UserError(f"{file.path}: node {node.id} stands there twice; write the trace again")
        seen.add(node.id)
    if sum(node.duration_ps for node in found.nodes) > MOST_PS:
        raise UserError(f"{file.path}: the nodes take more than 53 days in all; write the trace again")
    return found


def _read_protobuf(file: TraceFile) -> RankNodes:
    with guarded(file.path), open_stream(file.path) as stream:
        messages = _messages(file, stream)
        try:
            _, first = next(messages)
        except StopIteration:
            raise UserError(f"{file.path}: the file is empty; copy or write the trace again") from None
        head = [(0, first)] if first[:1] == b"\x08" else []  # a node's number, which no metadata begins with
        for place, content in messages:
            head.append((place, content))
            if len(head) == _TRIED:
                break
        schema, is_known = _schema_of(file, head, has_metadata=head[:1] != [(0, first)])
        found = RankNodes(file, schema.name, is_newer=not is_known)
        made = schemas.node_class(*schemas.key(schema))
        for place, content in (*head, *messages):
            _add(found, schema, made, content, f"{file.path}: byte {place}")
    return found


def _messages(file: TraceFile, stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """(place, content) of each message of a file: its length as a varint stands before it."""
    place = 0
    while head := stream.read(1):
        while head[-1] & 128 and len(head) < 10 and (more := stream.read(1)):
            head += more
        length, _ = varint(head, 0)
        if length is None or length > _MOST_MESSAGE:
            raise UserError(f"{file.path}: byte {place}: no length of a message stands here; is it a Chakra trace?")
        content = stream.read(length)
        if len(content) < length:
            left = f"a message of {length} bytes begins here, but only {len(content)} are left"
            raise UserError(f"{file.path}: byte {place}: {left}; the file was cut short: copy it again")
        yield place, content
        place += len(head) + length


def _schema_of(file: TraceFile, head: list[tuple[int, bytes]], *, has_metadata: bool) -> tuple[Schema, bool]:
    """The first schema whose fields are those of the nodes that a file begins with; else the latest, and False."""
    tried = schemas.WITH_METADATA if has_metadata else schemas.WITHOUT
    for schema in tried:
        made = schemas.node_class(*schemas.key(schema))
        try:
            if all(schema.fits(made.FromString(content)) for _, content in head):
                return schema, True
        except DecodeError:
            continue
    if has_metadata:
        return schemas.WITH_METADATA[0], False  # what is damaged is told in its place
    raise UserError(f"{file.path}: byte {head[0][0]}: the nodes are of no schema of Chakra's from 0.0.1 to 0.0.4")


def _add(found: RankNodes, schema: Schema, made: Any, content: bytes, place: str) -> None:
    try:
        message = made.FromString(content)
    except DecodeError:
        raise UserError(f"{place}: this is no node of Chakra's; the file is damaged: copy or write it again") from None
    values: dict[str, object] = {}
    if schema.attribute:
        for attribute in message.attribute:
            name = attribute.name.decode(errors="replace")
            if name not in _KNOWN:
                continue
            value = schema.value(attribute)
            if value is None:
                found.without_value[name] += 1
            else:
                values[name] = value
    else:
        values = {name: getattr(message, name) for name in schemas.PLAIN_1 if message.HasField(name)}
    kind = schema.types.get(message.type)
    if kind is None:
        raise UserError(f"{place}: node {message.id} has type {message.type}, which schema {schema.name} does not know")
    if kind == METADATA:
        found.metadata.add(message.id)
        if schema.name == "0.0.4":
            found.groups |= _groups(message.inputs.values)
        return
    name = message.name.decode(errors="replace")
    has_time = schema.name == "0.0.4"
    run_time = message.duration_micros if has_time else _whole(values, "runtime", place, 0)
    found.run_time_is_assumed |= not has_time and run_time > 0
    head = Node(
        id=message.id, name=name, type=kind, is_cpu=_is_true(values.get("is_cpu_op"), place),
        duration_ps=_duration(run_time, schema.run_time_ps, place), start=message.start_time_micros if has_time else 0,
        parents=tuple(message.data_deps),
    )  # fmt: skip
    found.nodes.append(_with_values(head, values, schema.collectives, place))


def _read_json(file: TraceFile) -> RankNodes:
    try:
        with guarded(file.path), open_stream(file.path) as stream:
            content = json.loads(stream.read())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file.path}: this is no JSON ({error}); copy or write the trace again") from None
    nodes = content.get("workload_graph") if isinstance(content, dict) else None
    if not isinstance(nodes, list):
        raise UserError(f"{file.path}: has no list workload_graph of nodes; is it Chakra's JSON form?")
    found = RankNodes(file, "JSON")
    for number, each in enumerate(nodes):
        place = f"{file.path}: node {number} of workload_graph"
        if not isinstance(each, dict):
            raise UserError(f"{place}: this is no node; write the trace again")
        parents = each.get("data_deps", [])
        if not isinstance(parents, list):
            raise UserError(f"{place}: data_deps is no list; write the trace again")
        kind = whole(each.get("NodeType"), place, "NodeType", 0, 7)
        if kind in (0, METADATA):
            found.metadata.add(whole(each.get("Id"), place, "Id"))
            continue
        values = {name: value for name, value in each.items() if name in _KNOWN}
        head = Node(
            id=whole(each.get("Id"), place, "Id"), name=str(each.get("Name", "")), type=kind,
            is_cpu=_is_true(values.get("is_cpu_op"), place),
            duration_ps=_duration(_whole(values, "runtime", place, 0), 1_000_000, place), start=0,
            parents=tuple(whole(parent, place, "data_deps") for parent in parents),
        )  # fmt: skip
        found.nodes.append(_with_values(head, values, schemas.COLLECTIVES_NOW, place))
    return found


def _with_values(
    node: Node, values: Mapping[str, object], collectives: Mapping[int, OperationKind], place: str
) -> Node:
    """With what attributes say."""
    node.lane = _whole(values, "tid", place, -1) if node.is_cpu else -1
    if not node.is_cpu:
        node.lane = _whole(values, "stream", place, _whole(values, "tid", place, -1))
    node.group = _text(values.get("pg_name", ""))
    if not node.group and (number := _whole(values, "communicator_id", place, 0)):
        node.group = str(number)
    if node.type in (COLLECTIVE, SEND, RECEIVE):
        node.size = _whole(values, "comm_size", place, -1, int(_MOST_AMOUNT))
        node.source, node.destination = (_whole(values, name, place, -1) for name in ("comm_src", "comm_dst"))
        node.tag = _whole(values, "comm_tag", place, 0) & 0x7FFFFFFF
        node.root = _whole(values, "root_rank", place, -1)
    if node.type == COLLECTIVE and not node.is_cpu:
        number = _whole(values, "comm_type", place, -1)
        node.collective = collectives.get(number) if number >= 0 else _of_name(node.name)
        if number >= 0 and node.collective is None:
            raise UserError(f"{place}: node {node.id} is a collective of type {number}, which Chakra does not have")
        if node.collective == OperationKind.barrier:
            node.size = max(node.size, 0)
    elif node.type != COLLECTIVE:
        node.bytes = _number(values, "tensor_size", place)
        if node.type == COMPUTE:
            node.flops = _number(values, "num_ops", place)
    return node


def _of_name(name: str) -> OperationKind | None:
    low = name.lower()
    return next((kind for word, kind in _OF_KERNEL if word in low), None)


def _whole(values: Mapping[str, object], name: str, place: str, default: int, most: int = _MOST_NUMBER) -> int:
    value = values.get(name)
    if value is None:
        return default
    if isinstance(value, bool):
        return int(value)
    return whole(value, place, name, -1, most)


def _number(values: Mapping[str, object], name: str, place: str) -> float:
    value = values.get(name)
    return -1.0 if value is None else finite(value, place, name, 0.0, _MOST_AMOUNT)


def _is_true(value: object, place: str) -> bool:
    """is_cpu_op, in whatever type: STG writes int32, converters bool. A node that does not tell is the GPU's."""
    return value is not None and (
        bool(value) if isinstance(value, bool) else whole(value, place, "is_cpu_op", 0, 1) > 0
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _duration(number: int, unit_ps: int, place: str) -> int:
    duration = max(number, 0) * unit_ps
    if duration > MOST_PS:
        raise UserError(f"{place}: a node of {number} x {unit_ps} ps takes more than 53 days; write the trace again")
    return duration


def _groups(values: bytes) -> dict[str, tuple[int, ...]]:
    """Process groups, as PyTorch writes them into an input of a node; none where the node says something else. One
    without ranks has all: it is left out."""
    text = values.decode(errors="replace")
    start = re.search(r"\[\s*\{", text)
    if start is None or "pg_name" not in text:
        return {}
    text = text[start.start() : text.rfind("]") + 1].replace('\\"', '"')
    while text:
        try:
            listed = json.loads(text)
            break
        except ValueError:
            text = text[: text.rfind("]", 0, len(text) - 1) + 1]
    else:
        return {}
    found = {}
    for each in listed if isinstance(listed, list) else []:
        ranks = each.get("ranks") if isinstance(each, dict) else None
        if isinstance(ranks, list) and ranks and all(isinstance(rank, int) and rank >= 0 for rank in ranks):
            found[str(each.get("pg_name", ""))] = tuple(ranks)
    return found


def columns(nodes: list[Node], metadata: AbstractSet[int]) -> dict[str, np.ndarray]:
    """int64 columns of nodes in the order in which they are taken where several could be: by start, then by number;
    ``parent`` (index) with ``first_parent`` int64[nodes + 1]; ``missing`` parents of each node, which are in neither
    ``nodes`` nor ``metadata``."""
    nodes.sort(key=lambda node: (node.start, node.id))
    index = {node.id: at for at, node in enumerate(nodes)}
    known = index.keys() | metadata
    parents = [tuple({index[parent]: None for parent in node.parents if parent in index}) for node in nodes]
    return {
        "is_cpu": np.array([node.is_cpu for node in nodes], np.int64),
        "lane": np.array([node.lane for node in nodes], np.int64),
        "duration": np.array([node.duration_ps for node in nodes], np.int64),
        "type": np.array([node.type for node in nodes], np.int64),
        "first_parent": np.concatenate(([0], np.cumsum([len(each) for each in parents]))).astype(np.int64),
        "parent": np.array([one for each in parents for one in each], np.int64),
        "missing": np.array([len(set(node.parents) - known) for node in nodes], np.int64),
    }
