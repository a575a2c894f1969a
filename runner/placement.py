"""Which node of the target each rank runs on."""

from __future__ import annotations

import numpy as np

from manyscale.models.machine import Machine
from manyscale.runner.errors import UserError
from manyscale.runner.study import Mapping_


def place_ranks(mapping: Mapping_, machine: Machine, num_ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Node int32 per rank, and float64 per rank the ranks that share one core of it (1 = a core each).

    Raises UserError if a node would hold more ranks than it has cores and ``mapping.oversubscribe`` is not set.
    """
    per_node = mapping.ranks_per_node or machine.node.num_cores
    ranks = np.arange(num_ranks)
    if isinstance(mapping.placement, list):
        if len(mapping.placement) != num_ranks:
            raise UserError(
                f"mapping.placement: {len(mapping.placement)} nodes for {num_ranks} ranks; list one for each"
            )
        wrong = [node for node in mapping.placement if not 0 <= node < machine.num_nodes]
        if wrong:
            raise UserError(
                f"mapping.placement: node {wrong[0]} is not one of the {machine.num_nodes} of {machine.name} (from 0)"
            )
        node = np.array(mapping.placement, np.int64)
    else:
        needed = -(-num_ranks // per_node)
        if needed > machine.num_nodes and mapping.oversubscribe:
            per_node = -(-num_ranks // machine.num_nodes)
            needed = machine.num_nodes
        if needed > machine.num_nodes:
            raise UserError(
                f"{num_ranks} ranks do not fit on {machine.name} ({machine.num_nodes} nodes x {per_node} ranks); "
                "choose a larger target, or set mapping.oversubscribe: true"
            )
        node = ranks // per_node if mapping.placement == "block" else ranks % needed
    load = np.bincount(node, minlength=machine.num_nodes)
    if load.max() > machine.node.num_cores and not mapping.oversubscribe:
        raise UserError(
            f"node {int(load.argmax())} of {machine.name} would run {load.max()} ranks on "
            f"{machine.node.num_cores} cores; spread them with mapping.ranks_per_node, or set "
            "mapping.oversubscribe: true"
        )
    sharing = np.maximum(1.0, load / machine.node.num_cores)
    return node.astype(np.int32), sharing[node]
