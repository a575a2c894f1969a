"""The verbs of SimGrid's time-independent traces, and which are refused.

Source: SimGrid 3.32 (instr_private.hpp, smpi_replay.cpp, smpi_pmpi_*.cpp).
"""

from __future__ import annotations

from typing import Final

SEND_VERBS: Final = ("send", "isend", "ssend", "issend", "bsend", "ibsend")
RECEIVE_VERBS: Final = ("recv", "irecv")
UNSIZED_VERBS: Final = ("barrier", "ibarrier", "init", "finalize")
_SPELLED = {"reducescatter": "reduce_scatter"}
_COLLECTIVE_NAMES = [
    "bcast", "reduce", "allreduce", "scan", "exscan", "gather", "scatter", "allgather", "alltoall", "gatherv",
    "scatterv", "allgatherv", "alltoallv", "reducescatter",
]  # fmt: skip
# with the operations that they are
COLLECTIVE_VERBS: Final = {
    prefix + verb: prefix + _SPELLED.get(verb, verb) for prefix in ("", "i") for verb in _COLLECTIVE_NAMES
}
TEST_VERBS = ("test", "testany", "testall", "testsome")
DURATION_VERBS = ("compute", "sleep")
NAMED_VERBS = ("wait", "test")  # which name their request
IGNORED_VERBS = ("comm_size", "comm_split", "comm_dup")
_ONE_SIDED = (
    "get put accumulate rget rput raccumulate get_accumulate rget_accumulate fetch_and_op compare_and_swap "
    "win_create win_allocate win_free win_fence win_post win_start win_complete win_wait win_lock win_unlock "
    "win_lock_all win_unlock_all win_flush win_flush_local win_flush_all win_flush_local_all"
)
REFUSED_VERBS = {
    **dict.fromkeys(
        _ONE_SIDED.split(),
        "one-sided communication cannot be replayed; trace a version of the program that uses sends and receives",
    ),
    "io": "file input and output cannot be replayed; trace the program without MPI-IO",
    "startall": "the trace does not say which persistent requests it starts; use MPI_Start for each, or MPI_Isend",
    "migrate": "AMPI migration cannot be replayed; trace the program without it",
}

# In the order in which they are converted: an untagged wait looks at the posts before it.
VERBS: Final = [
    *REFUSED_VERBS, *IGNORED_VERBS, "compute", "sleep", "location", *SEND_VERBS, *RECEIVE_VERBS, "start", "sendrecv",
    *UNSIZED_VERBS, *COLLECTIVE_VERBS, "wait", "waitall", "waitany", *TEST_VERBS,
]  # fmt: skip
CODE: Final = {verb: code for code, verb in enumerate(VERBS)}
