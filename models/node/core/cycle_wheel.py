"""Which core goes on next: the cores of a node by the clock cycle in which each of them is due.

A wheel of buckets, one per cycle, each with a bit per core, so that what is due next costs no comparisons: cores that
are due in one cycle go in the order of their numbers. Cores due beyond the wheel wait in its last bucket.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.kernels import inner_inlined
from manyscale.models.node.scheduler.ready_queues import lowest_bit

NEVER: Final = 1 << 62
_BUCKETS: Final = 1024
_WORDS: Final = _BUCKETS // 64


class CycleWheel(NamedTuple):
    """``waiting`` uint64[buckets, words]: a bit per core; ``filled`` uint64[buckets / 64]: a bit per bucket; ``due``
    int64[cores]; ``now`` int64[1]: cycle before which nobody is due."""

    waiting: np.ndarray
    filled: np.ndarray
    due: np.ndarray
    now: np.ndarray


def new_wheel(num_cores: int) -> CycleWheel:
    """Nobody is due."""
    words = (num_cores + 63) // 64
    return CycleWheel(
        np.zeros((_BUCKETS, words), np.uint64), np.zeros(_WORDS, np.uint64), np.zeros(num_cores, np.int64),
        np.zeros(1, np.int64),
    )  # fmt: skip


@inner_inlined
def put(wheel, core, cycle):  # type: ignore[no-untyped-def]
    """A core that is not on the wheel is due at ``cycle``, or now if that is over. O(1)."""
    wheel.due[core] = cycle
    bucket = min(max(cycle, wheel.now[0]), wheel.now[0] + _BUCKETS - 1) & (_BUCKETS - 1)
    wheel.waiting[bucket, core >> 6] |= np.uint64(1) << np.uint64(core & 63)
    wheel.filled[bucket >> 6] |= np.uint64(1) << np.uint64(bucket & 63)


@inner_inlined
def next_cycle(wheel):  # type: ignore[no-untyped-def]
    """When a core is due next, or has to be looked at, NEVER if none is. O(1)."""
    bucket = wheel.now[0] & (_BUCKETS - 1)
    word, bit = bucket >> 6, np.uint64(bucket & 63)
    bits = (wheel.filled[word] >> bit) << bit
    turn = 0
    while bits == 0 and turn < _WORDS:
        turn += 1
        bits = wheel.filled[(word + turn) & (_WORDS - 1)]
    if bits == 0:
        return np.int64(NEVER)
    found = (((word + turn) & (_WORDS - 1)) << 6) + lowest_bit(bits)
    return wheel.now[0] + ((found - bucket) & (_BUCKETS - 1))


@inner_inlined
def take(wheel, cycle):  # type: ignore[no-untyped-def]
    """The lowest core of those due at ``cycle``, which `next_cycle` said, off the wheel; -1 if it was not due yet and
    is on the wheel again. O(cores / 64)."""
    wheel.now[0] = cycle
    bucket = cycle & (_BUCKETS - 1)
    words = wheel.waiting.shape[1]
    word = 0
    while wheel.waiting[bucket, word] == 0:
        word += 1
    bits = wheel.waiting[bucket, word]
    core = (word << 6) + lowest_bit(bits)
    bits &= bits - np.uint64(1)
    wheel.waiting[bucket, word] = bits
    while bits == 0 and word + 1 < words:
        word += 1
        bits = wheel.waiting[bucket, word]
    if bits == 0:
        wheel.filled[bucket >> 6] &= ~(np.uint64(1) << np.uint64(bucket & 63))
    if wheel.due[core] > cycle:
        put(wheel, core, wheel.due[core])
        return np.int64(-1)
    return core
