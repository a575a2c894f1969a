"""Columns of a stored launch: those that only launches with asynchronous operations have, and their lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.asynchronous import IN_WORDS, PREFETCHING
from manyscale.models.workload.launch_trace import StaticInstructions, UnitClass

WORDS: Final[dict[str, Any]] = {"warp_words": np.dtype(np.int32), "words": np.dtype(np.int64)}
_ROOTS: Final = frozenset(("SYNCS", "ARRIVES", "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED", "STAS", "REDAS"))


def has_words(static: StaticInstructions) -> bool:
    """Whether instructions of a kernel are asynchronous operations, or barriers that registers describe, of which its
    record has words."""
    is_described = (static.unit == UnitClass.barrier) & (static.immediate & IN_WORDS != 0)
    roots = {opcode.split(".")[0] for opcode in static.opcodes}
    return bool(is_described.any()) or not roots.isdisjoint((*_ROOTS, *PREFETCHING))


def schema_of(columns: Mapping[str, Any]) -> pa.Schema:
    """Lists, one for each block."""
    return pa.schema(
        [
            pa.field(name, pa.list_(pa.field("element", pa.from_numpy_dtype(np.dtype(kind)), False)), False)
            for name, kind in columns.items()
        ]
    )


def offsets(counts: np.ndarray) -> np.ndarray:
    """int64[n + 1]: where each of n begins, and the end."""
    found = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=found[1:])
    return found


def part_of_words(counts: np.ndarray | None, words: np.ndarray | None, warps: slice) -> dict[str, np.ndarray]:
    """Those of some warps; nothing where there are none."""
    if counts is None or words is None:
        return {}
    first, end = offsets(counts)[[warps.start, warps.stop]]
    return {"warp_words": counts[warps], "words": words[first:end]}
