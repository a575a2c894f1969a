"""Which algorithm Open MPI takes: the fixed decision functions of its component coll/tuned.

Source: ompi/mca/coll/tuned/coll_tuned_decision_fixed.c, the same file from release 4.1.0 to 5.0.x, for commutative
operations. (Releases up to 4.0 have other functions.) The names are those of ALGORITHMS. As the decisions ask for whole
messages and set no limit of requests, Open MPI's chain is a pipeline, its segmented ring a ring, and its synchronised
linear all-to-all the linear one; its two_proc exchanges are pairwise ones or a ring of two.

What coll/tuned leaves to others: gatherv and scatterv (coll/basic: one by one), scan and exscan (a chain). Nothing is
sent where there are no data, as MPI_Bcast and its kin return at once.

Assumptions: reduce_scatter_block uses the decisions of reduce_scatter, and the non-blocking kinds, which are those of
coll/libnbc in Open MPI, use those of the blocking ones. coll/han, coll/sm and other components, which may take
precedence within nodes, are not there.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.network.collectives.call import Choice, CollectiveCall

_END: Final = 1 << 62

_Table = tuple[tuple[int, tuple[tuple[int, str], ...]], ...]

# Of each kind: below so many participants, below so many bytes: the algorithm.
_DECISIONS: Final[dict[str, _Table]] = {
    "barrier": (
        (4, ((_END, "recursive-doubling"),)),
        (8, ((_END, "linear"),)),
        (64, ((_END, "recursive-doubling"),)),
        (256, ((_END, "dissemination"),)),
        (512, ((_END, "tree"),)),
        (1024, ((_END, "dissemination"),)),
        (4096, ((_END, "tree"),)),
        (_END, ((_END, "dissemination"),)),
    ),
    "bcast": (
        (4, (
            (32, "chain"), (256, "binary"), (512, "chain"), (1024, "knomial"), (32768, "linear"), (131072, "binary"),
            (262144, "chain"), (524288, "linear"), (1048576, "binomial-ascending"), (_END, "binary"),
        )),
        (8, (
            (64, "binary"), (128, "binomial-ascending"), (2048, "binary"), (8192, "binomial-ascending"),
            (1048576, "linear"), (_END, "chain"),
        )),
        (16, (
            (8, "knomial"), (64, "binary"), (4096, "knomial"), (16384, "binary"), (32768, "binomial-ascending"),
            (_END, "linear"),
        )),
        (32, ((4096, "knomial"), (1048576, "binomial-ascending"), (_END, "scatter-doubling-or-linear"),)),
        (64, ((2048, "binomial-ascending"), (_END, "knomial"),)),
        (128, ((_END, "knomial"),)),
        (256, (
            (2, "binomial-ascending"), (16384, "binary"), (32768, "linear"), (65536, "binary"), (_END, "knomial"),
        )),
        (1024, ((16384, "knomial"), (32768, "split-binary"), (_END, "knomial"),)),
        (2048, ((524288, "knomial"), (_END, "scatter-doubling-or-linear"),)),
        (4096, ((262144, "knomial"), (_END, "scatter-doubling-or-linear"),)),
        (_END, (
            (8192, "knomial"), (16384, "binary"), (262144, "knomial"),
            (_END, "scatter-doubling-or-linear"),
        )),
    ),
    "reduce": (
        (4, (
            (8, "rabenseifner-halves"), (16, "binary"), (32, "chain"), (262144, "linear-ordered"), (_END, "chain"),
        )),
        (8, (
            (4096, "binary"), (65536, "chain"), (262144, "binomial-in-order"), (524288, "linear-ordered"),
            (1048576, "binomial-in-order"), (_END, "linear-ordered"),
        )),
        (16, ((8192, "binary"), (_END, "binomial-in-order"),)),
        (32, ((4096, "binary"), (_END, "binomial-in-order"),)),
        (256, ((_END, "binomial-in-order"),)),
        (512, ((8192, "binomial-in-order"), (16384, "in-order-binary"), (_END, "binomial-in-order"),)),
        (2048, ((_END, "binomial-in-order"),)),
        (4096, (
            (512, "binomial-in-order"), (1024, "in-order-binary"), (8192, "binomial-in-order"),
            (16384, "in-order-binary"), (_END, "binomial-in-order"),
        )),
        (_END, (
            (16, "binomial-in-order"), (32, "in-order-binary"), (1024, "binomial-in-order"),
            (2048, "in-order-binary"), (8192, "binomial-in-order"), (16384, "in-order-binary"),
            (_END, "binomial-in-order"),
        )),
    ),
    "allreduce": (
        (4, (
            (8, "ring"), (4096, "recursive-doubling"), (8192, "ring"), (16384, "recursive-doubling"),
            (262144, "ring"), (_END, "rabenseifner-halves"),
        )),
        (8, ((16, "ring"), (8192, "recursive-doubling"), (_END, "rabenseifner-halves"),)),
        (16, ((8192, "recursive-doubling"), (_END, "rabenseifner-halves"),)),
        (32, ((64, "ring"), (4096, "recursive-doubling"), (_END, "rabenseifner-halves"),)),
        (64, ((128, "ring"), (_END, "rabenseifner-halves"),)),
        (128, ((262144, "recursive-doubling"), (_END, "rabenseifner-halves"),)),
        (256, ((131072, "nonoverlapping"), (262144, "recursive-doubling"), (_END, "rabenseifner-halves"),)),
        (512, ((4096, "nonoverlapping"), (_END, "rabenseifner-halves"),)),
        (2048, ((2048, "nonoverlapping"), (16384, "recursive-doubling"), (_END, "rabenseifner-halves"),)),
        (4096, (
            (2048, "nonoverlapping"), (4096, "ring"), (16384, "recursive-doubling"), (_END, "rabenseifner-halves"),
        )),
        (_END, (
            (2048, "nonoverlapping"), (16384, "ring"), (32768, "recursive-doubling"), (_END, "rabenseifner-halves"),
        )),
    ),
    "gather": (
        (4, (
            (2, "linear-synchronized"), (4, "linear-ordered"), (32768, "binomial"), (65536, "linear-ordered"),
            (131072, "binomial"), (_END, "linear-synchronized"),
        )),
        (8, (
            (1024, "binomial"), (8192, "linear-ordered"), (32768, "binomial"), (262144, "linear-ordered"),
            (_END, "linear-synchronized"),
        )),
        (256, ((_END, "binomial"),)),
        (512, ((2048, "binomial"), (8192, "linear-ordered"), (_END, "binomial"),)),
        (_END, ((_END, "binomial"),)),
    ),
    "scatter": (
        (4, ((2, "linear"), (131072, "linear-ordered"), (262144, "linear"), (_END, "linear-ordered"),)),
        (8, (
            (2048, "binomial"), (4096, "linear-ordered"), (8192, "binomial"), (32768, "linear-ordered"),
            (1048576, "linear"), (_END, "linear-ordered"),
        )),
        (16, ((16384, "binomial"), (1048576, "linear"), (_END, "linear-ordered"),)),
        (32, ((16384, "binomial"), (32768, "linear-ordered"), (_END, "linear"),)),
        (64, ((512, "binomial"), (8192, "linear"), (16384, "binomial"), (_END, "linear"),)),
        (_END, ((512, "binomial"), (_END, "linear"),)),
    ),
    "allgather": (
        (3, ((_END, "whole-ring"),)),
        (32, ((_END, "doubling-or-bruck"),)),
        (64, ((1024, "doubling-or-bruck"), (65536, "neighbor-exchange"), (_END, "whole-ring"),)),
        (128, ((512, "doubling-or-bruck"), (65536, "neighbor-exchange"), (_END, "whole-ring"),)),
        (256, (
            (512, "doubling-or-bruck"), (131072, "neighbor-exchange"), (524288, "whole-ring"),
            (1048576, "neighbor-exchange"), (_END, "whole-ring"),
        )),
        (512, (
            (32, "doubling-or-bruck"), (128, "bruck"), (1024, "doubling-or-bruck"), (131072, "neighbor-exchange"),
            (524288, "whole-ring"), (1048576, "neighbor-exchange"), (_END, "whole-ring"),
        )),
        (1024, (
            (64, "doubling-or-bruck"), (256, "bruck"), (2048, "doubling-or-bruck"), (_END, "neighbor-exchange"),
        )),
        (2048, (
            (4, "doubling-or-bruck"), (8, "bruck"), (16, "doubling-or-bruck"), (32, "bruck"),
            (256, "doubling-or-bruck"), (512, "bruck"), (4096, "doubling-or-bruck"), (_END, "neighbor-exchange"),
        )),
        (4096, (
            (32, "bruck"), (128, "doubling-or-bruck"), (512, "bruck"), (4096, "doubling-or-bruck"),
            (_END, "neighbor-exchange"),
        )),
        (_END, (
            (2, "doubling-or-bruck"), (8, "bruck"), (16, "doubling-or-bruck"), (512, "bruck"),
            (4096, "doubling-or-bruck"), (_END, "neighbor-exchange"),
        )),
    ),
    "allgatherv": (
        (3, ((_END, "whole-ring"),)),
        (8, (
            (256, "gather-bcast"), (4096, "neighbor-exchange"), (8192, "whole-ring"), (16384, "neighbor-exchange"),
            (262144, "bruck"), (_END, "neighbor-exchange"),
        )),
        (16, ((1024, "gather-bcast"), (_END, "bruck"),)),
        (32, ((128, "gather-bcast"), (262144, "bruck"), (_END, "whole-ring"),)),
        (64, ((256, "gather-bcast"), (8192, "bruck"), (_END, "whole-ring"),)),
        (128, ((256, "gather-bcast"), (4096, "bruck"), (_END, "whole-ring"),)),
        (256, ((1024, "bruck"), (65536, "neighbor-exchange"), (_END, "whole-ring"),)),
        (512, ((1024, "bruck"), (_END, "whole-ring"),)),
        (1024, (
            (512, "bruck"), (1024, "gather-bcast"), (4096, "bruck"), (1048576, "neighbor-exchange"),
            (_END, "whole-ring"),
        )),
        (_END, ((4096, "bruck"), (_END, "neighbor-exchange"),)),
    ),
    "alltoall": (
        (3, ((32768, "pairwise-shift"), (262144, "linear"), (_END, "pairwise-shift"),)),
        (8, ((524288, "linear"), (1048576, "pairwise-shift"), (_END, "linear"),)),
        (16, ((_END, "linear"),)),
        (32, ((4, "linear"), (512, "bruck"), (_END, "linear"),)),
        (64, ((512, "bruck"), (_END, "linear"),)),
        (256, ((1024, "bruck"), (262144, "linear"), (_END, "pairwise-shift"),)),
        (512, ((1024, "bruck"), (32768, "linear"), (_END, "pairwise-shift"),)),
        (1024, ((512, "bruck"), (262144, "linear"), (_END, "pairwise-shift"),)),
        (2048, ((512, "bruck"), (_END, "linear"),)),
        (4096, ((1024, "bruck"), (_END, "linear"),)),
        (_END, ((2048, "bruck"), (_END, "linear"),)),
    ),
    "alltoallv": (
        (4, ((_END, "pairwise-shift"),)),
        (64, ((_END, "linear-filled"),)),
        (128, ((_END, "pairwise-shift"),)),
        (256, ((_END, "linear-filled"),)),
        (1024, ((_END, "pairwise-shift"),)),
        (_END, ((_END, "linear-filled"),)),
    ),
    "reduce_scatter": (
        (4, ((65536, "ring"), (131072, "butterfly"), (_END, "ring"),)),
        (8, ((8, "nonoverlapping"), (262144, "recursive-halving"), (_END, "ring"),)),
        (32, ((262144, "recursive-halving"), (_END, "ring"),)),
        (64, ((64, "nonoverlapping"), (2048, "recursive-halving"), (524288, "butterfly"), (_END, "ring"),)),
        (128, (
            (256, "nonoverlapping"), (512, "recursive-halving"), (2048, "butterfly"), (4096, "recursive-halving"),
            (_END, "butterfly"),
        )),
        (256, ((256, "nonoverlapping"), (512, "recursive-halving"), (_END, "butterfly"),)),
        (512, ((256, "nonoverlapping"), (1024, "recursive-halving"), (_END, "butterfly"),)),
        (1024, (
            (512, "nonoverlapping"), (2048, "recursive-halving"), (8192, "butterfly"), (16384, "recursive-halving"),
            (_END, "butterfly"),
        )),
        (2048, (
            (512, "nonoverlapping"), (4096, "recursive-halving"), (16384, "butterfly"), (32768, "recursive-halving"),
            (_END, "butterfly"),
        )),
        (4096, ((512, "nonoverlapping"), (4096, "recursive-halving"), (_END, "butterfly"),)),
        (_END, ((1024, "nonoverlapping"), (8192, "recursive-halving"), (_END, "butterfly"),)),
    ),
}  # fmt: skip
_FIXED: Final = {
    "gatherv": "linear-ordered-filled",
    "scatterv": "linear-ordered-filled",
    "scan": "chain",
    "exscan": "chain",
}


def select_openmpi(call: CollectiveCall) -> Choice:
    """The algorithm that Open MPI takes for a call."""
    kind, size = call.base_kind, _decided_bytes(call)
    if size == 0 and kind not in ("barrier", "alltoallv", "gatherv", "scatterv"):
        return Choice("none")
    if kind in _FIXED:
        return Choice(_FIXED[kind])
    limits = next(row for below, row in _DECISIONS[kind] if call.num_participants < below)
    return Choice(next(name for below, name in limits if size < below))


def _decided_bytes(call: CollectiveCall) -> int:
    """The size that Open MPI compares: the total of reduce_scatter, the mean block of allgatherv, else that of the
    call's arguments."""
    if call.base_kind == "reduce_scatter":
        return int(call.block_bytes.sum())
    if call.base_kind == "allgatherv":
        total = int(call.block_bytes.sum())
        return total // call.num_participants or min(total, 1)
    return call.send_bytes
