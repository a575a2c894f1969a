"""What collectives of streams, and messages of NCCL between GPUs, take in a run: traced times, or the model of NCCL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from manyscale.models.gpu.device.hosts import Given
from manyscale.models.gpu.device.program import Meetings
from manyscale.models.machine import Network
from manyscale.models.network.devices.demands import (
    Demands,
    of_collectives,
    of_messages,
    own_ways,
    with_bodies,
    with_fixed,
)
from manyscale.models.network.devices.model import rows_of_messages
from manyscale.models.network.flow.own_ways import OwnWays
from manyscale.models.network.nccl.fabric import Fabric
from manyscale.models.network.nccl.parameters import Nccl
from manyscale.models.network.program import Program
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Errs, Note, changes, percent
from manyscale.runner.errors import UserError
from manyscale.runner.predict.gpu.streams.given import Devices
from manyscale.runner.predict.gpu.traced.meetings import StreamCollectives
from manyscale.runner.predict.gpu.traced.times import TracedGiven
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.predict.units import Arrays


@dataclass(frozen=True)
class Taken:
    """``takes_ps`` int64[collectives], behind the arrival of the last member; ``demands`` of each, and of each message
    (``of_messages``) that goes from GPU to GPU, where the machine says how NCCL communicates; ``by_model``
    bool[collectives]: those that take what it says; ``messages_ps`` int64[messages of the program]: what those between
    GPUs take that take a time of their own, -1 of others; how many messages are of ranks whose streams communicate on
    several GPUs (``of_several``)."""

    traced: TracedGiven
    takes_ps: np.ndarray
    by_model: np.ndarray
    demands: Demands | None
    of_messages: Demands | None
    fabric: Fabric | None
    messages_ps: np.ndarray
    of_several: int = 0

    @property
    def alone_ps(self) -> np.ndarray:
        """int64[messages of the program]: what messages between GPUs take alone, -1 of others."""
        own = self.messages_ps
        return own if self.of_messages is None else np.where(own >= 0, own, self.of_messages.time_ps)

    def meetings(self, strand: np.ndarray | None = None) -> Meetings:
        """``strand`` int32[collectives]: of those whose end the network says, -1 of others."""
        none = np.full(len(self.takes_ps), -1, np.int32)
        return Meetings(self.traced.collectives.of_given, self.takes_ps, none if strand is None else strand)

    def at_once(self) -> Meetings:
        """The same where they take no time."""
        return Meetings(self.traced.collectives.of_given, 0 * self.takes_ps, np.full(len(self.takes_ps), -1, np.int32))

    def on_links(self, program: Program) -> tuple[Program, Meetings, OwnWays | None]:
        """The same where links of GPUs are shared: the program with what collectives that take what the model says
        send, and what goes over which links."""
        fixed = np.flatnonzero(self.messages_ps >= 0)
        if self.demands is None or self.of_messages is None or self.fabric is None:
            own = with_fixed(None, fixed, self.messages_ps[fixed]) if len(fixed) else None
            return program, self.meetings(), own
        of = self.traced.collectives
        mine = np.flatnonzero(self.by_model)
        leaders = np.array([each[0] if len(each) else 0 for each in of.members], np.int64)[of.communicator[mine]]
        size = np.array([each.bytes for each in self.demands.found], np.int64)[self.demands.which[mine]]
        program, messages, number = with_bodies(program, leaders, size)
        strand = np.full(len(self.takes_ps), -1, np.int32)
        strand[mine] = number
        between = np.flatnonzero(self.of_messages.which >= 0)
        every = self.demands.joined(self.of_messages)
        which = np.concatenate((mine, len(self.takes_ps) + between))
        own = own_ways(every, which, np.concatenate((messages, between)), self.fabric) if len(which) else None
        own = with_fixed(own, fixed, self.messages_ps[fixed]) if len(fixed) else own
        return program, self.meetings(strand), own

    def _unmeasured(self) -> np.ndarray:
        """int64[2]: how many collectives of groups within a node, and of others, take what no table says."""
        assert self.demands is not None
        assert self.fabric is not None
        mine = self.by_model & ~self.demands.is_measured
        last = [int(each.links[-1]) if len(each.links) else -1 for each in self.demands.found]
        over_nodes = np.array([*last, -1]) >= self.fabric.first_nic  # links of NICs and pods stand last
        return np.bincount(over_nodes[self.demands.which[mine]].astype(np.int64), minlength=2)

    def arrays(self) -> Arrays:
        """Named arrays, as results of work units are stored; none without a model of NCCL."""
        if self.demands is None:
            return {}
        found = self.demands.found
        names = sorted({f"{each.algorithm} {each.protocol}" for each in found})
        code = np.array([names.index(f"{each.algorithm} {each.protocol}") for each in found], np.int16)
        return {
            "collective_model_ps": self.demands.time_ps,
            "collective_traced_ps": np.where(self.traced.is_priced, self.traced.collectives.traced_ps, -1),
            "collectives_unmeasured": self._unmeasured(),
            "collective_by_model": self.by_model.astype(np.uint8),
            "collective_way": code[self.demands.which] if len(found) else np.zeros(0, np.int16),
            "collective_way_names": np.frombuffer("\n".join(names).encode(), np.uint8),
        }


def taken(
    traced: TracedGiven | None, program: Program, given: Given, on_device: np.ndarray, network: Network, num_gpus: int,
    num_nodes: int,
) -> Taken | None:  # fmt: skip
    """``given`` with GPUs of the machine; ``program``: the whole, whose messages are NCCL's where ``on_device``. None
    without traced times. Raises UserError for groups that the machine has no place for."""
    if traced is None:
        return None
    of = traced.collectives
    nccl = Nccl.of(network)
    known = of.traced_ps >= 0
    messages_ps = np.full(program.num_messages, -1, np.int64)
    messages_ps[: len(traced.messages_ps)] = traced.messages_ps
    if nccl is None:
        nothing = np.zeros(len(of), np.bool_)
        return Taken(traced, np.maximum(of.traced_ps, 0), nothing, None, None, None, messages_ps)
    gpu_of_rank, of_several = _communicating(given, program.num_ranks)
    members = _gpus_of_members(of, given, gpu_of_rank)
    row = rows_of_messages(program)
    source, destination = gpu_of_rank[program.source], gpu_of_rank[program.destination]
    between = (row >= 0) & on_device[np.maximum(row, 0)] & (source != destination) & (messages_ps < 0)
    try:
        fabric = Fabric(nccl, num_gpus, num_nodes)
        demands = of_collectives(of.kind, of.bytes, of.communicator, members, fabric, of.counts)
        messages = of_messages(between, source, destination, program.bytes, fabric)
    except ValueError as error:
        raise UserError(f"target: {error}") from None
    of_several = between & (of_several[program.source] | of_several[program.destination])
    by_model = ~known | ~traced.takes_traced
    takes = np.where(by_model, demands.time_ps, of.traced_ps)
    return Taken(traced, takes, by_model, demands, messages, fabric, messages_ps, int(np.count_nonzero(of_several)))


def _communicating(given: Given, num_ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """int64[ranks]: the GPU whose streams communicate, the lowest of several, and bool[ranks], whether there are
    several; of a rank that does not communicate the lowest that it uses."""
    gpu, of_several = np.zeros(num_ranks, np.int64), np.zeros(num_ranks, np.bool_)
    for part in (given, given.at(np.flatnonzero(given.kind == GpuOperationKind.communication))):
        pairs = Devices.of(part)
        rank, first, count = np.unique(pairs.rank, return_index=True, return_counts=True)
        gpu[rank], of_several[:] = pairs.device[first], False
        of_several[rank] = count > 1
    return gpu, of_several


def _gpus_of_members(of: StreamCollectives, given: Given, gpu_of_rank: np.ndarray) -> list[np.ndarray]:
    """GPUs of the members of each communicator, in its order; of one that has no collectives on streams its ranks."""
    rows = np.flatnonzero(of.of_given >= 0)
    communicator, rank, gpu = of.communicator[of.of_given[rows]], given.rank[rows], given.gpu[rows]
    used = np.zeros(len(of.members), np.bool_)
    used[communicator] = True
    members = [gpu_of_rank[each] if is_used else each for each, is_used in zip(of.members, used, strict=True)]
    elsewhere = np.flatnonzero(gpu_of_rank[rank] != gpu)
    for number in np.unique(communicator[elsewhere]).tolist():
        mine = elsewhere[communicator[elsewhere] == number]
        own = gpu_of_rank.copy()
        own[rank[mine]] = gpu[mine]
        members[number] = own[of.members[number]]
    return members


def beside_ps(taken: Taken, rank: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """float64[2]: of the time (ps) in which GPUs take part in collectives that take what the model says, how much is
    beside others of the same rank, and all. ``rank``, ``begin`` and ``end`` int64[given]. O(given log given)."""
    of = taken.traced.collectives.of_given
    rows = np.flatnonzero(of >= 0)
    rows = rows[taken.by_model[of[rows]] & (begin[rows] >= 0)]
    rows = rows[np.lexsort((begin[rows], rank[rows]))]
    if not len(rows):
        return np.zeros(2)
    who, first, last = rank[rows], begin[rows], end[rows]
    order, place = np.unique(last, return_inverse=True)
    before = np.maximum.accumulate(place + who.astype(np.int64) * len(order))  # ranks one behind the other
    shared = np.clip(np.minimum(order[before[:-1] % len(order)], last[1:]) - first[1:], 0, None)
    shared[np.diff(who) != 0] = 0
    return np.array([shared.sum(dtype=np.float64), (last - first).sum(dtype=np.float64)])


def notes(arrays: Mapping[str, np.ndarray]) -> list[Note]:
    """Where NCCL's formula alone says what collectives take, and where they do not share what they would."""
    found = []
    beside, whole = arrays.get("collectives_beside_ps", np.zeros(2)).tolist()
    if beside:
        text = (
            f"{percent(beside / whole)} of the time of collectives ran beside others of the same GPU, each as fast as "
            "alone (model network: flow shares links)"
        )
        found.append(changes("collectives-beside", text, errs=Errs.short))
    counts = arrays.get("collectives_unmeasured", np.zeros(2, np.int64)).tolist()
    for count, where in zip(counts, ("", " between nodes"), strict=True):
        if count:
            text = (
                f"{count:,} collectives{where} were not measured on the target (network.nccl.tables): they take what "
                "NCCL's tuner has, which is up to twice too quick from 1 to 64 MiB"
            )
            found.append(changes("collectives-unmeasured", text, count=count, errs=Errs.short))
    return found


def statistics(arrays: Mapping[str, np.ndarray]) -> dict[str, Statistic]:
    """What a model of NCCL says of collectives whose times were traced."""
    if "collective_model_ps" not in arrays:
        return {}
    model, traced = (arrays[f"collective_{name}_ps"].astype(np.float64) for name in ("model", "traced"))
    known = traced > 0
    if not known.any():
        return {}
    error = np.abs(model[known] / traced[known] - 1)
    text = "of the traced time: what the model of NCCL is off for"
    return {
        "nccl.model_ratio": Statistic(
            float(model[known].sum() / traced[known].sum()), "1", "ratio",
            "time of all collectives by the model of NCCL / their traced time",
        ),
        "nccl.mean_error": Statistic(float(error.mean()), "1", "ratio", f"share {text} a collective, mean"),
        "nccl.max_error": Statistic(float(error.max()), "1", "ratio", f"share {text} a collective, the most"),
    }  # fmt: skip
