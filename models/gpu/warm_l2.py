"""What the accesses of a launch leave in L2, without time: so that a launch can be simulated without those before it.

Blocks access memory one after the other, warp by warp; L1 hides nothing. Replacement is L2's own (least recently used,
of the lines that may be replaced), but nothing is ever on its way. Against a simulation of the launches before, what
differs is the order of lines that are used at about the same time, and lines that only L1 saw again.

Cost: O(accesses x ways).
"""

from __future__ import annotations

from manyscale.models.gpu import memory_state
from manyscale.models.gpu.launch_trace import LaunchTrace
from manyscale.models.gpu.memory_kernel import _find, _mark_written, _set_of, _use, slice_of
from manyscale.models.gpu.memory_state import Memory
from manyscale.models.gpu.parameters import SECTOR_BYTES, Gpu
from manyscale.models.kernels import allocation_free, inlined


def touch_blocks(trace: LaunchTrace, gpu: Gpu, memory: Memory, first: int, end: int) -> None:
    """Change ``memory`` as the accesses of blocks [first, end) would, while others are being simulated."""
    begin, stop = trace.warp_accesses[trace.block_warps[[first, end]]].tolist()
    limits = memory_state.memory_limits(gpu)
    _touch(memory, limits, trace.sector[begin:stop], trace.written[begin:stop], SECTOR_BYTES)


def touch(trace: LaunchTrace, gpu: Gpu, memory: Memory) -> None:
    """Change ``memory`` as the launch's accesses would. An L2 that forgets between launches is emptied first."""
    memory_state.reset_clock(memory)
    if not gpu.l2.kept_between_launches:
        memory_state.forget_all(memory)
    _touch(memory, memory_state.memory_limits(gpu), trace.sector, trace.written, SECTOR_BYTES)


@inlined
def _victim(mem, limits, c, p, index):  # type: ignore[no-untyped-def]
    """The way that a new line gets: the least recently used of those that are not on their way, also of those that were
    written where they must not go; -1: none."""
    ways = mem.line[c, p, index]
    best = -1
    oldest = -1
    for way in range(limits.ways):
        frame = ways[way]
        if frame.pending:
            continue
        if mem.tag[c, p, index, way] < 0:
            return way
        if oldest < 0 or frame.used < ways[oldest].used:
            oldest = way
        if frame.dirty and mem.dirty_lines[c, p] < limits.dirty_limit:
            continue
        if best < 0 or frame.used < ways[best].used:
            best = way
    return oldest if best < 0 else best


@allocation_free
def _touch(mem, limits, sector, written, sector_bytes):  # type: ignore[no-untyped-def]
    for i in range(sector.shape[0]):
        request = sector[i] * sector_bytes >> limits.request_shift
        number = slice_of(request, limits)
        c, p = number // limits.channel_slices, number % limits.channel_slices
        line = request >> limits.sector_shift
        bit = 1 << (request - (line << limits.sector_shift))
        index = _set_of(line, limits)
        way = _find(mem, limits, c, p, index, line)
        if way < 0:
            if written[i] and not limits.write_allocate:
                continue
            way = _victim(mem, limits, c, p, index)
            if way < 0:
                continue
            frame = mem.line[c, p, index, way]
            if frame.dirty:
                mem.dirty_lines[c, p] -= 1
            mem.tag[c, p, index, way] = line
            frame.valid = 0
            frame.dirty = 0
        frame = mem.line[c, p, index, way]
        _use(mem, c, frame)
        if written[i]:
            miss = mem.miss[c, p, index, way, request - (line << limits.sector_shift)]
            _mark_written(mem, limits, c, p, frame, miss, bit, written[i])
        else:
            frame.valid |= bit
