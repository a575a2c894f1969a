"""Which node of the target each rank runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from manyscale.models.machine import Machine
from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_step_tables import has_times
from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.predict.phase_source import FILE, Case
from manyscale.runner.readers import bounds
from manyscale.runner.study import Mapping_, PlacementFile


def with_gpus(mapping: Mapping_, machine: Machine, workload: Workload) -> Mapping_:
    """By default a node holds as many ranks that drive GPUs as it has GPUs, where times of their kernels are known."""
    if not has_times(workload.tables) or mapping.ranks_per_node is not None or not machine.node.num_gpus:
        return mapping
    return mapping.model_copy(update={"ranks_per_node": machine.node.num_gpus})


def placed(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """What place_ranks says of a case."""
    study = case.study
    return place_ranks(
        with_gpus(study.mapping, case.machine, case.workload), case.machine, case.workload.num_ranks, study.seed,
        lambda path: case.shared.once((FILE, "placement", str(path)), lambda: placement_file(path)),
    )  # fmt: skip


def place_ranks(
    mapping: Mapping_, machine: Machine, num_ranks: int, seed: int = 0,
    read: Callable[[Path], list[int]] | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Node int32 per rank, and float64 per rank the ranks that share one core of it (1 = a core each). ``read``: in
    place of ``placement_file``, for whoever knows what the file holds.

    Raises UserError if a node would hold more ranks than it has cores and ``mapping.oversubscribe`` is not set, or for
    a list or file that does not name a node of the machine for every rank.
    """
    if isinstance(mapping.placement, PlacementFile):
        path = Path(mapping.placement.file)
        node = _listed((read or placement_file)(path), f"{path}", machine, num_ranks)
    elif isinstance(mapping.placement, list):
        node = _listed(mapping.placement, "mapping.placement", machine, num_ranks)
    else:
        node = _dealt(mapping, machine, num_ranks)
        if mapping.placement == "random":
            node = np.random.default_rng(seed).permutation(node)
    load = np.bincount(node, minlength=machine.num_nodes)
    width = mapping.cores_per_rank
    if width > machine.node.num_cores:
        raise UserError(
            f"mapping.cores_per_rank: a node of {machine.name} has {machine.node.num_cores} cores, not {width}"
        )
    if load.max() * width > machine.node.num_cores and not mapping.oversubscribe:
        each = f" of {width} cores each" if width > 1 else ""
        raise UserError(
            f"node {int(load.argmax())} of {machine.name} would run {load.max()} ranks{each} on "
            f"{machine.node.num_cores} cores; spread them with mapping.ranks_per_node, or set "
            "mapping.oversubscribe: true"
        )
    sharing = np.maximum(1.0, load * width / machine.node.num_cores)
    return node.astype(np.int32), sharing[node]


def _dealt(mapping: Mapping_, machine: Machine, num_ranks: int) -> np.ndarray:
    """Nodes on as few nodes as ``ranks_per_node`` allows."""
    per_node = mapping.ranks_per_node or max(1, machine.node.num_cores // mapping.cores_per_rank)
    needed = -(-num_ranks // per_node)
    if needed > machine.num_nodes and mapping.oversubscribe:
        per_node = -(-num_ranks // machine.num_nodes)
        needed = machine.num_nodes
    if needed > machine.num_nodes:
        raise UserError(
            f"{num_ranks} ranks do not fit on {machine.name} ({machine.num_nodes} nodes x {per_node} ranks); "
            "choose a larger target, or set mapping.oversubscribe: true"
        )
    ranks = np.arange(num_ranks)
    return ranks % needed if mapping.placement == "cyclic" else ranks // per_node


def _listed(nodes: Sequence[int], place: str, machine: Machine, num_ranks: int) -> np.ndarray:
    if len(nodes) != num_ranks:
        raise UserError(f"{place}: {len(nodes)} nodes for {num_ranks} ranks; list one for each")
    wrong = [node for node in nodes if not 0 <= node < machine.num_nodes]
    if wrong:
        raise UserError(f"{place}: node {wrong[0]} is not one of the {machine.num_nodes} of {machine.name} (from 0)")
    return np.array(nodes, np.int64)


def placement_file(path: Path) -> list[int]:
    """The numbers in a file. Raises UserError with file and line."""
    try:
        lines = refuse_special(path).read_text().splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); mapping.placement.file names it") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not a text file; numbers of nodes are expected") from None
    nodes = []
    for number, line in enumerate(lines, start=1):
        for word in line.partition("#")[0].split():
            nodes.append(bounds.whole(word, f"{path}:{number}", "the number of a node"))
    return nodes
