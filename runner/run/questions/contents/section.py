"""What is said of one level of a workload: figures and tables, which terminal, page and JSON show alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import text_array, to_arrow

Value = int | float | str


@dataclass(frozen=True)
class Section:
    """``facts``: name to value; the last word of a name is its unit (``_ps``, ``_bytes``, ``_ratio``, ``_share``), and
    so it is of a column of ``tables``. ``note``: what a reader has to know of them; ``about``: the same of a table."""

    name: str
    facts: Mapping[str, Value]
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    note: str = ""
    about: Mapping[str, str] = field(default_factory=dict)


def columns(**values: np.ndarray | Sequence[str]) -> pa.Table:
    """A table of numbers (arrays) and texts (lists)."""
    arrays = [to_arrow(each) if isinstance(each, np.ndarray) else text_array(each) for each in values.values()]
    return pa.Table.from_arrays(arrays, names=list(values))


def shares(values: np.ndarray) -> np.ndarray:
    """float64[]: of their sum; all 0 where that is 0."""
    total = float(values.sum())
    return values / total if total else np.zeros(len(values))


def spread(values: np.ndarray) -> float:
    """Standard deviation over mean, 0 where the mean is 0."""
    mean = float(values.mean()) if len(values) else 0.0
    return float(values.std()) / mean if mean else 0.0
