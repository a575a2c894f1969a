"""Collectives as schedules: a contract for every algorithm, the presets' choices, and checks of calls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from collective_plans import (
    EVERY_ALGORITHM,
    MESSAGE_PRESETS,
    Execute,
    call_of,
    chosen,
    dependencies,
    needed,
    planned,
    roots_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.network.collectives.algorithms import (
    ALGORITHMS,
    KINDS,
    Choice,
    CollectiveCall,
    schedule,
)
from manyscale.models.network.collectives.schedules import Step


@pytest.mark.contract
@pytest.mark.parametrize(("kind", "name"), EVERY_ALGORITHM)
def test_contract(kind: str, name: str, execute: Execute) -> None:
    for n in range(1, 18):
        for root in roots_of(kind, n):
            plan = schedule(call_of(kind, n, root=root), Choice(name))
            plan.validate()
            assert plan.num_participants == n
            assert not (plan.source == plan.destination).any()
            for eager_bytes in (math.inf, 0):
                ends = execute(plan, arrival=[1e-6 * (7 * i % n) for i in range(n)], eager_bytes=eager_bytes)
                assert all(math.isfinite(end) for end in ends)
            if name in ("none", "linear-unordered"):
                continue
            known = dependencies(plan)
            for i, must in enumerate(needed(kind, n, root)):
                assert known[i] >= must, f"participant {i} of {n} lacks {must - known[i]}"


@pytest.mark.contract
@pytest.mark.parametrize("preset", MESSAGE_PRESETS)
@pytest.mark.parametrize("kind", KINDS)
def test_presets_choose_known_algorithms_and_non_blocking_ones_of_simgrid_post_first(preset: str, kind: str) -> None:
    for n in range(1, 18):
        for size in (0, 1, 300, 5000, 70000, 600_000, 2_000_000):
            call = call_of(kind, n, size)
            assert chosen(call, preset) in ALGORITHMS[call.base_kind]
            plan = planned(call, preset)
            if n == 1:
                assert plan.num_messages == 0
            if preset == "simgrid-3.32" and call.is_nonblocking:
                waits = np.split(plan.step >= Step.WAIT_SEND, plan.participant_offsets[1:-1])
                assert all((np.diff(part.astype(int)) >= 0).all() for part in waits)


@pytest.mark.known_gap
def test_ibarrier_of_simgrid_does_not_synchronise() -> None:
    known = dependencies(planned(call_of("ibarrier", 5), "simgrid-3.32"))
    assert known[0] == set(range(5))
    assert known[3] == {0, 3}
    root_steps = planned(call_of("ibarrier", 4), "simgrid-3.32").step[:12].tolist()
    assert root_steps == [Step.POST_RECEIVE, Step.POST_SEND] * 3 + [Step.WAIT_RECEIVE, Step.WAIT_SEND] * 3


@pytest.mark.property
@settings(deadline=None)
@given(st.data())
def test_random_sizes_never_deadlock(execute: Execute, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 13))
    kind = data.draw(st.sampled_from(["gatherv", "scatterv", "allgatherv", "alltoallv", "reduce_scatter"]))
    name = data.draw(st.sampled_from(sorted(ALGORITHMS[kind])))
    shape = n * n if kind == "alltoallv" else n
    sizes = st.lists(st.sampled_from([0, 1, 50, 40_000, 90_000]), min_size=shape, max_size=shape)
    counts = np.array(data.draw(sizes), np.int64)
    if kind in ("scatterv", "alltoallv"):
        call = CollectiveCall(kind, n, send_counts=counts.reshape((n, n) if kind == "alltoallv" else n))
    else:
        call = CollectiveCall(kind, n, root=0, receive_counts=counts)
    plan = schedule(call, Choice(name))
    plan.validate()
    for eager_bytes in (math.inf, 65536, 0):
        execute(plan, eager_bytes=eager_bytes)


# Participants, bytes (a block, or the message), and the choice; both sides of each threshold.
CHOICES = {
    ("simgrid-3.32", "alltoall"): [
        *((64, 1023, "bruck"), (64, 1024, "linear"), (64, 262143, "linear"), (64, 262144, "pairwise")),
        *((2, 1, "pairwise"), (2, 3, "linear"), (4, 524288, "pairwise"), (4, 1048576, "linear")),
        *((15, 3, "linear"), (16, 3, "linear"), (16, 4, "bruck"), (16, 511, "bruck"), (16, 512, "linear")),
        *((300, 32768, "pairwise"), (600, 32768, "linear"), (600, 512, "linear"), (5000, 2047, "bruck")),
    ],
    ("simgrid-3.32", "ialltoall"): [(64, 8, "linear"), (4, 600_000, "linear")],
    ("simgrid-3.32", "bcast"): [(64, 8, "binomial"), (64, 10**7, "binomial")],
    ("simgrid-3.32", "ibcast"): [(64, 8, "linear")],
    ("simgrid-3.32", "allreduce"): [(64, 8, "reduce-bcast")],
    ("simgrid-3.32", "ibarrier"): [(64, 0, "linear-unordered")],
    ("simgrid-3.32", "reduce_scatter"): [(4, 100, "reduce-scatterv")],
    ("mpich", "bcast"): [
        *((7, 10**6, "binomial"), (8, 12287, "binomial")),
        *((8, 12288, "scatter-recursive-doubling-allgather"), (9, 12288, "scatter-ring-allgather")),
        *((8, 524287, "scatter-recursive-doubling-allgather"), (8, 524288, "scatter-ring-allgather")),
    ],
    ("mpich", "allgather"): [
        *((8, 65535, "recursive-doubling"), (8, 65536, "ring")),
        *((10, 8191, "bruck"), (10, 8192, "ring"), (10, 0, "none")),
    ],
    ("mpich", "iallgatherv"): [(8, 65535, "recursive-doubling"), (10, 8191, "bruck"), (10, 8192, "ring")],
    ("mpich", "alltoall"): [
        *((8, 256, "bruck"), (8, 257, "scattered"), (7, 256, "scattered")),
        *((8, 32768, "scattered"), (8, 32769, "pairwise")),
    ],
    ("mpich", "reduce"): [(8, 2048, "binomial"), (8, 2049, "rabenseifner"), (4096, 2049, "binomial")],
    ("mpich", "allreduce"): [(8, 2048, "recursive-doubling"), (8, 2049, "rabenseifner")],
    ("mpich", "reduce_scatter"): [(8, 65535, "recursive-halving"), (8, 65536, "pairwise")],
    ("mpich", "barrier"): [(8, 0, "dissemination")],
    ("mpich", "gather"): [(8, 10**6, "binomial")],
    ("mpich", "gatherv"): [(8, 10, "linear-filled")],
    ("mpich", "alltoallv"): [(8, 10, "scattered")],
    ("mpich", "scan"): [(8, 10, "recursive-doubling")],
}


@pytest.mark.theory
@pytest.mark.parametrize(("preset", "kind"), CHOICES)
def test_choices_at_the_thresholds(preset: str, kind: str) -> None:
    for n, size, expected in CHOICES[preset, kind]:
        call = CollectiveCall(kind, n, 0, size) if kind == "alltoall" else call_of(kind, n, size)
        assert chosen(call, preset) == expected, (n, size)


@pytest.mark.theory
def test_irregular_reduce_scatter_of_simgrid_counts_elements() -> None:
    counts = np.array([400_000, 400_008])
    for element_bytes, expected in ((1, "pairwise"), (8, "recursive-doubling")):
        call = CollectiveCall("reduce_scatter", 2, receive_counts=counts, element_bytes=element_bytes)
        assert chosen(call, "simgrid-3.32") == expected


@pytest.mark.contract
def test_unknown_names_list_the_known_ones() -> None:
    call = call_of("bcast", 4)
    with pytest.raises(ValueError, match=r"'lam'.*simgrid-3.32, mpich, openmpi, dimemas"):
        planned(call, "lam")
    with pytest.raises(ValueError, match=r"'ring' for bcast.*binomial"):
        schedule(call, Choice("ring"))
    with pytest.raises(ValueError, match=r"'gossip'.*barrier.*ireduce_scatter"):
        CollectiveCall("gossip", 4)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"kind": "bcast", "num_participants": 0}, "at least one"),
        ({"kind": "bcast", "num_participants": 4, "root": 4}, "root 4"),
        ({"kind": "bcast", "num_participants": 4, "send_bytes": -1}, "negative"),
        ({"kind": "bcast", "num_participants": 4, "element_bytes": 0}, "element_bytes"),
        ({"kind": "gatherv", "num_participants": 4}, "receive_counts is missing"),
        ({"kind": "iscatterv", "num_participants": 4}, "send_counts is missing"),
        ({"kind": "alltoallv", "num_participants": 2, "send_counts": [1, 2]}, r"shape \(2,\)"),
        ({"kind": "gatherv", "num_participants": 2, "receive_counts": [1, 2, 3]}, r"shape \(3,\)"),
        ({"kind": "reduce_scatter", "num_participants": 2, "receive_counts": [1]}, r"shape \(1,\)"),
        ({"kind": "gatherv", "num_participants": 2, "receive_counts": [1, -2]}, "negative"),
    ],
)
def test_calls_are_checked(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        CollectiveCall(**arguments)


@pytest.mark.contract
def test_equal_calls_are_equal_keys() -> None:
    counts = np.array([1, 2, 3])
    same = [CollectiveCall("gatherv", 3, receive_counts=counts.copy()) for _ in range(2)]
    other = CollectiveCall("gatherv", 3, receive_counts=np.array([1, 2, 4]))
    assert same[0] == same[1]
    assert len({*same, other}) == 2
    assert same[0] != "gatherv"
