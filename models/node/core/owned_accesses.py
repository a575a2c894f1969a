"""Which instruction makes each access of a block.

A trace lists a block's accesses in the order in which they were seen, and so do the addresses of its stream. That need
not be the order of the instructions shown (where these are of another build, the compiler may have ordered them
otherwise), and a few accesses may belong to none of them: these are *loose*. They stand behind the instruction of the
access seen before them, or at the block's begin, wait for nothing, and nothing waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from manyscale.models.memory.access_stream import Sites, sites_of
from manyscale.models.workload import Workload


@dataclass(frozen=True)
class OwnedAccesses:
    """``workload``: with the accesses alone that belong to an instruction, in the order of instructions, and ``sites``
    of it; ``row`` int64[sites]: which access of its block's stream each is. ``loose``: rows of ``all_sites`` behind
    each instruction (rows of the table ``instructions``), or by block where it shows none (``hidden``)."""

    workload: Workload
    sites: Sites
    row: np.ndarray
    all_sites: Sites
    loose: dict[int, list[int]]
    hidden: dict[int, list[int]]

    @property
    def num_loose(self) -> int:
        return sum(map(len, self.loose.values()))

    def row_of(self, site: int) -> int:
        """Which access of its block's stream a row of ``all_sites`` is."""
        return site - int(self.all_sites.offsets[self.all_sites.block[site]])


def owned_accesses(workload: Workload) -> OwnedAccesses:
    """O(n log n) in the static accesses."""
    sites = sites_of(workload)
    num_blocks = sites.num_blocks
    block, owner = sites.block.astype(np.int64), workload.column("block_accesses", "instruction").astype(np.int64)
    shown = np.bincount(workload.column("instructions", "block_id"), minlength=num_blocks)
    first = np.concatenate(([0], np.cumsum(shown)))
    is_owned = (owner >= 0) & (owner < shown[block])
    order = np.flatnonzero(is_owned)
    order = order[np.lexsort((owner[order], block[order]))]  # stable: those of one instruction stay in order
    loose: dict[int, list[int]] = {}
    hidden: dict[int, list[int]] = {}
    for site in np.flatnonzero(~is_owned).tolist():
        mine = int(block[site])
        if not shown[mine]:
            hidden.setdefault(mine, []).append(site)
            continue
        before = np.flatnonzero(is_owned[sites.offsets[mine] : site])
        place = int(owner[sites.offsets[mine] + before[-1]]) if len(before) else 0
        loose.setdefault(int(first[mine]) + place, []).append(site)
    table = workload.tables["block_accesses"].take(order)
    owned = replace(workload, tables={**workload.tables, "block_accesses": table})
    return OwnedAccesses(owned, sites_of(owned), order - sites.offsets[block[order]], sites, loose, hidden)
