"""What the accesses of a launch leave in L2, without time: so that a launch can be simulated without those before it.

Blocks access memory one after the other, warp by warp; L1 hides nothing. Replacement is L2's own (least recently used,
of the lines that may be replaced), but nothing is ever on its way. Against a simulation of the launches before, what
differs is the order of lines that are used at about the same time, and lines that only L1 saw again.

Cost: O(accesses x ways).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from manyscale.models.gpu import memory_state
from manyscale.models.gpu.l2.crossbar_kernel import set_of, slice_of
from manyscale.models.gpu.l2.kernel import find, mark_written, use
from manyscale.models.gpu.launch_program import read_only
from manyscale.models.gpu.memory_state import Memory, MemoryLimits
from manyscale.models.gpu.parameters import SECTOR_BYTES, Gpu
from manyscale.models.kernels import allocation_free, inlined
from manyscale.models.workload.asynchronous import copied_sectors
from manyscale.models.workload.launch_trace import LaunchTrace


def touch_blocks(trace: LaunchTrace, gpu: Gpu, memory: Memory, first: int, end: int) -> None:
    """Change ``memory`` as the accesses of blocks [first, end) would, while others are being simulated."""
    begin, stop = trace.warp_accesses[trace.block_warps[[first, end]]].tolist()
    limits = memory_state.memory_limits(gpu)
    _touch(memory, limits, read_only(trace.sector[begin:stop]), read_only(trace.written[begin:stop]), SECTOR_BYTES)
    if trace.words is not None and trace.warp_words is not None:
        begin, stop = trace.warp_words[trace.block_warps[[first, end]]].tolist()
        _touch_copied(trace.words[begin:stop], memory, limits)


def touch(trace: LaunchTrace, gpu: Gpu, memory: Memory) -> None:
    """Change ``memory`` as the launch's accesses would. An L2 that forgets between launches is emptied first."""
    touch_pieces((trace,), gpu, memory)


def touch_pieces(pieces: Iterable[LaunchTrace], gpu: Gpu, memory: Memory) -> None:
    """The same for a launch that comes in pieces of consecutive blocks, of which one is held at a time."""
    memory_state.reset_clock(memory)
    if not gpu.l2.kept_between_launches:
        memory_state.forget_all(memory)
    limits = memory_state.memory_limits(gpu)
    words = []
    for trace in pieces:
        _touch(memory, limits, read_only(trace.sector), read_only(trace.written), SECTOR_BYTES)
        words += [] if trace.words is None else [trace.words]
    for each in words:
        _touch_copied(each, memory, limits)


def _touch_copied(words: np.ndarray, memory: Memory, limits: MemoryLimits) -> None:
    """What bulk copies move, behind other accesses."""
    sector, writes = copied_sectors(words, SECTOR_BYTES)
    written = np.where(writes, np.uint32(0xFFFFFFFF), np.uint32(0))
    _touch(memory, limits, read_only(sector), read_only(written), SECTOR_BYTES)


@inlined
def _victim(mem, limits, s, index):  # type: ignore[no-untyped-def]
    """The way that a new line gets: the least recently used of those that are not on their way, also of those that were
    written where they must not go; -1: none."""
    ways = mem.line[s, index]
    last_use = mem.last_use[s, index]
    best = -1
    oldest = -1
    for way in range(limits.ways):
        frame = ways[way]
        if frame.pending:
            continue
        if mem.tag[s, index, way] < 0:
            return way
        if oldest < 0 or last_use[way] < last_use[oldest]:
            oldest = way
        if frame.dirty and mem.slice[s].dirty_lines < limits.dirty_limit:
            continue
        if best < 0 or last_use[way] < last_use[best]:
            best = way
    return oldest if best < 0 else best


@allocation_free
def _touch(mem, limits, sector, written, sector_bytes):  # type: ignore[no-untyped-def]
    for i in range(sector.shape[0]):
        request = sector[i] * sector_bytes >> limits.request_shift
        s = slice_of(request, limits)
        line = request >> limits.sector_shift
        bit = 1 << (request - (line << limits.sector_shift))
        index = set_of(line, limits)
        way = find(mem, limits, s, index, line)
        if way < 0:
            if written[i] and not limits.write_allocate:
                continue
            way = _victim(mem, limits, s, index)
            if way < 0:
                continue
            frame = mem.line[s, index, way]
            if frame.dirty:
                mem.slice[s].dirty_lines -= 1
            mem.tag[s, index, way] = line
            frame.valid = 0
            frame.dirty = 0
        frame = mem.line[s, index, way]
        use(mem, s // limits.channel_slices, s, index, way)
        if written[i]:
            miss = mem.miss[s, index, way, request - (line << limits.sector_shift)]
            mark_written(mem, limits, s, frame, miss, bit, written[i])
        else:
            frame.valid |= bit
