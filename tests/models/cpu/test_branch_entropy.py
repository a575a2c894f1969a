"""Linear branch entropy against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.cpu.branch_entropy import branch_entropy

pytestmark = pytest.mark.theory


def entropy_of(outcomes: np.ndarray, history_bits: int = 8) -> float:
    """Of block 0, which block 1 or 2 follows."""
    block_ids = np.zeros(2 * len(outcomes), np.int32)
    block_ids[1::2] = 1 + outcomes
    found = branch_entropy(block_ids, np.array([0]), np.array([len(block_ids)]), 3, history_bits)
    assert found.is_branch[0] == (len(set(outcomes.tolist())) > 1)
    return float(found.entropy[0])


def test_always_taken_is_0() -> None:
    assert entropy_of(np.ones(1000, np.int32)) == 0


def test_a_fair_coin_is_1() -> None:
    assert entropy_of(np.random.default_rng(1).integers(0, 2, 400_000).astype(np.int32)) == pytest.approx(1, abs=0.03)


def test_a_biased_coin() -> None:
    outcomes = (np.random.default_rng(2).random(400_000) < 0.1).astype(np.int32)
    assert entropy_of(outcomes) == pytest.approx(0.2, rel=0.05)


def test_a_pattern_needs_history() -> None:
    """Taken every other time: nothing to be seen without history, everything with one outcome."""
    outcomes = (np.arange(10_000) % 2).astype(np.int32)
    assert entropy_of(outcomes, 0) == 1
    assert entropy_of(outcomes, 1) == pytest.approx(0, abs=1e-3)


def test_pieces_have_nothing_to_do_with_each_other() -> None:
    ids = np.array([0, 1, 0, 2], np.int32)
    found = branch_entropy(ids, np.array([0, 3]), np.array([2, 4]), 3)
    assert not found.is_branch.any()


def test_refused() -> None:
    with pytest.raises(ValueError, match="history of 21"):
        branch_entropy(np.zeros(1, np.int32), np.array([0]), np.array([1]), 1, 21)
