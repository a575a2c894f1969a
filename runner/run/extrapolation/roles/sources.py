"""Which traced rank a new rank takes after, and who its partners are.

A new rank takes after the traced rank at the place that each of its coordinates stands for, and has its sequence of
operations, sizes and times:

- a dimension that does not grow keeps its places;
- along a dimension in which point-to-point messages go (a pipeline) the first and the last place stay so, and those
  between are spread over the traced ones between: at least three places have to be traced for it to grow;
- any other goes through the traced places again and again; if all but the first are alike there (the first writes
  checkpoints, say), through all but the first.

So members of a group take after members of one traced group, and a message's two ends after those of one message. A
traced rank without operations is missing: another one has to stand in for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from manyscale.models.workload import RECEIVES, SENDS, OperationKind, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.run.extrapolation.roles.families import Families
from manyscale.runner.run.extrapolation.roles.layout import Layout

PEERS = (*SENDS, *RECEIVES)


@dataclass(frozen=True)
class Sources:
    """``place`` int64[new ranks]: the traced rank at whose place each stands; ``rank`` int64[new ranks]: the one it
    takes after (the same, or who stands in for it); ``is_traced`` bool[new ranks]: whether it is that rank itself;
    ``chains`` bool[dimensions of the new layout]: along which messages go; ``role`` int64[traced ranks]: equal for like
    ranks at one place of the pipeline and of what does not grow."""

    place: np.ndarray
    rank: np.ndarray
    is_traced: np.ndarray
    chains: np.ndarray
    role: np.ndarray


def find_sources(
    workload: Workload,
    traced: Layout,
    layout: Layout,
    families: Families,
    stand_ins: Mapping[int, int],
    path: str,
) -> Sources:
    """Raises UserError for a missing rank without stand-in, and for a pipeline that cannot grow."""
    stands_for = _stand_ins(workload, stand_ins, path)
    sequence = sequences(workload, families)[stands_for]
    old = traced.in_order(layout.names)
    at = traced.coordinates(np.arange(workload.num_ranks))[:, [traced.names.index(name) for name in layout.names]]
    chains = _chains(workload, at)
    places = []
    for dimension, (name, before, after) in enumerate(zip(layout.names, old.sizes, layout.sizes, strict=True)):
        if after < before:
            raise UserError(
                f"--groups {layout}: {name} would shrink from {before} to {after}; trace fewer ranks for that"
            )
        if chains[dimension] and after > before:
            if before < 3:
                raise UserError(
                    f"--groups {layout}: {path} has {before} places along {name}, in which messages go: none between "
                    f"the first and the last is there as a model; keep {name}={before}, or trace at least 3"
                )
            between = np.arange(max(0, after - 2)) * (before - 2) // max(1, after - 2)
            places.append(np.concatenate(([0], 1 + between, [before - 1])))
        else:
            places.append(_again(_slices(sequence, at, dimension, before), after))
    new_at = layout.coordinates(np.arange(layout.num_ranks))
    in_trace = np.stack([place[new_at[:, dimension]] for dimension, place in enumerate(places)], axis=1)
    order = [layout.names.index(name) for name in traced.names]
    place = traced.ranks(in_trace[:, order])
    rank = stands_for[place]
    is_traced = (rank == place) & np.all(
        (in_trace == new_at)
        | ((in_trace == np.array(old.sizes) - 1) & (new_at == np.array(layout.sizes) - 1) & chains),
        axis=1,
    )
    kept = [d for d in range(len(layout.sizes)) if layout.sizes[d] == old.sizes[d] or chains[d]]
    _, role = np.unique(np.column_stack((at[:, kept], sequence)), axis=0, return_inverse=True)
    alone = stands_for != np.arange(workload.num_ranks)  # who is stood in for was not measured
    role = np.where(alone, role.max(initial=0) + 1 + np.arange(workload.num_ranks), np.asarray(role).ravel())
    return Sources(place, rank, is_traced, chains, role)


def _stand_ins(workload: Workload, given: Mapping[int, int], path: str) -> np.ndarray:
    """int64[ranks]: who has the operations of each. Raises UserError."""
    has = np.diff(workload.rank_offsets) > 0
    stands_for = np.arange(workload.num_ranks)
    for rank, other in given.items():
        for each in (rank, other):
            if not 0 <= each < workload.num_ranks:
                raise UserError(f"--role {rank}={other}: {path} has ranks 0 to {workload.num_ranks - 1}, not {each}")
        if has[rank] and rank != other:
            raise UserError(f"--role {rank}={other}: {path} has operations of rank {rank}; name ranks that it misses")
        if not has[other]:
            raise UserError(f"--role {rank}={other}: {path} has no operations of rank {other}; name one that it has")
        stands_for[rank] = other
    missing = np.flatnonzero(~has[stands_for])
    if len(missing):
        some = ", ".join(map(str, missing[:8].tolist())) + (", ..." if len(missing) > 8 else "")
        example = f"--role {missing[0]}={np.flatnonzero(has)[0]}" if has.any() else "a trace with operations"
        raise UserError(f"{path}: has no operations of ranks {some}; say after which rank each takes, e.g. {example}")
    return stands_for


def sequences(workload: Workload, families: Families) -> np.ndarray:
    """int64[ranks]: a number that is equal for ranks with equal sequences of operations, whatever their sizes, times
    and tags, and by which numbers they know streams and events. O(rows)."""
    operations = [workload.column("operations", "kind")]
    operations.append(families.of_communicator[workload.column("operations", "communicator_id")])
    has_peer = workload.column("operations", "peer") >= 0
    operations.append(has_peer)
    given = [
        workload.column("gpu_operations", name) for name in ("operation_id", "kind", "device", "thread", "kernel_id")
    ]
    numbered = [workload.column("gpu_operations", name) for name in ("stream", "event")]
    numbers: dict[bytes, int] = {}
    found = np.empty(workload.num_ranks, np.int64)
    tables: list[tuple[np.ndarray, np.ndarray]] = [
        (workload.rank_offsets, np.column_stack(operations).astype(np.int32)),
        (offsets(workload, "gpu_operations"), np.column_stack(given).astype(np.int32)),
    ]
    for rank in range(workload.num_ranks):
        state = hashlib.blake2b(digest_size=16)
        for bounds, rows in tables:
            state.update(np.ascontiguousarray(rows[bounds[rank] : bounds[rank + 1]]).data)
            state.update(b"|")
        for column in numbered:
            state.update(_by_first_use(column[bounds[rank] : bounds[rank + 1]]).data)
        found[rank] = numbers.setdefault(state.digest(), len(numbers))
    return found


def _by_first_use(numbers: np.ndarray) -> np.ndarray:
    """int64[n]: the same with the first that occurs as 0, the next one that is another as 1, and so on."""
    _, first, index = np.unique(numbers, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[index]


def offsets(workload: Workload, level: str) -> np.ndarray:
    """int64[ranks + 1]: where each rank's rows of a table begin."""
    ranks = workload.column(level, "rank")
    return np.searchsorted(ranks, np.arange(workload.num_ranks + 1, dtype=ranks.dtype)).astype(np.int64)


