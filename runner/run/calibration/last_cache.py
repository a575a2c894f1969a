"""What others leave of the last cache: other virtual machines and cores use it, too."""

from __future__ import annotations

from typing import Final

from manyscale.runner.run.calibration.system_caches import System

_LEFT: Final = 0.75  # of the cache: if it holds less, others use it, too
_SHARES: Final = 32  # parts of a cache's size that are told apart


def left_of_last_cache(system: System, held_bytes: int) -> int | None:
    """Bytes that others leave of it, a whole number of sets; None where it seems to be this core's alone.
    ``held_bytes``: what it was found to hold, 0 if that is not known."""
    cache = list(system.data_caches.values())[-1]
    if (
        cache.size_bytes % (_SHARES * cache.line_bytes * (cache.ways or 1))
        or not 0 < held_bytes <= _LEFT * cache.size_bytes
    ):
        return None
    part = cache.size_bytes // _SHARES
    return max(1, round(held_bytes / part)) * part


def shown_size(size_bytes: int) -> str:
    """Bytes as a machine file has them."""
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"
