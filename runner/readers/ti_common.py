"""The common lines of a time-independent trace, sends, receives, named waits and compute, in one kernel: O(lines)."""

from __future__ import annotations

import numpy as np
from numba import njit

from manyscale.runner.readers.ti_verbs import MOST_ELEMENTS, UNDEFINED_RANK


def pair_key(source: np.ndarray | int, destination: np.ndarray | int) -> np.ndarray | int:
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
        if what == 0:
            continue
        at = first[line]
        count = counts[line]
        if what == 4:  # compute, sleep
            if count != 1:
                return num_phases, line, 1 if count < 1 else 2
            amount = values[at] * ps_per_unit[line]
            if not (0.0 <= amount <= 4.6e18):
                return num_phases, line, 9
            if amount > 0:
                phase_line[num_phases] = line
                phase_ps[num_phases] = amount
                num_phases += 1
            continue
        if what == 3:  # wait, test
            if untagged:
                if count > 0:
                    return num_phases, line, 2
                if last_post < 0:
                    return num_phases, line, 8
                key[row, 0] = key[last_post, 0]
                key[row, 1] = key[last_post, 1]
                continue
            if count != 3:
                return num_phases, line, 1 if count < 3 else 2
            for k in range(3):
                if values[at + k] != np.floor(values[at + k]) or abs(values[at + k]) > 2147483648.0:
                    return num_phases, line, 3
            number = np.int64(values[at + 2])
            if number < 0 and number != -444:  # the request of a non-blocking collective
                key[row, 0] = -1
                key[row, 1] = number if number != -1021 else -1001
            else:
                key[row, 0] = (np.int64(values[at]) + 333) * 16777216 + np.int64(values[at + 1]) + 333
                key[row, 1] = number
            continue
        if count < size_at + 1:
            return num_phases, line, 1
        if count > size_at + 2:
            return num_phases, line, 2
        for k in range(count):
            if values[at + k] != np.floor(values[at + k]) or abs(values[at + k]) > 4e18:
                return num_phases, line, 3
        other = np.int64(values[at])
        if other != -333 and (other < 0 or other >= num_ranks):
            return num_phases, line, 4
        number = np.int64(0) if untagged else np.int64(values[at + 1])
        if number > 2147483647 or (number < 0 and not (what == 2 and number == -444)):
            return num_phases, line, 5
        size = np.int64(values[at + size_at])
        if size < 0:
            if what == 1:
                return num_phases, line, 6
            size = np.int64(0)  # the receiver probed for the size
        elif size > MOST_ELEMENTS:
            return num_phases, line, 10
        datatype = np.int64(values[at + size_at + 1]) if count > size_at + 1 else default_type
        if datatype < 0 or datatype >= type_bytes.shape[0]:
            return num_phases, line, 7
        tag[row] = -1 if number == -444 else number
        if what == 1:
            size_sent[row] = size * type_bytes[datatype]
            peer[row] = other if other != -333 else -2
        else:
            size_received[row] = size * type_bytes[datatype]
            peer[row] = other if other != -333 else -1
        if opens_request[verb[line]]:
            role[row] = 1
            source = me if what == 1 else other
            destination = other if what == 1 else me
            key[row, 0] = (source + 333) * 16777216 + destination + 333
            key[row, 1] = number
            last_post = row
    return num_phases, -1, 0
