"""Kernels that allocate nothing, and what loading Numba must not bring with it."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import numpy as np

from manyscale.models.kernels import allocation_free, apart, by_reference, inner


@allocation_free
def _last_of_each(first, second):  # type: ignore[no-untyped-def]
    return first[-1] + second[-1]


def test_arrays_are_handed_on_and_kept() -> None:
    values = np.arange(5)
    before = sys.getrefcount(values)
    assert _last_of_each(values, values) == 8
    assert sys.getrefcount(values) == before
    assert values.tolist() == [0, 1, 2, 3, 4]


class _Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray


@inner
def _move(pair, place):  # type: ignore[no-untyped-def]
    apart()
    pair.second[place, 1] += pair.first[place]
    pair.first[place] = 0


@allocation_free
def _move_all(pair):  # type: ignore[no-untyped-def]
    pair = by_reference(by_reference(pair))
    for place in range(pair.first.shape[0]):
        _move(pair, place)


def test_members_of_a_tuple_handed_on_by_reference_are_its_arrays() -> None:
    first, second = np.arange(3), np.ones((3, 2))
    before = sys.getrefcount(first)
    _move_all(_Pair(first, second))
    assert first.tolist() == [0, 0, 0]
    assert second.tolist() == [[1, 1], [1, 2], [1, 3]]
    assert sys.getrefcount(first) == before


def test_a_first_kernel_does_not_load_scipy_and_scipy_still_loads_after_it() -> None:
    program = (
        "import sys, numpy\n"
        "from manyscale.models.hash_table import new_table\n"
        "from manyscale.models.network import matching\n"
        "matching.new_table(4)\n"
        "from manyscale.models.kernels import njit\n"
        "njit(lambda values: values.sum())(numpy.arange(3))\n"
        "assert 'scipy.linalg' not in sys.modules\n"
        "import scipy.linalg.cython_blas\n"
        "assert njit(lambda a: a @ a)(numpy.eye(2)).tolist() == [[1, 0], [0, 1]]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
