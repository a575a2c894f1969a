"""Kernels that refer to each other by name: in one process, from files, and where a file is missing."""

from __future__ import annotations

from pathlib import Path

import forked
import pytest

pytestmark = pytest.mark.contract

KERNELS = """
import numpy as np
from manyscale.models.kernels import allocation_free, inner, separate

@separate
def squares_below(number):
    total = 0
    for each in range(number):
        total += each * each
    return total

@inner
def twice(number):
    return 2 * squares_below(number)

@allocation_free
def of_all(numbers):
    total = 0
    for k in range(numbers.shape[0]):
        total += twice(numbers[k])
    return total
"""
SCRIPT = """
import numpy as np
import own_kernels
print(own_kernels.of_all(np.array([3, 4])), sum(own_kernels.of_all.stats.cache_misses.values()))
"""


def run(folder: Path) -> str:
    return forked.run(SCRIPT, folder=folder, kernels=folder / "kernels", check=True).stdout.strip()


def test_what_is_called_by_name_is_loaded_or_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    expected = 2 * (0 + 1 + 4 + 0 + 1 + 4 + 9)
    assert run(tmp_path) == f"{expected} 1"
    assert run(tmp_path) == f"{expected} 0"
    [called] = (tmp_path / "kernels").rglob("*squares_below*.nbc")
    called.unlink()
    assert run(tmp_path) == f"{expected} 1"  # under another name, so its caller is compiled again
    assert run(tmp_path) == f"{expected} 0"
