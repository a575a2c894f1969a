"""What differs between Linux and other systems."""

from __future__ import annotations

import os
import resource
import sys

from manyscale.runner.errors import UserError


def usable_cpus() -> frozenset[int]:
    """The CPUs that this process may use. Where the system does not say (macOS), all of them."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def peak_memory_bytes(usage: resource.struct_rusage) -> int:
    """The largest resident size of a process or of its children, which macOS gives in bytes and others in KiB."""
    return usage.ru_maxrss if sys.platform == "darwin" else 1024 * usage.ru_maxrss


def require_linux(what: str, instead: str) -> None:
    """Raises UserError, in one line, elsewhere. ``what``: as the user typed it; ``instead``: what to do."""
    if sys.platform != "linux":
        raise UserError(f"{what} works on Linux only, and this is {os.uname().sysname}; {instead}")
