"""Clusters of blocks to SMs, and a window of them.

All blocks of a cluster start together, on SMs of one GPC, when a window begins: those SMs first that have most room, so
that the blocks stand on as many as can be. A cluster waits for the next window where no GPC has room for it.
"""

from __future__ import annotations

from manyscale.models.gpu.sm.kernel import BLOCK_ENDED, advance, start_block
from manyscale.models.gpu.windows_kernel import END, HELD, NEXT, TURN
from manyscale.models.kernels import inner, merged, seldom


@inner
def _first_sm(sm, limits, gpc):  # type: ignore[no-untyped-def]
    """Of a GPC: whole TPCs, spread as evenly as they go."""
    return min(sm.core.shape[0], gpc * limits.tpcs // limits.gpcs * limits.tpc_sms)


@seldom(gives="int")
def gpc_with_room(sm, limits, first):  # type: ignore[no-untyped-def]
    """Of GPCs from ``first`` on, in turn, one that has room for a cluster; -1: none."""
    for i in range(limits.gpcs):
        gpc = (first + i) % limits.gpcs
        room = 0
        for s in range(_first_sm(sm, limits, gpc), _first_sm(sm, limits, gpc + 1)):
            room += limits.slots - sm.core[s].blocks
        if room >= limits.cluster:
            return gpc
    return -1


@merged
def _emptiest(sm, limits, gpc):  # type: ignore[no-untyped-def]
    first = _first_sm(sm, limits, gpc)
    best = first
    for s in range(first, _first_sm(sm, limits, gpc + 1)):
        if sm.core[s].blocks < sm.core[best].blocks:
            best = s
    return best


@merged
def _is_held(sm, limits, word):  # type: ignore[no-untyped-def]
    """Whether all blocks of the next cluster are in memory."""
    last = 0
    for rank in range(limits.cluster):
        last = max(last, sm.cluster_order[word[NEXT] + rank])
    return last < word[HELD]


@seldom(gives="bool")
def cluster_window(sm, program, limits, dispatch, begin, until):  # type: ignore[no-untyped-def]
    """True once all SMs are at ``until``; False if whoever brings blocks must be asked first."""
    word = dispatch.word
    while word[NEXT] < word[END]:
        gpc = gpc_with_room(sm, limits, word[TURN])
        if gpc < 0:
            break
        if not _is_held(sm, limits, word):
            return False
        for _ in range(limits.cluster):
            s = _emptiest(sm, limits, gpc)
            start_block(sm, s, program, limits, sm.cluster_order[word[NEXT]], max(0, begin - 1))
            word[NEXT] += 1
        word[TURN] = gpc + 1
    for s in range(sm.core.shape[0]):
        while advance(sm, s, program, limits, until) == BLOCK_ENDED:
            pass
    return True


@merged
def can_start(sm, limits, word):  # type: ignore[no-untyped-def]
    """Whether a cluster starts when the next window begins."""
    return limits.cluster > 1 and word[NEXT] < word[END] and gpc_with_room(sm, limits, 0) >= 0
