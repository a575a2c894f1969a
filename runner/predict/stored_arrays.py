"""Arrays of any shape, flags and names, as the one-dimensional numbers that results of units are stored as."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from manyscale.models.workload.notes import Note, from_json, to_json
from manyscale.runner.predict.units import Arrays

_SHAPE: Final = "@shape"
_FLAGS: Final = "@flags"
_TEXT: Final = "@text"
NOTES: Final = "notes"


def stored(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Arrays that ``restored`` turns back: of more or less than one dimension flat, with their shape beside; flags as
    bytes; text as its bytes, a line each."""
    result: Arrays = {}
    for name, values in arrays.items():
        values = np.asarray(values)
        if values.ndim != 1:
            result[name + _SHAPE] = np.array(values.shape, np.int64)
            values = values.ravel()
        if values.dtype == bool:
            result[name + _FLAGS] = values.astype(np.uint8)
        elif values.dtype.kind == "U":
            result[name + _TEXT] = np.frombuffer("\n".join(values.tolist()).encode(), np.uint8).copy()
        else:
            result[name] = values
    return result


def noted(arrays: Arrays, notes: Iterable[Note]) -> Arrays:
    """A unit's result with the notes on it."""
    return {**arrays, NOTES: np.frombuffer(to_json(notes).encode(), np.uint8).copy()}


def notes_of(results: Iterable[Arrays]) -> list[Note]:
    """Those that ``noted`` was given, of all results."""
    return [note for arrays in results for note in from_json(arrays[NOTES].tobytes().decode())]


def restored(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """What ``stored`` was given."""
    result: Arrays = {}
    for name, values in arrays.items():
        if name.endswith(_FLAGS):
            result[name.removesuffix(_FLAGS)] = values.astype(bool)
        elif name.endswith(_TEXT):
            result[name.removesuffix(_TEXT)] = np.array(values.tobytes().decode().split("\n"))
        elif not name.endswith(_SHAPE):
            result[name] = values
    for name, shape in arrays.items():
        if name.endswith(_SHAPE):
            own = name.removesuffix(_SHAPE)
            result[own] = result[own].reshape(shape.tolist())
    return result
