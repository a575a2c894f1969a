"""The common lines of a time-independent trace, sends, receives and named waits, in one kernel: O(lines)."""

from __future__ import annotations

from typing import Any

from manyscale.models.kernels import allocation_free
from manyscale.models.workload import ANY_SOURCE, ANY_TAG, NO_RANK
from manyscale.runner.readers.simgrid_ti.verbs import (
    ALLTOALLV_TAG,
    ALLTOALLW_TAG,
    COLLECTIVE_KEY,
    DATATYPE_BYTES,
    IRECEIVE,
    ISEND,
    MOST_ELEMENTS,
    NAMED,
    NO_OPERATION,
    OTHER,
    POST,
    TRACED_ANY_TAG,
    UNDEFINED_RANK,
)

PEER, TAG = range(2)  # rows of ``narrow`` int32[2, operations]
SENT, RECEIVED = range(2)  # of ``sizes`` int64[2, operations]
PAIR, NUMBER = range(2)  # of ``key`` int64[2, operations], of a request
# Problems that the kernel reports
FEW, MANY, FRACTION, NO_SUCH_RANK, BAD_TAG, NEGATIVE_SIZE, DERIVED, TOO_LARGE = range(1, 9)
_SHIFT = UNDEFINED_RANK  # so that no key of a pair equals COLLECTIVE_KEY


def pair_key(source: Any, destination: Any) -> Any:
    """One number for a pair of ranks, or for each pair of two arrays of them."""
    return (source - _SHIFT) * 2**24 + (destination - _SHIFT)


@allocation_free
def convert_common_lines(values, first, treatment, role, narrow, sizes, key, settings):  # type: ignore[no-untyped-def]
    """Convert the lines of SEND to NAMED. ``settings``: rank, number of ranks, default datatype,
    whether the trace has no tags. Returns the first bad line times 16 plus its problem, or -1."""
    me, num_ranks, default_type, untagged = settings[0], settings[1], settings[2], settings[3]
    size_at = 2 - untagged
    row = -1
    for line in range(treatment.shape[0]):
        what = treatment[line]
        if what == NO_OPERATION:
            continue
        row += 1
        if what == OTHER:
            continue
        at = first[line]
        count = first[line + 1] - at
        problem = 0
        for k in range(count):
            if values[at + k] != float(int(values[at + k])):
                problem = FRACTION
        if what == NAMED:
            if count != 3 or problem:
                return line * 16 + (FEW if count < 3 else MANY if count > 3 else FRACTION)
            number = int(values[at + 2])
            if number < 0 and number != TRACED_ANY_TAG:  # the request of a non-blocking collective
                key[PAIR, row] = COLLECTIVE_KEY
                key[NUMBER, row] = number if number != ALLTOALLW_TAG else ALLTOALLV_TAG
            else:
                key[PAIR, row] = (int(values[at]) - _SHIFT) * 2**24 + int(values[at + 1]) - _SHIFT
                key[NUMBER, row] = number
            continue
        sends = what <= ISEND
        if count <= size_at or count > size_at + 2 or problem:
            return line * 16 + (FEW if count <= size_at else MANY if count > size_at + 2 else FRACTION)
        other = int(values[at])
        number = 0 if untagged else int(values[at + 1])
        size = int(values[at + size_at])
        datatype = int(values[at + size_at + 1]) if count > size_at + 1 else default_type
        if other != UNDEFINED_RANK and (other < 0 or other >= num_ranks):
            problem = NO_SUCH_RANK
        elif number > 2147483647 or (number < 0 and (sends or number != TRACED_ANY_TAG)):
            problem = BAD_TAG
        elif size < 0 and sends:
            problem = NEGATIVE_SIZE
        elif size > MOST_ELEMENTS:
            problem = TOO_LARGE
        elif datatype < 0 or datatype >= len(DATATYPE_BYTES):
            problem = DERIVED
        if problem:
            return line * 16 + problem
        narrow[TAG, row] = ANY_TAG if number == TRACED_ANY_TAG else number
        narrow[PEER, row] = other
        if other == UNDEFINED_RANK:
            narrow[PEER, row] = NO_RANK if sends else ANY_SOURCE
        # of a receive whose size was probed for, below 0
        sizes[SENT if sends else RECEIVED, row] = max(size, 0) * DATATYPE_BYTES[datatype]
        if what == ISEND or what == IRECEIVE:
            source = me if sends else other
            destination = other if sends else me
            role[row] = POST
            key[PAIR, row] = (source - _SHIFT) * 2**24 + destination - _SHIFT
            key[NUMBER, row] = number
    return -1
