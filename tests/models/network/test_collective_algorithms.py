"""Algorithms of collectives one by one: closed forms of bytes and rounds, and where every block goes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from collective_plans import (
    BLOCK,
    Execute,
    call_of,
    dependencies,
    needed,
    partial_sums,
    planned,
    roots_of,
    walk,
)

from manyscale.models.network.collectives import rings, rounds, trees
from manyscale.models.network.collectives.algorithms import SEGMENTED, Choice, CollectiveCall, schedule
from manyscale.models.network.collectives.schedules import Schedule


def log2(n: int) -> int:
    return n.bit_length() - 1


def set_bits(n: int) -> int:
    return sum(i.bit_count() for i in range(n))


# Total bytes sent for blocks (or messages) of b bytes; "2" marks forms that hold for powers of two only.
CLOSED_FORMS: list[tuple[str, str, str, Callable[[int, int], float]]] = [
    ("barrier", "linear", "", lambda n, b: 0),
    ("barrier", "dissemination", "", lambda n, b: 0),
    ("bcast", "linear", "", lambda n, b: (n - 1) * b),
    ("bcast", "binomial", "", lambda n, b: (n - 1) * b),
    (
        *("bcast", "scatter-recursive-doubling-allgather", "2"),
        lambda n, b: n / 2 * log2(n) * b / n + (n - 1) * b,
    ),
    ("bcast", "scatter-ring-allgather", "2", lambda n, b: n / 2 * log2(n) * b / n + (n - 1) * b),
    ("reduce", "linear", "", lambda n, b: (n - 1) * b),
    ("reduce", "binomial", "", lambda n, b: (n - 1) * b),
    ("reduce", "rabenseifner", "2", lambda n, b: (n - 1) * b + log2(n) / 2 * b),
    ("allreduce", "linear", "", lambda n, b: n * (n - 1) * b),
    ("allreduce", "reduce-bcast", "", lambda n, b: 2 * (n - 1) * b),
    ("allreduce", "recursive-doubling", "2", lambda n, b: n * log2(n) * b),
    ("allreduce", "rabenseifner", "2", lambda n, b: 2 * (n - 1) * b),
    ("scan", "linear", "", lambda n, b: n * (n - 1) / 2 * b),
    ("scan", "recursive-doubling", "2", lambda n, b: n * log2(n) * b),
    ("exscan", "recursive-doubling", "2", lambda n, b: n * log2(n) * b),
    ("gather", "linear", "", lambda n, b: (n - 1) * b),
    ("gather", "binomial", "", lambda n, b: set_bits(n) * b),
    ("gatherv", "linear", "", lambda n, b: (n - 1) * b),
    ("scatter", "linear", "", lambda n, b: (n - 1) * b),
    ("scatter", "binomial", "", lambda n, b: set_bits(n) * b),
    ("scatterv", "linear-filled", "", lambda n, b: (n - 1) * b),
    *(
        (kind, name, "", lambda n, b: n * (n - 1) * b)
        for kind in ("allgather", "allgatherv")
        for name in ("linear", "recursive-doubling", "bruck", "ring")
    ),
    *(("alltoall", name, "", lambda n, b: n * (n - 1) * b) for name in ("linear", "scattered", "pairwise")),
    *(("alltoallv", name, "", lambda n, b: n * (n - 1) * b) for name in ("linear", "scattered", "pairwise")),
    ("alltoall", "bruck", "", lambda n, b: n * set_bits(n) * b),
    *(
        (kind, name, "", lambda n, b: (n - 1) * b)
        for kind, names in {
            "bcast": ("chain", "binary", "split-binary", "binomial-ascending", "knomial"),
            "reduce": ("linear-ordered", "chain", "binary", "binomial-in-order"),
            "scan": ("chain",),
            "gather": ("linear-ordered", "linear-synchronized"),
            "scatter": ("linear-ordered",),
            "gatherv": ("linear-ordered-filled",),
            "scatterv": ("linear-ordered-filled",),
        }.items()
        for name in names
    ),
    ("allreduce", "ring", "", lambda n, b: 2 * (n - 1) * b),
    *(("alltoallv", name, "", lambda n, b: n * (n - 1) * b) for name in ("linear-filled", "pairwise-shift")),
    ("alltoall", "pairwise-shift", "", lambda n, b: n * (n - 1) * b),
    *(
        (kind, name, "", lambda n, b: n * (n - 1) * b)
        for kind in ("allgather", "allgatherv")
        for name in ("whole-ring", "neighbor-exchange", "doubling-or-bruck")
    ),
    ("allgatherv", "gather-bcast", "", lambda n, b: (n - 1) * b + (n - 1) * n * b),
    ("reduce_scatter", "ring", "", lambda n, b: n * (n - 1) * b),
    # the last exchange leaves those whose bits read the same backwards
    ("reduce_scatter", "butterfly", "2", lambda n, b: n * (n - 1) * b + (n - 2 ** ((log2(n) + 1) // 2)) * b),
    ("reduce_scatter", "linear", "", lambda n, b: n * (n - 1) * b),
    ("reduce_scatter", "reduce-scatterv", "", lambda n, b: (n - 1) * n * b + (n - 1) * b),
    ("reduce_scatter", "pairwise", "", lambda n, b: n * (n - 1) * b),
    ("reduce_scatter", "recursive-halving", "2", lambda n, b: n * (n - 1) * b),
    ("reduce_scatter", "recursive-doubling", "2", lambda n, b: n * b * (n * log2(n) - (n - 1))),
]


@pytest.mark.theory
@pytest.mark.parametrize(("kind", "name", "scope", "form"), CLOSED_FORMS)
def test_total_bytes(kind: str, name: str, scope: str, form: Callable[[int, int], float]) -> None:
    for n in (2, 4, 8, 16) if scope == "2" else range(2, 18):
        size = BLOCK * n  # so that pieces of it are whole
        for root in roots_of(kind, n):
            plan = schedule(call_of(kind, n, size, root), Choice(name))
            assert plan.bytes.sum() == form(n, size), (n, root)


@pytest.mark.theory
@pytest.mark.parametrize("n", range(2, 18))
def test_number_of_rounds(n: int, execute: Execute) -> None:
    """With empty messages, all of which take as long, the time says how many follow one another."""
    ceiling, floor = (n - 1).bit_length(), log2(n)
    fold = 0 if n == 1 << floor else 1
    expected_rounds = {
        ("barrier", "dissemination"): ceiling,
        ("bcast", "binomial"): max(i.bit_count() for i in range(n)),  # of the deepest leaf
        ("bcast", "linear"): 1,
        ("reduce", "binomial"): ceiling,
        ("allgather", "bruck"): ceiling,
        ("allgather", "ring"): n - 1,
        ("alltoall", "bruck"): ceiling,
        ("alltoall", "pairwise"): n - 1,
        ("alltoall", "linear"): 1,
        ("allreduce", "recursive-doubling"): floor + 2 * fold,
        ("allreduce", "rabenseifner"): 2 * floor + 2 * fold,
        ("reduce_scatter", "recursive-halving"): floor + 2 * fold,
        ("reduce_scatter", "pairwise"): n - 1,
        ("barrier", "recursive-doubling"): floor + 2 * fold,
        ("bcast", "chain"): n - 1,
        ("bcast", "binary"): log2(n + 1) - (n + 1 == 1 << log2(n + 1)),
        ("allgather", "whole-ring"): n - 1,
        ("allgather", "neighbor-exchange"): n - 1 if n % 2 else n // 2,
        ("allreduce", "ring"): 2 * (n - 1),
        ("allreduce", "rabenseifner-halves"): 2 * floor + 3 * fold,
        ("reduce_scatter", "ring"): n - 1,
        ("scan", "chain"): n - 1,
        ("alltoall", "pairwise-shift"): n - 1,
    }
    for (kind, name), expected in expected_rounds.items():
        plan = schedule(call_of(kind, n, 64 * n), Choice(name))
        time = max(execute(replace(plan, bytes=np.zeros_like(plan.bytes))))
        assert time == pytest.approx(expected * execute(planned(call_of("bcast", 2, 0), "simgrid-3.32"))[1])


@pytest.mark.theory
@pytest.mark.parametrize(
    "name",
    ["linear", "recursive-doubling", "bruck", "ring", "whole-ring", "neighbor-exchange", "doubling-or-bruck"],
)
@pytest.mark.parametrize("n", range(1, 16))
def test_allgatherv_moves_each_block_once_and_only_what_the_sender_has(name: str, n: int) -> None:
    """Block i has 2**i bytes, so that the size of a message says which blocks it must hold."""
    counts = 1 << np.random.default_rng(n).permutation(n)
    plan = schedule(CollectiveCall("allgatherv", n, receive_counts=counts), Choice(name))
    known = [int(size) for size in counts]

    def post(i: int, message: int) -> int:
        blocks = int(plan.bytes[message])
        assert blocks & ~known[i] == 0, f"participant {i} sends blocks that it lacks"
        return blocks

    def receive(i: int, message: int, blocks: int) -> None:
        assert blocks & known[i] == 0, f"participant {i} receives a block twice"
        known[i] |= blocks

    walk(plan, post, receive)
    assert known == [(1 << n) - 1] * n


@pytest.mark.theory
@pytest.mark.parametrize("name", ["linear", "pairwise", "recursive-halving", "ring", "butterfly"])
@pytest.mark.parametrize("n", range(1, 18))
def test_reduce_scatter_adds_each_contribution_to_each_block_once(name: str, n: int) -> None:
    """Block i has 2**i bytes: a message's size says which partial sums it carries."""
    counts = 1 << np.arange(n)
    plan = schedule(CollectiveCall("reduce_scatter", n, receive_counts=counts), Choice(name))
    sums = partial_sums(plan, n)
    assert all(sums[i][i] == set(range(n)) for i in range(n))


