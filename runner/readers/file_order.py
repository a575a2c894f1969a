"""The order of a job's files where only their names tell it."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile(r"([0-9]{1,18})")


def by_numbers(name: str) -> list[tuple[int, str]]:
    """A key of names: what stands between numbers, and these by their size, in turn: ``rank10`` is behind ``rank9``."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in _NUMBER.split(name)]
