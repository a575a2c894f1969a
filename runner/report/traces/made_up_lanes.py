"""Addresses of threads for launches that hold only what a warp accesses together: made up so that the same follows.

Of global memory, a warp's threads are given addresses in the sectors that it requests, of stores the bytes that are
written, and of atomics as many threads at one place as there are requests for a sector. Of local memory, threads and
offsets whose words lie in its sectors. Of shared memory, as many words of one bank as the busiest bank gives in all
requests of the instruction. Which thread stands where, and in which order, is not known: threads that execute are the
first of the warp, but where sectors of local memory tell more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import numpy as np

from manyscale.models.workload.launch_trace import Access, LaunchTrace, Space
from manyscale.runner.readers.accelsim.opcodes import classify
from manyscale.runner.readers.cuda.lanes import Lanes

SHARED_WINDOW: Final = 1 << 60  # behind all addresses of global memory; room for the blocks of a cluster behind it
LOCAL_WINDOW: Final = (1 << 60) + (1 << 32)
_STORED_LOCAL: Final = 1 << 57  # number of the first sector of local memory in a store (readers/accelsim/accesses.py)
_SECTOR: Final = 32
_LANES_OF_SECTOR: Final = 8  # of local memory, 4 bytes of each
_GENERIC: Final = ("LD", "ST", "ATOM", "RED")


class NotMadeError(ValueError):
    """No addresses give what is stored."""


def made_up(trace: LaunchTrace, first_block: int, place: int, widths: Sequence[int]) -> Lanes:
    """Of the block at ``place`` in the trace, whose first block is ``first_block`` of the grid; ``widths``: bytes that
    a thread accesses, of each static instruction (0: it has no addresses). Raises NotMadeError. O(accesses)."""
    first_warp, end_warp = (int(each) for each in trace.block_warps[place : place + 2])
    x, y, z = trace.grid
    lines = x * y * z * trace.warps_per_block | 1  # from one word of a thread's local memory to the next
    masks: list[int] = []
    counts: list[int] = []
    addresses: list[int] = []
    for warp in range(first_warp, end_warp):
        number = (first_block + place) * trace.warps_per_block + warp - first_warp
        begin, end = (int(each) for each in trace.warp_instructions[warp : warp + 2])
        at = int(trace.warp_accesses[warp])
        for row, active, requests in zip(
            trace.instruction[begin:end].tolist(), trace.active[begin:end].tolist(),
            trace.accesses[begin:end].tolist(), strict=True,
        ):  # fmt: skip
            stored = requests if trace.static.space[row] in (Space.global_, Space.local) else 0
            sectors, written = trace.sector[at : at + stored].tolist(), trace.written[at : at + stored].tolist()
            at += stored
            mask = (1 << active) - 1
            found: list[int] = []
            if widths[row] and active:
                mask, found = _lanes(trace, row, active, requests, sectors, written, widths[row], (number, lines))
            masks.append(mask)
            counts.append(len(found))
            addresses += found
        if at != int(trace.warp_accesses[warp + 1]):
            raise NotMadeError
    return Lanes(np.array(masks, np.uint32), np.array(counts, np.uint8), np.array(addresses, np.int64))


def _lanes(
    trace: LaunchTrace,
    row: int,
    active: int,
    requests: int,
    sectors: list[int],
    written: list[int],
    width: int,
    place: tuple[int, int],
) -> tuple[int, list[int]]:
    """Mask and addresses of one warp instruction."""
    static = trace.static
    space, access = int(static.space[row]), int(static.access[row])
    is_generic = static.opcodes[static.opcode[row]].split(".")[0] in _GENERIC
    if not requests:
        raise NotMadeError
    if space == Space.local:
        by_lane = _local(active, sectors, written, width, place, is_store=access == Access.store)
        window = LOCAL_WINDOW
        return sum(1 << lane for lane in by_lane), [window + by_lane[lane] for lane in sorted(by_lane)]
    if space in (Space.shared, Space.cluster):
        counted = min(
            active,
            classify(static.opcodes[static.opcode[row]], has_addresses=True, binary_version=trace.binary_version).lanes,
        )
        found = _filled(_shared(counted, requests, width, is_load=access == Access.load), active)
        return (1 << active) - 1, [SHARED_WINDOW * is_generic + each for each in found]
    if access in (Access.atomic, Access.reduction):
        found = _atomic(active, sectors, width)
    elif access == Access.store:
        found = _filled(_chunks(sectors, written, width), active)
    else:
        found = _filled([_SECTOR * each for each in sectors], active)
    return (1 << active) - 1, found


def _filled(addresses: list[int], active: int) -> list[int]:
    """The last again for the threads that are left."""
    if not 0 < len(addresses) <= active:
        raise NotMadeError
    return addresses + addresses[-1:] * (active - len(addresses))


def _shared(active: int, requests: int, width: int, *, is_load: bool) -> list[int]:
    """Offsets of the first threads so that banks give ``requests`` words one after the other."""
    own = 128 // max(4, width)  # threads of a request
    parts = [range(min(own, active - first)) for first in range(0, active, own)]
    joined = max(0, len(parts) - requests)  # pairs of parts whose threads all load the same, which makes them one
    conflicts = requests - len(parts) + joined
    if joined > (len(parts) // 2 if is_load else 0):
        raise NotMadeError
    found = []
    for number, threads in enumerate(parts):
        if number < 2 * joined:
            found += [0 for _ in threads]
            continue
        other = min(conflicts, len(threads) - 1)  # threads that ask the first one's bank for another word
        conflicts -= other
        found += [128 * thread if thread <= other else width * thread for thread in threads]
    if conflicts:
        raise NotMadeError
    return found


def _chunks(sectors: list[int], written: list[int], width: int) -> list[int]:
    """Addresses of the aligned pieces of ``width`` bytes that are written."""
    whole = (1 << width) - 1
    found = []
    for sector, bits in zip(sectors, written, strict=True):
        for offset in range(0, _SECTOR, width):
            piece = bits >> offset & whole
            if piece == whole:
                found.append(_SECTOR * sector + offset)
            elif piece:
                raise NotMadeError
    return found


def _atomic(active: int, sectors: list[int], width: int) -> list[int]:
    """Threads at one place of a sector start a request each; those at other places join these."""
    runs = [(sector, len(list(same))) for sector, same in groupby(sectors)]
    left = active - len(sectors)
    if left < 0:
        raise NotMadeError
    found = []
    for sector, requests in runs:
        joined = min(left, requests * (_SECTOR // width - 1))
        left -= joined
        found += [_SECTOR * sector + width * (k // requests) for k in range(requests + joined)]
    if left:
        raise NotMadeError
    return found


def _local(
    active: int, sectors: list[int], written: list[int], width: int, place: tuple[int, int], *, is_store: bool
) -> dict[int, int]:
    """Offset in its own memory of each lane."""
    number, lines = place
    words: dict[int, dict[int, int]] = {}  # of a group of 8 lanes: word to bytes that are written
    for sector, bits in zip(sectors, written, strict=True):
        line, group = divmod(sector - _STORED_LOCAL, _SECTOR // _LANES_OF_SECTOR)
        word, rest = divmod(line - number, lines)
        if rest:
            raise NotMadeError
        words.setdefault(group, {})[word] = bits
    found: dict[int, int] = {}
    for group, of_group in words.items():
        own = _stored_lanes(of_group, width) if is_store else dict(enumerate(_runs(sorted(of_group), width)))
        if len(own) > _LANES_OF_SECTOR:
            raise NotMadeError
        found |= {_LANES_OF_SECTOR * group + lane: offset for lane, offset in own.items()}
    free = (
        [] if is_store else [8 * group + lane for group in words for lane in range(8) if 8 * group + lane not in found]
    )
    if not len(found) <= active <= len(found) + len(free):
        raise NotMadeError
    for lane in free[: active - len(found)]:
        found[lane] = found[8 * (lane // 8)]
    return found


def _runs(words: list[int], width: int) -> list[int]:
    """Offsets of accesses that touch just these words."""
    count = max(1, width // 4)
    found, left = [], list(words)
    while left:
        first = left[0]
        if any(first + k not in words for k in range(count)):
            raise NotMadeError
        found.append(4 * first)
        left = [each for each in left if not first <= each < first + count]
    return found


def _stored_lanes(words: dict[int, int], width: int) -> dict[int, int]:
    """Offset that each of 8 lanes stores at, by the bytes that are written."""
    found: dict[int, int] = {}
    for lane in range(_LANES_OF_SECTOR):
        own = [(word, bits >> 4 * lane & 15) for word, bits in sorted(words.items()) if bits >> 4 * lane & 15]
        if not own:
            continue
        word, bits = own[0]
        offset = (bits & -bits).bit_length() - 1
        count = max(1, width // 4)
        expected = [(word + k, (1 << min(width, 4)) - 1 << offset) for k in range(count)]
        if own != expected:
            raise NotMadeError
        found[lane] = 4 * word + offset
    return found
