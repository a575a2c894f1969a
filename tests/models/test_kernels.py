"""Kernels that allocate nothing, and what loading Numba must not bring with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from manyscale.models.kernels import allocation_free, apart, by_reference, count_ones, entry, inner, row_of


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


class _Rates(NamedTuple):
    low: float
    high: float


class _Mixed(NamedTuple):
    is_on: bool
    cube: np.ndarray
    rates: _Rates
    small: np.ndarray
    pair: _Pair
    rows: np.ndarray
    nothing: None
    count: int


@entry
def _read_all(mixed, factor):  # type: ignore[no-untyped-def]
    """Of every kind of member; and write."""
    if not mixed.is_on or mixed.nothing is not None:
        return -1.0
    mixed.pair.second[1, 0] = factor
    mixed.rows[1].wide = mixed.count
    _move(mixed.pair, 2)
    return mixed.cube[1, 0, 2] * 100 + mixed.rates.high * 10 + mixed.small[2] + mixed.rows[0].narrow / 1000


@pytest.mark.parametrize("is_on", [True, False])
def test_entries_read_and_write_what_python_holds(is_on: bool) -> None:
    rows = np.zeros(2, [("narrow", np.int8), ("wide", np.int64)])
    rows["narrow"] = 7
    pair = _Pair(np.array([1, 2, 3]), np.zeros((3, 2)))
    every_other = np.arange(24.0).reshape(2, 3, 4)[:, ::2, 1:]
    mixed = _Mixed(is_on, every_other, _Rates(0.25, 0.5), np.array([1, 2, 3], np.int16), pair, rows, None, 1 << 40)
    before = sys.getrefcount(rows)
    found = _read_all(mixed, 9)
    assert found == (15 * 100 + 5 + 3 + 0.007 if is_on else -1)
    assert pair.second.tolist() == ([[0, 0], [9, 0], [0, 3]] if is_on else [[0, 0]] * 3)
    assert pair.first.tolist() == ([1, 2, 0] if is_on else [1, 2, 3])
    assert rows["wide"].tolist() == [0, (1 << 40) if is_on else 0]
    assert sys.getrefcount(rows) == before


@entry
def _read_first(pair):  # type: ignore[no-untyped-def]
    return pair.first[0, 1]


def test_entries_tell_arrays_of_other_kinds_apart() -> None:
    for values in (np.array([[1.5, 2.5]]), np.array([[3, 4]], np.int16), np.array([[5, 6], [7, 8]]).T):
        assert _read_first(_Pair(values, np.zeros(1))) == values[0, 1]


class _Group(NamedTuple):
    total: np.ndarray
    cube: np.ndarray
    own: np.ndarray
    grid: np.ndarray


class _One(namedtuple("_One", _Group._fields)):  # type: ignore[misc]
    SHARED = ("total",)


@entry
def _sum_up(group, place):  # type: ignore[no-untyped-def]
    one = row_of(group, place, _One)
    one.total[place] += one.cube[1, 2] + one.grid[0]
    one.own[0].count += one.grid.shape[0]
    one.cube[0, 0] = -1


def test_a_row_of_a_group_is_that_of_its_arrays() -> None:
    cube, grid = np.arange(24).reshape(2, 3, 4), np.arange(12.0).reshape(6, 2)[::3]
    group = _Group(np.zeros(2), cube, np.zeros(2, [("count", np.int32), ("other", np.int64)]), grid)
    _sum_up(group, 1)
    assert group.total.tolist() == [0, 18 + 6]
    assert group.own["count"].tolist() == [0, 2]
    assert cube[:, 0, 0].tolist() == [0, -1]


@allocation_free
def _swap_corners(pair, place):  # type: ignore[no-untyped-def]
    """``place`` int32[2]: with indices of that type, of others, and rows."""
    pair = by_reference(pair)
    row, column = place[0], place[1]
    before = pair.second[row, column]
    pair.second[row, column] = pair.second[np.uint8(0)][np.int64(0)]
    pair.second[0, 0] = before
    pair.second[1:, 0] = 7


def test_indices_of_any_type_and_slices_of_members() -> None:
    held = np.arange(6.0).reshape(3, 2)
    _swap_corners(_Pair(np.arange(3), held), np.array([2, 1], np.int32))
    assert held.tolist() == [[5, 1], [7, 3], [7, 0]]


@allocation_free
def _ones(values, counts):  # type: ignore[no-untyped-def]
    for i in range(len(values)):
        counts[i] = count_ones(values[i])


def test_count_ones() -> None:
    values = np.array([0, 1, 0b1011, 1 << 62, (1 << 63) - 1, -1])
    counts = np.zeros_like(values)
    _ones(values, counts)
    assert counts.tolist() == [0, 1, 3, 1, 63, 64]


def test_a_first_kernel_does_not_load_scipy_and_scipy_still_loads_beside_and_after_it() -> None:
    """Another thread may load it at any time."""
    program = (
        "import sys, numpy\n"
        "class Watching:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'numba.np.arraymath':\n"
        "            assert 'scipy.linalg.cython_blas' not in sys.modules\n"
        "            Watching.has_seen = True\n"
        "sys.meta_path.insert(0, Watching())\n"
        "from manyscale.models.kernels.hash_table import new_table\n"
        "from manyscale.models.network import matching\n"
        "matching.new_table(4)\n"
        "from manyscale.models.kernels import njit\n"
        "njit(lambda values: values.sum())(numpy.arange(3))\n"
        "assert Watching.has_seen and 'scipy.linalg' not in sys.modules\n"
        "import scipy.linalg.cython_blas\n"
        "assert njit(lambda a: a @ a)(numpy.eye(2)).tolist() == [[1, 0], [0, 1]]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


ONCE = """
import numpy as np
from manyscale.models.kernels import allocation_free, inner

@inner
def twice(number):
    return 2 * number

@allocation_free
def twice_each(numbers):
    return twice(numbers[0].narrow) + twice(numbers[0].wide) + twice(3)

numbers = np.array([(1, 2)], np.dtype([("narrow", "i4"), ("wide", "i8")]))
assert twice_each(numbers) == 2 * (1 + 2 + 3)
assert len(twice.signatures) == 1, twice.signatures
"""


def test_functions_are_compiled_once_for_integers_of_all_kinds(tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text(ONCE)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}  # where no caller was kept
    subprocess.run([sys.executable, str(tmp_path / "once.py")], check=True, env=environment)


@inner
def _plus_one(value):  # type: ignore[no-untyped-def]
    return value + 1


@allocation_free
def _plus_two(value):  # type: ignore[no-untyped-def]
    return _plus_one(_plus_one(value))


def test_a_function_for_kernels_alone_refuses_python() -> None:
    with pytest.raises(TypeError, match="_plus_one is for kernels to call: Python cannot"):
        _plus_one(1)
    assert _plus_two(1) == 3
    with pytest.raises(TypeError, match="_plus_one is for kernels to call: Python cannot"):
        _plus_one(1)
