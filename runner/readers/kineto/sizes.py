"""Sizes of collectives from host execution traces, where Kineto's traces do not tell them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.models.workload.notes import Note, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.kineto.collectives import MESSAGES
from manyscale.runner.readers.kineto.events import decoded
from manyscale.runner.readers.kineto.execution_trace import HostTrace, collectives_of
from manyscale.runner.readers.kineto.files import host_traces
from manyscale.runner.readers.kineto.rank import Rank
from manyscale.runner.readers.kineto.trace import Trace

_G: Final = GpuOperationKind
RANK: Final = re.compile(r"(?:rank|worker|(?<![a-z])e[gt])[-_ ]?(\d+)", re.I)  # in names of files, no "resnet_50"


def hosts_of(path: Path, traces: Sequence[tuple[int, Trace]]) -> dict[int, HostTrace]:
    """Host execution traces of ranks, by their number, where Kineto's traces do not tell what collectives are. Raises
    UserError."""
    if not any(
        args is None or args.collective is None
        for _, trace in traces
        for args in (trace.given.args[each] for each in np.flatnonzero(trace.kind == _G.communication).tolist())
    ):
        return {}
    hosts = [collectives_of(decoded(content, place), place) for place, content in host_traces(path)]
    found = {number: _host_of(trace, number, hosts, len(traces)) for number, trace in traces}
    return {number: host for number, host in found.items() if host is not None}


def tell_sizes(ranks: Sequence[Rank], hosts: Mapping[int, HostTrace], notes: list[Note]) -> None:
    """Sizes of collectives from host execution traces."""
    taken, unused = 0, []
    for rank in ranks:
        host = hosts.get(rank.number)
        if host is None or not rank.told:
            continue
        if len(host.collectives) != len(rank.told):
            unused.append(f"rank {rank.number}: {len(host.collectives)} and {len(rank.told)}")
            continue
        for at, (own, told) in enumerate(zip(rank.told, host.collectives, strict=True)):
            if own.kind is not None and told.kind is not None and not _may_be(own.kind, told.kind):
                raise UserError(
                    f"{host.place}: collective {at + 1} is {told.kind.name}, and in {rank.trace.place} "
                    f"{own.kind.name}; give host execution traces of the same window"
                )
        rank.told = [
            replace(told, peer=own.peer, place=own.place if told.place < 0 else told.place, own=own.own,
                    members=told.members or own.members)
            for own, told in zip(rank.told, host.collectives, strict=True)
        ]  # fmt: skip
        taken += 1
    if unused:
        text = (
            f"host execution traces of {len(unused)} ranks have other numbers of collectives than their traces "
            f"({unused[0]}): they are not of the same window, and not used"
        )
        notes.append(informs("host-trace-unused", text, "", len(unused)))
    if taken:
        text = f"sizes of collectives are those of the host execution traces of {taken} ranks, k-th by k-th"
        notes.append(informs("sizes-of-host-traces", text, "", taken))


def _may_be(own: OperationKind, told: OperationKind) -> bool:
    """Whether a kernel's kind can be that of a record: SendRecv is taken for an all-to-all where only its name is
    known."""
    return own == told or (own == OperationKind.alltoall and told in MESSAGES)


def _host_of(trace: Trace, number: int, hosts: Sequence[HostTrace], count: int) -> HostTrace | None:
    processes = {thread.partition("/")[0] for thread in trace.threads}
    mine = [each for each in hosts if str(each.process) in processes]
    if len(mine) == 1:
        return mine[0]
    named = [each for each in hosts if RANK.findall(Path(each.place).name)[-1:] == [str(number)]]
    return named[0] if len(named) == 1 and len(hosts) >= count else None
