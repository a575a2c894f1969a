"""Who does something in a Paraver trace: ranks and their cores as application, tasks and threads, nodes and their CPUs.

One application, a task for each rank. A rank whose cores are shown has a thread for each of them, the first of which is
the one that communicates; any other rank has one thread. A node has a CPU for each thread of the ranks on it, rank by
rank: two ranks never share one. What GPUs do is a second application, whose task is on a last node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from manyscale.models.workload import Workload

DATE: Final = "01/01/2000 at 00:00"  # equal results give equal bytes


@dataclass(frozen=True)
class Hierarchy:
    """int64 per rank: ``node`` index among the nodes in use, ``width`` number of threads. ``node_numbers``: of these
    nodes."""

    node: np.ndarray
    width: np.ndarray
    node_numbers: np.ndarray

    @cached_property
    def first(self) -> np.ndarray:
        """int64[ranks + 1]: index of each rank's first thread among all, and how many there are."""
        return np.concatenate(([0], np.cumsum(self.width)))

    @cached_property
    def who(self) -> list[str]:
        """Of each thread, rank by rank: its CPU, application, task and number, as records begin."""
        order = np.argsort(self.node, kind="stable")
        cpu = np.empty(len(self.node), np.int64)  # the first of each rank
        cpu[order] = np.concatenate(([0], np.cumsum(self.width[order])[:-1])) + 1 if len(order) else 0
        return [
            f"{first + thread}:1:{rank}:{thread + 1}:"
            for rank, (first, width) in enumerate(zip(cpu.tolist(), self.width.tolist(), strict=True), start=1)
            for thread in range(width)
        ]

    @property
    def who_of_ranks(self) -> list[str]:
        """Of the first thread of each rank."""
        return [self.who[first] for first in self.first[:-1].tolist()]

    def header(self, workload: Workload, end_ns: int, on_gpus: int = 0) -> str:
        """First line of the trace, and its communicators. ``on_gpus``: threads of the second application."""
        cpus = np.bincount(self.node, self.width).astype(np.int64).tolist()
        tasks = ",".join(
            f"{width}:{node + 1}" for width, node in zip(self.width.tolist(), self.node.tolist(), strict=True)
        )
        offsets, members = workload.lists("communicators", "members")
        groups = [members[a:b] + 1 for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
        lines = [
            f"c:1:{number}:{len(group)}:{':'.join(map(str, group.tolist()))}\n"
            for number, group in enumerate(groups, start=1)
            if len(group)
        ]
        applications = f"{len(self.node)}({tasks})"
        if on_gpus:
            cpus.append(on_gpus)
            applications += f",1({on_gpus}:{len(cpus)})"  # as mpi2prv and Paraver's kernel join them
        nodes = f"{len(cpus)}({','.join(map(str, cpus))})"
        head = f"#Paraver ({DATE}):{end_ns}_ns:{nodes}:{1 + (on_gpus > 0)}:{applications},{len(lines)}\n"
        return head + "".join(lines)

    def names(self, on_gpus: Sequence[str] = ()) -> str:
        """The .row file: names of CPUs, nodes and threads, ``on_gpus`` last."""
        order = np.argsort(self.node, kind="stable")
        of_cpu = np.repeat(self.node_numbers[self.node[order]], self.width[order])
        total = int(self.first[-1]) + len(on_gpus)
        cpus = "".join(f"{cpu}.node{node}\n" for cpu, node in enumerate(of_cpu.tolist(), start=1))
        nodes = [f"node{node}\n" for node in self.node_numbers.tolist()] + ["GPUs\n"] * bool(on_gpus)
        threads = "".join(
            f"THREAD 1.{rank}.{thread}\n"
            for rank, width in enumerate(self.width.tolist(), start=1)
            for thread in range(1, width + 1)
        )
        more = "".join(f"{name}\n" for name in on_gpus)
        return (
            f"LEVEL CPU SIZE {total}\n{cpus}{more}\n"
            f"LEVEL NODE SIZE {len(nodes)}\n{''.join(nodes)}\n"
            f"LEVEL THREAD SIZE {total}\n{threads}{more}"
        )
