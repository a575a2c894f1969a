"""Whether processes that a test started have ended."""

from __future__ import annotations

import psutil


def still_there(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that have not ended after so many seconds. A zombie has ended: only whoever adopted it, which may be a
    container's first process that collects none, has not asked for its status."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return [process for process in alive if not _is_zombie(process)]


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
