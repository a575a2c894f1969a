"""Small results, written out by hand or drawn at random, for the tests of the writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from manyscale.models.machine import Machine
from manyscale.models.workload import (
    COMMUNICATORS_SCHEMA,
    NO_RANK,
    NO_REQUEST,
    OPERATIONS_SCHEMA,
    PHASES_SCHEMA,
    REGIONS_SCHEMA,
    OperationKind,
    Workload,
)
from manyscale.models.workload.notes import Note, informs
from manyscale.runner.run.results import (
    MESSAGES_SCHEMA,
    RANKS_SCHEMA,
    STATES,
    Result,
    messages_table,
    ranks_table,
    statistics,
)

State = tuple[int, int, int, str, int]  # rank, start_ps, end_ps, state, operation_id
Message = tuple[int, int, int, int, int, int, int, int]  # the columns of `messages`


def operation(rank: int, kind: str, **given: Any) -> dict[str, Any]:
    """A row of ``operations``; what is not given is absent."""
    row: dict[str, Any] = {
        "rank": rank,
        "kind": kind,
        "peer": NO_RANK,
        "source": NO_RANK,
        "tag": 0,
        "bytes": 0,
        "receive_bytes": 0,
        "communicator_id": 0,
        "request": NO_REQUEST,
        "completes": None,
        "send_counts": None,
        "receive_counts": None,
    }
    assert set(given) <= set(row)
    return row | given


def workload(
    num_ranks: int,
    operations: Sequence[Mapping[str, Any]],
    communicators: Sequence[Sequence[int]] = (),
    name: str = "tiny",
    notes: tuple[Note, ...] = (),
) -> Workload:
    """A workload without phases; communicator 0 is the world."""
    kinds = pa.array([OperationKind[row["kind"]] for row in operations], pa.int8())
    columns = [
        pa.DictionaryArray.from_arrays(kinds, pa.array([kind.name for kind in OperationKind]))
        if field.name == "kind"
        else pa.array([row[field.name] for row in operations], field.type)
        for field in OPERATIONS_SCHEMA
    ]
    groups = pa.array([list(range(num_ranks)), *map(list, communicators)], pa.list_(pa.int32()))
    tables = {
        "operations": pa.Table.from_arrays(columns, schema=OPERATIONS_SCHEMA),
        "phases": PHASES_SCHEMA.empty_table(),
        "regions": REGIONS_SCHEMA.empty_table(),
        "communicators": pa.Table.from_arrays([groups], schema=COMMUNICATORS_SCHEMA),
    }
    return Workload(name, num_ranks, tables, notes, "tiny")


def states(rows: Sequence[State]) -> pa.Table:
    """A ``ranks`` table."""
    rank, start, end, state, operation_id = ([row[i] for row in rows] for i in range(5))
    codes = pa.array([STATES.index(name) for name in state], pa.int8())
    columns = [
        pa.array(rank, pa.int32()),
        pa.array(start, pa.int64()),
        pa.array(end, pa.int64()),
        pa.DictionaryArray.from_arrays(codes, pa.array(STATES)),
        pa.array(operation_id, pa.int32()),
    ]
    return pa.Table.from_arrays(columns, schema=RANKS_SCHEMA)


def messages(rows: Sequence[Message]) -> pa.Table:
    """A ``messages`` table."""
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(MESSAGES_SCHEMA)]
    return pa.Table.from_arrays(columns, schema=MESSAGES_SCHEMA)


def machine(**network: Any) -> Machine:
    """Two-core nodes; keys of the network can be replaced."""
    content: dict[str, Any] = {
        "schema": 1,
        "name": "pair",
        "description": "eight nodes of two cores",
        "nodes": 8,
        "node": {"sockets": 1, "cores_per_socket": 2, "frequency": "2 GHz", "memory": "4 GiB"},
        "network": {
            "latency": "1 us",
            "bandwidth": "1 GB/s",
            "envelope": "0 B",
            "eager_threshold": "1 KiB",
            "transfer_start": "match",
            "collectives": "simgrid-3.32",
            "intra_node": {"latency": "100 ns", "bandwidth": "4 GB/s"},
            "self": {"latency": "0 s", "bandwidth": "inf B/s"},
        },
        "sources": {"nodes": "made up", "node": "made up", "network": "made up, <b>too</b>"},
    }
    content["network"] |= network
    return Machine(**content)


def result(load: Workload, ranks: pa.Table, sent: pa.Table, **given: Any) -> Result:
    """A result whose statistics follow from its tables; an ideal network would take nine tenths of the time."""
    target = machine()
    end = ranks.column("end_ps").to_numpy()
    figures = statistics(load, target, ranks, sent, end, int(end.max(initial=0)) * 9 // 10)
    content: dict[str, Any] = {
        "name": load.name,
        "resolved": {"model": {"network": "latency-bandwidth", "cpu": "burst"}, "cpu_ratio": 2.0},
        "sweep_point": {},
        "statistics": figures,
        "notes": load.notes,
    }
    content |= given
    return Result(workload=load, machine=target, ranks=ranks, messages=sent, **content)


def two_ranks(**given: Any) -> Result:
    """Rank 0, on node 5, sends 1,000 B to rank 1, on node 2; both meet in an allreduce; rank 1 computes on."""
    load = workload(
        2,
        [
            operation(0, "init"),
            operation(0, "isend", peer=1, tag=7, bytes=1000, request=0),
            operation(0, "wait", completes=[0]),
            operation(0, "allreduce", bytes=8, receive_bytes=8),
            operation(0, "finalize"),
            operation(1, "init"),
            operation(1, "recv", peer=0, tag=7, receive_bytes=1000),
            operation(1, "allreduce", bytes=8, receive_bytes=8),
            operation(1, "finalize"),
        ],
        notes=(informs("no-clock", "the trace has <no> clock"),),
    )
    ranks = states(
        [
            (0, 0, 1_500_000, "compute", 1),
            (0, 1_500_000, 4_000_499, "wait", 2),
            (0, 4_000_499, 5_000_500, "compute", 3),
            (0, 5_000_500, 9_000_000, "collective", 3),
            (1, 0, 1_000_000, "compute", 1),
            (1, 1_000_000, 4_000_499, "receive", 1),
            (1, 4_000_499, 9_000_000, "collective", 2),
            (1, 9_000_000, 10_000_400, "compute", 3),
        ]
    )
    sent = messages([(0, 0, 1, 1_500_000, 4_000_499, 1000, 7, 0)])
    resolved = {
        "name": "tiny",
        "model": {"network": "latency-bandwidth", "cpu": "burst"},
        "cpu_ratio": 2.0,
        "placement": [5, 2],
    }
    return result(load, ranks, sent, **({"resolved": resolved} | given))


def random_result(seed: int, num_ranks: int, num_operations: int) -> Result:
    """Ranks with operations of random kinds and durations, some of them none; messages arrive at random later times."""
    generator = np.random.default_rng(seed)
    kinds = [kind for kind in OperationKind if kind not in (OperationKind.sendrecv, OperationKind.waitany)]
    rows = []
    for rank in range(num_ranks):
        for _ in range(num_operations):
            kind = kinds[generator.integers(len(kinds))]
            peer = int(generator.integers(num_ranks))
            size = int(generator.choice([0, 1, 8, 1000, 65536]))
            tag = int(generator.integers(100))
            rows.append(operation(rank, kind.name, peer=peer, tag=tag, bytes=size, receive_bytes=size))
    load = workload(num_ranks, rows)
    count = len(rows)
    compute = generator.integers(0, 3_000_000, count) * generator.integers(0, 2, count)
    duration = generator.integers(0, 3_000_000, count) * generator.integers(0, 2, count)
    end = (compute + duration).reshape(num_ranks, -1).cumsum(axis=1).ravel()
    ranks = ranks_table(load, compute, end)
    send = end - duration
    sends = np.flatnonzero([row["kind"].endswith("send") for row in rows])
    arrival = np.minimum(send[sends] + generator.integers(0, 5_000_000, len(sends)), end.max(initial=0))
    arrival = np.maximum(arrival, send[sends])
    return result(load, ranks, messages_table(load, send[sends], arrival))
