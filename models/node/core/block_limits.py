"""What limits how fast executions of each basic block enter a core: width, units of execution, loads and stores per
cycle, and how its code is fetched.

The slowest of the first three spreads over all instructions of the block (``slot``). Accesses that the trace does not
show (the table ``unseen_accesses``) take units of loads and stores as others do; that their data is in the first cache,
and there in time, is taken. Loads that lie in two lines take their unit twice, which is known only when the block is
executed: ``load_slack`` and ``access_slack`` say how long the units of loads, and of all accesses, have nothing to do
in an execution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyscale.models.cpu import dataflow_tables as dataflow
from manyscale.models.machine.processor import Core
from manyscale.models.workload import Workload

NOBODY = -2  # no block


@dataclass(frozen=True)
class BlockLimits:
    """Of each block: ``count`` int64[], places in the reorder buffer (a fused pair takes one); ``slot`` float64[],
    cycles between two that enter; the slacks float64[], in cycles; ``windows`` float64[], aligned windows that its code
    lies in, one less if the block before was ``before`` (int64[], NOBODY: none)."""

    count: np.ndarray
    slot: np.ndarray
    load_slack: np.ndarray
    access_slack: np.ndarray
    windows: np.ndarray
    before: np.ndarray


def unseen_accesses(workload: Workload, code: dataflow.Code) -> tuple[np.ndarray, np.ndarray]:
    """(instruction of all, whether it is a store) of each access that the trace does not show."""
    block, instruction = (workload.column("unseen_accesses", name) for name in ("block_id", "instruction"))
    return code.blocks[block, dataflow.FIRST_INSTRUCTION] + instruction, workload.column("unseen_accesses", "is_store")


def block_limits(code: dataflow.Code, core: Core, unseen: tuple[np.ndarray, np.ndarray]) -> BlockLimits:
    """``unseen``: of ``unseen_accesses``. O(static instructions)."""
    first = code.blocks[:, dataflow.FIRST_INSTRUCTION]
    num_blocks, num = len(first) - 1, len(code.costs)
    block = np.repeat(np.arange(num_blocks), np.diff(first))
    traits, unit = code.instructions[:num, dataflow.TRAITS], code.instructions[:num, dataflow.UNIT]
    counts = np.bincount(block, (traits & dataflow.FUSED) == 0, num_blocks).astype(np.int64)
    works = (traits & (dataflow.RENAMED | dataflow.ADDRESSES)) == 0
    num_units = int(unit.max(initial=0)) + 1
    busy = np.bincount(block[works] * num_units + unit[works], code.costs[works, 1], num_blocks * num_units).reshape(
        num_blocks, num_units
    )
    owner = np.repeat(np.arange(num), np.diff(code.instructions[:, dataflow.FIRST_ACCESS]))
    is_store = code.accesses[: len(owner), dataflow.IS_STORE] > 0
    owner, is_store = np.append(owner, unseen[0]), np.append(is_store, unseen[1])
    vector = (traits[owner] & dataflow.VECTOR) > 0
    loads, stores, accesses = access_cycles(block[owner], is_store, vector, num_blocks, core)
    least = np.maximum.reduce([counts / core.width, busy.max(axis=1), loads, stores, accesses])
    slot = least / np.maximum(counts, 1)
    return BlockLimits(counts, slot, least - loads, least - accesses, *_windows(code, core))


def access_cycles(
    block: np.ndarray, is_store: np.ndarray, vector: np.ndarray, num_blocks: int, core: Core
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(loads, stores, all accesses) float64[blocks]: cycles that those of one execution take at least. What accesses
    vector registers goes through some of the units that all go through, so that others find room beside."""
    each = 1 / core.accesses_per_cycle if core.accesses_per_cycle else 0.0
    loads, stores = (
        np.maximum(
            np.bincount(block, np.where(mine, every, 0.0), num_blocks),
            np.bincount(block, np.where(mine & vector, of_vectors, 0.0), num_blocks),
        )
        for mine, (of_vectors, every) in ((~is_store, load_cycles(core)), (is_store, _store_cycles(core)))
    )
    return loads, stores, np.bincount(block, minlength=num_blocks) * each


def load_cycles(core: Core) -> tuple[float, float]:
    """For how long a load takes its unit: (of a vector register, of a general one)."""
    return 1 / (core.vector_loads_per_cycle or core.loads_per_cycle), 1 / core.loads_per_cycle


def _store_cycles(core: Core) -> tuple[float, float]:
    """The same of a store."""
    return 1 / (core.vector_stores_per_cycle or core.stores_per_cycle), 1 / core.stores_per_cycle


def _windows(code: dataflow.Code, core: Core) -> tuple[np.ndarray, np.ndarray]:
    """(windows, before) of each block. A block that goes on in the window in which the one before it in the code ends
    comes along with it."""
    first, last = code.blocks[:-1, dataflow.FIRST_WINDOW], code.blocks[:-1, dataflow.LAST_WINDOW]
    following = code.blocks[:-1, dataflow.NEXT_BLOCK]
    before = np.full(len(first), NOBODY, np.int64)
    if not core.fetch_bytes:
        return np.zeros(len(first)), before
    goes_on = np.flatnonzero(following >= 0)
    goes_on = goes_on[last[goes_on] == first[following[goes_on]]]
    before[following[goes_on]] = goes_on
    shown = np.diff(code.blocks[:, dataflow.FIRST_INSTRUCTION]) > 0
    return np.where(shown, last - first + 1.0, 0.0), before
