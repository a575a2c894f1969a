"""What collectives that streams take part in, and messages between GPUs, ask of the links of a machine whose NCCL is
described (network.nccl): one Demand for all that are alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from manyscale.models.network.flow.own_ways import OwnWays
from manyscale.models.network.matching import Mode
from manyscale.models.network.nccl.demand import Demand, demand
from manyscale.models.network.nccl.fabric import Fabric
from manyscale.models.network.program import Program
from manyscale.models.network.replay.steps import POST_RECEIVE, POST_SEND, WAIT_RECEIVE
from manyscale.models.workload import OperationKind


@dataclass(frozen=True)
class Demands:
    """``found``: those that differ; ``which`` int32[n]: that of each collective or message, -1 for one without."""

    found: tuple[Demand, ...]
    which: np.ndarray

    @property
    def time_ps(self) -> np.ndarray:
        """int64[n]: what each takes alone, -1 of one without."""
        return np.array([*(each.time_ps for each in self.found), -1], np.int64)[self.which]

    @property
    def is_measured(self) -> np.ndarray:
        """bool[n]: whose times follow a table of the target, or take none."""
        return np.array([*(each.is_measured or each.time_ps == 0 for each in self.found), True], np.bool_)[self.which]

    def joined(self, other: Demands) -> Demands:
        """Of both, one behind the other."""
        moved = np.where(other.which >= 0, other.which + len(self.found), -1)
        return Demands((*self.found, *other.found), np.append(self.which, moved).astype(np.int32))


def of_collectives(
    kind: np.ndarray,
    size: np.ndarray,
    group: np.ndarray,
    members: Sequence[np.ndarray],
    fabric: Fabric,
    counts: Mapping[int, np.ndarray],
) -> Demands:
    """``kind``, ``size`` and ``group`` [n]; ``members``: GPUs of each group in its order; ``counts``: bytes from each
    member to each, of uneven all-to-alls by their number. O(n log n + members of groups that differ). Raises ValueError
    for groups that the machine has no place for."""
    uneven = np.zeros(len(kind), np.int64)
    known: dict[bytes, int] = {}
    for number, table in counts.items():
        uneven[number] = known.setdefault(table.tobytes(), len(known) + 1)
    _, first, which = np.unique(
        np.stack((kind.astype(np.int64), size, group.astype(np.int64), uneven)), axis=1, return_index=True,
        return_inverse=True,
    )  # fmt: skip
    found = [
        demand(
            OperationKind(int(kind[number])), int(size[number]), members[int(group[number])], fabric,
            counts=counts.get(number),
        )
        for number in first.tolist()
    ]  # fmt: skip
    return Demands(tuple(found), np.asarray(which).ravel().astype(np.int32))


def of_messages(
    is_between: np.ndarray, source: np.ndarray, destination: np.ndarray, size: np.ndarray, fabric: Fabric
) -> Demands:
    """Of messages where ``is_between`` bool[n], from GPU ``source`` to GPU ``destination`` (int64[n]), two of the
    machine's. O(n log n)."""
    which = np.full(len(size), -1, np.int32)
    mine = np.flatnonzero(is_between)
    if not len(mine):
        return Demands((), which)
    asked = np.stack((source[mine], destination[mine], size[mine].astype(np.int64)))
    key, inverse = np.unique(asked, axis=1, return_inverse=True)
    which[mine] = np.asarray(inverse).ravel()
    found = [demand(OperationKind.isend, each[2], np.array(each[:2]), fabric) for each in key.T.tolist()]
    return Demands(tuple(found), which)


def own_ways(demands: Demands, which: np.ndarray, message: np.ndarray, fabric: Fabric) -> OwnWays:
    """How ``message`` int64[m], which are what ``which`` int64[m] of ``demands`` ask for, go over the fabric: over
    those links alone that any of them takes. Several share what one of NCCL's transfers reaches of a link (the fabric's
    ``link_ratio``, or what any of the demands has there alone). O(m + links of demands that differ)."""
    used = demands.which[which]
    asked, way = np.unique(used, return_inverse=True)
    found = [demands.found[each] for each in asked.tolist()]
    counts = [len(each.links) for each in found]
    every = np.concatenate([np.zeros(0, np.int64), *(each.links for each in found)]).astype(np.int64)
    links, number = np.unique(every, return_inverse=True)
    way = np.asarray(way).ravel()
    of = {name: np.array([getattr(each, name) for each in found], np.float64)[way] if found else np.zeros(0)
          for name in ("latency_ps", "bytes", "ps_per_byte")}  # fmt: skip
    rate = fabric.link_ratio[links] / np.maximum(fabric.link_ps_per_byte[links], 1e-12)
    alone = np.repeat([each.ps_per_byte or np.inf for each in found], counts)
    uses = np.concatenate([np.zeros(0), *(each.uses for each in found)])
    np.maximum.at(rate, np.asarray(number).ravel(), uses / alone)
    return OwnWays(
        message=message,
        way=way,
        offsets=np.append(0, np.cumsum(counts)).astype(np.int64),
        links=np.asarray(number).ravel(),
        uses=uses,
        link_names=tuple(fabric.link_name(each) for each in links.tolist()),
        link_ps_per_byte=1.0 / rate,
        **of,
    )


def with_fixed(own: OwnWays | None, message: np.ndarray, took_ps: np.ndarray) -> OwnWays:
    """With ``message`` int64[m], none of ``own``'s, which take ``took_ps`` int64[m] and share nothing."""
    nothing, count = np.zeros(0), len(message)
    if own is None:
        empty = np.zeros(0, np.int64)
        own = OwnWays(empty, nothing, nothing, nothing, empty, np.zeros(1, np.int64), empty, nothing, (), nothing)
    return replace(
        own,
        message=np.append(own.message, message),
        latency_ps=np.append(own.latency_ps, took_ps.astype(np.float64)),
        bytes=np.append(own.bytes, np.zeros(count)),
        ps_per_byte=np.append(own.ps_per_byte, np.zeros(count)),
        way=np.append(own.way, np.full(count, len(own.offsets) - 1)),
        offsets=np.append(own.offsets, own.offsets[-1]),
    )


def with_bodies(program: Program, rank: np.ndarray, size: np.ndarray) -> tuple[Program, np.ndarray, np.ndarray]:
    """The program with a message of ``rank`` (int64[n]) to itself for each collective, of ``size`` bytes; int64[n], the
    messages, and int32[n], the strands that send them once all operations are strands of their own."""
    count = len(rank)
    messages = program.num_messages + np.arange(count)
    steps = np.tile(np.array([POST_RECEIVE, POST_SEND, WAIT_RECEIVE], program.step.dtype), count)
    children = len(program.strand_rank) - program.num_ranks
    strands = int(program.rank_offsets[-1]) + children + np.arange(count)
    found = replace(
        program,
        step=np.concatenate((program.step, steps)),
        target=np.concatenate((program.target, np.repeat(messages, 3).astype(program.target.dtype))),
        strand_steps=np.concatenate((program.strand_steps, program.strand_steps[-1] + 3 * (1 + np.arange(count)))),
        strand_rank=np.concatenate((program.strand_rank, rank.astype(np.int32))),
        source=np.concatenate((program.source, rank)).astype(program.source.dtype),
        destination=np.concatenate((program.destination, rank)).astype(program.destination.dtype),
        bytes=np.concatenate((program.bytes, size)).astype(program.bytes.dtype),
        mode=np.concatenate((program.mode, np.full(count, Mode.standard, program.mode.dtype))),
    )
    return found, messages, strands.astype(np.int32)
