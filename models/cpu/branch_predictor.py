"""Which branches a core mispredicts: the successor of a block by the blocks executed before it.

Method: several tables with histories of geometrically growing length; the longest that knows the present history
predicts, and where it is wrong a longer one learns (after Seznec and Michaud, "A case for (partially) tagged geometric
history length branch prediction", Journal of Instruction-Level Parallelism 8, 2006). Histories are of whole blocks, and
targets are predicted with directions; sizes are those of no particular processor.

A history's hash is that of all blocks so far, less that of those before it: one multiplication per execution, however
many tables there are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, by_reference, inner, inner_inlined

_HISTORIES: Final = np.array([0, 4, 12, 36, 108])  # executions that the tables look back
_ENTRIES: Final = 8192
_ENTRIES_OF_MANY: Final = 1024  # for each of many cores
_MOST_TRUST: Final = 3
_PAST: Final = 128  # a power of two beyond the longest history
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_POWERS: Final = np.array([pow(int(_FACTOR), int(h), 1 << 64) for h in _HISTORIES], np.uint64)
_NEVER: Final = -1  # of ``only``: the block was not executed yet
_SEVERAL: Final = -2  # of ``only``: different blocks have followed it

_ENTRY: Final = np.dtype([("tag", "i4"), ("successor", "i4"), ("trust", "i4"), ("pad", "i4")])


class Predictor(NamedTuple):
    """Of each core, tables of successors by what was executed before: ``entry`` records [cores, tables, entries].

    ``past`` uint64[cores, _PAST]: hashes of all that was executed, after each of the last executions; ``place``
    int64[cores]: executions so far. ``only`` int32[cores, blocks]: what alone has followed each block so far, or
    _NEVER, _SEVERAL; of no blocks where only ``predict`` is called.
    """

    entry: np.ndarray
    past: np.ndarray
    place: np.ndarray
    only: np.ndarray


def new_predictor() -> Predictor:
    """Of one core, for ``predict``."""
    return _new(1, _ENTRIES, 0)


def new_predictors(num_cores: int, num_blocks: int) -> Predictor:
    """For ``mispredicts``: 80 KiB a core, and 4 B a block."""
    return _new(num_cores, _ENTRIES_OF_MANY, num_blocks)


def _new(num_cores: int, num_entries: int, num_blocks: int) -> Predictor:
    entry = np.zeros((num_cores, len(_HISTORIES), num_entries), _ENTRY)
    entry["tag"] = entry["successor"] = -1
    only = np.full((num_cores, num_blocks), _NEVER, np.int32)
    return Predictor(entry, np.zeros((num_cores, _PAST), np.uint64), np.zeros(num_cores, np.int64), only)


@inner_inlined
def _mixed(predictor, core, table, block):  # type: ignore[no-untyped-def]
    """Of the block and the table's history: the low bits say which entry, those from bit 33 on are its tag. O(1)."""
    past, place = predictor.past, predictor.place[core]
    now = past[core, place & (_PAST - 1)]
    history = now - past[core, (place - _HISTORIES[table]) & (_PAST - 1)] * _POWERS[table]
    mixed = (history + np.uint64(block) * np.uint64(0xD6E8FEB86659FD93)) * _FACTOR
    return mixed ^ (mixed >> np.uint64(29))


@inner_inlined
def _entry(predictor, core, table, mixed):  # type: ignore[no-untyped-def]
    return predictor.entry[core, table, np.int64(mixed & np.uint64(predictor.entry.shape[2] - 1))]


@inner_inlined
def _tag(mixed):  # type: ignore[no-untyped-def]
    return np.int32((mixed >> np.uint64(33)) & np.uint64(0xFFFFF))


@inner
def _look_up(predictor, core, block, follower):  # type: ignore[no-untyped-def]
    """Whether the tables are wrong about what follows the block: the longest history that knows it decides, and where
    it is wrong a longer one learns. O(tables)."""
    num_tables = predictor.entry.shape[1]
    chosen, wrong = num_tables - 1, True
    while chosen >= 0:
        mixed = _mixed(predictor, core, chosen, block)
        entry = _entry(predictor, core, chosen, mixed)
        if entry.tag == _tag(mixed):
            wrong = entry.successor != follower
            if not wrong:
                entry.trust = min(entry.trust + 1, _MOST_TRUST)
            elif entry.trust > 0:
                entry.trust -= 1
            else:
                entry.successor = follower
            break
        chosen -= 1
    if wrong:
        for table in range(chosen + 1, num_tables):
            mixed = _mixed(predictor, core, table, block)
            entry = _entry(predictor, core, table, mixed)
            if entry.trust == 0:
                entry.tag, entry.successor = _tag(mixed), follower
                break
            entry.trust -= 1
    return wrong


@inner_inlined
def _executed(predictor, core, block):  # type: ignore[no-untyped-def]
    """The block belongs to the history of what follows. O(1)."""
    place = predictor.place[core]
    now = (predictor.past[core, place & (_PAST - 1)] + np.uint64(block + 1)) * _FACTOR
    predictor.past[core, (place + 1) & (_PAST - 1)] = now
    predictor.place[core] = place + 1


@inner_inlined
def mispredicts(predictor, core, block, follower, ends_in_branch):  # type: ignore[no-untyped-def]
    """Whether the core's predictor is wrong about ``follower`` (-1: nothing follows), and learns it. What one block
    alone has followed needs no table, whose entries are left to the others. O(tables), mostly O(1)."""
    wrong = False
    if ends_in_branch and follower >= 0:
        only = predictor.only[core, block]
        if only != follower:
            if only == _NEVER:
                predictor.only[core, block] = follower
                wrong = True
            else:
                if only != _SEVERAL:
                    predictor.only[core, block] = _SEVERAL
                    mixed = _mixed(predictor, core, 0, block)
                    entry = _entry(predictor, core, 0, mixed)
                    entry.tag, entry.successor, entry.trust = _tag(mixed), only, _MOST_TRUST
                wrong = _look_up(predictor, core, block, follower)
    _executed(predictor, core, block)
    return wrong


@allocation_free
def predict(block_ids, next_id, ends_in_branch, predictor, result):  # type: ignore[no-untyped-def]
    """Whether the predictor is wrong about what follows each execution. O(executions)."""
    predictor = by_reference(predictor)
    for execution in range(block_ids.shape[0]):
        block = np.int64(block_ids[execution])
        follower = np.int64(block_ids[execution + 1]) if execution + 1 < block_ids.shape[0] else next_id
        result[execution] = False
        if ends_in_branch[block] and follower >= 0:
            result[execution] = _look_up(predictor, 0, block, follower)
        _executed(predictor, 0, block)
