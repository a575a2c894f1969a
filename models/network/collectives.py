"""Collective operations of MPI as schedules of messages: algorithms, and presets that choose among them.

`schedule(call, preset)` picks the algorithm as the named MPI library would, and writes it out. Presets:

- "simgrid-3.32": what SMPI 3.32 does by default (smpi/coll-selector "default": smpi_default_selector.cpp,
  smpi_coll.cpp and smpi_nbc_impl.cpp in src/smpi/colls, all-to-all by smpi_openmpi_selector.cpp), for
  commutative operations and basic datatypes. Non-blocking kinds post everything at once, and often differ
  from the blocking ones.
- "mpich": MPICH's documented defaults for commutative built-in operations on a flat intracommunicator
  (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005; thresholds: the MPIR_CVAR_*_MSG_SIZE defaults of MPICH
  3.x; MPICH 4 chooses by maint/tuning/coll/mpir/generic.json, which is close to them). Non-blocking kinds
  use the blocking algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from manyscale.models.network import collectives_linear as linear
from manyscale.models.network import collectives_rounds as rounds
from manyscale.models.network.collective_call import KINDS, CollectiveCall
from manyscale.models.network.schedules import Schedule, ScheduleBuilder

__all__ = ["ALGORITHMS", "KINDS", "PRESETS", "CollectiveCall", "choose", "schedule"]

Algorithm: TypeAlias = Callable[[ScheduleBuilder, CollectiveCall], None]
Selection: TypeAlias = Callable[[CollectiveCall], str]


def _nothing(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """No message at all: MPICH returns at once where there are no data."""


def _reduce_bcast(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Linear reduction to participant 0, then binomial broadcast (allreduce__default)."""
    to_first = replace(call, root=0)
    linear.reduce(builder, to_first)
    rounds.bcast_binomial(builder, to_first)


