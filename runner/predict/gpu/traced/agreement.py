"""Which collectives may keep the times of the trace on a target: those whose links, nodes and GPUs are the trace's.

A trace tells its GPUs by name and the device of each rank, and nothing of the network. It is taken to be of the shipped
target that has this GPU and says how NCCL communicates; of several, the target has to agree with all, since the trace
may be of each. Agree must what the time of a collective depends on: which of its members share a node; between nodes,
and on a mesh of NVLinks, which GPUs of it they have; and the block ``network.nccl``, of whose network those within a
node need nothing.

Nodes of the trace: the k-th rank with a device is on node k. Where all have one device, which is that of processes that
see a GPU each, ranks are taken to have had the GPUs of nodes in turn. Each of several jobs was traced on its own nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from manyscale.models.network.nccl.parameters import Nccl, NvMesh, NvSwitch
from manyscale.models.workload import Workload
from manyscale.runner.problems import load_yaml
from manyscale.runner.shipped import shipped_targets

_WITHIN: Final = ("generation", "nvlink", "pci", "tuner", "tables")  # keys that decide times within a node
_PLACED: Final = "their ranks stand on other nodes or GPUs than where they were traced"


@dataclass(frozen=True, eq=False)
class TracedMachine:
    """A shipped target that a trace may be of."""

    name: str
    nccl: Nccl
    num_gpus: int


@dataclass(frozen=True)
class Agreement:
    """``why`` int8[communicators]: the reason (row of ``reasons``) why times of the trace are not those of the target,
    -1 where they are; ``machines``: names of what the trace is taken to be of."""

    why: np.ndarray
    reasons: tuple[str, ...]
    machines: tuple[str, ...]


@cache
def machines_with(gpu_name: str) -> tuple[TracedMachine, ...]:
    """Shipped targets whose GPU's driver calls it so and that say how NCCL communicates."""
    found = []
    for name, path in shipped_targets().items():
        text = path.read_text()
        if gpu_name not in text or "nccl:" not in text:
            continue
        content: dict[str, Any] = load_yaml(path)
        if gpu_name in content["node"].get("gpu", {}).get("names", ()):
            nccl = Nccl.model_validate(content["network"]["nccl"])
            found.append(TracedMachine(name, nccl, int(content["node"].get("gpus", 1))))
    return tuple(found)


def agreement(
    workload: Workload, nccl: Nccl | None, num_gpus: int, node: np.ndarray, gpu: np.ndarray, *, is_same_gpu: bool
) -> Agreement:
    """``nccl`` and ``num_gpus`` of a node: the target's; ``node`` int[ranks], and ``gpu`` int[ranks], that of the rank
    in its node. O(members log members)."""
    bounds, members = workload.lists("communicators", "members")
    count = len(bounds) - 1

    def never(reason: str) -> Agreement:
        return Agreement(np.zeros(count, np.int8), (reason,), ())

    names = sorted(set(workload.tables["traced_gpus"].column("gpu_name").to_pylist()))
    traced, first = np.unique(workload.column("traced_gpus", "rank"), return_index=True)
    if not is_same_gpu:
        return never(f"the trace is of {', '.join(names) or 'an unknown GPU'}")
    if len(traced) < workload.num_ranks:
        return never("not all ranks were traced")
    if nccl is None:
        return never("the target does not say how NCCL communicates (network.nccl)")
    machines = tuple({each.name: each for name in names for each in machines_with(name)}.values())
    if not machines:
        return never(f"no shipped target has {' and '.join(names)} and says on which links")
    group = np.repeat(np.arange(count), np.diff(bounds))
    device = workload.column("traced_gpus", "device")[first].astype(np.int64)
    begins = workload.column("jobs", "first_rank")
    why, reasons = np.full(count, -1, np.int8), [_PLACED]
    for machine in machines:
        own_node, own_gpu = _of_jobs(device, begins, machine.num_gpus)
        between = _distinct(group, count, own_node[members]) > 1
        moved = _is_moved(group, count, own_node[members], node[members])
        elsewhere = np.bincount(group, own_gpu[members] != gpu[members], count) > 0
        matters = between | isinstance(nccl.nvlink, NvMesh) | isinstance(machine.nccl.nvlink, NvMesh)
        why[(why < 0) & (moved | (elsewhere & matters))] = 0
        for over_nodes in (False, True):
            if keys := _differences(nccl, machine.nccl, over_nodes=over_nodes):
                reasons.append(_of_links(keys, machine.name, machines))
                why[(why < 0) & (between == over_nodes)] = len(reasons) - 1
        if num_gpus != machine.num_gpus:
            reasons.append(f"nodes of the target have {num_gpus} GPUs, and those of {machine.name} {machine.num_gpus}")
            why[(why < 0) & between] = len(reasons) - 1
    return Agreement(why, tuple(reasons), tuple(each.name for each in machines))


def _of_jobs(device: np.ndarray, begins: np.ndarray, num_gpus: int) -> tuple[np.ndarray, np.ndarray]:
    """As _in_trace, of jobs that begin with ranks ``begins``."""
    nodes, gpus, end = [], [], 0
    for own in np.split(device, begins[1:]):
        node, gpu = _in_trace(own, num_gpus)
        nodes.append(node + end)
        gpus.append(gpu)
        end += int(node.max(initial=-1)) + 1
    return np.concatenate(nodes), np.concatenate(gpus)


def _in_trace(device: np.ndarray, num_gpus: int) -> tuple[np.ndarray, np.ndarray]:
    """int64[ranks], twice: node and GPU of each rank where it was traced."""
    ranks = np.arange(len(device))
    if len(np.unique(device)) < 2:
        return ranks // num_gpus, ranks % num_gpus
    order = np.argsort(device, kind="stable")
    ordered = device[order]
    node = np.empty(len(device), np.int64)
    node[order] = ranks - np.searchsorted(ordered, ordered)
    return node, device


def _distinct(group: np.ndarray, count: int, *values: np.ndarray) -> np.ndarray:
    """int64[groups]: how many tuples of values its members have."""
    every = np.unique(np.stack((group, *(each.astype(np.int64) for each in values))), axis=1)
    return np.bincount(every[0], minlength=count)


def _is_moved(group: np.ndarray, count: int, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """bool[groups]: where members that are together in ``one`` are not in ``other``, or the other way round."""
    both = _distinct(group, count, one, other)
    return np.asarray((both != _distinct(group, count, one)) | (both != _distinct(group, count, other)))


def _differences(target: Nccl, traced: Nccl, *, over_nodes: bool) -> list[str]:
    """Keys of the block that differ, of those that matter to collectives within a node, or ``over_nodes``."""
    if over_nodes:
        return [key for key in type(target).model_fields if getattr(target, key) != getattr(traced, key)]
    found = [key for key in _WITHIN if _within(target, key) != _within(traced, key)]
    return [key for key in found if key != "pci" or not isinstance(target.nvlink, NvSwitch) or "nvlink" in found]


def _within(nccl: Nccl, key: str) -> object:
    return tuple(each for each in nccl.tables if each.nodes == 1) if key == "tables" else getattr(nccl, key)


def _of_links(keys: Sequence[str], name: str, machines: Sequence[TracedMachine]) -> str:
    told = ", ".join(f"network.nccl.{key}" for key in keys)
    other = f"other {told} than {name}"
    several = f", one of the {len(machines)} shipped targets" if len(machines) > 1 else ", the shipped target"
    return f"the target has {other}{several} with the GPU of the trace"