@pytest.mark.theory
@pytest.mark.parametrize("kind", ["reduce", "allreduce"])
@pytest.mark.parametrize("n", range(2, 18))
def test_rabenseifner_completes_every_block(kind: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks have 2**i bytes instead of equal sizes: a message's size says which partial sums it carries."""
    parts = 1 << log2(n)
    monkeypatch.setattr(rounds, "_even_split", lambda call, num_parts: 1 << np.arange(num_parts))
    for root in range(n) if kind == "reduce" else (0,):
        plan = schedule(call_of(kind, n, (1 << parts) - 1, root), Choice("rabenseifner"))
        sums = partial_sums(plan, parts)
        for i in {root} if kind == "reduce" else range(n):
            assert all(contributions == set(range(n)) for contributions in sums[i].values()), (n, root, i)


@pytest.mark.theory
@pytest.mark.parametrize("n", range(2, 18))
def test_ring_allreduce_completes_every_block(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above; in phases the n-th part of every block goes round by itself."""
    monkeypatch.setattr(rings, "_shares", lambda elements, parts: 1 << np.arange(parts))
    sums = partial_sums(schedule(call_of("allreduce", n, (1 << n) - 1), Choice("ring")), n)
    assert all(contributions == set(range(n)) for mine in sums for contributions in mine.values())


@pytest.mark.theory
@pytest.mark.parametrize("n", range(2, 18))
@pytest.mark.parametrize("size", [16, 1003, 70_001])
def test_halves_of_any_size_add_up(n: int, size: int) -> None:
    """Halving moves each byte once to and from each but one of the core, doubling likewise; a folded pair exchanges
    its halves, and passes on the second, before; and the result after."""
    core = 1 << log2(n)
    fold = (n - core) * (size + -(-size // 2))
    plan = schedule(call_of("allreduce", n, size), Choice("rabenseifner-halves"))
    assert plan.bytes.sum() == 2 * (core - 1) * size + fold + (n - core) * size
    root = n - 1  # in no folded pair, unless all are
    plan = schedule(call_of("reduce", n, core * size, root), Choice("rabenseifner-halves"))
    gathered = core * size * log2(core) // 2
    assert plan.bytes.sum() == (core - 1) * core * size + (n - core) * (core * size + core * size // 2) + gathered


def in_segments(kind: str, name: str, n: int, root: int, segment: int, element: int = 1) -> Schedule:
    call = replace(call_of(kind, n, 9000 * element, root), element_bytes=element)
    return schedule(call, Choice(name, segment))


@pytest.mark.contract
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in SEGMENTED.items() for name in sorted(names)]
)
@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
def test_segments(kind: str, name: str, n: int, execute: Execute) -> None:
    """In segments everybody sends, receives and depends on the same as in whole messages."""
    for root in roots_of(kind, n):
        whole = in_segments(kind, name, n, root, 0)
        for segment in (700, 4500, 8999, 9000, 10**6):
            plan = in_segments(kind, name, n, root, segment)
            plan.validate()
            for eager_bytes in (math.inf, 0):
                assert all(math.isfinite(end) for end in execute(plan, eager_bytes=eager_bytes))
            for i, must in enumerate(needed(kind, n, root)):
                assert dependencies(plan)[i] >= must
            for side in ("source", "destination"):
                moved = [np.bincount(getattr(p, side), p.bytes, n).tolist() for p in (plan, whole)]
                assert moved[0] == moved[1] or name == "split-binary"
            if segment < 9000 and name not in ("ring", "split-binary", "linear-synchronized"):
                per_edge = -(-9000 // segment)
                assert plan.num_messages == per_edge * (n - 1) + (name == "in-order-binary" and root != n - 1)
                assert plan.bytes.max() == segment or name == "in-order-binary"


@pytest.mark.theory
def test_segments_hold_the_nearest_number_of_whole_elements() -> None:
    sizes = in_segments("bcast", "chain", 2, 0, segment=1020, element=8).bytes
    assert sizes.tolist() == [1016] * 70 + [880]
    assert in_segments("bcast", "chain", 2, 0, segment=1022, element=8).bytes.max() == 1024


@pytest.mark.theory
def test_trees_of_open_mpi() -> None:
    """Parents of 0, 1, ... 8 (-1: the root), drawn by hand from coll_base_topo.c."""
    expected = {
        trees.chain: [-1, 0, 1, 2, 3, 4, 5, 6, 7],
        trees.binary: [-1, 0, 0, 1, 2, 1, 2, 3, 4],
        trees.binomial_ascending: [-1, 0, 0, 1, 0, 1, 2, 3, 0],
        trees.binomial_in_order: [-1, 0, 0, 2, 0, 4, 4, 6, 0],
        trees.knomial: [-1, 0, 0, 0, 0, 4, 4, 4, 0],
        trees.binary_in_order: [1, 3, 3, 8, 5, 7, 7, 8, -1],
    }
    for tree, parents in expected.items():
        edges = tree(9)
        found = np.full(9, -1)
        found[edges.child] = edges.parent
        assert found.tolist() == parents, tree.__name__
    assert trees.knomial(9).child.tolist()[:2] == [4, 8]  # the farthest group first


@pytest.mark.theory
def test_blocks_of_a_reduction_add_up_and_hold_whole_elements() -> None:
    for n in (2, 4, 8, 16):
        plan = schedule(CollectiveCall("allreduce", n, send_bytes=1003), Choice("rabenseifner"))
        assert plan.bytes.sum() == 2 * (n - 1) * 1003
    call = CollectiveCall("allreduce", 16, send_bytes=8 * 1003, element_bytes=8)
    plan = schedule(call, Choice("rabenseifner"))
    assert (plan.bytes % 8 == 0).all()
    assert plan.bytes.sum() == 2 * 15 * 8 * 1003


@pytest.mark.theory
@pytest.mark.parametrize("n", range(2, 18))
def test_scattered_bcast_of_a_size_that_does_not_divide(n: int) -> None:
    """Pieces are rounded up and the last are short: of 100 bytes in 16 pieces of 7, one of 2 and one of 0."""
    plan = schedule(call_of("bcast", n, 100, root=1), Choice("scatter-ring-allgather"))
    ring = slice(plan.num_messages - n * (n - 1), None)
    kept = np.bincount(plan.destination[: ring.start], plan.bytes[: ring.start], n)
    kept -= np.bincount(plan.source[: ring.start], plan.bytes[: ring.start], n)
    piece = -(-100 // n)
    pieces = np.roll(np.clip(100 - piece * np.arange(n), 0, piece), 1)
    assert (kept == pieces - 100 * (np.arange(n) == 1)).all()
    assert (np.bincount(plan.destination[ring], plan.bytes[ring], n) == 100 - pieces).all()


@pytest.mark.theory
@pytest.mark.parametrize("n", range(2, 18))
def test_trees_conserve_blocks(n: int) -> None:
    for kind, sign in (("gather", 1), ("scatter", -1)):
        for root in roots_of(kind, n):
            plan = schedule(call_of(kind, n, root=root), Choice("binomial"))
            surplus = np.bincount(plan.source, plan.bytes, n) - np.bincount(plan.destination, plan.bytes, n)
            expected = np.full(n, BLOCK)
            expected[root] = -(n - 1) * BLOCK
            assert (surplus == sign * expected).all()


@pytest.mark.theory
@pytest.mark.parametrize("name", ["linear", "linear-filled", "scattered", "pairwise", "pairwise-shift"])
@pytest.mark.parametrize("n", [1, 2, 5, 8, 40])
def test_alltoallv_sends_the_matrix(name: str, n: int) -> None:
    counts = np.random.default_rng(n).integers(0, 4, (n, n)) * 100
    plan = schedule(CollectiveCall("alltoallv", n, send_counts=counts), Choice(name))
    sent = np.zeros((n, n), np.int64)
    np.add.at(sent, (plan.source, plan.destination), plan.bytes)
    assert (sent == np.where(np.eye(n, dtype=bool), 0, counts)).all()
    assert plan.num_messages == (np.count_nonzero(sent) if name in ("scattered", "linear-filled") else n * (n - 1))


@pytest.mark.theory
def test_a_thousand_participants() -> None:
    plan = planned(call_of("alltoall", 1024, 4096), "simgrid-3.32")
    assert plan.num_messages == 1024 * 1023
    plan.validate()
    # Receives from the next one up, sends to the next one down: alltoall-basic-linear.cpp.
    first, middle = plan.participant_offsets[5], plan.participant_offsets[5] + 1023
    assert plan.source[plan.message[first : first + 2]].tolist() == [6, 7]
    assert plan.destination[plan.message[middle : middle + 2]].tolist() == [4, 3]


@pytest.mark.theory
@pytest.mark.parametrize(("n", "peers"), [(8, [2, 1, 0, 7, 6, 5, 4]), (5, [4, 0, 1, 2])])
def test_pairwise_partners_of_participant_3(n: int, peers: list[int]) -> None:
    plan = planned(call_of("alltoall", n, 10**6), "mpich")
    assert plan.destination[plan.source == 3].tolist() == peers


@pytest.mark.theory
def test_scattered_alltoall_waits_for_batches_of_32() -> None:
    plan = planned(call_of("alltoall", 70, 1000), "mpich")
    steps = plan.step[: plan.participant_offsets[1]]
    runs = [len(run) for run in np.split(steps, np.flatnonzero(np.diff(steps)) + 1)]
    assert runs == [31] * 4 + [32] * 4 + [6] * 4


@pytest.mark.theory
def test_irregular_ring_goes_in_pieces_of_32_kib() -> None:
    counts = np.array([100_000, 10, 40_000])
    plan = schedule(CollectiveCall("allgatherv", 3, receive_counts=counts), Choice("ring"))
    assert plan.bytes.max() == 32768
    assert np.bincount(plan.source, plan.bytes).tolist() == [140_000, 100_010, 40_010]
    regular = schedule(call_of("allgatherv", 3, 100_000), Choice("ring"))
    assert (regular.bytes == 100_000).all()
