"""Kernels: what the threads of a warp access together, from the addresses of its active threads.

Global memory: one request for each sector of 32 bytes that any thread touches, in ascending order, as GPUs since
Maxwell coalesce (Accel-Sim, ``memory_coalescing_arch``); threads of an atomic that meet bytes taken already start
another request for that sector. Local memory: word w of a thread stands beside those of the same word of the warp's
other threads, so that a warp's word is a line of 128 bytes; words of 64 and 128-bit accesses are separate lines. Shared
memory: distinct words of 4 bytes that the busiest of 32 banks has to give, summed over requests. 64-bit accesses make
one for each half of a warp and 128-bit ones one for each quarter, since 128 bytes go in a cycle; two of them become one
where all active threads n and n ^ 1, or all n and n ^ 2, load the same (forums.developer.nvidia.com, "Unexpected shared
memory bank conflict", answer 2 of thread 77228, on compute capabilities 7.0 to 7.5; later ones are taken to be alike).

Kernels take ``codes.Arrays``, a static instruction's row or its number, and how many threads stand at ``addresses``.
Requests are written to ``sector`` and ``written`` from ``first`` on; the functions return their end. What many traces
have none of is compiled once ``want_for`` has seen it.
"""

from __future__ import annotations

from typing import Final

from manyscale.models.kernels import inner, inner_inlined, merged, seldom, separate
from manyscale.models.workload.launch_trace import Access, Space
from manyscale.runner.readers.accelsim.codes import UNSET

MOST_REQUESTS: Final = 256  # of one instruction
LOCAL_WINDOW: Final = 1 << 62  # where local memory stands, behind all global addresses
WINDOW_BYTES: Final = 1 << 24  # of the shared and the local window in the generic address space
BANKS: Final = 32
THREADS: Final = 32  # of a warp
_WHOLE: Final = 0xFFFFFFFF
_LOAD, _STORE, _ATOMIC, _REDUCTION = int(Access.load), int(Access.store), int(Access.atomic), int(Access.reduction)


def want_for(space: int, access: int) -> None:
    """To be called before the first line of an opcode that accesses ``space`` (UNSET: as each address tells): have
    compiled what it needs."""
    if space in (Space.local, UNSET):
        local_requests.want()
    if space in (Space.shared, UNSET):
        bank_words.want()
    if access in (_ATOMIC, _REDUCTION):
        atomic_requests.want()


@inner
def _touch(arrays, first, end, at, start, size, is_store):  # type: ignore[no-untyped-def]
    """Request the sector of the bytes ``start`` to ``start + size - 1``: of those in ascending order from ``first`` to
    ``end``, looking for its place from ``at`` on. Returns (where it stands, new end)."""
    sector = arrays.sector
    written = arrays.written
    place = start >> 5
    mask = _bits(start & 31, size) if is_store else 0
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
def _bits(start, size):  # type: ignore[no-untyped-def]
    """Bits ``start`` to ``start + size - 1`` of 32."""
    return ((1 << size) - 1) << start & _WHOLE


@inner
def _span(arrays, first, start, end, is_store):  # type: ignore[no-untyped-def]
    """Requests for all bytes from ``start`` to ``end - 1``."""
    sector = arrays.sector
    written = arrays.written
    low = start >> 5
    last = first + ((end - 1) >> 5) - low
    for k in range(first, last + 1):
        sector[k] = low + k - first
        written[k] = _WHOLE if is_store else 0
    if is_store:
        written[first] &= _bits(start & 31, 32 - (start & 31))
        written[last] &= _bits(0, ((end - 1) & 31) + 1)
    return last + 1


@separate
def global_requests(arrays, number, count, first):  # type: ignore[no-untyped-def]
    """O(count) in ascending order."""
    row = arrays.rows[number]
    if row.access == _ATOMIC or row.access == _REDUCTION:
        return atomic_requests(arrays, row.size, count, first)
    addresses = arrays.addresses
    is_store = row.access == _STORE
    end = first
    at = first
    last = -1  # the sector at ``at``
    for k in range(count):
        start = addresses[k]
        size = row.size
        if not is_store and start >> 5 == last and (start & 31) + size <= 32:
            continue
        while size > 0:
            inside = min(size, 32 - (start & 31))
            at, end = _touch(arrays, first, end, at, start, inside, is_store)
            last = start >> 5
            start += inside
            size -= inside
    return end


