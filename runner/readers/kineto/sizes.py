"""Sizes of collectives from host execution traces, where Kineto's traces do not tell them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from manyscale.models.workload import OperationKind
from manyscale.models.workload.notes import Note, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers.kineto.events import decoded, number
from manyscale.runner.readers.kineto.execution_trace import HostTrace, collectives_of
from manyscale.runner.readers.kineto.files import host_traces
from manyscale.runner.readers.kineto.rank import Rank

_K: Final = OperationKind
RANK: Final = re.compile(r"(?:rank|worker|eg|et)[-_ ]?(\d+)", re.I)  # in names of files


def tell_sizes(path: Path, ranks: Sequence[Rank], notes: list[Note]) -> None:
    """Sizes of collectives from host execution traces, where Kineto's do not tell them all."""
    if not any(
        not told.is_sized or (told.kind == _K.alltoall and not told.group) for rank in ranks for told in rank.told
    ):
        return
    hosts = []
    for place, content in host_traces(path):
        document = decoded(content, place)
        hosts.append(replace(collectives_of(document, place), process=number(document.pid, -1)))
    taken = 0
    for rank in ranks:
        host = _host_of(rank, hosts, len(ranks))
        if host is None or not rank.told:
            continue
        if len(host.collectives) != len(rank.told):
            text = (
                f"its host execution trace has {len(host.collectives)} collectives and its trace {len(rank.told)}: it "
                "is not of the same window, and not used"
            )
            notes.append(informs("host-trace-unused", text, f"rank {rank.number}", 1))
            continue
        for at, (own, told) in enumerate(zip(rank.told, host.collectives, strict=True)):
            if own.kind is not None and told.kind is not None and own.kind != told.kind:
                raise UserError(
                    f"{host.place}: collective {at + 1} is {told.kind.name}, and in {rank.trace.place} "
                    f"{own.kind.name}; "
                    "give host execution traces of the same window"
                )
        rank.told = list(host.collectives)
        taken += 1
    if taken:
        text = f"sizes of collectives are those of the host execution traces of {taken} ranks, k-th by k-th"
        notes.append(informs("sizes-of-host-traces", text, "", taken))


def _host_of(rank: Rank, hosts: Sequence[HostTrace], count: int) -> HostTrace | None:
    processes = {thread.partition("/")[0] for thread in rank.trace.threads}
    mine = [each for each in hosts if str(each.process) in processes]
    if len(mine) == 1:
        return mine[0]
    named = [each for each in hosts if RANK.findall(Path(each.place).name)[-1:] == [str(rank.number)]]
    return named[0] if len(named) == 1 and len(hosts) >= count else None
