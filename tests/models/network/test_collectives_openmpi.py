"""Preset "openmpi" against SimGrid 3.32 with smpi/coll-selector:ompi, whose decision tables are those of Open MPI 4.1.

SimGrid puts algorithms of its own in the place of some of Open MPI's, or picks segments as older releases did;
`as_simgrid_does` says which. Where it knows no equal the call is left out here. The order of the decisions, the trees,
segments, rings and halvings are all compared to 1e-10 s per participant, everybody arriving at another time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from test_collectives_simgrid import ROOTED, TOLERANCE_S, Case, run_smpi

from manyscale.models.network.collectives.algorithms import Choice, CollectiveCall, choose, schedule
from manyscale.models.network.collectives.openmpi import _DECISIONS

Execute = Callable[..., list[float]]

SELECTOR = "--cfg=smpi/coll-selector:ompi"
EAGER_BYTES = 65536
MEMORY_BYTES = 1 << 28  # of all buffers of a case in which every participant holds a block of each


def as_simgrid_does(call: CollectiveCall) -> Choice | None:
    """What SimGrid sends where Open MPI takes its algorithm for this call; None where nothing here is equal."""
    choice = choose(call, "openmpi")
    assert isinstance(choice, Choice)
    kind, n, size, name = call.base_kind, call.num_participants, call.send_bytes, choice.algorithm
    core = 1 << (n.bit_length() - 1)
    own = {
        ("bcast", "linear"): None,  # a pipeline of 8 KiB
        ("bcast", "binary"): None,  # another binary tree
        ("bcast", "chain"): Choice("chain", bcast_pipeline_segment(n, size)),
        ("bcast", "binomial-ascending"): Choice("binomial"),
        ("bcast", "knomial"): choice if size < EAGER_BYTES else None,  # waits for each level's sends
        ("reduce", "rabenseifner-halves"): Choice("linear-ordered"),
        ("reduce", "binary"): Choice("binary", 32768),
        ("reduce", "chain"): reduce_chain(n, size),
        ("reduce", "binomial-in-order"): Choice("binomial-in-order", reduce_binomial_segment(n, size)),
        ("allreduce", "rabenseifner-halves"): Choice("rabenseifner")
        if size % (core * call.element_bytes) == 0
        else None,
        # its ring leaves the rest of a division to a second reduction
        ("allreduce", "ring"): choice if size % (n * call.element_bytes) == 0 else None,
        ("reduce_scatter", "nonoverlapping"): choose(call, "simgrid-3.32"),
        # where one of two partners has nothing to send, SimGrid leaves out the other's message too
        ("reduce_scatter", "recursive-halving"): choice if (call.block_bytes > 0).all() else None,
        ("allgather", "doubling-or-bruck"): Choice("recursive-doubling"),
        ("allgather", "whole-ring"): choice if n == 2 else None,
        ("allgatherv", "gather-bcast"): None,
        ("allgatherv", "whole-ring"): choice if n == 2 else Choice("ring"),
        # the nearest child first, as Open MPI did up to 4.0, which shows if sends wait
        ("scatter", "binomial"): choice if size * max(core // 2, n - core) < EAGER_BYTES else None,
        ("gather", "linear-synchronized"): Choice("linear-synchronized", 32768 if size > 92160 else 1024),
        ("alltoall", "pairwise-shift"): Choice("pairwise") if n & (n - 1) == 0 else None,  # else SimGrid stops
        ("alltoallv", "pairwise-shift"): Choice("pairwise") if n & (n - 1) == 0 else None,
    }
    return own.get((kind, name), choice)


def bcast_pipeline_segment(n: int, size: int) -> int:
    if n < 1.6134e-6 * size + 2.1102:
        return 131072
    if n < 2.3679e-6 * size + 1.1787:
        return 65536
    return 16384 if n < 3.2118e-6 * size + 8.7936 else 131072


def reduce_chain(n: int, size: int) -> Choice | None:
    if n >= 4:
        return None  # n / 2 chains side by side
    if 524288 <= size < 1048576:
        return Choice("chain", 65536)
    if n > 0.0410 / 1024 * size + 9.7128:
        return Choice("chain", 1024)
    return Choice("chain", 32768 if n > 0.0033 / 1024 * size + 1.6761 else 65536)


def reduce_binomial_segment(n: int, size: int) -> int:
    if (n < 8 and size < 20480) or size < 2048:
        return 0
    return 1024 if n > 0.6016 / 1024 * size + 1.3496 else 0


def call_of(kind: str, n: int, size: int, root: int, element_bytes: int) -> CollectiveCall:
    rank = np.arange(n)
    counts = {
        "allgatherv": {"receive_counts": np.full(n, size)},
        "alltoallv": {"send_counts": size * (1 + rank[:, None] + 2 * rank[None, :])},
        "reduce_scatter": {
            "receive_counts": (size // element_bytes // n + (rank < size // element_bytes % n)) * element_bytes
        },
    }
    own = counts.get(kind, {})
    return CollectiveCall(kind, n, root, size, size, **own, element_bytes=element_bytes)


def sizes_of(kind: str, n: int) -> list[int]:
    """Sizes around every limit of the decisions for n participants, and some between."""
    limits = next(row for below, row in _DECISIONS[kind] if n < below)
    sizes = {1, 40, 1000, 30000, 100_000, 400_000}
    for limit, _ in limits[:-1]:
        sizes |= {limit - 1, limit, limit + 8}
    if kind in ("gather", "scatter", "allgather", "allgatherv", "alltoall", "alltoallv"):
        sizes = {size for size in sizes if size * n * n <= MEMORY_BYTES}
    return [0] if kind == "barrier" else sorted(size for size in sizes if size)


def cases_of(n: int) -> Iterator[tuple[Case, Choice]]:
    rng = np.random.default_rng(n)
    for kind in _DECISIONS:
        for size in sizes_of(kind, n):
            for element_bytes in (1, 8):
                if size % element_bytes:
                    continue
                root = int(rng.integers(n)) if kind in ROOTED else 0
                call = call_of(kind, n, size, root, element_bytes)
                choice = as_simgrid_does(call)
                if choice is not None:
                    yield (call, (rng.integers(0, 400, n) * 7e-7).round(9), np.zeros(n)), choice


def warm_up(n: int) -> list[Case]:
    """Cases that are not compared: SimGrid's first k-nomial broadcast makes communicators."""
    calls = [call_of("bcast", n, size, 0, 1) for size in (600, 3000)]
    return [(call, np.zeros(n), np.zeros(n)) for call in calls]


def compare(n: int, folder: Path, execute: Execute) -> None:
    chosen = list(cases_of(n))
    first = warm_up(n)
    ends = run_smpi(folder, n, [*first, *(case for case, _ in chosen)], SELECTOR)[len(first) :]
    worst, wrong = 0.0, []
    for (case, choice), expected in zip(chosen, ends, strict=True):
        call, arrival, _ = case
        plan = schedule(call, choice)
        plan.validate()
        difference = float(np.abs(np.array(execute(plan, arrival=arrival)) - expected).max())
        worst = max(worst, difference)
        if not difference <= TOLERANCE_S:
            wrong.append((call.kind, call.send_bytes, call.element_bytes, call.root, choice, difference))
    print(f"\n{n} participants: {len(chosen)} cases, worst difference {worst:.1e} s")
    assert not wrong, wrong


@pytest.mark.peer
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_decisions_and_algorithms_against_smpi(n: int, tmp_path: Path, execute: Execute) -> None:
    compare(n, tmp_path, execute)


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("n", [4, 6, 7, *range(9, 18), 32, 33])
def test_decisions_and_algorithms_against_smpi_at_every_size(n: int, tmp_path: Path, execute: Execute) -> None:
    compare(n, tmp_path, execute)
