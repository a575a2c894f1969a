"""NumPy arrays to Arrow arrays and back, for fixed-width types: no copy, and no import of pandas.

``pa.array``, ``pa.scalar``, ``to_numpy`` and what takes constants of Python import pandas on first use, which takes as
long as numpy, pyarrow and pydantic together and 30 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def to_arrow(values: np.ndarray) -> pa.Array:
    """An Arrow array over the memory of a one-dimensional array of numbers. Raises TypeError for other types (Arrow
    packs booleans into bits)."""
    values = np.ascontiguousarray(values)
    if values.dtype.kind not in "iuf":
        raise TypeError(f"{values.dtype} is no type of numbers")
    arrow_type = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(values)])


def to_numpy(column: Any) -> np.ndarray:
    """A read-only NumPy view of a fixed-width Arrow array without nulls (of booleans, which Arrow packs, a copy); the
    codes of a dictionary array.

    A chunked array of several chunks is copied into one. Always read-only, whatever the memory behind it: Numba
    compiles functions of writable and read-only arrays separately.
    """
    if isinstance(column, pa.ChunkedArray):
        column = one_chunk(column)
    if pa.types.is_dictionary(column.type):
        column = column.indices
    dtype = column.type.to_pandas_dtype()
    if column.null_count:
        raise ValueError("a column with nulls has no plain NumPy form")
    buffer = column.buffers()[1]
    if buffer is None or len(column) == 0:
        values = np.empty(0, dtype)
    else:
        bits = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little") if dtype is np.bool_ else None
        plain = np.frombuffer(buffer, dtype) if bits is None else bits.view(np.bool_)
        values = plain[column.offset : column.offset + len(column)]
    values = values.view()
    values.flags.writeable = False
    return values


def flags_array(values: np.ndarray) -> pa.BooleanArray:
    """An Arrow array of booleans (bool[])."""
    packed = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, packed])


def nullable_array(values: np.ndarray, is_null: np.ndarray) -> pa.Array:
    """An Arrow array of numbers, null where ``is_null`` (bool[])."""
    kept = to_arrow(values)
    count = int(np.count_nonzero(is_null))
    bits = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if count else None
    return pa.Array.from_buffers(kept.type, len(values), [bits, kept.buffers()[1]], count)


def text_array(values: Sequence[str]) -> pa.StringArray:
    """An Arrow array of strings; what is no character (half a surrogate pair, as JSON and names of files may have) is
    written as its escape."""
    encoded = [value.encode(errors="backslashreplace") for value in values]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A chunked array as one array: its only chunk, or a copy."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.nulls(0, column.type)  # pa.array and combine_chunks would import pandas
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def first_rows(ranks: np.ndarray, num_ranks: int) -> np.ndarray:
    """int64[num_ranks + 1]: where each rank's rows begin in an ascending column of ranks."""
    # numbers of the column's own type: others would have the whole column converted
    return np.searchsorted(ranks, np.arange(num_ranks + 1, dtype=ranks.dtype)).astype(np.int64)
