"""Vectors that say what intervals of a run execute: sparse rows, normalised, and projected to few dimensions.

A projection's matrix need not exist: each of its numbers follows from the seed, its row and its column, so that
vectors can be projected while they are read, whatever dimensions are still to come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from manyscale.models.kernels import njit

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Vectors:
    """Rows of a sparse matrix: those of row i are ``column`` int64[] and ``value`` float64[] from ``first[i]`` to
    ``first[i + 1]`` (int64[rows + 1]). A column may occur several times in a row; its values add up."""

    first: np.ndarray
    column: np.ndarray
    value: np.ndarray

    def __len__(self) -> int:
        return len(self.first) - 1

    def sums(self) -> np.ndarray:
        """float64[rows]: of the values of each row."""
        whole = np.append(self.value, 0.0)
        found = np.add.reduceat(whole, self.first[:-1]) if len(self) else np.empty(0)
        return np.asarray(np.where(np.diff(self.first) > 0, found, 0.0))

    def normalised(self) -> Vectors:
        """The same rows, each with values that sum to 1 (L1; SimPoint, section 3.1 of ASPLOS'02); one without any stays
        empty. O(values)."""
        sums = self.sums()
        scale = np.repeat(np.where(sums > 0, sums, 1.0), np.diff(self.first))
        return Vectors(self.first, self.column, self.value / scale)

    def projected(self, seed: int, dimensions: int) -> np.ndarray:
        """float64[rows, dimensions]: rows times a matrix of numbers drawn evenly from [-1, 1), one for each column and
        dimension, that ``seed`` decides. O(values x dimensions)."""
        most = int(self.column.max(initial=0)) + 1
        if most <= 4 * len(self.column) + 1024:
            return _project(self.first, self.column, self.value, np.arange(most), np.uint64(seed), dimensions)
        names, column = np.unique(self.column, return_inverse=True)
        return _project(self.first, column, self.value, names, np.uint64(seed), dimensions)

    def times(self, matrix: np.ndarray) -> np.ndarray:
        """float64[rows, dimensions]: rows times ``matrix`` float64[columns, dimensions]. Raises ValueError for a column
        that it does not have."""
        if len(self.column) and int(self.column.max()) >= len(matrix):
            raise ValueError(f"the matrix has {len(matrix)} rows, a vector has column {self.column.max()}")
        return _multiply(self.first, self.column, self.value, np.ascontiguousarray(matrix, np.float64))


def side_by_side(parts: list[Vectors], offsets: list[int]) -> Vectors:
    """Rows made of those of ``parts``, whose columns are moved by ``offsets``. O(values)."""
    rows = len(parts[0])
    row = np.concatenate([np.repeat(np.arange(rows), np.diff(part.first)) for part in parts])
    order = np.argsort(row, kind="stable")
    column = np.concatenate([part.column + offset for part, offset in zip(parts, offsets, strict=True)])
    value = np.concatenate([part.value for part in parts])
    first = np.sum([part.first for part in parts], axis=0)
    return Vectors(first, column[order], value[order])


@njit(cache=True, nogil=True)
def _uniform(seed, row, column):  # type: ignore[no-untyped-def]
    """A number in [-1, 1) (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014)."""
    state = seed * np.uint64(0xD1342543DE82EF95) + (np.uint64(row) << np.uint64(8) | np.uint64(column)) * _GOLDEN
    for _ in range(2):
        state += _GOLDEN
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return np.float64(np.int64(state >> np.uint64(11))) * 2.0**-52 - 1.0


@njit(cache=True, nogil=True)
def _project(first, column, value, names, seed, dimensions):  # type: ignore[no-untyped-def]
    """``names[c]``: the matrix's row of column c; each is drawn once, when it is met first."""
    found = np.zeros((first.shape[0] - 1, dimensions))
    matrix = np.zeros((names.shape[0], dimensions))
    drawn = np.zeros(names.shape[0], np.bool_)
    for row in range(found.shape[0]):
        for i in range(first[row], first[row + 1]):
            at = column[i]
            if not drawn[at]:
                for d in range(dimensions):
                    matrix[at, d] = _uniform(seed, names[at], d)
                drawn[at] = True
            for d in range(dimensions):
                found[row, d] += value[i] * matrix[at, d]
    return found


@njit(cache=True, nogil=True)
def _multiply(first, column, value, matrix):  # type: ignore[no-untyped-def]
    found = np.zeros((first.shape[0] - 1, matrix.shape[1]))
    for row in range(found.shape[0]):
        for i in range(first[row], first[row + 1]):
            for d in range(matrix.shape[1]):
                found[row, d] += value[i] * matrix[column[i], d]
    return found
