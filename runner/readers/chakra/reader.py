"""Chakra execution traces as a workload.

What becomes of nodes
---------------------
- Nodes of the CPU (``is_cpu_op``) take their time on the thread that ``tid`` names, one after the other. A collective
  among them is the call of one on the GPU, and communicates nothing.
- Nodes of the GPU are work of the stream that ``stream``, or else ``tid``, names. A trace without streams gets one for
  kernels, one for each process group, and one to and one from each rank for messages. Nodes stand on their stream in
  the order in which threads launch them; where no node is the CPU's, in the order in which they are ready, those with
  lower numbers first.
- Dependencies (``data_deps``, as Chakra's feeder and ASTRA-sim take them; ``parent`` before 0.0.4) between streams are
  events, those for which a thread waits are synchronisations, those between threads signals.
- A receive does not wait for sends: they may wait for their receivers.
- Collectives of one process group are the same operation in the order of each rank. ``comm_size`` is the input of a
  rank: for an all-gather its part, for a reduce-scatter and an all-to-all the whole (as ASTRA-sim counts).
- Memory nodes are copies between the host and the GPU.
- ``num_ops`` and ``tensor_size`` of kernels are their operations, of bf16 by assumption, and the bytes that they move.
- Times are those of ``duration_micros``; starts decide an order only, as converters write 0. Where all nodes that take
  time tell their starts, the step that was measured is from the first of these to the last end.
- Linked traces lose what orders streams among each other: then collectives wait for the kernel that was launched before
  them, as in PyTorch, and nothing waits for a collective.

All this is told in notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import OperationKind, Workload
from manyscale.models.workload.notes import Errs, Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.chakra.files import TraceFile, files_of
from manyscale.runner.readers.chakra.groups import Groups, check_matches, groups_of
from manyscale.runner.readers.chakra.nodes import Node, RankNodes, read_nodes
from manyscale.runner.readers.chakra.operations import Counts, Kernels, RankMade, rank_operations, with_sizes
from manyscale.runner.readers.chakra.parting import part_by_streams
from manyscale.runner.readers.kineto.kernels import class_of, precision_of
from manyscale.runner.readers.stream_tables import (
    groups_table,
    kernels_table,
    measured_steps_table,
    steps_table,
    stream_tables,
)

NAME: Final = "chakra"
_US_PS: Final = 1_000_000
_LONGEST_PS: Final = 10**18  # eleven days and a half
_ASSUMED_PRECISION: Final = "bf16"  # as training runs


def read(path: Path) -> Workload:
    """The workload. Raises UserError."""
    traces = [read_nodes(file) for file in _files(path)]
    schemas = {each.schema for each in traces}
    if len(schemas) > 1:
        raise UserError(f"{path}: files have schemas {', '.join(sorted(schemas))}; keep the traces of one run apart")
    groups = groups_of(path, traces)
    kernels, counts = Kernels(), Counts()
    places = {each.file.rank: place for place, each in enumerate(traces)}
    made = [rank_operations(place, each, places, groups, kernels, counts) for place, each in enumerate(traces)]
    parted = part_by_streams(made, groups)
    collectives = _by_communicator(made, groups)
    check_matches(traces, groups, collectives)
    _check_messages(traces, made)
    sizes = [groups.size(number, len(made)) for number in range(len(groups.members) + 1)]
    for each in made:
        with_sizes(each, sizes)
    unequal = _share_times(made, groups)
    _share_times_of_messages(made)
    tables = stream_tables([each.rows for each in made], groups.members, list(kernels.region))
    tables["kernels"] = _kernels(kernels)
    tables["groups"] = groups_table([(number, name) for number, name in enumerate(groups.names, 1)])
    ranks = np.arange(len(made))
    last = np.array([len(each.rows.rows) - 1 for each in made])
    tables["steps"] = steps_table(ranks, np.zeros(len(made)), np.zeros(len(made)), last)
    tables["measured_steps"] = _measured(traces)
    notes = [*groups.notes, *_notes(traces, counts, made), *_on_order(collectives, parted), *_on_sizes(unequal)]
    return Workload(path.resolve().name.removesuffix(".et"), len(made), tables, tuple(notes), NAME)


def _files(path: Path) -> list[TraceFile]:
    files = files_of(path)
    names = list(dict.fromkeys(each.name for each in files))
    if len(names) > 1:
        raise UserError(
            f"{path}: holds traces of several runs: {', '.join(repr(name) for name in names[:5])}; keep those of one "
            "run apart"
        )
    if not files:
        raise UserError(f"{path}: no file is named as Chakra's traces are: NAME.RANK.et")
    return files


def _measured(traces: Sequence[RankNodes]) -> pa.Table:
    """Of ranks whose nodes all tell when they began (0 is none), on the clock of the earliest."""
    found = []
    for rank, trace in enumerate(traces):
        timed = [node for node in trace.nodes if node.duration_ps > 0]
        if timed and all(node.start > 0 for node in timed):
            begins = [node.start * _US_PS for node in timed]
            ends = (begin + node.duration_ps for begin, node in zip(begins, timed, strict=True))
            found.append((rank, min(begins), max(ends)))
    earliest = min((begin for _, begin, _ in found), default=0)
    found = [each for each in found if each[2] - earliest < _LONGEST_PS]  # others are no times of one run
    return measured_steps_table(
        [rank for rank, *_ in found], [0] * len(found), [begin - earliest for _, begin, _ in found],
        [end - earliest for *_, end in found],
    )  # fmt: skip


def _by_communicator(made: Sequence[RankMade], groups: Groups) -> dict[int, list[list[Node]]]:
    """Collectives of each communicator, by member."""
    own: list[dict[int, list[Node]]] = []
    for each in made:
        of_rank: dict[int, list[Node]] = {}
        for communicator, _, node in each.collectives:
            of_rank.setdefault(communicator, []).append(node)
        own.append(of_rank)
    used = sorted({communicator for of_rank in own for communicator in of_rank})
    return {
        number: [
            own[rank].get(number, []) for rank in (groups.members[number - 1].tolist() if number else range(len(own)))
        ]
        for number in used
    }


def _check_messages(traces: Sequence[RankNodes], made: Sequence[RankMade]) -> None:
    """Raises UserError for ranks and tags of which more messages are sent than received, or the other way round."""
    sent = Counter((rank, to, tag) for rank, each in enumerate(made) for to, tag in each.sends)
    received = Counter((source, rank, tag) for rank, each in enumerate(made) for source, tag in each.receives)
    for key in sorted(sent.keys() | received.keys()):
        if sent[key] != received[key]:
            source, destination, tag = key
            one, two = traces[source].file, traces[destination].file
            raise UserError(
                f"{one.path}: rank {one.rank} sends {sent[key]} messages with tag {tag} to rank {two.rank}, which "
                f"receives {received[key]} ({two.path.name}); take the files of one run, whole"
            )


def _share_times(made: Sequence[RankMade], groups: Groups) -> int:
    """Give each collective the shortest time that a member had: the others waited in it. How many have unequal
    sizes."""
    found: dict[tuple[int, int], list[tuple[np.ndarray, int, int]]] = {}
    for each in made:
        number: Counter[int] = Counter()
        for communicator, row, node in each.collectives:
            found.setdefault((communicator, number[communicator]), []).append((each.rows.rows, row, node.size))
            number[communicator] += 1
    unequal = 0
    for instance in found.values():
        times = [int(rows[row]["duration_ps"]) for rows, row, _ in instance]
        least = min((time for time in times if time > 0), default=-1)
        for rows, row, _ in instance:
            rows[row]["duration_ps"] = least
        unequal += len({size for _, _, size in instance}) > 1
    return unequal


def _share_times_of_messages(made: Sequence[RankMade]) -> None:
    """Give both ends of each message the shorter of their times: the other one waited. Those of one sender, receiver
    and tag belong together in their order; as many are received as sent."""
    ends: dict[int, list[np.ndarray]] = {int(OperationKind.isend): [], int(OperationKind.irecv): []}
    for rank, each in enumerate(made):
        rows = each.rows.rows
        for kind, found in ends.items():
            mine = np.flatnonzero((rows["kind"] == kind) & (rows["peer"] >= 0))
            own, peer = np.full(len(mine), rank), rows["peer"][mine]
            source, destination = (own, peer) if kind == OperationKind.isend else (peer, own)
            found.append(np.stack((own, mine, source, destination, rows["tag"][mine], rows["duration_ps"][mine])))
    sent, received = (np.concatenate(parts, axis=1) for parts in ends.values())
    sent, received = (each[:, np.lexsort((each[1], *each[2:5]))] for each in (sent, received))
    both = np.stack((sent[5], received[5]))
    least = np.where(both.min(axis=0) > 0, both.min(axis=0), both.max(axis=0))
    for side in (sent, received):
        for rank, each in enumerate(made):
            mine = side[0] == rank
            each.rows.rows["duration_ps"][side[1][mine]] = least[mine]


def _kernels(kernels: Kernels) -> pa.Table:
    names = [name for name, _, _ in kernels.number]
    flops, size = (np.array([key[at] for key in kernels.number], np.float64) for at in (1, 2))
    flops[flops < 0] = size[size < 0] = np.nan
    told = [precision_of(name) for name in names]
    precisions = [own or _ASSUMED_PRECISION * (value >= 0) for own, value in zip(told, flops.tolist(), strict=True)]
    return kernels_table(names, [int(class_of(name)) for name in names], precisions, flops, size)


def _notes(traces: Sequence[RankNodes], counts: Counts, made: Sequence[RankMade]) -> list[Note]:
    first = traces[0].file.rank
    renumbered = [each.file.rank for each in traces] != list(range(len(traces)))
    without_value = sum((each.without_value for each in traces), Counter[str]())
    found = (
        changes("ranks-missing", f"ranks are numbered anew from 0, as traces begin with rank {first} and are "
                f"{len(traces)}: others have none", count=len(traces)) if renumbered else None,
        informs("collectives-of-threads", f"{counts.twins} calls of collectives on threads communicate nothing: the "
                "nodes of the GPU do", count=counts.twins),
        changes("parents-missing", f"{counts.missing} nodes are required that the trace does not hold: nothing waits "
                "for them", count=counts.missing),
        changes("streams-assumed", f"{counts.without_stream} nodes of GPUs name no stream: there is one for kernels, "
                "one for each process group, and one to and one from each rank for messages",
                count=counts.without_stream),
        changes("kernels-of-no-time", f"{counts.zero} kernels and copies take 0 us in the trace, which has whole "
                "microseconds", count=counts.zero, errs=Errs.short),
        changes("kernels-by-shape", f"{counts.shaped} kernels have no times, but operations and bytes; where no name "
                f"tells their precision, it is {_ASSUMED_PRECISION}", count=counts.shaped),
        changes("streams-joined", f"{counts.ordered} communications wait for the kernel that was launched before them, "
                "as in PyTorch, and nothing waits for them: the trace has lost what does", count=counts.ordered),
        informs("receives-early", f"{counts.early} receives do not wait for the sends that they require, which may "
                "wait for them", count=counts.early),
        changes("communication-unknown", f"{counts.typeless} communications tell no type or size: they take their "
                "traced time, and wait for nobody", count=counts.typeless),
        changes("partners-missing", f"{counts.partnerless} messages are to or from ranks without a trace: they take "
                "their traced time", count=counts.partnerless),
        informs("roots-assumed", f"{counts.rootless} collectives tell no root: it is the first member",
                count=counts.rootless),
        changes("memory-as-copies", f"{counts.memory} accesses to memory outside the GPU are copies to and from the "
                "host", count=counts.memory),
        changes("attributes-empty", f"{without_value.total()} attributes have no value, and are left out: "
                f"{', '.join(sorted(without_value))}", count=without_value.total()),
        changes("schema-unknown", "nodes have fields that no schema from 0.0.1 to 0.0.4 has: they are left out",
                count=sum(each.is_newer for each in traces)),
        changes("run-times-assumed", f"schema {traces[0].schema} does not tell the unit of run times: it is taken as "
                f"{'1 ns' if traces[0].schema == '0.0.1' else '1 us'}", count=len(traces))
        if any(each.run_time_is_assumed for each in traces) else None,
        _on_waits(made),
    )  # fmt: skip
    return [note for note in found if note is not None and note.count > 0]


def _on_waits(made: Sequence[RankMade]) -> Note | None:
    """What is to be said of times of collectives where no other rank tells which part is waiting."""
    own = sum(int(each.rows.rows[row]["duration_ps"] > 0) for each in made for _, row, _ in each.collectives)
    if len(made) > 1 or not own:
        return None
    text = f"{own} times of collectives are those of one rank, and hold what it waited for others"
    return changes("waits-inside", text, count=own, errs=Errs.long)


def _on_order(collectives: Mapping[int, list[list[Node]]], parted: int) -> list[Note]:
    """What is to be said of collectives of one group whose order differs between its members."""
    found = []
    if parted:
        text = (
            f"members of {parted} groups do their collectives in other orders on several streams: the k-th of a stream "
            "is the k-th of that stream at the others"
        )
        found.append(informs("collectives-by-stream", text, count=parted))
    names = [[[node.name for node in own] for own in of_members] for of_members in collectives.values()]
    differ = sum(any(own != each[0] and sorted(own) == sorted(each[0]) for own in each[1:]) for each in names)
    if differ:
        text = (
            f"members of {differ} groups have their collectives in another order, by their names: they are taken k-th "
            "by k-th all the same"
        )
        found.append(changes("collectives-reordered", text, count=differ))
    return found


def _on_sizes(unequal: int) -> list[Note]:
    if not unequal:
        return []
    text = f"{unequal} collectives have other sizes on some ranks: the largest is taken"
    return [changes("sizes-unequal", text, count=unequal)]
