"""What the verbs of SimGrid's time-independent traces stand for.

Source: SimGrid 3.32 (instr_private.hpp, smpi_replay.cpp, smpi_pmpi_*.cpp, smpi_datatype.cpp).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.workload import OperationKind
from manyscale.runner.readers.simgrid_ti.tokens import VerbTable
from manyscale.runner.readers.simgrid_ti.verb_names import (
    CODE,
    COLLECTIVE_VERBS,
    NAMED_VERBS,
    RECEIVE_VERBS,
    SEND_VERBS,
    TEST_VERBS,
    UNSIZED_VERBS,
    VERBS,
)

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

VERB_TABLE: Final = VerbTable(VERBS)

# What resolves requests, per operation (see requests.py)
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
    **{verb: verb for verb in (*SEND_VERBS, *RECEIVE_VERBS, *UNSIZED_VERBS, "sendrecv", "wait", "waitall", "waitany")},
    **COLLECTIVE_VERBS, **dict.fromkeys(TEST_VERBS, "test"), "start": "irecv",
}.items():  # fmt: skip
    KIND_OF_VERB[CODE[_verb]] = OperationKind[_kind]

# How the common kernel treats a verb
NO_OPERATION, OTHER, SEND, ISEND, RECEIVE, IRECEIVE, NAMED = range(7)
TREATMENT: Final = np.where(KIND_OF_VERB < 0, NO_OPERATION, OTHER).astype(np.int8)
TREATMENT[[CODE[verb] for verb in SEND_VERBS]] = SEND
TREATMENT[[CODE[verb] for verb in RECEIVE_VERBS]] = RECEIVE
TREATMENT[[CODE[verb] for verb in NAMED_VERBS]] = NAMED
OPENS_REQUEST: Final = np.array([verb in (*SEND_VERBS, *RECEIVE_VERBS) and verb.startswith("i") for verb in VERBS])
TREATMENT[OPENS_REQUEST] += 1
