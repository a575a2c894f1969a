"""What was simulated of a plan of sampling units: a table (CSV) with the columns ``unit`` and ``cpi``, and ``piece``
where short pieces of units were simulated, in whatever order."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import refuse_special
from manyscale.runner.readers import bounds


def read(path: Path, known: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """(rows of ``known`` that were measured, ascending; CPIs of each one's pieces in their order, or of the whole unit
    alone). ``known`` int64[]: the numbers that units can have. Raises UserError with file and line."""
    found: dict[int, dict[int, float]] = {}
    place = {number: row for row, number in enumerate(known.tolist())}
    try:
        with refuse_special(path).open(newline="") as file:
            rows = csv.DictReader(file)
            if not {"unit", "cpi"} <= set(rows.fieldnames or ()):
                raise UserError(f"{path}:1: a table of what was measured has the columns unit and cpi (and piece)")
            for row in rows:
                at = f"{path}:{rows.line_num}"
                unit, piece = bounds.whole(row["unit"], at, "unit"), bounds.whole(row.get("piece") or "0", at, "piece")
                cpi = bounds.finite(row["cpi"], at, "cpi")
                if unit not in place:
                    raise UserError(f"{path}:{rows.line_num}: the profile has no unit {unit} with call stacks")
                if not (cpi > 0 and math.isfinite(cpi)):
                    raise UserError(f"{path}:{rows.line_num}: CPI is {cpi}; it must be above 0")
                if piece in found.setdefault(place[unit], {}):
                    raise UserError(f"{path}:{rows.line_num}: unit {unit}, piece {piece} stands twice")
                found[place[unit]][piece] = cpi
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read ({reason})") from None
    if not found:
        raise UserError(f"{path}: holds no measured unit")
    measured = sorted(found)
    pieces = [np.array([found[row][piece] for piece in sorted(found[row])]) for row in measured]
    return np.array(measured, np.int64), pieces
