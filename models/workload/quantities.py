"""Quantities with units: the only way a number with a dimension enters from a text file.

A quantity is written as a number, a blank and a unit, for example ``"2.6 GHz"``, ``"1 us"`` or ``"1.25 GB/s"``.
Decimal prefixes are powers of ten (MB = 10**6 bytes), binary prefixes powers of two (MiB = 2**20 bytes).
Parsing is exact (rational arithmetic), so a value never depends on the order of floating-point operations.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

from manyscale.models.spelling import hint

PS_PER_SECOND: Final = 10**12
MOST_PS: Final = 2**62  # 53 days: leaves room to add in 64 bits
MOST_BYTES: Final = 2**62
SLOWEST_BYTES_PER_S: Final = 1000  # a gigabyte then takes 12 days, which 64 bits of picoseconds still hold

_DECIMAL: Final = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SUBMULTIPLES: Final = {"m": Fraction(1, 10**3), "u": Fraction(1, 10**6), "n": Fraction(1, 10**9)}

_UNITS: Final[dict[str, dict[str, Fraction]]] = {
    # each dimension: unit text -> multiple of the base unit named in the dimension
    "time in s": {
        "s": Fraction(1),
        "ps": Fraction(1, 10**12),
        **{f"{prefix}s": factor for prefix, factor in _SUBMULTIPLES.items()},
        "min": Fraction(60),
        "h": Fraction(3600),
    },
    "size in B": {f"{p}B": Fraction(f) for p, f in (_DECIMAL | _BINARY).items()},
    "rate in B/s": {
        **{f"{p}B/s": Fraction(f) for p, f in (_DECIMAL | _BINARY).items()},
        **{f"{p}bit/s": Fraction(f, 8) for p, f in _DECIMAL.items()},
    },
    "frequency in Hz": {f"{p}Hz": Fraction(f) for p, f in _DECIMAL.items()},
    "rate in flop/s": {f"{p}flop/s": Fraction(f) for p, f in _DECIMAL.items()},
    "count in cycles": {"cycles": Fraction(1), "cycle": Fraction(1)},
}

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?|inf)\s*([A-Za-z/]*)\s*")


def parse_quantity(text: object, dimension: str) -> Fraction | None:
    """Exact value of ``text`` in the base unit of ``dimension`` (a key such as ``"time in s"``).

    Returns None for ``"inf"`` with a unit of the dimension. Raises ValueError, with the units that would be
    understood, for a bare number, an unknown unit, a negative value, or a unit of another dimension.
    """
    units = _UNITS[dimension]
    if not isinstance(text, str):
        raise ValueError(f"{text!r} has no unit; write a {dimension.split()[0]} such as '{example(dimension)}'")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number with a unit; write for example '{example(dimension)}'")
    number, unit = match.groups()
    if not unit:
        raise ValueError(f"{text!r} has no unit; write for example '{example(dimension)}'")
    if unit not in units:
        raise ValueError(f"{text!r}: {unit!r} is not a unit of {dimension.split()[0]}; {hint(unit, units)}")
    if number == "inf":
        return None
    value = Fraction(number) * units[unit]
    if value < 0:
        raise ValueError(f"{text!r} is negative")
    return value


def pattern(dimension: str, may_be_infinite: bool = False) -> str:
    """A regular expression (ECMA 262, as JSON schemas have it) of what ``parse_quantity`` takes, values in range."""
    number = r"\+?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?"
    units = "|".join(re.escape(unit) for unit in _UNITS[dimension])
    return rf"^\s*({number}{'|inf' if may_be_infinite else ''})\s*({units})\s*$"


def measured(text: str) -> tuple[float, str] | None:
    """Value and base unit (``s``, ``B``, ``B/s``, ``Hz``, ``flop/s`` or ``cycles``) of a quantity of any dimension;
    infinity for ``inf``. None for text that is no quantity."""
    match = _QUANTITY.fullmatch(text)
    for dimension, units in _UNITS.items():
        if match is not None and match[2] in units:
            number = Fraction(match[1]) * units[match[2]] if match[1] != "inf" else None
            return (float("inf") if number is None else float(number)), dimension.rpartition(" ")[2]
    return None


def example(dimension: str) -> str:
    """A quantity of the dimension, for messages."""
    return {
        "time in s": "1 us",
        "size in B": "64 KiB",
        "rate in B/s": "1.25 GB/s",
        "frequency in Hz": "2.6 GHz",
        "rate in flop/s": "1 Gflop/s",
        "count in cycles": "4 cycles",
    }[dimension]


def parse_time_ps(text: object) -> int:
    """A time in whole picoseconds. Raises ValueError for a value beyond 53 days or not a multiple of 1 ps."""
    value = parse_quantity(text, "time in s")
    if value is None:
        raise ValueError(f"{text!r}: a time must be finite")
    picoseconds = value * PS_PER_SECOND
    if picoseconds > MOST_PS:
        raise ValueError(f"{text!r} is beyond 53 days")
    if picoseconds.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of picoseconds")
    return int(picoseconds)


def parse_bytes(text: object) -> int:
    """A size in whole bytes. Raises ValueError for a value beyond 4 EiB or not a multiple of 1 B."""
    value = parse_quantity(text, "size in B")
    if value is None:
        raise ValueError(f"{text!r}: a size must be finite")
    if value > MOST_BYTES:
        raise ValueError(f"{text!r} is beyond 4 EiB")
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(value)


def parse_ps_per_byte(text: object) -> float:
    """Picoseconds that one byte takes at a rate such as ``"1.25 GB/s"``; 0.0 for ``"inf B/s"``."""
    value = parse_quantity(text, "rate in B/s")
    if value is None:
        return 0.0
    if value < SLOWEST_BYTES_PER_S:
        raise ValueError(f"{text!r}: a rate must be at least {SLOWEST_BYTES_PER_S} B/s")
    return float(PS_PER_SECOND / value)


def parse_frequency_hz(text: object) -> float:
    """A frequency in Hz. Raises ValueError unless it is finite and greater than zero."""
    return _positive(parse_quantity(text, "frequency in Hz"), text, "frequency")


def parse_flop_rate(text: object) -> float:
    """A rate of floating-point operations per second. Raises ValueError unless finite and greater than zero."""
    return _positive(parse_quantity(text, "rate in flop/s"), text, "rate")


def parse_cycles(text: object) -> float:
    """A count of cycles, such as ``"4 cycles"`` or ``"0.25 cycles"``. Raises ValueError unless finite."""
    value = parse_quantity(text, "count in cycles")
    if value is None or value >= 10**9:
        raise ValueError(f"{text!r}: a count of cycles must be below 10^9")
    return float(value)


def _positive(value: Fraction | None, text: object, what: str) -> float:
    if value is None or not 0 < value < 10**300:
        raise ValueError(f"{text!r}: a {what} must be finite and greater than zero")
    return float(value)
