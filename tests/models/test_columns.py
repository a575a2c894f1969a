"""Arrow columns as NumPy arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from manyscale.models.workload.columns import to_numpy

pytestmark = pytest.mark.theory


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 1000])
@pytest.mark.parametrize("start", [0, 1, 8, 13])
def test_booleans_are_unpacked(length, start):
    """Arrow keeps eight of them in a byte."""
    values = np.random.default_rng(length).random(start + length) < 0.3
    found = to_numpy(pa.array(values, pa.bool_()).slice(start))
    assert found.dtype == np.bool_
    assert np.array_equal(found, values[start:])


def test_what_is_given_out_cannot_be_changed():
    for column in (pa.array([1, 2]), pa.array([True, False]), pa.chunked_array([[1], [2]])):
        with pytest.raises(ValueError, match="read-only"):
            to_numpy(column)[0] = 0


def test_nulls_have_no_plain_form():
    with pytest.raises(ValueError, match="nulls"):
        to_numpy(pa.array([1, None]))
