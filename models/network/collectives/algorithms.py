"""Collective operations of MPI as schedules of messages: algorithms, and presets that choose among them.

`choose(call, preset)` picks the algorithm as the named MPI library would, `schedule` writes it out. Presets:

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

from manyscale.models.network.collectives import halving, linear, rings, rounds, trees
from manyscale.models.network.collectives.call import KINDS, Choice, CollectiveCall
from manyscale.models.network.collectives.formulas import Formula, dimemas_formula
from manyscale.models.network.collectives.openmpi import select_openmpi
from manyscale.models.network.collectives.schedules import Schedule, ScheduleBuilder
from manyscale.models.spelling import unknown

__all__ = [
    "ALGORITHMS",
    "FORMULA_PRESETS",
    "KINDS",
    "PRESETS",
    "SEGMENTED",
    "Choice",
    "CollectiveCall",
    "choose",
    "schedule",
]

Algorithm: TypeAlias = Callable[[ScheduleBuilder, CollectiveCall], None]
Selection: TypeAlias = "Callable[[CollectiveCall], Choice | Formula]"


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


def _barrier_tree(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Empty messages up a binomial tree to participant 0, then down (Open MPI coll_base_barrier.c, tree)."""
    rounds.reduce_binomial(builder, call)
    rounds.bcast_binomial(builder, call)


