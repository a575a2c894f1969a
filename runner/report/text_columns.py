"""Columns of numbers as columns of text, and those as bytes of a file, with Arrow's string kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from manyscale.models.workload.columns import flags_array, text_array, to_arrow

BATCH_ROWS = 1 << 19  # rows turned into text at a time: bounds the memory, some 100 B a row
_PS_PER_US = 10**6


def integers(values: np.ndarray) -> pa.Array:
    """Decimal digits of each value."""
    return to_arrow(values).cast(pa.string())


def microseconds(picoseconds: np.ndarray) -> pa.Array:
    """Each time in us, exact: always six decimals, the last one is a picosecond. Times are never negative."""
    whole, rest = np.divmod(picoseconds, _PS_PER_US)
    return join(integers(whole), ".", pc.ascii_lpad(integers(rest), 6, padding="0"))


def join(*parts: pa.Array | str) -> pa.Array:
    """Concatenates columns and constant texts row by row; at least one part is a column."""
    values = [text_array([part])[0] if isinstance(part, str) else part for part in (*parts, "")]
    return pc.binary_join_element_wise(*values)


def picked(texts: Sequence[str], index: np.ndarray) -> pa.Array:
    """The text at each index."""
    return text_array(texts).take(to_arrow(index))


def where(has: np.ndarray, texts: pa.Array, otherwise: str = "") -> pa.Array:
    """One after the other the texts at the rows that have one (bool[rows]), ``otherwise`` at the others."""
    return pc.replace_with_mask(pa.repeat(text_array([otherwise])[0], len(has)), flags_array(has), texts)


def contents(column: pa.Array) -> memoryview:
    """All rows of a string column one after the other, as the bytes of a file."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    return memoryview(data)[offsets[0] : offsets[-1]] if data is not None and len(column) else memoryview(b"")


def batches(num_rows: int) -> Iterator[slice]:
    """Slices that cover ``num_rows`` rows, BATCH_ROWS at a time."""
    for first in range(0, num_rows, BATCH_ROWS):
        yield slice(first, min(first + BATCH_ROWS, num_rows))