def _reduce_scatterv(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Linear reduction of all blocks to participant 0, then linear scatter (reduce_scatter__default)."""
    linear.reduce(builder, replace(call, root=0, send_bytes=int(call.block_bytes.sum())))
    linear.scatter(builder, replace(call, root=0))


_ALLGATHER: Final[Mapping[str, Algorithm]] = {
    "none": _nothing,
    "linear": linear.allgather,
    "recursive-doubling": rounds.allgather_recursive_doubling,
    "bruck": rounds.allgather_bruck,
    "ring": rounds.allgather_ring,
}
_SCAN: Final[Mapping[str, Algorithm]] = {
    "none": _nothing,
    "linear": linear.scan,
    "recursive-doubling": rounds.scan_recursive_doubling,
}

ALGORITHMS: Final[Mapping[str, Mapping[str, Algorithm]]] = {
    "barrier": {
        "linear": linear.barrier,
        "linear-unordered": linear.barrier_unordered,
        "dissemination": rounds.barrier_dissemination,
    },
    "bcast": {
        "none": _nothing,
        "linear": linear.bcast,
        "binomial": rounds.bcast_binomial,
        "scatter-recursive-doubling-allgather": rounds.bcast_scatter_recursive_doubling_allgather,
        "scatter-ring-allgather": rounds.bcast_scatter_ring_allgather,
    },
    "reduce": {
        "none": _nothing,
        "linear": linear.reduce,
        "binomial": rounds.reduce_binomial,
        "rabenseifner": rounds.reduce_rabenseifner,
    },
    "allreduce": {
        "none": _nothing,
        "linear": linear.allreduce,
        "reduce-bcast": _reduce_bcast,
        "recursive-doubling": rounds.allreduce_recursive_doubling,
        "rabenseifner": rounds.allreduce_rabenseifner,
    },
    "scan": _SCAN,
    "exscan": _SCAN,
    "gather": {"none": _nothing, "linear": linear.gather, "binomial": rounds.gather_binomial},
    "gatherv": {"linear": linear.gather, "linear-filled": linear.gather_filled},
    "scatter": {"none": _nothing, "linear": linear.scatter, "binomial": rounds.scatter_binomial},
    "scatterv": {"linear": linear.scatter, "linear-filled": linear.scatter_filled},
    "allgather": _ALLGATHER,
    "allgatherv": _ALLGATHER,
    "alltoall": {
        "none": _nothing,
        "linear": linear.alltoall,
        "scattered": linear.alltoall_scattered,
        "bruck": rounds.alltoall_bruck,
        "pairwise": rounds.alltoall_pairwise,
    },
    "alltoallv": {
        "linear": linear.alltoallv,
        "scattered": linear.alltoall_scattered,
        "pairwise": rounds.alltoall_pairwise,
    },
    "reduce_scatter": {
        "none": _nothing,
        "linear": linear.reduce_scatter,
        "reduce-scatterv": _reduce_scatterv,
        "recursive-doubling": rounds.reduce_scatter_recursive_doubling,
        "recursive-halving": rounds.reduce_scatter_recursive_halving,
        "pairwise": rounds.reduce_scatter_pairwise,
    },
}

# Open MPI's decision table for all-to-all as SMPI 3.32 has it (alltoall__ompi; its algorithms 1, 4 and 5 are
# all the linear one there): below so many participants, below so many bytes per block.
_ENDLESS: Final = 1 << 62
_SIMGRID_ALLTOALL: Final[tuple[tuple[int, tuple[tuple[int, str], ...]], ...]] = (
    (
        3,
        (
            *((2, "pairwise"), (4, "linear"), (16, "pairwise"), (64, "linear"), (256, "pairwise")),
            *((4096, "linear"), (32768, "pairwise"), (1048576, "linear"), (_ENDLESS, "pairwise")),
        ),
    ),
    (8, ((524288, "linear"), (1048576, "pairwise"), (_ENDLESS, "linear"))),
    (16, ((_ENDLESS, "linear"),)),
    (32, ((4, "linear"), (512, "bruck"), (_ENDLESS, "linear"))),
    (64, ((512, "bruck"), (_ENDLESS, "linear"))),
    (256, ((1024, "bruck"), (262144, "linear"), (_ENDLESS, "pairwise"))),
    (512, ((1024, "bruck"), (32768, "linear"), (_ENDLESS, "pairwise"))),
    (1024, ((512, "bruck"), (262144, "linear"), (_ENDLESS, "pairwise"))),
    (2048, ((512, "bruck"), (_ENDLESS, "linear"))),
    (4096, ((1024, "bruck"), (_ENDLESS, "linear"))),
    (_ENDLESS, ((2048, "bruck"), (_ENDLESS, "linear"))),
)


def _select_simgrid(call: CollectiveCall) -> str:
    kind = call.base_kind
    if call.is_nonblocking:
        return "linear-unordered" if kind == "barrier" else "linear"
    if kind == "bcast":
        return "binomial"
    if kind == "allreduce":
        return "reduce-bcast"
    if kind == "alltoall":
        limits = next(row for below, row in _SIMGRID_ALLTOALL if call.num_participants < below)
        return next(name for below, name in limits if call.send_bytes < below)
    if kind == "reduce_scatter":
        if (call.block_bytes == call.block_bytes[0]).all():
            return "reduce-scatterv"
        # The threshold, meant in bytes by MPICH, is compared with elements (reduce_scatter__mpich).
        is_long = int(call.block_bytes.sum()) > 524288 * call.element_bytes
        return "pairwise" if is_long else "recursive-doubling"
    return "linear"


def _select_mpich(call: CollectiveCall) -> str:
    kind, n, size = call.base_kind, call.num_participants, call.send_bytes
    is_power_of_two = n & (n - 1) == 0
    largest_power = 1 << (n.bit_length() - 1)
    if kind == "barrier":
        return "dissemination"
    if kind in ("gatherv", "scatterv"):
        return "linear-filled"
    if kind == "alltoallv":
        return "scattered"
    if kind in ("allgather", "allgatherv", "reduce_scatter"):
        total = int(call.block_bytes.sum())
        if total == 0:
            return "none"
        if kind == "reduce_scatter":
            return "recursive-halving" if total < 524288 else "pairwise"
        if is_power_of_two and total < 524288:
            return "recursive-doubling"
        return "bruck" if total < 81920 else "ring"
    if size == 0:
        return "none"
    if kind == "bcast":
        if size < 12288 or n < 8:
            return "binomial"
        if is_power_of_two and size < 524288:
            return "scatter-recursive-doubling-allgather"
        return "scatter-ring-allgather"
    if kind in ("reduce", "allreduce"):
        if size > 2048 and size >= largest_power * call.element_bytes:
            return "rabenseifner"
        return "binomial" if kind == "reduce" else "recursive-doubling"
    if kind in ("scan", "exscan"):
        return "recursive-doubling"
    if kind in ("gather", "scatter"):
        return "binomial"
    if size <= 256 and n >= 8:
        return "bruck"
    return "scattered" if size <= 32768 else "pairwise"


PRESETS: Final[Mapping[str, Selection]] = {"simgrid-3.32": _select_simgrid, "mpich": _select_mpich}


def choose(call: CollectiveCall, preset: str) -> str:
    """Name of the algorithm that the preset uses for this call (a key of ALGORITHMS[call.base_kind])."""
    if preset not in PRESETS:
        raise ValueError(f"unknown collectives preset {preset!r}; known: {', '.join(PRESETS)}")
    return PRESETS[preset](call)


def schedule(call: CollectiveCall, preset: str, algorithm: str | None = None) -> Schedule:
    """The messages of a collective as the preset sends them, or as the named algorithm does."""
    name = choose(call, preset) if algorithm is None else algorithm
    known = ALGORITHMS[call.base_kind]
    if name not in known:
        raise ValueError(f"unknown algorithm {name!r} for {call.base_kind}; known: {', '.join(known)}")
    builder = ScheduleBuilder(call.num_participants)
    if call.num_participants > 1:
        known[name](builder, call)
    return builder.build()
