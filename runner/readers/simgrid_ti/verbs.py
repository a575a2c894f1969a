"""The verbs of SimGrid's time-independent traces: what each stands for, and what is refused.

Source: SimGrid 3.32 (instr_private.hpp, smpi_replay.cpp, smpi_pmpi_*.cpp, smpi_datatype.cpp).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.runner.readers.simgrid_ti.tokens import VerbTable

# Bytes of SimGrid's datatype ids 0 to 59 (smpi_datatype.cpp). INTEGER1 is declared there as a C int and COMPLEX32 as
# two doubles; kept, since the counts were written under those sizes.
DATATYPE_BYTES: Final = np.array(
    [8, 4, 1, 2, 8, 4, 1, 8, 1, 1, 2, 4, 8, 8, 16, 4, 1, 1, 2, 4, 8, 1, 2, 4, 8, 8, 16, 32, 8, 8,
     8, 16, 16, 8, 8, 8, 16, 16, 4, 4, 8, 16, 8, 16, 16, 4, 2, 4, 8, 16, 32, 1, 8, 16, 32, 0, 0, 1, 8, 8],
    np.int64,
)  # fmt: skip
MPI_DOUBLE, MPI_BYTE = 0, 6
LONGEST_PS: Final = 2**62  # 53 days: leaves room to add
MOST_ELEMENTS: Final = 2**40  # of one message; its bytes and their time stay far from 2^63
UNDEFINED_RANK = -333  # MPI_ANY_SOURCE and MPI_PROC_NULL, once translated to a world rank
TRACED_ANY_TAG = -444

_K = OperationKind
SEND_VERBS = {
    "send": _K.send, "isend": _K.isend, "ssend": _K.ssend, "issend": _K.issend, "bsend": _K.bsend,
    "ibsend": _K.ibsend,
}  # fmt: skip
RECEIVE_VERBS = {"recv": _K.recv, "irecv": _K.irecv}
UNSIZED_VERBS = {"barrier": _K.barrier, "ibarrier": _K.ibarrier, "init": _K.init, "finalize": _K.finalize}
_SPELLED = {"reducescatter": "reduce_scatter"}
_COLLECTIVE_NAMES = [
    "bcast", "reduce", "allreduce", "scan", "exscan", "gather", "scatter", "allgather", "alltoall", "gatherv",
    "scatterv", "allgatherv", "alltoallv", "reducescatter",
]  # fmt: skip
COLLECTIVE_VERBS = {
    prefix + verb: OperationKind[prefix + _SPELLED.get(verb, verb)]
    for prefix in ("", "i")
    for verb in _COLLECTIVE_NAMES
}
DURATION_VERBS = ("compute", "sleep")
NAMED_VERBS = ("wait", "test")  # which name their request
TEST_VERBS = ("test", "testany", "testall", "testsome")
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
VERB_TABLE: Final = VerbTable(VERBS)

# What resolves requests, per operation (see ti_requests)
NOTHING, POST, WAIT, WAITALL, WAITANY, TEST, TESTALL, TESTANY = range(8)
# The request of a non-blocking collective names no ranks, and the kind by its tag: SimGrid's COLL_TAG_* minus 1, the
# same from 3.25 to 4.1. MPI_Ialltoallw is written as ialltoallv, but waited for under its own tag.
COLLECTIVE_KEY: Final = -1
COLLECTIVE_TAG: Final = {
    "reduce": -113, "scatter": -224, "scatterv": -335, "gather": -446, "allgather": -557, "allgatherv": -668,
    "barrier": -779, "scan": -889, "exscan": -889, "reducescatter": -890, "alltoallv": -1001, "alltoall": -1113,
    "gatherv": -2224, "bcast": -3335, "allreduce": -4446,
}  # fmt: skip

ALLTOALLV_TAG: Final = COLLECTIVE_TAG["alltoallv"]
ALLTOALLW_TAG: Final = -1021

ROLE_OF_VERB: Final = np.zeros(len(VERBS), np.int8)
ROLE_OF_VERB[CODE["wait"]], ROLE_OF_VERB[CODE["test"]] = WAIT, TEST

# The kind of operation that a verb becomes, -1 for none
KIND_OF_VERB: Final = np.full(len(VERBS), -1, np.int8)
for _verb, _kind in {
    **SEND_VERBS, **RECEIVE_VERBS, **UNSIZED_VERBS, **COLLECTIVE_VERBS, "sendrecv": _K.sendrecv, "wait": _K.wait,
    "waitall": _K.waitall, "waitany": _K.waitany, **dict.fromkeys(TEST_VERBS, _K.test), "start": _K.irecv,
}.items():  # fmt: skip
    KIND_OF_VERB[CODE[_verb]] = _kind

# How the common kernel treats a verb
NO_OPERATION, OTHER, SEND, ISEND, RECEIVE, IRECEIVE, NAMED = range(7)
TREATMENT: Final = np.where(KIND_OF_VERB < 0, NO_OPERATION, OTHER).astype(np.int8)
TREATMENT[[CODE[verb] for verb in SEND_VERBS]] = SEND
TREATMENT[[CODE[verb] for verb in RECEIVE_VERBS]] = RECEIVE
TREATMENT[[CODE[verb] for verb in NAMED_VERBS]] = NAMED
OPENS_REQUEST: Final = np.array([verb in (*SEND_VERBS, *RECEIVE_VERBS) and verb.startswith("i") for verb in VERBS])
TREATMENT[OPENS_REQUEST] += 1
