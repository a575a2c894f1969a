"""Collectives as schedules: a contract for every algorithm, closed forms, data flow, the presets' choices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.network import collectives_rings as rings
from manyscale.models.network import collectives_rounds as rounds
from manyscale.models.network import collectives_trees as trees
from manyscale.models.network.collectives import ALGORITHMS, KINDS, SEGMENTED, Choice, CollectiveCall, choose, schedule
from manyscale.models.network.schedules import Schedule, Step

BLOCK = 24
MESSAGE_PRESETS = ("simgrid-3.32", "mpich", "openmpi")
EVERY_ALGORITHM = [(kind, name) for kind, table in ALGORITHMS.items() for name in table]
Execute = Callable[..., list[float]]


def call_of(kind: str, n: int, size: int = BLOCK, root: int = 0) -> CollectiveCall:
    """A call in which every block has `size` bytes."""
    base = kind.removeprefix("i")
    counted = {
        "gatherv": {"receive_counts": np.full(n, size)},
        "allgatherv": {"receive_counts": np.full(n, size)},
        "scatterv": {"send_counts": np.full(n, size)},
        "alltoallv": {"send_counts": np.full((n, n), size)},
    }
    sizes = {"receive_bytes" if base == "reduce_scatter" else "send_bytes": size}
    return CollectiveCall(kind, n, root, **sizes, **counted.get(base, {}))


def chosen(call: CollectiveCall, preset: str) -> str:
    """Name of the preset's algorithm."""
    choice = choose(call, preset)
    assert isinstance(choice, Choice)
    return choice.algorithm


def planned(call: CollectiveCall, preset: str) -> Schedule:
    """The messages of a preset's algorithm."""
    choice = choose(call, preset)
    assert isinstance(choice, Choice)
    return schedule(call, choice)


def roots_of(kind: str, n: int) -> set[int]:
    is_rooted = kind in ("bcast", "reduce", "gather", "gatherv", "scatter", "scatterv")
    return {0, n // 2, n - 1, min(1, n - 1)} if is_rooted else {0}


def walk(plan: Schedule, on_post: Callable[[int, int], object], on_receive: Callable[..., None]) -> None:
    """Run the steps in a causal order, all messages eager.

    on_post(participant, message) returns what the message carries; on_receive(participant, message, carried)
    takes it in.
    """
    position = [int(offset) for offset in plan.participant_offsets[:-1]]
    end = [int(offset) for offset in plan.participant_offsets[1:]]
    carried: dict[int, object] = {}
    progress = True
    while progress:
        progress = False
        for i in range(plan.num_participants):
            while position[i] < end[i]:
                step, message = plan.step[position[i]], int(plan.message[position[i]])
                if step == Step.POST_SEND:
                    carried[message] = on_post(i, message)
                elif step == Step.WAIT_RECEIVE:
                    if message not in carried:
                        break
                    on_receive(i, message, carried[message])
                position[i] += 1
                progress = True
    assert position == end, "some participants wait for ever"


def dependencies(plan: Schedule) -> list[set[int]]:
    """For each participant, on whose contributions it depends at the end."""
    known = [{i} for i in range(plan.num_participants)]
    walk(plan, lambda i, message: set(known[i]), lambda i, message, carried: known[i].update(carried))
    return known


def partial_sums(plan: Schedule, num_blocks: int) -> list[dict[int, set[int]]]:
    """Run a reduction whose block i has 2**i bytes, so that a message's size says which blocks it carries.

    Returns whose contributions each participant's partial sum of each block holds at the end. A contribution
    must not be added twice; a complete sum replaces what was there.
    """
    n = plan.num_participants
    sums = [{block: {i} for block in range(num_blocks)} for i in range(n)]

    def post(i: int, message: int) -> dict[int, set[int]]:
        size = int(plan.bytes[message])
        return {block: set(sums[i][block]) for block in range(num_blocks) if size >> block & 1}

    def receive(i: int, message: int, carried: dict[int, set[int]]) -> None:
        for block, contributions in carried.items():
            assert len(contributions) == n or not contributions & sums[i][block], "added twice"
            sums[i][block] |= contributions

    walk(plan, post, receive)
    return sums


def needed(kind: str, n: int, root: int) -> Iterator[set[int]]:
    """Whose contributions each participant must have seen."""
    for i in range(n):
        if kind in ("bcast", "scatter", "scatterv"):
            yield {root}
        elif kind in ("reduce", "gather", "gatherv"):
            yield set(range(n)) if i == root else set()
        elif kind in ("scan", "exscan"):
            yield set(range(i))
        else:
            yield set(range(n))


@pytest.mark.contract
@pytest.mark.parametrize(("kind", "name"), EVERY_ALGORITHM)
@pytest.mark.parametrize("n", range(1, 18))
def test_contract(kind: str, name: str, n: int, execute: Execute) -> None:
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
