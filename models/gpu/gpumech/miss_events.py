"""What the executions of each instruction meet in the caches: its distribution of miss events (GPUMech: Huang,
dissertation, Georgia Institute of Technology, 2015, sec. 4.5), which the printed form reads.

Cost: O(accesses).
"""

from __future__ import annotations

from manyscale.models.gpu.gpumech.collector import FETCHED, REQUESTS, SENT, TO_L1
from manyscale.models.kernels import njit


@njit(cache=True, nogil=True)
def count_events(access, answer, met):  # type: ignore[no-untyped-def]
    """Add up ``met`` int64[static, NUM_EVENTS]: what the executions of each instruction meet."""
    for i in range(len(access)):
        own, found = access[i], answer[i]
        events = met[own.row]
        events[TO_L1 + found.level] += 1
        events[REQUESTS] += own.requests
        events[SENT] += found.sent
        events[FETCHED] += found.fetched
