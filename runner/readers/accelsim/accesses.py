"""Kernels: what the threads of a warp access together, from the addresses of its active threads.

Global memory: one request for each sector of 32 bytes that any thread touches, in ascending order, as GPUs since
Maxwell coalesce (Accel-Sim, ``memory_coalescing_arch``); threads of an atomic that meet bytes taken already start
another request for that sector. Local memory: word w of a thread stands beside those of the same word of the warp's
other threads, so that a warp's word is a line of 128 bytes; words of 64 and 128-bit accesses are separate lines. Shared
memory: distinct words of 4 bytes that the busiest of 32 banks has to give.

Requests are written to ``sector`` int64[] and ``written`` uint32[] from ``first`` on; the functions return their end.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from manyscale.models.kernels import inner, inner_inlined, merged
from manyscale.models.workload.launch_trace import Access

MOST_REQUESTS: Final = 256  # of one instruction
LOCAL_WINDOW: Final = 1 << 62  # where local memory stands, behind all global addresses
WINDOW_BYTES: Final = 1 << 24  # of the shared and the local window in the generic address space
BANKS: Final = 32
_WHOLE: Final = 0xFFFFFFFF
_STORE, _ATOMIC, _REDUCTION = int(Access.store), int(Access.atomic), int(Access.reduction)


@inner_inlined
def _add(sector, written, first, end, place, mask, at):  # type: ignore[no-untyped-def]
    """Add a request for a sector to those in ascending order from ``first`` to ``end``, looking for its place from
    ``at`` on: (where it stands, new end)."""
    while at < end and sector[at] < place:
        at += 1
    while at > first and sector[at - 1] >= place:
        at -= 1
    if at < end and sector[at] == place:
        written[at] |= mask
        return at, end
    for k in range(end, at, -1):
        sector[k] = sector[k - 1]
        written[k] = written[k - 1]
    sector[at] = place
    written[at] = mask
    return at, end + 1


@inner_inlined
def _bytes_of(start, size):  # type: ignore[no-untyped-def]
    """Bits ``start`` to ``start + size - 1`` of 32."""
    return np.uint32(((np.int64(1) << size) - 1) << start & _WHOLE)


@inner
def _span(sector, written, first, start, end, is_store):  # type: ignore[no-untyped-def]
    """Requests for all bytes from ``start`` to ``end - 1``."""
    low = start >> 5
    high = (end - 1) >> 5
    count = high - low + 1
    for k in range(count):
        sector[first + k] = low + k
        written[first + k] = np.uint32(_WHOLE if is_store else 0)
    if is_store:
        written[first] &= _bytes_of(start & 31, 32 - (start & 31))
        written[first + count - 1] &= _bytes_of(0, ((end - 1) & 31) + 1)
    return first + count


@inner
def global_requests(addresses, count, size, access, sector, written, first):  # type: ignore[no-untyped-def]
    """Of threads at ``addresses`` int64[count] that access ``size`` bytes each. O(count) in ascending order."""
    if access == _ATOMIC or access == _REDUCTION:
        return _atomic_requests(addresses, count, size, sector, written, first)
    is_store = access == _STORE
    end = first
    at = first
    last = np.int64(-1)  # the sector at ``at``
    for k in range(count):
        start = addresses[k]
        place = start >> 5
        offset = start & 31
        inside = min(size, 32 - offset)
        mask = _bytes_of(offset, inside) if is_store else np.uint32(0)
        if place == last:
            written[at] |= mask
        else:
            at, end = _add(sector, written, first, end, place, mask, at)
            last = place
        if inside < size:
            last = place + 1
            mask = _bytes_of(0, size - inside) if is_store else np.uint32(0)
            at, end = _add(sector, written, first, end, last, mask, at)
    return end


@merged
def strided_requests(base, stride, count, size, access, addresses, sector, written, first):  # type: ignore[no-untyped-def]
    """The same, of threads at base, base + stride and so on: O(requests) where they leave no sector out."""
    low = base
    if stride < 0:
        low = base + stride * (count - 1)
        stride = -stride
    is_store = access == _STORE
    if access != _ATOMIC and access != _REDUCTION and (stride <= size or (stride <= 32 and not is_store)):
        return _span(sector, written, first, low, low + stride * (count - 1) + size, is_store)
    for k in range(count):
        addresses[k] = low + k * stride
    return global_requests(addresses, count, size, access, sector, written, first)


@merged
def _atomic_requests(addresses, count, size, sector, written, first):  # type: ignore[no-untyped-def]
    """A thread joins the first request for its sector in which none has taken its bytes."""
    end = first
    for k in range(count):
        place = addresses[k] >> 5
        start = addresses[k] & 31
        mask = _bytes_of(start, min(size, 32 - start))
        at = end
        while at > first and sector[at - 1] > place:
            at -= 1
        each = at
        while each > first and sector[each - 1] == place:
            each -= 1
        while each < at and written[each] & mask:
            each += 1
        if each < at:
            written[each] |= mask
            continue
        for other in range(end, at, -1):
            sector[other] = sector[other - 1]
            written[other] = written[other - 1]
        sector[at] = place
        written[at] = mask
        end += 1
    for k in range(first, end):
        written[k] = np.uint32(_WHOLE)
    return end


@merged
def local_requests(addresses, count, mask, size, is_store, warp, stride, sector, written, first):  # type: ignore[no-untyped-def]
    """Of the threads in ``mask`` uint32 of the launch's ``warp`` (of ``stride`` warps). What lies in the window of
    ``WINDOW_BYTES`` counts of an address, as it does in traces."""
    lane = np.int64(0)
    while not mask >> lane & 1:
        lane += 1
    offset = addresses[0] & (WINDOW_BYTES - 1)
    is_together = mask >> lane == (np.int64(1) << count) - 1 and size >= 4 and offset & 3 == 0
    for k in range(1, count):
        is_together &= addresses[k] == addresses[0]
    end = first
    if is_together:  # threads beside each other, at the same place of their own memory
        for word in range(size >> 2):
            start = LOCAL_WINDOW + (((offset >> 2) + word) * stride + warp) * 128 + 4 * lane
            end = _span(sector, written, end, start, start + 4 * count, is_store)
        return end
    at = first
    for word in range(max(1, size >> 2)):
        lane = np.int64(0)
        for k in range(count):
            while not mask >> lane & 1:
                lane += 1
            offset = (addresses[k] & (WINDOW_BYTES - 1)) + 4 * word
            start = LOCAL_WINDOW + ((offset >> 2) * stride + warp) * 128 + 4 * lane + (offset & 3)
            bits = _bytes_of(start & 31, min(size, 4 - (offset & 3))) if is_store else np.uint32(0)
            if end - first >= MOST_REQUESTS:
                return end
            at, end = _add(sector, written, first, end, start >> 5, bits, at)
            lane += 1
    return end


@merged
def bank_words(addresses, count, size, counts, words):  # type: ignore[no-untyped-def]
    """The most distinct words of a bank; ``counts`` int64[BANKS] and ``words`` int64[BANKS, 32] are scratch."""
    counts[:] = 0
    most = 0
    for k in range(count):
        for word in range(addresses[k] >> 2, ((addresses[k] + size - 1) >> 2) + 1):
            bank = word & (BANKS - 1)
            known = counts[bank]
            each = 0
            while each < known and words[bank, each] != word:
                each += 1
            if each == known:
                words[bank, known] = word
                counts[bank] = known + 1
                most = max(most, known + 1)
    return most
