"""Which branches a core mispredicts: the successor of a block by the blocks executed before it.

Method: several tables with histories of geometrically growing length; the longest that knows the present history
predicts, and where it is wrong a longer one learns (after Seznec and Michaud, "A case for (partially) tagged geometric
history length branch prediction", Journal of Instruction-Level Parallelism 8, 2006). Histories are of whole blocks, and
targets are predicted with directions; sizes are those of no particular processor.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import njit

_HISTORIES: Final = np.array([0, 4, 12, 36, 108])  # executions that the tables look back
_ENTRIES: Final = 8192
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_POWERS: Final = np.array([pow(int(_FACTOR), int(h) + 1, 1 << 64) for h in _HISTORIES], np.uint64)


class Predictor(NamedTuple):
    """Tables of successors by what was executed before: ``tag`` and ``successor`` int32, ``trust`` int8
    [tables, entries]; ``recent`` int64 blocks, ``hashes`` uint64 of the last blocks by table, ``place`` int64[1]."""

    tag: np.ndarray
    successor: np.ndarray
    trust: np.ndarray
    recent: np.ndarray
    hashes: np.ndarray
    place: np.ndarray


def new_predictor() -> Predictor:
    shape = (len(_HISTORIES), _ENTRIES)
    tables = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32), np.zeros(shape, np.int8)
    return Predictor(*tables, np.zeros(128, np.int64), np.zeros(len(_HISTORIES), np.uint64), np.zeros(1, np.int64))


@njit(cache=True, nogil=True)
def predict(block_ids, next_id, ends_in_branch, predictor, result):  # type: ignore[no-untyped-def]
    """Whether the predictor is wrong about what follows each execution: the table with the longest history that knows
    it decides, and where it is wrong a longer one learns. O(executions)."""
    num_tables = _HISTORIES.shape[0]
    factor = _FACTOR
    slots = np.zeros(num_tables, np.int64)
    tags = np.zeros(num_tables, np.int32)
    for execution in range(block_ids.shape[0]):
        block = block_ids[execution]
        follower = block_ids[execution + 1] if execution + 1 < block_ids.shape[0] else next_id
        result[execution] = False
        if ends_in_branch[block] and follower >= 0:
            chosen = -1
            for table in range(num_tables):
                mixed = (predictor.hashes[table] + np.uint64(block) * np.uint64(0xD6E8FEB86659FD93)) * factor
                mixed ^= mixed >> np.uint64(29)
                slots[table] = np.int64(mixed & np.uint64(_ENTRIES - 1))
                tags[table] = np.int32((mixed >> np.uint64(33)) & np.uint64(0xFFFFF))
                if predictor.tag[table, slots[table]] == tags[table]:
                    chosen = table
            wrong = chosen < 0 or predictor.successor[chosen, slots[chosen]] != follower
            result[execution] = wrong
            if chosen >= 0:
                slot = slots[chosen]
                if not wrong:
                    predictor.trust[chosen, slot] = min(predictor.trust[chosen, slot] + 1, 3)
                elif predictor.trust[chosen, slot] > 0:
                    predictor.trust[chosen, slot] -= 1
                else:
                    predictor.successor[chosen, slot] = follower
            if wrong:
                for table in range(chosen + 1, num_tables):
                    slot = slots[table]
                    if predictor.trust[table, slot] == 0:
                        predictor.tag[table, slot] = tags[table]
                        predictor.successor[table, slot] = follower
                        break
                    predictor.trust[table, slot] -= 1
        # the hash of a table is that of its last blocks: the new one in, the oldest out
        place = predictor.place[0]
        for table in range(num_tables):
            if _HISTORIES[table] > 0:
                oldest = predictor.recent[(place - _HISTORIES[table]) & 127]
                value = (predictor.hashes[table] + np.uint64(block + 1)) * factor
                predictor.hashes[table] = value - np.uint64(oldest) * _POWERS[table]
        predictor.recent[place & 127] = block + 1
        predictor.place[0] = place + 1
