"""Process groups of a trace: who is in each, and whether their collectives fit together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.models.workload.notes import Note, changes
from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, open_stream, read_head
from manyscale.runner.readers.chakra.nodes import Node, RankNodes

_MOST_BYTES: Final = 1 << 28  # of a file of groups
ROOTED: Final = (OperationKind.bcast, OperationKind.reduce, OperationKind.gather, OperationKind.scatter)
_WORDS: Final = {
    OperationKind.allreduce: "all-reduce", OperationKind.allgather: "all-gather", OperationKind.alltoall: "all-to-all",
    OperationKind.reduce_scatter: "reduce-scatter", OperationKind.bcast: "broadcast",
}  # fmt: skip


@dataclass
class Groups:
    """``members`` int64[] of communicators from number 1, as places among the ranks that have files; ``names`` of
    these, and ``told``: places of all their members in their order, -1 for those without a file; ``number`` of a
    group's name at a rank (0: all)."""

    members: list[np.ndarray] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    told: list[tuple[int, ...]] = field(default_factory=list)
    number: dict[tuple[int, str], int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def size(self, number: int, ranks: int) -> int:
        """How many members a communicator has, with or without files; ``ranks``: that have some."""
        return len(self.told[number - 1]) if number else ranks

    def root(self, number: int, root: int) -> int:
        """The place of a root among the members that have files; the first one where it is not told or has none."""
        if root < 0 or not number:
            return max(root, 0)
        told = self.told[number - 1]
        here = told[root] if root < len(told) else -1
        return self.members[number - 1].tolist().index(here) if here >= 0 else 0

    def add(self, name: str, told: tuple[int, ...]) -> int:
        """The number of a communicator more."""
        self.members.append(np.array([place for place in told if place >= 0], np.int64))
        self.names.append(name)
        self.told.append(told)
        return len(self.members)


def groups_of(folder: Path, ranks: Sequence[RankNodes]) -> Groups:
    """The groups that collectives name. Raises UserError for one that a member is not in."""
    found = Groups()
    place = {each.file.rank: number for number, each in enumerate(ranks)}
    of_file = _of_files(folder)
    used: dict[str, list[int]] = {}
    for number, each in enumerate(ranks):
        for name in dict.fromkeys(node.group for node in each.nodes if node.collective is not None and node.group):
            used.setdefault(name, []).append(number)
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    inferred, absent = [], set()
    for name, users in used.items():
        for user in users:
            told = ranks[user].groups.get(name) or of_file.get(name)
            if told is None:
                inferred.append(name)
                who = tuple(users)
            else:
                if len(set(told)) < len(told):
                    raise UserError(
                        f"{ranks[user].file.path}: group {name!r} has a rank twice among its members {_listed(told)}; "
                        "mend the trace, or the file of groups beside it"
                    )
                absent |= set(told) - place.keys()
                who = tuple(place.get(rank, -1) for rank in told)
                if user not in who:
                    rank = ranks[user].file.rank
                    raise UserError(
                        f"{ranks[user].file.path}: rank {rank} takes part in collectives of group {name!r}, whose "
                        f"members are {_listed(told)}; give the file of groups that belongs to the trace"
                    )
            if (name, who) not in known:
                known[name, who] = found.add(name, who)
            found.number[user, name] = known[name, who]
    if inferred:
        names = sorted(set(inferred))
        text = (
            f"nothing tells the members of {len(names)} process groups ({', '.join(names[:5])}): they are the ranks "
            "whose collectives name them"
        )
        found.notes.append(changes("groups-inferred", text, count=len(names)))
    if absent:
        text = (
            f"{len(absent)} ranks that groups name have no trace ({_listed(tuple(sorted(absent)))}): collectives are "
            "those of the other members alone, with the sizes of the whole group"
        )
        found.notes.append(changes("ranks-missing", text, count=len(absent)))
    return found


def check_matches(ranks: Sequence[RankNodes], groups: Groups, collectives: Mapping[int, list[list[Node]]]) -> None:
    """Raises UserError, with group, ranks and the first difference, where members do not make the same collectives, and
    for roots that are no members.
    ``collectives``: of each communicator, those of each member in their order."""
    for number, of_members in collectives.items():
        members = groups.members[number - 1] if number else np.arange(len(ranks))
        name = f"group {groups.names[number - 1]!r}" if number else "all ranks"
        first, size = of_members[0], groups.size(number, len(ranks))
        for who, own in zip(members.tolist(), of_members, strict=True):
            outside = next((node for node in own if node.collective in ROOTED and node.root >= size), None)
            if outside is not None:
                raise UserError(
                    f"{ranks[who].file.path}: {name}: node {outside.id} has root {outside.root}, but there are "
                    f"{size} members, numbered from 0 in the group; write the trace again"
                )
        for who, own in zip(members.tolist()[1:], of_members[1:], strict=True):
            if [node.collective for node in own] == [node.collective for node in first]:
                continue
            at = next(
                (at for at, (one, two) in enumerate(zip(first, own, strict=False)) if one.collective != two.collective),
                min(len(first), len(own)),
            )
            one, two = (ranks[each].file.rank for each in (int(members[0]), who))
            counts = f"{len(first)} and {len(own)}" if len(first) != len(own) else f"{len(own)} other"
            raise UserError(
                f"{ranks[who].file.path}: {name}: ranks {one} and {two} make {counts} collectives; the first "
                f"difference is number {at}: {_described(first, at)} on rank {one}, {_described(own, at)} on rank "
                f"{two}; take the files of one run, whole"
            )


def _described(nodes: Sequence[Node], at: int) -> str:
    if at >= len(nodes):
        return "none"
    kind = nodes[at].collective
    assert kind is not None
    return f"{_WORDS.get(kind, kind.name)} of {nodes[at].size} bytes (node {nodes[at].id})"


def _of_files(folder: Path) -> dict[str, tuple[int, ...]]:
    """Members by group of the JSON files of a folder that hold just these, as ASTRA-sim reads them."""
    found: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        if path.stat().st_size > _MOST_BYTES or not (read_head(path, 64) or b"").lstrip().startswith(b"{"):
            continue
        try:
            with guarded(path), open_stream(path) as stream:
                content = json.loads(stream.read())
        except (ValueError, RecursionError):
            continue
        if isinstance(content, dict) and content and all(map(_is_ranks, content.values())):
            found |= {name: tuple(ranks) for name, ranks in content.items()}
    return found


def _is_ranks(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(rank, int) and rank >= 0 for rank in value)


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"{shown} and {len(ranks) - 8} more" if len(ranks) > 8 else shown