@merged
def strided_requests(arrays, number, row, stride, count, first):  # type: ignore[no-untyped-def]
    """The same, of threads at addresses[0], a stride on and so on, which are filled in where they are needed:
    O(requests) where they leave no sector out."""
    addresses = arrays.addresses
    base = addresses[0]
    low = base
    step = stride
    if step < 0:
        low = base + step * (count - 1)
        step = -step
    is_store = row.access == _STORE
    is_span = step <= row.size or (step <= 32 and not is_store)
    if is_span and row.access != _ATOMIC and row.access != _REDUCTION:
        return _span(arrays, first, low, low + step * (count - 1) + row.size, is_store)
    for k in range(count):
        addresses[k] = low + k * step
    return global_requests(arrays, number, count, first)


@seldom(gives="int")
def atomic_requests(arrays, size, count, first):  # type: ignore[no-untyped-def]
    """A thread joins the first request for its sector in which none has taken its bytes."""
    addresses = arrays.addresses
    sector = arrays.sector
    written = arrays.written
    end = first
    for k in range(count):
        place = addresses[k] >> 5
        start = addresses[k] & 31
        mask = _bits(start, min(size, 32 - start))
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
        written[k] = _WHOLE
    return end


@seldom(gives="int")
def local_requests(arrays, number, count, mask, warp, first):  # type: ignore[no-untyped-def]
    """Of the threads in ``mask`` uint32 of the launch's ``warp``. What lies in the window of ``WINDOW_BYTES`` counts of
    an address, as it does in traces."""
    row = arrays.rows[number]
    stride = arrays.form[0].stride
    addresses = arrays.addresses
    size = row.size
    is_store = row.access == _STORE
    lane = 0
    while not mask >> lane & 1:
        lane += 1
    offset = addresses[0] & (WINDOW_BYTES - 1)
    is_together = mask >> lane == (1 << count) - 1 and size >= 4 and offset & 3 == 0
    for k in range(1, count):
        is_together &= addresses[k] == addresses[0]
    end = first
    if is_together:  # threads beside each other, at the same place of their own memory
        for word in range(size >> 2):
            start = LOCAL_WINDOW + (((offset >> 2) + word) * stride + warp) * 128 + 4 * lane
            end = _span(arrays, end, start, start + 4 * count, is_store)
        return end
    at = first
    for word in range(max(1, size >> 2)):
        lane = 0
        for k in range(count):
            while not mask >> lane & 1:
                lane += 1
            offset = (addresses[k] & (WINDOW_BYTES - 1)) + 4 * word
            start = LOCAL_WINDOW + ((offset >> 2) * stride + warp) * 128 + 4 * lane + (offset & 3)
            if end - first >= MOST_REQUESTS:
                return end
            at, end = _touch(arrays, first, end, at, start, min(size, 4 - (offset & 3)), is_store)
            lane += 1
    return end


@seldom(gives="int")
def bank_words(arrays, number, count, mask):  # type: ignore[no-untyped-def]
    """The most distinct words of a bank, summed over the requests that an instruction is made of."""
    row = arrays.rows[number]
    addresses = arrays.addresses
    counts = arrays.counts
    words = arrays.words
    k = count
    for lane in range(THREADS - 1, -1, -1):  # each at its own place
        if mask >> lane & 1:
            k -= 1
            addresses[lane] = addresses[k]
    mask &= (1 << row.lanes) - 1
    lanes = THREADS // max(1, row.size >> 2)  # of a request
    total = 0
    most = 0
    last = 0  # lane behind the request
    for lane in range(THREADS):
        if lane == last:
            total += most
            most = 0
            last += lanes
            other = last + lanes  # behind the one that it may be one with
            if (
                lane & lanes == 0
                and lanes < THREADS
                and row.access == _LOAD
                and (_in_pairs(addresses, lane, other, mask, 1) or _in_pairs(addresses, lane, other, mask, 2))
            ):
                last = other
            for bank in range(BANKS):
                counts[bank] = 0
        if mask >> lane & 1:
            for word in range(addresses[lane] >> 2, ((addresses[lane] + row.size - 1) >> 2) + 1):
                bank = word & (BANKS - 1)
                known = counts[bank]
                each = 0
                while each < known and words[bank, each] != word:
                    each += 1
                if each == known:
                    words[bank, known] = word
                    counts[bank] = known + 1
                    most = max(most, known + 1)
    return total + most


@merged
def _in_pairs(addresses, first, last, mask, step):  # type: ignore[no-untyped-def]
    """Whether of the threads from ``first`` to ``last - 1`` all n and n ^ ``step`` that are active ask for the same."""
    for lane in range(first, last):
        if mask >> lane & mask >> (lane ^ step) & 1 and addresses[lane] != addresses[lane ^ step]:
            return False
    return True
