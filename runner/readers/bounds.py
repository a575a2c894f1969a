"""Numbers of foreign files, held to their range where they come in: whole ones fit into 63 bits, others are finite, and
none is negative unless its reader says so. Every refusal is a UserError with the place and what stands there.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.runner.errors import UserError

MOST: Final = 2**63 - 1
_WHOLE: Final = {10: re.compile(r"[+-]?[0-9]{1,30}"), 16: re.compile(r"(?:0[xX])?[0-9a-fA-F]{1,30}")}
_SHOWN: Final = 60  # characters of what is refused


def whole(value: object, place: object, what: str, least: int = 0, most: int = MOST, *, base: int = 10) -> int:
    """A whole number of a file: text in ASCII (``base`` 10 or 16), or a number as JSON has it."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        text = value.strip()
        number = int(text, base) if _WHOLE[base].fullmatch(text) else None
    else:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        is_whole |= isinstance(value, float) and value.is_integer()
        number = int(value) if is_whole else None  # type: ignore[call-overload]
    if number is None or not least <= number <= most:
        raise _refusal(value, place, what, f"a whole number from {least} to {most}")
    return number


def finite(value: object, place: object, what: str, least: float = 0.0, most: float = float(MOST)) -> float:
    """A number of a file that may have a fraction: text, or a number as JSON has it."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not least <= number <= most:
        raise _refusal(value, place, what, f"a number from {least:g} to {most:g}")
    return number


def counts(values: np.ndarray, place: object, what: str) -> np.ndarray:
    """Numbers that count something, rounded: int64."""
    wrong = np.flatnonzero(~((values >= 0) & (values < 2.0**63)))
    if len(wrong):
        raise _refusal(values.flat[wrong[0]], place, what, "a number from 0 to 2^63")
    return np.rint(values).astype(np.int64)


def total(values: np.ndarray, place: object, what: str) -> int:
    """The sum of int64 values that are not negative, which must fit into 63 bits, too."""
    if len(values) and float(values.sum(dtype=np.float64)) >= 2.0**63:
        raise UserError(f"{place}: {what} add up to more than 2^63; mend or trace it again")
    return int(values.sum())


def inside(count: int, each_bytes: int, left_bytes: int, place: object, what: str) -> int:
    """A count of what takes ``each_bytes`` in a file of which ``left_bytes`` are left."""
    if not 0 <= count <= left_bytes // each_bytes:
        raise UserError(f"{place}: {what} is {count}, but only {left_bytes} bytes are left; copy or trace it again")
    return count


def is_file(path: Path) -> bool:
    """Whether a name that stands in a file is that of a file; none that a file system cannot have."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long, or a zero byte
        return False


def _refusal(value: object, place: object, what: str, wanted: str) -> UserError:
    try:
        shown = repr(value)
    except ValueError:  # an int of more digits than Python prints
        shown = "a number of thousands of digits"
    return UserError(f"{place}: {what} is {shown[:_SHOWN]}, not {wanted}; mend or write the file again")
