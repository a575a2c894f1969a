"""Slices of L2: lines whose distance is a power of two spread over all of them, and none is lost."""

from __future__ import annotations

import numpy as np
import pytest

from manyscale.models.gpu.l2.slices import slice_masks, slice_of_line
from manyscale.models.kernels import allocation_free

TIMES = 16  # lines that a slice has in the mean


@allocation_free
def slices_of(line, slices, high_shift, masks, found):  # type: ignore[no-untyped-def]
    for i in range(len(line)):
        found[i] = slice_of_line(line[i], slices, high_shift, masks)


def of_lines(line: np.ndarray, slices: int) -> np.ndarray:
    found = np.empty(len(line), np.int64)
    slices_of(line, slices, (slices - 1).bit_length() + 1, slice_masks(slices), found)
    return found


@pytest.mark.parametrize("slices", [3, 6, 24, 48, 80, 96, 160, 320])
def test_strides_of_powers_of_two_load_slices_evenly(slices: int) -> None:
    """No slice gets more than the mean and two lines: at most 1.125 times the mean of 16, and three where it is one.
    (By the theory of Rau, and of Budnik and Kuck, as models/gpu/l2/slices.py has it.)"""
    random = np.random.default_rng(slices)
    for shift in range(24):
        for base in random.integers(0, 1 << 30, 8):
            found = of_lines(base + (np.arange(TIMES * slices) << shift), slices)
            assert 0 <= found.min() <= found.max() < slices
            assert np.bincount(found).max() <= TIMES + 2
            assert np.bincount(found[:slices]).max() <= 3


@pytest.mark.parametrize("slices", [80, 160, 320])
def test_rows_of_a_matrix(slices: int) -> None:
    """Eight rows 2 KiB apart, which an instruction reads together, are in eight slices: a part that is met again within
    them is so in its next turn, which the polynomial moves to another slice."""
    base = np.random.default_rng(1).integers(0, 1 << 30, 1000)
    assert all(len(set(of_lines(first + 16 * np.arange(8), slices).tolist())) == 8 for first in base)


@pytest.mark.parametrize("slices", [3, 6, 48, 80, 160])
def test_lines_are_a_slice_and_a_number_in_it(slices: int) -> None:
    for first in (0, slices * 12345, slices * (1 << 40)):
        line = first + np.arange(slices * 100)
        pairs = set(zip(of_lines(line, slices).tolist(), (line // slices).tolist(), strict=True))
        assert len(pairs) == len(line)
        assert {number for number, _ in pairs} == set(range(slices))


def test_counts_that_are_powers_of_two_are_accel_sims() -> None:
    """Equations of Khairy and others (2017) for 32, and the exclusive or of both parts for a count without any."""
    assert slice_masks(32)[3] == 0b111110011010  # bits 1, 3, 4, 7, 8, 9, 10, 11
    line = np.array([0b1010_0101])
    assert of_lines(line, 8)[0] == 0b101 ^ 0b010


def test_a_count_without_a_polynomial_is_refused() -> None:
    with pytest.raises(ValueError, match=r"l2\.slices: 6144 is a multiple of 2048 and no power of two"):
        slice_masks(6144)