def _chains(workload: Workload, at: np.ndarray) -> np.ndarray:
    """bool[dimensions]: along which point-to-point messages go."""
    kind, rank, peer = (workload.column("operations", name) for name in ("kind", "rank", "peer"))
    rows = np.flatnonzero(np.isin(kind, PEERS) & (peer >= 0))
    pairs = np.unique(np.column_stack((rank[rows], peer[rows])), axis=0)
    return np.asarray(np.any(at[pairs[:, 0]] != at[pairs[:, 1]], axis=0))


def _slices(sequence: np.ndarray, at: np.ndarray, dimension: int, size: int) -> np.ndarray:
    """int64[size]: a number for each place of a dimension that is equal where the ranks there are alike."""
    order = np.lexsort((*np.delete(at, dimension, axis=1).T, at[:, dimension]))
    _, found = np.unique(sequence[order].reshape(size, -1), axis=0, return_inverse=True)
    return np.asarray(found).ravel()


def _again(kinds: np.ndarray, size: int) -> np.ndarray:
    """int64[size]: the traced places again and again, or all but a first one that is unlike all others."""
    before = len(kinds)
    is_first_alone = before > 2 and np.all(kinds[1:] == kinds[1]) and kinds[0] != kinds[1]
    cycle = np.arange(1 if is_first_alone else 0, before)
    more = np.arange(size - before)
    return np.concatenate((np.arange(before), cycle[more % len(cycle)]))


def new_peers(
    workload: Workload, traced: Layout, layout: Layout, rows: np.ndarray, new_rank: np.ndarray, column: str = "peer"
) -> np.ndarray:
    """int32[n]: partners of ``new_rank`` int64[n] in the traced operations ``rows`` int64[n], which have one in
    ``column``."""
    moved = [traced.names.index(name) for name in layout.names]
    rank, peer = (workload.column("operations", name)[rows] for name in ("rank", column))
    here, there = (traced.coordinates(each)[:, moved] for each in (rank, peer))
    old, new = np.array([traced.sizes[at] for at in moved]), np.array(layout.sizes)
    at = layout.coordinates(new_rank)
    away = there - here
    found = np.where(old == new, (at + away) % new, at + away)
    grows = (old != new) & (away != 0)
    found = np.where(grows & (here == old - 1) & (there == 0), 0, found)  # round to the first, or to the last
    found = np.where(grows & (here == 0) & (there == old - 1), new - 1, found)
    return layout.ranks(np.clip(found, 0, new - 1)).astype(np.int32)


def unmatched(
    operations: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], num_ranks: int
) -> tuple[int, int] | None:
    """Two ranks of which the first sends the second more or fewer messages than that receives, None if there are none.
    ``operations``: kind, rank, peer and source columns."""
    kind, rank, peer, source = operations
    sends = np.isin(kind, SENDS) & (peer >= 0)
    receives = np.isin(kind, (int(OperationKind.recv), int(OperationKind.irecv))) & (peer >= 0)
    both = (kind == int(OperationKind.sendrecv)) & (source >= 0)
    sent = rank[sends].astype(np.int64) * num_ranks + peer[sends]
    received = np.concatenate(
        (peer[receives].astype(np.int64) * num_ranks + rank[receives],
         source[both].astype(np.int64) * num_ranks + rank[both])
    )  # fmt: skip
    pairs, index = np.unique(np.concatenate((sent, received)), return_inverse=True)
    balance = np.bincount(index, np.repeat((1.0, -1.0), (len(sent), len(received))), minlength=len(pairs))
    wrong = np.flatnonzero(balance)
    return None if not len(wrong) else (int(pairs[wrong[0]]) // num_ranks, int(pairs[wrong[0]]) % num_ranks)
