"""The common lines of a time-independent trace, sends, receives, named waits and compute, in one kernel: O(lines)."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from manyscale.models.kernels import njit
from manyscale.models.workload import ANY_SOURCE, ANY_TAG, NO_RANK
from manyscale.runner.readers.simgrid_ti.verbs import (
    ALLTOALLV_TAG,
    ALLTOALLW_TAG,
    COLLECTIVE_KEY,
    DURATION,
    LONGEST_PS,
    MOST_ELEMENTS,
    NAMED,
    OTHER,
    POST,
    RECEIVE,
    SEND,
    TRACED_ANY_TAG,
    UNDEFINED_RANK,
)


@register_jitable
def pair_key(source, destination):  # type: ignore[no-untyped-def]
    """One number for a pair of ranks, of arrays too."""
    # shifted to be non-negative, so that no key equals COLLECTIVE_KEY
    return (source - UNDEFINED_RANK) * 2**24 + (destination - UNDEFINED_RANK)


# Problems that the common kernel reports
FEW, MANY, FRACTION, NO_SUCH_RANK, BAD_TAG, NEGATIVE_SIZE, DERIVED, NO_POST, BAD_AMOUNT, TOO_LARGE = range(1, 11)


@njit(cache=True, nogil=True)
def convert_common_lines(  # type: ignore[no-untyped-def]
    verb, treatment, opens_request, first, counts, values, row_of, me, num_ranks, untagged, default_type, type_bytes,
    ps_per_unit, peer, tag, size_sent, size_received, role, key, phase_line, phase_ps,
):  # fmt: skip
    """Convert the lines of the common verbs. Returns the number of phases, and the first bad line with its problem (0
    for none). O(lines)."""
    num_phases = 0
    last_post = -1
    size_at = 1 if untagged else 2
    for line in range(verb.shape[0]):
        what = treatment[verb[line]]
        row = row_of[line]
        if what == OTHER:
            continue
        at = first[line]
        count = counts[line]
        if what == DURATION:  # compute, sleep
            if count != 1:
                return num_phases, line, FEW if count < 1 else MANY
            amount = values[at] * ps_per_unit[line]
            if not (0.0 <= amount <= LONGEST_PS):
                return num_phases, line, BAD_AMOUNT
            if amount > 0:
                phase_line[num_phases] = line
                phase_ps[num_phases] = amount
                num_phases += 1
            continue
        if what == NAMED:  # wait, test
            if untagged:
                if count > 0:
                    return num_phases, line, MANY
                if last_post < 0:
                    return num_phases, line, NO_POST
                key[row, 0] = key[last_post, 0]
                key[row, 1] = key[last_post, 1]
                continue
            if count != 3:
                return num_phases, line, FEW if count < 3 else MANY
            for k in range(3):
                if values[at + k] != np.floor(values[at + k]) or abs(values[at + k]) > 2147483648.0:
                    return num_phases, line, FRACTION
            number = np.int64(values[at + 2])
            if number < 0 and number != TRACED_ANY_TAG:  # the request of a non-blocking collective
                key[row, 0] = COLLECTIVE_KEY
                key[row, 1] = number if number != ALLTOALLW_TAG else ALLTOALLV_TAG
            else:
                key[row, 0] = pair_key(np.int64(values[at]), np.int64(values[at + 1]))
                key[row, 1] = number
            continue
        if count < size_at + 1:
            return num_phases, line, FEW
        if count > size_at + 2:
            return num_phases, line, MANY
        for k in range(count):
            if values[at + k] != np.floor(values[at + k]) or abs(values[at + k]) > 4e18:
                return num_phases, line, FRACTION
        other = np.int64(values[at])
        if other != UNDEFINED_RANK and (other < 0 or other >= num_ranks):
            return num_phases, line, NO_SUCH_RANK
        number = np.int64(0) if untagged else np.int64(values[at + 1])
        if number > 2147483647 or (number < 0 and not (what == RECEIVE and number == TRACED_ANY_TAG)):
            return num_phases, line, BAD_TAG
        size = np.int64(values[at + size_at])
        if size < 0:
            if what == SEND:
                return num_phases, line, NEGATIVE_SIZE
            size = np.int64(0)  # the receiver probed for the size
        elif size > MOST_ELEMENTS:
            return num_phases, line, TOO_LARGE
        datatype = np.int64(values[at + size_at + 1]) if count > size_at + 1 else default_type
        if datatype < 0 or datatype >= type_bytes.shape[0]:
            return num_phases, line, DERIVED
        tag[row] = ANY_TAG if number == TRACED_ANY_TAG else number
        if what == SEND:
            size_sent[row] = size * type_bytes[datatype]
            peer[row] = other if other != UNDEFINED_RANK else NO_RANK
        else:
            size_received[row] = size * type_bytes[datatype]
            peer[row] = other if other != UNDEFINED_RANK else ANY_SOURCE
        if opens_request[verb[line]]:
            role[row] = POST
            source = me if what == SEND else other
            destination = other if what == SEND else me
            key[row, 0] = pair_key(source, destination)
            key[row, 1] = number
            last_post = row
    return num_phases, -1, 0
