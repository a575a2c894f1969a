"""What the accesses of a launch leave in L2, without time: so that a launch can be simulated without those before it.

``touch``, of a whole launch: as many blocks as the GPU holds run together, and where one ends the next one begins. Each
of their warps executes a memory instruction in turn. Loads go through the L1 of their SM: L2 does not see those that
hit there, so that what is read most often is not what L2 kept last. ``touch_blocks``, of blocks between others that are
simulated: they access memory one after the other, and L1 hides nothing.

Replacement is L2's own (least recently used, of the lines that may be replaced), but nothing is ever on its way.
Against a simulation of the launches before, what differs is the order of lines that are used at about the same time:
warps are in step here, whatever they wait for. Bulk copies come behind the launch's other accesses.

Cost: O(instructions + accesses x ways).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from manyscale.models.gpu import memory_state
from manyscale.models.gpu.gpumech.functional_caches import FULL, cache_rules, caches, fill, read, write
from manyscale.models.gpu.l2.crossbar_kernel import set_of, slice_of
from manyscale.models.gpu.l2.kernel import find, mark_written, use
from manyscale.models.gpu.launch_pieces import joined_offsets
from manyscale.models.gpu.launch_program import MEMORY, STORE, LaunchProgram, launch_program, read_only
from manyscale.models.gpu.memory_state import Memory, MemoryLimits
from manyscale.models.gpu.occupancy import l1_bytes, resident_blocks
from manyscale.models.gpu.parameters import SECTOR_BYTES, Gpu
from manyscale.models.kernels import allocation_free, inlined
from manyscale.models.workload.asynchronous import copied_sectors
from manyscale.models.workload.launch_trace import LaunchTrace


class _Stand(NamedTuple):
    """How far a launch is. Of each warp, ``instruction`` and ``request`` int64[warps]: the next ones; ``left``
    int64[blocks]: warps that have not ended. Of each SM, ``running`` int64[SMs, warps]: those that it holds, ``held``
    int64[SMs]: how many, ``block`` int64[SMs, warps]: their blocks, ``room`` int64[SMs]: for blocks. ``next`` int64[2]:
    the SM whose turn it is to get a block, and the block."""

    instruction: np.ndarray
    request: np.ndarray
    left: np.ndarray
    running: np.ndarray
    held: np.ndarray
    block: np.ndarray
    room: np.ndarray
    next: np.ndarray


def touch_blocks(trace: LaunchTrace, gpu: Gpu, memory: Memory, first: int, end: int) -> None:
    """Change ``memory`` as the accesses of blocks [first, end) would, while others are being simulated."""
    begin, stop = trace.warp_accesses[trace.block_warps[[first, end]]].tolist()
    limits = memory_state.memory_limits(gpu)
    _touch(memory, limits, read_only(trace.sector[begin:stop]), read_only(trace.written[begin:stop]), SECTOR_BYTES)
    if trace.words is not None and trace.warp_words is not None:
        begin, stop = trace.warp_words[trace.block_warps[[first, end]]].tolist()
        _touch_copied(trace.words[begin:stop], memory, limits)


def touch(trace: LaunchTrace, gpu: Gpu, memory: Memory) -> None:
    """Change ``memory`` as the launch's accesses would. An L2 that forgets between launches is emptied first. Raises
    DoesNotFitError where no block fits on an SM."""
    touch_pieces((trace,), gpu, memory)


def touch_pieces(pieces: Iterable[LaunchTrace], gpu: Gpu, memory: Memory) -> None:
    """The same for a launch that comes in pieces of consecutive blocks, of which those are held that run."""
    memory_state.reset_clock(memory)
    if not gpu.l2.kept_between_launches:
        memory_state.forget_all(memory)
    limits = memory_state.memory_limits(gpu)
    words = [np.zeros(0, np.int64)]
    following = _noting_words(pieces, words)
    first = next(following)
    x, y, z = first.grid
    num_blocks = max(x * y * z, first.num_blocks)
    x, y, z = first.block
    slots = min(resident_blocks(gpu, x * y * z, first.registers, first.shared_bytes), num_blocks)
    sms = min(gpu.sms, num_blocks)
    rules = cache_rules(gpu.l1, l1_bytes(gpu, slots, first.shared_bytes))
    l1 = caches(gpu.l1, rules, sms)
    program = launch_program(first, gpu)
    stand = _stand(first, program, sms, slots)
    _walk(memory, limits, program, l1, rules, stand, False)
    for piece in following:
        program, stand = _go_on(program, stand, launch_program(piece, gpu))
        _walk(memory, limits, program, l1, rules, stand, False)
    _walk(memory, limits, program, l1, rules, stand, True)
    _touch_copied(np.concatenate(words), memory, limits)


def _noting_words(pieces: Iterable[LaunchTrace], words: list[np.ndarray]) -> Iterator[LaunchTrace]:
    for piece in pieces:
        words += [] if piece.words is None else [piece.words]
        yield piece


def _stand(trace: LaunchTrace, program: LaunchProgram, sms: int, slots: int) -> _Stand:
    """At the beginning: no block has been given to an SM."""
    left = np.diff(program.block_warps)
    warps = slots * max(trace.warps_per_block, int(left.max(initial=0)))
    return _Stand(
        instruction=program.warp_instructions[:-1].copy(),
        request=program.warp_requests[:-1].copy(),
        left=left,
        running=np.zeros((sms, warps), np.int64),
        held=np.zeros(sms, np.int64),
        block=np.zeros((sms, warps), np.int64),
        room=np.full(sms, slots, np.int64),
        next=np.zeros(2, np.int64),
    )


def _go_on(old: LaunchProgram, stand: _Stand, new: LaunchProgram) -> tuple[LaunchProgram, _Stand]:
    """The blocks from the first one on that runs, and those of ``new`` behind them. O(either)."""
    running = np.arange(stand.block.shape[1]) < stand.held[:, None]
    begin = int(stand.block.min(initial=len(stand.left), where=running))
    warp = int(old.block_warps[begin])
    instruction, request = int(old.warp_instructions[warp]), int(old.warp_requests[warp])
    offsets = {"block_warps": begin, "warp_instructions": warp, "warp_requests": warp}
    columns = {"instruction": instruction, "requests": instruction, "request": request, "written": request}
    joined = new._replace(
        **{name: joined_offsets([getattr(old, name)[at:], getattr(new, name)]) for name, at in offsets.items()},
        **{name: np.concatenate([getattr(old, name)[at:], getattr(new, name)]) for name, at in columns.items()},
    )
    program = LaunchProgram(*map(read_only, joined))
    kept = len(stand.instruction) - warp
    return program, stand._replace(
        instruction=np.concatenate([stand.instruction[warp:] - instruction, program.warp_instructions[kept:-1]]),
        request=np.concatenate([stand.request[warp:] - request, program.warp_requests[kept:-1]]),
        left=np.concatenate([stand.left[begin:], np.diff(new.block_warps)]),
        running=stand.running - warp, block=stand.block - begin, next=stand.next - np.array([0, begin]),
    )  # fmt: skip


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


@inlined
def _access(mem, limits, request, written):  # type: ignore[no-untyped-def]
    """A request reaches L2. ``written``: bytes of it, 0 of a load."""
    s = slice_of(request, limits)
    line = request >> limits.sector_shift
    sector = request - (line << limits.sector_shift)
    bit = 1 << sector
    index = set_of(line, limits)
    way = find(mem, limits, s, index, line)
    if way < 0:
        if written and not limits.write_allocate:
            return
        way = _victim(mem, limits, s, index)
        if way < 0:
            return
        frame = mem.line[s, index, way]
        if frame.dirty:
            mem.slice[s].dirty_lines -= 1
        mem.tag[s, index, way] = line
        frame.valid = 0
        frame.dirty = 0
    frame = mem.line[s, index, way]
    use(mem, s // limits.channel_slices, s, index, way)
    if written:
        mark_written(mem, limits, s, frame, mem.miss[s, index, way, sector], bit, written)
    else:
        frame.valid |= bit


@allocation_free
def _touch(mem, limits, sector, written, sector_bytes):  # type: ignore[no-untyped-def]
    whole = sector_bytes >> limits.request_shift == 0  # requests are larger: they are written whole (LaunchProgram)
    for i in range(sector.shape[0]):
        request = sector[i] * sector_bytes >> limits.request_shift
        _access(mem, limits, request, limits.full if whole and written[i] else written[i])


@inlined
def _load(mem, limits, l1, rules, sm, request):  # type: ignore[no-untyped-def]
    """A load's request goes through L1."""
    line = request >> rules.sector_shift
    bit = 1 << (request - (line << rules.sector_shift))
    at, missing, _, _, _ = read(l1, rules, sm, line, bit, sm)
    if missing:
        fill(l1, sm, at, missing, sm, 0, 0, 0)
        _access(mem, limits, request, 0)


