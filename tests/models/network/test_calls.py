"""Collectives that are called: the replay and its critical path are those of the program with all of them written out.

The reference is the other way to replay the same program: every message of every collective in one replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.machine import Network
from manyscale.models.network import latency_bandwidth
from manyscale.models.network.program import Program, build_program
from manyscale.models.network.replay import calls
from manyscale.models.network.replay.calls import EntangledCallsError, written_out
from manyscale.models.network.replay.timeline import Placement, ReplayError
from manyscale.models.workload import KIND_NAMES, NO_RANK, NO_REQUEST, SCHEMAS, OperationKind, Workload
from manyscale.runner.run import replay_units

RANKS = 12
COMMUNICATORS = [list(range(RANKS)), list(range(RANKS - 2, -1, -2)), list(range(1, RANKS, 2))]
COLLECTIVES = ("barrier", "bcast", "reduce", "allreduce", "scan", "gather", "scatter", "allgather", "alltoall")
PRESETS = ("mpich", "openmpi", "simgrid-3.32")


class Ranks:
    """Operations of ranks, written one by one."""

    def __init__(self, num_ranks: int) -> None:
        self.operations: list[list[dict[str, Any]]] = [[] for _ in range(num_ranks)]
        self.phases: list[list[dict[str, Any]]] = [[] for _ in range(num_ranks)]

    def call(self, rank: int, kind: str, compute_ps: int = 0, **values: Any) -> None:
        own = self.operations[rank]
        if compute_ps:
            phase = {"rank": rank, "operation_id": len(own), "kind": 0, "region_id": -1, "duration_ps": compute_ps}
            self.phases[rank].append(phase)
        own.append(
            {
                "rank": rank, "kind": kind, "peer": NO_RANK, "source": NO_RANK, "tag": 0, "bytes": 0,
                "receive_bytes": 0, "communicator_id": 0, "request": NO_REQUEST, "completes": None,
                "send_counts": None, "receive_counts": None,
            }
            | values
        )  # fmt: skip

    def workload(self, members: Sequence[Sequence[int]] = COMMUNICATORS) -> Workload:
        schema = SCHEMAS["operations"]
        rows = [each for own in self.operations for each in own]
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema if field.name != "kind"]
        codes = pa.array([int(OperationKind[row["kind"]]) for row in rows], pa.int8())
        columns.insert(1, pa.DictionaryArray.from_arrays(codes, KIND_NAMES))
        tables = {
            "operations": pa.Table.from_arrays(columns, schema=schema),
            "phases": pa.Table.from_pylist([each for own in self.phases for each in own], SCHEMAS["phases"]),
            "regions": pa.Table.from_pylist([], SCHEMAS["regions"]),
            "communicators": pa.Table.from_pylist([{"members": each} for each in members], SCHEMAS["communicators"]),
        }
        return Workload("calls", len(self.operations), tables)


def random_program(seed: int) -> Workload:
    """Ranks that compute, exchange with both neighbours, and meet in collectives on all three communicators."""
    random = np.random.default_rng(seed)
    ranks = Ranks(RANKS)
    for step in range(12):
        size = int(random.choice([8, 100_000]))
        for rank in range(RANKS):
            request = 3 * step
            for side, kind in ((-1, "irecv"), (1, "isend")):
                ranks.call(
                    rank, kind, int(random.integers(0, 30_000_000)), peer=(rank + side) % RANKS, request=request,
                    **{"bytes" if side > 0 else "receive_bytes": size},
                )  # fmt: skip
                request += 1
        if step % 3 == 2:  # one that goes on beside the others
            for rank in range(RANKS):
                ranks.call(rank, "iallreduce", bytes=size, receive_bytes=size, request=3 * step + 2)
        for _ in range(2):
            number = int(random.integers(0, len(COMMUNICATORS)))
            kind = str(random.choice(COLLECTIVES))
            root = int(random.integers(0, len(COMMUNICATORS[number])))
            for rank in COMMUNICATORS[number]:
                bound = {"peer": root} if kind in ("bcast", "reduce", "gather", "scatter") else {}
                sizes = {} if kind == "barrier" else {"bytes": size, "receive_bytes": size}
                compute = int(random.integers(0, 50_000_000))
                ranks.call(rank, kind, compute, communicator_id=number, **bound, **sizes)
        for rank in range(RANKS):
            ranks.call(rank, "waitall", completes=[3 * step + k for k in range(3 if step % 3 == 2 else 2)])
    return ranks.workload()


def network(**values: Any) -> dict[str, Any]:
    content = {
        "latency": "3 us", "bandwidth": "2 GB/s", "eager_threshold": "64 KiB", "envelope": "16 B",
        "transfer_start": "match", "collectives": "mpich", "intra_node": {"latency": "1 us", "bandwidth": "9 GB/s"},
        "self": {"latency": "0 us", "bandwidth": "20 GB/s"}, "topology": {"kind": "crossbar"},
    }  # fmt: skip
    return content | values


def compute_of(workload: Workload) -> np.ndarray:
    compute = np.zeros(workload.num_operations, np.int64)
    phases = workload.tables["phases"].to_pandas()
    np.add.at(compute, workload.rank_offsets[phases["rank"]] + phases["operation_id"], phases["duration_ps"])
    return compute


def replayed(program: Program, workload: Workload, law: dict[str, Any], nodes: np.ndarray) -> dict[str, np.ndarray]:
    parameters = {
        "network": law, "node_of_rank": nodes, "num_nodes": RANKS,
        "model": "latency-bandwidth", "num_point_to_point": len(workload.send_rows),
    }  # fmt: skip
    return replay_units.replay_point(parameters, {"program": program, "compute_ps": compute_of(workload)})


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray], num_point_to_point: int) -> bool:
    """Whether all is equal but the numbers that messages of collectives have."""
    number = "path_message"
    listed = [np.where(each[number] < num_point_to_point, each[number], -1) for each in (first, second)]
    rest = all(np.array_equal(first[name], second[name]) for name in first if name != number)
    return set(first) == set(second) and rest and np.array_equal(*listed)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("start", ["match", "eager"])
def test_called_collectives_take_the_times_of_those_written_out(preset: str, start: str) -> None:
    shared_nodes = np.arange(RANKS, dtype=np.int32) // 2
    for seed, nodes in ((1, np.arange(RANKS, dtype=np.int32)), (2, shared_nodes), (3, shared_nodes)):
        workload = random_program(seed)
        law = network(transfer_start=start)
        whole, called = (build_program(workload, preset, called_from=least) for least in (None, 2))
        assert called.calls is not None
        assert len(called.calls.kind) == 24
        expected = replayed(whole, workload, law, nodes)
        assert (expected["path_kind"] == 2).any()  # the path leads through collectives
        found = replayed(called, workload, law, nodes)
        assert same(found, expected, len(workload.send_rows))
        assert same(replayed(written_out(called), workload, law, nodes), expected, len(workload.send_rows))


def test_a_wrong_time_is_found() -> None:
    """The comparison above fails where one rank ends a collective a picosecond later."""
    workload = random_program(1)
    found = replayed(build_program(workload, "mpich"), workload, network(), np.arange(RANKS, dtype=np.int32))
    other = found | {"end_ps": found["end_ps"] + (np.arange(workload.num_operations) == 40)}
    assert not same(found, other, len(workload.send_rows))


def entangled() -> Workload:
    """Rank 0 leaves a broadcast early and sends what rank 1 waits for before it enters."""
    ranks = Ranks(RANKS)
    for rank in range(RANKS):
        if rank == 1:
            ranks.call(rank, "recv", peer=0, receive_bytes=8)
        ranks.call(rank, "bcast", 1_000, peer=0, bytes=8, receive_bytes=8)
        if rank == 0:
            ranks.call(rank, "send", peer=1, bytes=8)
    return ranks.workload()


def test_ranks_that_leave_a_collective_one_by_one_are_written_out() -> None:
    workload, nodes = entangled(), np.arange(RANKS, dtype=np.int32)
    whole, called = (build_program(workload, "mpich", called_from=least) for least in (None, 2))
    with pytest.raises(EntangledCallsError):
        latency_bandwidth.replay(
            called, compute_of(workload), Network.model_validate(network()), Placement(nodes, RANKS)
        )
    assert same(replayed(called, workload, network(), nodes), replayed(whole, workload, network(), nodes), 1)


def test_more_messages_than_have_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    called = build_program(entangled(), "mpich", called_from=2)
    monkeypatch.setattr(calls, "_MOST_MESSAGES", RANKS - 1)
    with pytest.raises(ReplayError, match=f"^{RANKS} messages"):  # each rank but one takes one, and rank 1 another
        written_out(called)


def test_a_deadlock_is_told_as_without_calls() -> None:
    ranks = Ranks(RANKS)
    for rank in range(RANKS):
        if rank == 3:
            ranks.call(rank, "recv", peer=4, receive_bytes=8)
        ranks.call(rank, "allreduce", bytes=8, receive_bytes=8)
        if rank == 4:
            ranks.call(rank, "send", peer=3, bytes=8)
    workload, nodes = ranks.workload(), np.arange(RANKS, dtype=np.int32)
    told = []
    for least in (None, 2):
        with pytest.raises(ReplayError) as caught:
            replayed(build_program(workload, "mpich", called_from=least), workload, network(), nodes)
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert "rank 3, operation 0 waits for 8 B from rank 4" in told[0]


def test_small_communicators_and_wildcards_are_not_called() -> None:
    workload = random_program(1)
    called = build_program(workload, "mpich", called_from=RANKS).calls
    assert called is not None
    assert {len(rows) for rows in called.rows} == {RANKS}
    ranks = Ranks(RANKS)
    ranks.call(1, "send", peer=0, bytes=8)
    ranks.call(0, "recv", peer=-1, receive_bytes=8)
    for rank in range(RANKS):
        ranks.call(rank, "barrier")
    assert build_program(ranks.workload(), "mpich", called_from=2).calls is None


ROOTED = ("bcast", "reduce", "gather", "scatter")
WITH_COUNTS = {  # which counts an operation has
    "alltoallv": ("send_counts", "receive_counts"), "allgatherv": ("receive_counts",),
    "reduce_scatter": ("receive_counts",),
}  # fmt: skip
SIZES = (0, 1, 8, 65_536, 100_000)  # on both sides of the eager threshold


def corners(draw: st.DrawFn) -> Workload:
    """Few ranks in communicators that overlap, in any order of members, some of one rank; messages of no bytes; sends
    that a rank posts between the collectives in which its receiver meets it, so that some programs have no end."""
    num_ranks = draw(st.integers(1, 7))
    some = st.lists(st.integers(0, num_ranks - 1), min_size=1, unique=True)
    members = [list(range(num_ranks)), *draw(st.lists(some, min_size=1, max_size=3))]
    ranks = Ranks(num_ranks)
    computes = np.random.default_rng(draw(st.integers(0, 99)))
    for _ in range(draw(st.integers(1, 6))):
        size = draw(st.sampled_from(SIZES))
        if draw(st.booleans()):
            sender, receiver = (draw(st.integers(0, num_ranks - 1)) for _ in range(2))
            if sender != receiver:
                ranks.call(sender, "send", peer=receiver, bytes=size)
                place = draw(st.integers(0, 1))  # before the receiver's last operation, which may be a collective
                ranks.call(receiver, "recv", peer=sender, receive_bytes=size)
                if place and len(ranks.operations[receiver]) > 1:
                    own = ranks.operations[receiver]
                    own[-2:] = own[:-3:-1]
        number = draw(st.integers(0, len(members) - 1))
        kind = draw(st.sampled_from((*COLLECTIVES, *WITH_COUNTS)))
        count = len(members[number])
        bound = {"peer": draw(st.integers(0, count - 1))} if kind in ROOTED else {}
        counts = {side: [size] * count for side in WITH_COUNTS.get(kind, ())}
        sizes = {} if kind == "barrier" else {"bytes": size, "receive_bytes": size}
        for rank in members[number]:
            compute = int(computes.choice([0, 1, 40_000_000]))
            ranks.call(rank, kind, compute, communicator_id=number, **bound, **sizes, **counts)
    return ranks.workload(members)


def outcome(program: Program, workload: Workload, law: dict[str, Any], nodes: np.ndarray) -> Any:
    try:
        return replayed(program, workload, law, nodes)
    except ReplayError as error:
        return str(error)


@settings(max_examples=60, deadline=None)
@given(st.composite(corners)(), st.sampled_from(PRESETS), st.sampled_from(["match", "eager"]), st.integers(1, 3))
def test_calls_are_as_written_out_in_corners(workload: Workload, preset: str, start: str, least: int) -> None:
    law, nodes = network(transfer_start=start), np.arange(workload.num_ranks, dtype=np.int32) // 2
    expected, found = (
        outcome(build_program(workload, preset, called_from=called_from), workload, law, nodes)
        for called_from in (None, least)
    )
    if isinstance(expected, str):
        assert found == expected
    else:
        assert same(found, expected, len(workload.send_rows))