def _with_openmpi(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Add what Open MPI does for a call that is a part of another."""
    ALGORITHMS[call.kind][select_openmpi(call).algorithm](builder, call)


def _reduce_then_bcast(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Reduction to participant 0, then broadcast, each as Open MPI does it (coll_base_allreduce.c, nonoverlapping)."""
    for kind in ("reduce", "bcast"):
        _with_openmpi(builder, replace(call, kind=kind))


def _reduce_then_scatterv(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Reduction of all blocks to participant 0, then scatter (coll_base_reduce_scatter.c, nonoverlapping)."""
    blocks = call.block_bytes
    _with_openmpi(builder, replace(call, kind="reduce", send_bytes=int(blocks.sum()), receive_counts=None))
    _with_openmpi(builder, replace(call, kind="scatterv", send_counts=blocks, receive_counts=None))


def _gather_then_bcast(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Gather to participant 0, then broadcast, each as Open MPI does it (coll_base_allgatherv.c, basic_default)."""
    blocks = call.block_bytes
    _with_openmpi(builder, replace(call, kind="gatherv", receive_counts=blocks))
    _with_openmpi(builder, replace(call, kind="bcast", send_bytes=int(blocks.sum()), receive_counts=None))


def _allgather_openmpi_doubling(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Recursive doubling for a power of two, else Bruck's (coll_base_allgather.c, recursivedoubling)."""
    n = call.num_participants
    (rounds.allgather_bruck if n & (n - 1) else rounds.allgather_recursive_doubling)(builder, call)


def _scatter_doubling_or_linear(builder: ScheduleBuilder, call: CollectiveCall) -> None:
    """Scatter and recursive-doubling allgather, or for fewer elements than participants linear (coll_base_bcast.c,
    scatter_allgather)."""
    too_few = call.send_bytes < call.num_participants * call.element_bytes
    (linear.bcast if too_few else rounds.bcast_scatter_recursive_doubling_allgather)(builder, call)


_ALLGATHER: Final[Mapping[str, Algorithm]] = {
    "none": _nothing,
    "linear": linear.allgather,
    "recursive-doubling": rounds.allgather_recursive_doubling,
    "doubling-or-bruck": _allgather_openmpi_doubling,
    "bruck": rounds.allgather_bruck,
    "ring": rounds.allgather_ring,
    "whole-ring": rings.allgather_whole_ring,
    "neighbor-exchange": rings.allgather_neighbor_exchange,
    "gather-bcast": _gather_then_bcast,
}
_SCAN: Final[Mapping[str, Algorithm]] = {
    "none": _nothing,
    "linear": linear.scan,
    "recursive-doubling": rounds.scan_recursive_doubling,
    "chain": rings.scan_chain,
}

ALGORITHMS: Final[Mapping[str, Mapping[str, Algorithm]]] = {
    "barrier": {
        "linear": linear.barrier,
        "linear-unordered": linear.barrier_unordered,
        "dissemination": rounds.barrier_dissemination,
        "recursive-doubling": halving.barrier_recursive_doubling,
        "tree": _barrier_tree,
    },
    "bcast": {
        "none": _nothing,
        "linear": linear.bcast,
        "binomial": rounds.bcast_binomial,
        "scatter-recursive-doubling-allgather": rounds.bcast_scatter_recursive_doubling_allgather,
        "scatter-ring-allgather": rounds.bcast_scatter_ring_allgather,
        "scatter-doubling-or-linear": _scatter_doubling_or_linear,
        "chain": trees.bcast(trees.chain),
        "binary": trees.bcast(trees.binary),
        "split-binary": trees.bcast_split_binary,
        "binomial-ascending": trees.bcast(trees.binomial_ascending),
        "knomial": trees.bcast(trees.knomial),
    },
    "reduce": {
        "none": _nothing,
        "linear": linear.reduce,
        "binomial": rounds.reduce_binomial,
        "rabenseifner": rounds.reduce_rabenseifner,
        "linear-ordered": linear.reduce_ordered,
        "chain": trees.reduce(trees.chain),
        "binary": trees.reduce(trees.binary),
        "binomial-in-order": trees.reduce(trees.binomial_in_order),
        "in-order-binary": trees.reduce_in_order_binary,
        "rabenseifner-halves": halving.reduce_halves,
    },
    "allreduce": {
        "none": _nothing,
        "linear": linear.allreduce,
        "reduce-bcast": _reduce_bcast,
        "recursive-doubling": rounds.allreduce_recursive_doubling,
        "rabenseifner": rounds.allreduce_rabenseifner,
        "ring": rings.allreduce_ring,
        "rabenseifner-halves": halving.allreduce_halves,
        "nonoverlapping": _reduce_then_bcast,
    },
    "scan": _SCAN,
    "exscan": _SCAN,
    "gather": {
        "none": _nothing,
        "linear": linear.gather,
        "binomial": rounds.gather_binomial,
        "linear-ordered": linear.gather_ordered,
        "linear-synchronized": linear.gather_synchronized,
    },
    "gatherv": {
        "linear": linear.gather,
        "linear-filled": linear.gather_filled,
        "linear-ordered-filled": linear.gather_ordered_filled,
    },
    "scatter": {
        "none": _nothing,
        "linear": linear.scatter,
        "binomial": rounds.scatter_binomial,
        "linear-ordered": linear.scatter_ordered,
    },
    "scatterv": {
        "linear": linear.scatter,
        "linear-filled": linear.scatter_filled,
        "linear-ordered-filled": linear.scatter_ordered_filled,
    },
    "allgather": _ALLGATHER,
    "allgatherv": _ALLGATHER,
    "alltoall": {
        "none": _nothing,
        "linear": linear.alltoall,
        "scattered": linear.alltoall_scattered,
        "bruck": rounds.alltoall_bruck,
        "pairwise": rounds.alltoall_pairwise,
        "pairwise-shift": rings.alltoall_pairwise_shift,
    },
    "alltoallv": {
        "linear": linear.alltoallv,
        "scattered": linear.alltoall_scattered,
        "pairwise": rounds.alltoall_pairwise,
        "linear-filled": linear.alltoallv_filled,
        "pairwise-shift": rings.alltoall_pairwise_shift,
    },
    "reduce_scatter": {
        "none": _nothing,
        "linear": linear.reduce_scatter,
        "reduce-scatterv": _reduce_scatterv,
        "recursive-doubling": rounds.reduce_scatter_recursive_doubling,
        "recursive-halving": rounds.reduce_scatter_recursive_halving,
        "pairwise": rounds.reduce_scatter_pairwise,
        "ring": rings.reduce_scatter_ring,
        "butterfly": halving.reduce_scatter_butterfly,
        "nonoverlapping": _reduce_then_scatterv,
    },
}

# Algorithms that send in pieces, if Choice.segment_bytes says so
SEGMENTED: Final[Mapping[str, frozenset[str]]] = {
    "bcast": frozenset({"chain", "binary", "split-binary", "binomial-ascending", "knomial"}),
    "reduce": frozenset({"chain", "binary", "binomial-in-order", "in-order-binary"}),
    "allreduce": frozenset({"ring"}),
    "gather": frozenset({"linear-synchronized"}),
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


PRESETS: Final[Mapping[str, Selection]] = {
    "simgrid-3.32": lambda call: Choice(_select_simgrid(call)),
    "mpich": lambda call: Choice(_select_mpich(call)),
    "openmpi": select_openmpi,
    "dimemas": dimemas_formula,
}
FORMULA_PRESETS: Final = frozenset({"dimemas"})  # that send no messages at all


def known_presets(preset: str) -> str:
    """The preset's name if there is one; else raises ValueError, with the known ones."""
    if preset not in PRESETS:
        raise ValueError(unknown("preset", preset, PRESETS))
    return preset


def choose(call: CollectiveCall, preset: str) -> Choice | Formula:
    """What the preset uses for this call: an algorithm of ALGORITHMS[call.base_kind], or a formula. Raises ValueError
    for an unknown preset."""
    return PRESETS[known_presets(preset)](call)


def schedule(call: CollectiveCall, choice: Choice) -> Schedule:
    """The messages of a collective as an algorithm sends them. Raises ValueError for an unknown one."""
    known = ALGORITHMS[call.base_kind]
    if choice.algorithm not in known:
        raise ValueError(f"unknown algorithm {choice.algorithm!r} for {call.base_kind}; known are {', '.join(known)}")
    builder = ScheduleBuilder(call.num_participants)
    if call.num_participants > 1:
        if choice.algorithm in SEGMENTED.get(call.base_kind, ()):
            call = replace(call, segment_bytes=choice.segment_bytes)
        known[choice.algorithm](builder, call)
    return builder.build()
