"""Who missed what stands in a frame of a cache (gpu/gpumech/functional_caches.py): lines of the launch, for whose miss
others wait.

Cost: O(sectors of a line).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import inlined

_NOBODY: Final = -1


@inlined
def leader_of(held, c, at, sectors, since):  # type: ignore[no-untyped-def]
    """Who missed one of these sectors of a line, if what was missed of it last was after turn ``since``; else -1."""
    if held.line[c, at].turn > since:
        for sector in range(held.leader.shape[2]):
            leader = held.leader[c, at, sector] - held.base[0]
            if sectors >> sector & 1 and leader >= 0:
                return leader
    return np.int64(-1)


@inlined
def last_leader(held, c, at):  # type: ignore[no-untyped-def]
    """Who was last to miss a sector of what was in a frame before; -1: nobody of this launch."""
    leader = np.int64(_NOBODY)
    for sector in range(held.leader.shape[2]):
        leader = max(leader, held.leader[c, at, sector] - held.base[0])
    return leader


@inlined
def forget_leaders(held, c, at):  # type: ignore[no-untyped-def]
    for sector in range(held.leader.shape[2]):
        held.leader[c, at, sector] = _NOBODY
