"""Collectives that cost what a formula says: all participants meet at a gate, then a fan-in and a fan-out take time.

Law of Dimemas (bsc-performance-tools/dimemas, Simulator/model/communic.c: calcula_fan, compute_contention_stage):
a stage costs (latency + size / bandwidth) x factor, where the factor is 0 (none), 1 (constant), P - 1 (linear) or
ceil(log2 P) (logarithmic) for P participants. If the network has a finite number of buses, a logarithmic stage counts
each of its levels ceil(messages at once / buses) times; the other factors ignore the buses, as they do in Dimemas. The
size is that of the bytes sent for a fan-in, of the bytes received for a fan-out, unless the formula says else.

Sizes of a rooted collective are the root's. Of any other they are the largest of its participants (Dimemas takes those
of the last to arrive). They are what a participant hands in and takes out as Extrae records it, whose traces Dimemas
replays (mpi_wrapper_coll_c.c): whole messages of bcast (only sent, by the root), reduce, allreduce, scan and exscan;
elsewhere the sum over the participants where one buffer holds a block for each, and one block where not; of an
all-to-all with equal blocks, one block sent and all blocks received.

Assumption: one participant per node. (Dimemas puts a fan-in and a fan-out within each node beside those between nodes.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

import numpy as np

from manyscale.models.network.collectives.call import CollectiveCall
from manyscale.models.workload.parameters import Strict
from manyscale.models.workload.quantities import MOST_PS


class FanModel(IntEnum):
    """How often a stage's latency and transfer are paid."""

    none = 0
    constant = 1
    linear = 2
    logarithmic = 3


FanModelName = Literal["none", "constant", "linear", "logarithmic"]
SizeName = Literal["current", "min", "max", "mean", "twice-max", "sum"]

_SIZES: Final[Mapping[str, Callable[[int, int], int]]] = {
    "min": min,
    "max": max,
    "mean": lambda sent, received: (sent + received) // 2,
    "twice-max": lambda sent, received: 2 * max(sent, received),
    "sum": lambda sent, received: sent + received,
}


class Formula(Strict):
    """Models of the two stages, and which of a participant's bytes count: "current" is those sent for the fan-in and
    those received for the fan-out; the others are made of both."""

    fan_in: FanModelName
    """How often the stage towards the root pays its latency and transfer."""
    fan_out: FanModelName
    """How often the stage from the root pays them."""
    fan_in_size: SizeName = "current"
    """Which of a participant's bytes count for the fan-in. `current` is those sent."""
    fan_out_size: SizeName = "current"
    """Which of a participant's bytes count for the fan-out. `current` is those received."""

    @property
    def models(self) -> tuple[int, int]:
        """Codes of the two stages (FanModel)."""
        return int(FanModel[self.fan_in]), int(FanModel[self.fan_out])

    def sizes(self, call: CollectiveCall) -> tuple[int, int]:
        """Bytes of the fan-in and of the fan-out of a call."""
        sent, received = participant_bytes(call)
        fan_in = sent if self.fan_in_size == "current" else _SIZES[self.fan_in_size](sent, received)
        fan_out = received if self.fan_out_size == "current" else _SIZES[self.fan_out_size](sent, received)
        return fan_in, fan_out


def dimemas_formula(call: CollectiveCall) -> Formula:
    """What Dimemas uses unless a file of collectives says else: the machine's model, here the logarithmic one, but
    for the reduction, which is always constant (new_global_op)."""
    if call.base_kind == "reduce":
        return Formula(fan_in="constant", fan_out="constant")
    return Formula(fan_in="logarithmic", fan_out="logarithmic")


def participant_bytes(call: CollectiveCall) -> tuple[int, int]:
    """Bytes sent and received by the participant whose sizes count; see the module's docstring."""
    kind, n, root = call.base_kind, call.num_participants, call.root
    block = call.block_bytes
    if kind == "barrier":
        return 0, 0
    if kind == "bcast":
        return call.send_bytes, 0
    if kind in ("reduce", "allreduce", "scan", "exscan"):
        return call.send_bytes, call.send_bytes
    if kind in ("gather", "gatherv"):
        return int(block[root]), int(block.sum())
    if kind in ("scatter", "scatterv"):
        return int(block.sum()), int(block[root])
    if kind in ("allgather", "allgatherv"):
        return int(block.max()), int(block.sum())
    if kind == "reduce_scatter":
        return int(block.sum()), int(block.max())
    if kind == "alltoall":
        return call.send_bytes, n * call.send_bytes
    return int(call.pair_bytes.sum(axis=1).max()), int(call.pair_bytes.sum(axis=0).max())


@dataclass(frozen=True)
class Gates:
    """Collectives that cost what a formula says: int32 ``size``, their participants; uint8[g, 2] ``model`` (FanModel)
    and int64[g, 2] ``bytes`` of the fan-in and the fan-out."""

    size: np.ndarray
    model: np.ndarray
    bytes: np.ndarray


def gate_cost_ps(gates: Gates, latency_ps: int, ps_per_byte: float, buses: int = 0) -> np.ndarray:
    """int64 per gate: time from the arrival of the last until all go on, rounded to whole picoseconds. ``buses`` of 0
    are without limit. O(gates + distinct sizes of communicators x log participants).

    Raises ValueError for a collective that takes over 53 days.
    """
    sizes, which = np.unique(gates.size, return_inverse=True)
    factor = np.array([_factors(int(size), buses) for size in sizes], np.float64).reshape(len(sizes), len(FanModel))
    stage = latency_ps + gates.bytes * ps_per_byte
    cost = (stage * factor[which[:, None], gates.model]).sum(axis=1)
    if cost.max(initial=0.0) > MOST_PS:
        raise ValueError(
            f"a collective of {gates.bytes.max()} B would take more than 53 days; mend the network's bandwidth"
        )
    return np.rint(cost).astype(np.int64)


def _factors(num_participants: int, buses: int) -> tuple[int, int, int, int]:
    """How often a stage of each FanModel is paid. A level of the tree pairs groups of 1, 2, 4, ... participants."""
    levels = (num_participants - 1).bit_length()
    if buses:
        at_once = (-(-(num_participants - (1 << level)) // (2 << level)) for level in range(levels))
        logarithmic = sum(-(-messages // buses) for messages in at_once)
    else:
        logarithmic = levels
    return 0, 1, num_participants - 1, logarithmic
