"""Why the IPC of a homogeneous interval hardly depends on how warps interleave: TBPoint's Markov chain.

Source: Huang et al., TBPoint (IPDPS 2014), section IV-A, eq. 3 and lemma 4.1 (thesis, section 3.4.1, eq. 7). A warp
that can run stalls with probability p at each instruction; a stalled one goes on with probability 1/M in each cycle. An
SM of N warps issues one instruction a cycle unless all are stalled: IPC = 1 - R_0. The source raises a matrix of
2^N x 2^N to a high power; but warps are independent, each stalled for a share pM / (1 + pM) of the time, so R_0 is
their product.

Lemma: with M drawn for each warp from a normal distribution of mean mu and deviation 0.1 mu / 1.96, more than 95 % of
IPCs are within 10 % of their mean. With one warp and large pM the IPC goes as 1/M, and the share tends to 94.8 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

MOST_MATRIX_WARPS: Final = 8
NUM_SAMPLES: Final = 10_000  # the source's
WITHIN: Final = 0.1
_DEVIATION: Final = 0.1 / 1.96  # of M, relative


def ipc(stall_probability: float, stall_cycles: np.ndarray) -> np.ndarray:
    """IPC of an SM of warps with ``stall_cycles`` float64[..., warps]: float64[...]. O(warps).

    Raises ValueError for a probability not between 0 and 1, and for stalls of less than a cycle."""
    _check(stall_probability, stall_cycles)
    stalled = stall_probability * np.asarray(stall_cycles, np.float64)
    result: np.ndarray = 1 - np.prod(stalled / (1 + stalled), axis=-1)
    return result


def ipc_by_matrix(stall_probability: float, stall_cycles: np.ndarray) -> float:
    """The same by the source's transition matrix, for ``stall_cycles`` float64[warps]: its stationary vector. State i
    has warp 1 in its most significant bit, 1 where it can run. O(8^warps). Raises ValueError as `ipc`, and for more
    than MOST_MATRIX_WARPS warps."""
    _check(stall_probability, stall_cycles)
    if len(stall_cycles) > MOST_MATRIX_WARPS:
        raise ValueError(f"{len(stall_cycles)} warps; the matrix is made for at most {MOST_MATRIX_WARPS}")
    transition = np.ones((1, 1))
    for cycles in stall_cycles:
        one = np.array([[1 - 1 / cycles, 1 / cycles], [stall_probability, 1 - stall_probability]])
        transition = np.kron(transition, one)
    count = len(transition)
    balance = np.concatenate((transition.T - np.eye(count), np.ones((1, count))))
    stationary = np.linalg.lstsq(balance, np.append(np.zeros(count), 1.0), rcond=None)[0]
    return float(1 - stationary[0])


@dataclass(frozen=True)
class IpcVariation:
    """Of the samples: their ``mean`` IPC, relative standard ``deviation``, and share ``within`` 10 % of the mean."""

    mean: float
    deviation: float
    within: float


def vary_stalls(
    stall_probability: float, mean_stall_cycles: float, num_warps: int, num_samples: int = NUM_SAMPLES, seed: int = 0
) -> IpcVariation:
    """The lemma by Monte Carlo. O(samples x warps). Raises ValueError as `ipc`."""
    drawn = np.random.default_rng(seed).normal(
        mean_stall_cycles, _DEVIATION * mean_stall_cycles, (num_samples, num_warps)
    )
    found = ipc(stall_probability, drawn)
    mean = float(found.mean())
    return IpcVariation(mean, float(found.std() / mean), float(np.mean(np.abs(found - mean) <= WITHIN * mean)))


def _check(stall_probability: float, stall_cycles: np.ndarray) -> None:
    if not 0 <= stall_probability <= 1:
        raise ValueError(f"the stall probability is {stall_probability}; it must lie between 0 and 1")
    if not np.all(np.asarray(stall_cycles) >= 1):
        raise ValueError("a stall lasts less than one cycle")
