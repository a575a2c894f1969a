"""Reader of projection matrices as SimPoint writes and reads them (``-saveProjMatrix``, ``-loadProjMatrix``): plain,
gzip, xz or zstd. The format stands in run/plans/simpoint_files.py; weights may be absent (a header without ``w``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import guarded, open_stream

_HEADER: Final = re.compile(r"(\d+):(w?)")


def read(path: Path) -> np.ndarray:
    """float64[blocks, dimensions]. Raises UserError with file and line."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; a projection matrix is expected")
    with guarded(path), open_stream(path) as stream:
        lines = stream.read().decode("ascii", errors="replace").split("\n")
    header = _HEADER.fullmatch(lines[0].strip())
    if header is None:
        raise UserError(f"{path}:1: {lines[0][:60]!r} is not the header ROWS:w of a projection matrix")
    rows: list[np.ndarray] = []
    for number, line in enumerate(lines[1:], 2):
        if line.strip():
            rows.append(_row(line, len(rows[0]) if rows else None, f"{path}:{number}"))
    if len(rows) != bounds.whole(header[1], f"{path}:1", "the number of rows") or not rows:
        raise UserError(f"{path}: has {len(rows)} rows, but its header tells {header[1]}; save it again")
    return np.array(rows)


def _row(line: str, columns: int | None, place: str) -> np.ndarray:
    head, colon, numbers = line.partition(":")
    try:
        if not colon:
            raise ValueError
        told, found = int(head.split()[-1]), np.array(numbers.split(), np.float64)
    except (ValueError, IndexError):
        raise UserError(f"{place}: is no row 'WEIGHT COLUMNS: NUMBERS' of a projection matrix") from None
    if told != len(found) or columns not in (None, told) or not np.all(np.isfinite(found)):
        expected = told if columns is None else columns
        raise UserError(f"{place}: has {len(found)} numbers, not {expected} finite ones; save the matrix again")
    return found
