"""Linear branch entropy: how hard branches are to predict, whatever the predictor.

Source: De Pestel, Eyerman, Eeckhout, "Micro-architecture independent branch behavior characterization", ISPASS 2015. A
branch that is taken with probability p has the linear entropy 2 min(p, 1 - p): 0 if it always goes one way, 1 if it is
a fair coin; of a static branch it is the mean over the histories of outcomes before it, by how often each occurs. A
predictor's miss rate is close to linear in it: slope x entropy + intercept.

A branch here is a block that has had more than one successor; its outcome is whether the first successor that it ever
had follows. (So a branch of many targets counts by its first against all others.) Histories are those of all branches
of the task instance, as a global predictor sees them.

Assumption: one value per static branch, over the whole application: instances of some thousand instructions meet most
histories once, which would make all of them look predictable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import allocation_free

HISTORY_BITS: Final = 8


@dataclass(frozen=True)
class BranchEntropy:
    """``is_branch`` bool[blocks]; ``entropy`` float64[blocks], 0 where it is none; ``num_executions`` int64[blocks]:
    how often its outcome was seen."""

    is_branch: np.ndarray
    entropy: np.ndarray
    num_executions: np.ndarray


def branch_entropy(
    block_ids: np.ndarray, first: np.ndarray, end: np.ndarray, num_blocks: int, history_bits: int = HISTORY_BITS
) -> BranchEntropy:
    """Of executions ``block_ids`` int32[], in pieces [first, end) (int64[pieces]) that have nothing to do with each
    other. State: 8 B x branches x 2^history_bits. Raises ValueError for histories outside 0 to 20. O(executions)."""
    if not 0 <= history_bits <= 20:
        raise ValueError(f"a history of {history_bits} outcomes is not of 0 to 20")
    successor = np.full(num_blocks, -1, np.int32)
    is_branch = np.zeros(num_blocks, np.bool_)
    _find_branches(block_ids, first, end, successor, is_branch)
    number = np.where(is_branch, np.cumsum(is_branch) - 1, -1)
    outcomes = np.zeros((int(is_branch.sum()), 1 << history_bits, 2), np.int32)
    _count(block_ids, first, end, successor, number, outcomes)
    seen = outcomes.sum(axis=(1, 2), dtype=np.int64)
    rarer = np.minimum(outcomes[:, :, 0], outcomes[:, :, 1]).sum(axis=1, dtype=np.int64)
    entropy, executions = np.zeros(num_blocks), np.zeros(num_blocks, np.int64)
    entropy[is_branch] = 2.0 * rarer / np.maximum(seen, 1)
    executions[is_branch] = seen
    return BranchEntropy(is_branch, entropy, executions)


@allocation_free
def _find_branches(block_ids, first, end, successor, is_branch):  # type: ignore[no-untyped-def]
    """O(executions)."""
    for piece in range(first.shape[0]):
        for i in range(first[piece], end[piece] - 1):
            block, follower = block_ids[i], block_ids[i + 1]
            if successor[block] != follower:
                if successor[block] < 0:
                    successor[block] = follower
                else:
                    is_branch[block] = True


@allocation_free
def _count(block_ids, first, end, successor, number, outcomes):  # type: ignore[no-untyped-def]
    """O(executions)."""
    mask = outcomes.shape[1] - 1
    for piece in range(first.shape[0]):
        history = 0
        for i in range(first[piece], end[piece] - 1):
            branch = number[block_ids[i]]
            if branch >= 0:
                outcome = 1 if block_ids[i + 1] != successor[block_ids[i]] else 0
                outcomes[branch, history, outcome] += 1
                history = ((history << 1) | outcome) & mask