@inlined
def _execute(mem, limits, program, l1, rules, sm, row, first, count):  # type: ignore[no-untyped-def]
    """Requests of an instruction, the last one first, as the load/store unit takes them."""
    own = program.static[row]
    for i in range(first + count - 1, first - 1, -1):
        request, written = program.request[i], program.written[i]
        if own.passes_l1:
            _access(mem, limits, request, written)
        elif own.access == STORE:
            line = request >> rules.sector_shift
            bit = 1 << (request - (line << rules.sector_shift))
            write(l1, rules, sm, line, bit, bit if written == FULL else 0)
            _access(mem, limits, request, written)
        else:
            _load(mem, limits, l1, rules, sm, request)


@inlined
def _next_access(program, stand, warp):  # type: ignore[no-untyped-def]
    """The warp's next instruction with requests, -1: it has none."""
    for at in range(stand.instruction[warp], program.warp_instructions[warp + 1]):
        if program.requests[at] and program.static[program.instruction[at]].kind == MEMORY:
            return at
    return -1


@inlined
def _give_blocks(stand, block_warps):  # type: ignore[no-untyped-def]
    """Blocks to SMs that have room, one to each in turn. False: there is none left for one that has."""
    full = 0
    while full < len(stand.room):
        sm, block = stand.next[0], stand.next[1]
        full += 1
        if stand.room[sm]:
            if block == len(stand.left):
                return False
            for warp in range(block_warps[block], block_warps[block + 1]):
                stand.running[sm, stand.held[sm]] = warp
                stand.block[sm, stand.held[sm]] = block
                stand.held[sm] += 1
            if stand.left[block]:
                stand.room[sm] -= 1
            stand.next[1] = block + 1
            full = 0
        stand.next[0] = (sm + 1) % len(stand.room)
    return True


@allocation_free
def _walk(mem, limits, program, l1, rules, stand, is_last):  # type: ignore[no-untyped-def]
    """Until all blocks have ended or, but for the last piece, more of them have room."""
    going = True
    while going:
        if not _give_blocks(stand, program.block_warps) and not is_last:
            return
        going = stand.next[1] < len(stand.left)
        for sm in range(len(stand.room)):
            kept = 0
            for i in range(stand.held[sm]):
                warp, block = stand.running[sm, i], stand.block[sm, i]
                at = _next_access(program, stand, warp)
                if at < 0:
                    stand.left[block] -= 1
                    stand.room[sm] += stand.left[block] == 0
                    continue
                count = np.int64(program.requests[at])
                first = stand.request[warp]
                _execute(mem, limits, program, l1, rules, sm, program.instruction[at], first, count)
                stand.instruction[warp] = at + 1
                stand.request[warp] = first + count
                stand.running[sm, kept], stand.block[sm, kept] = warp, block
                kept += 1
            stand.held[sm] = kept
            going |= kept > 0
