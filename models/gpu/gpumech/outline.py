"""What GPUMech reads of a launch before it knows any cache: segments of its warps, and which lines they access.

The part of the source's input collector (Huang, dissertation, Georgia Institute of Technology, 2015, sec. 4.5) that
depends neither on the sizes of caches nor on which blocks are resident together, so that sweeps over these need it
once. Requests of an access to one line are one request for some of its sectors, the highest address first, as L1 takes
them; its banks take one sector a cycle each, in order.

Cost: O(instructions x operands + requests), O(instructions + requests) for warps that do what the one before them does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from typing import Final, TypeVar
from zlib import crc32

import numpy as np

from manyscale.models.gpu.gpumech import part
from manyscale.models.gpu.gpumech.functional_caches import FULL
from manyscale.models.gpu.gpumech.segments import (
    ACCESS,
    IN_SHARED,
    LOADS,
    PASSES_L1,
    SEGMENT,
    STORES,
    segments,
)
from manyscale.models.gpu.launch_program import STATIC, launch_program, read_only
from manyscale.models.gpu.parameters import UNITS, Gpu
from manyscale.models.kernels import inlined, njit
from manyscale.models.workload.launch_trace import LaunchTrace

# Of an access, all requests to one line. One array of all that is read together: the collector waits for the host's
# caches. (Nor has any array gaps, so that its bytes can be kept.)
LINE: Final = np.dtype(
    [
        ("tag", "i8"),  # address / bytes of a line
        ("sectors", "u1"),
        ("full", "u1"),  # those that are written in full (by atomics: at all)
    ]
)
_READ_ONLY: Final = (  # those of LaunchProgram and LaunchTrace
    "block_warps", "static", "operand", "warp_instructions", "instruction", "all_block_warps", "all_warp_accesses",
    "all_sector", "all_written",
)  # fmt: skip
_Value = TypeVar("_Value")
STRUCTURED: Final = {"line": LINE, "segment": SEGMENT, "access": ACCESS, "static": STATIC}


class ProfileError(ValueError):
    """A profile that was collected for a GPU that differs in what profiles depend on."""


@dataclass(frozen=True)
class Outline:
    """A launch on all GPUs that agree in ``reads`` (int64[], see ``outline_reads``).

    ``shape`` int64[5]: launch id; of a block: warps, threads, registers of a thread, bytes of shared memory. Segments
    as in gpumech_segments.Segments; ``block_warps`` int64[blocks + 1].
    ``first_line`` int64[warps + 1] and ``line`` LINE[n]: accesses to lines, warp after warp.
    ``static`` STATIC[], ``operand`` int16[]; ``executed`` and ``result`` int64[static] as in Segments.
    ``warp_instructions`` int64[warps + 1] and ``instruction`` int32[], rows of ``static``: what warps execute, of which
    one stands for all in the printed form (empty, if not asked for).

    ``launch`` int64[4]: blocks and warp instructions of the whole launch, and what ``part.reads`` returns, or 0. Of one
    that is followed in part (gpu/gpumech/part.py; else empty): ``sms`` int64[n], which are followed, and ``blocks``
    int64[], the blocks on them: all above is of these. The rest is of all blocks, as in LaunchTrace.
    """

    reads: np.ndarray
    shape: np.ndarray
    segment: np.ndarray
    access: np.ndarray
    first_segment: np.ndarray
    first_access: np.ndarray
    block_warps: np.ndarray
    first_line: np.ndarray
    line: np.ndarray
    executed: np.ndarray
    static: np.ndarray
    operand: np.ndarray
    result: np.ndarray
    warp_instructions: np.ndarray
    instruction: np.ndarray
    launch: np.ndarray
    sms: np.ndarray
    blocks: np.ndarray
    all_block_warps: np.ndarray
    all_warp_accesses: np.ndarray
    all_sector: np.ndarray
    all_written: np.ndarray

    @property
    def launch_id(self) -> int:
        return int(self.shape[0])

    @property
    def num_blocks(self) -> int:
        """Those that are followed."""
        return len(self.block_warps) - 1


def of_last_gpu(function: Callable[[Gpu], _Value]) -> Callable[[Gpu], _Value]:
    """``function``, whose result for the GPU of the last call is kept: launches come one after the other, and the
    smallest take as long as a few such calls."""
    last: tuple[Gpu, _Value] | None = None

    def of(gpu: Gpu) -> _Value:
        nonlocal last
        known = last
        if known is None or known[0] is not gpu:
            last = known = (gpu, function(gpu))
        return known[1]

    return wraps(function)(of)


@of_last_gpu
def outline_reads(gpu: Gpu) -> tuple[int, ...]:
    """What of a GPU outlines depend on."""
    units = [round(value) for name in UNITS for value in vars(gpu.units[name]).values()]
    shared = round(gpu.shared_memory.latency_cycles)
    named = {name: each.model_dump_json() for name, each in gpu.instructions.items()}
    instructions = crc32(f"{gpu.schedulers} {named}".encode()) if named else 0
    matrix = 0 if gpu.matrix is None else crc32(f"{gpu.schedulers} {gpu.matrix.model_dump_json()}".encode())
    return (
        gpu.l1.sector_bytes, gpu.l1.line_bytes, gpu.l1.banks, round(gpu.pipeline_cycles), shared, matrix,
        instructions, gpu.crossbar.past_l1, *units,
    )  # fmt: skip


def outline_of(trace: LaunchTrace, gpu: Gpu, instructions: bool = True) -> Outline:
    """The outline of a launch, with its ``instructions``, of which all SMs are followed then."""
    whole = trace
    sms = np.zeros(0, np.int64) if instructions else part.followed_sms(trace, gpu)
    blocks = np.zeros(0, np.int64)
    if len(sms):
        blocks = part.blocks_of(sms, part.reads(trace, gpu)[0], trace.num_blocks)
        trace = part.of_blocks(trace, blocks)
    rows = slice(None if len(sms) else 0)
    program = launch_program(trace, gpu)
    cut = segments(program, gpu)
    line = np.empty(len(program.request), LINE)
    first_line = np.empty_like(cut.first_access)
    shift = (gpu.l1.line_bytes // gpu.l1.sector_bytes).bit_length() - 1
    count = _coalesce(
        cut.access, cut.first_access, program.request, program.written, shift, gpu.l1.banks - 1, gpu.crossbar.past_l1,
        line, first_line,
    )  # fmt: skip
    x, y, z = trace.block
    return Outline(
        reads=np.array(outline_reads(gpu), np.int64),
        shape=np.array([trace.launch_id, trace.warps_per_block, x * y * z, trace.registers, trace.shared_bytes]),
        segment=cut.segment,
        access=cut.access,
        first_segment=cut.first_segment,
        first_access=cut.first_access,
        block_warps=program.block_warps,
        first_line=first_line,
        line=line[:count],
        executed=cut.executed,
        static=program.static,
        operand=program.operand,
        result=cut.result,
        warp_instructions=program.warp_instructions[: None if instructions else 1],
        instruction=program.instruction[: None if instructions else 0],
        launch=np.array([whole.num_blocks, whole.num_instructions, *(part.reads(whole, gpu) if len(sms) else (0, 0))]),
        sms=sms,
        blocks=blocks,
        all_block_warps=read_only(whole.block_warps[: None if len(sms) else 1]),
        all_warp_accesses=read_only(whole.warp_accesses[: None if len(sms) else 1]),
        all_sector=read_only(whole.sector[rows]),
        all_written=read_only(whole.written[rows]),
    )


def to_arrays(outlined: Outline) -> dict[str, np.ndarray]:
    """Arrays of plain types that hold an outline."""
    arrays = {each.name: getattr(outlined, each.name) for each in fields(outlined)}
    return {name: array.view(np.uint8) if name in STRUCTURED else array for name, array in arrays.items()}


def from_arrays(arrays: Mapping[str, np.ndarray]) -> Outline:
    """What ``to_arrays`` was given."""
    found = {}
    for each in fields(Outline):
        own = (read_only if each.name in _READ_ONLY else writeable)(arrays[each.name])
        found[each.name] = own.view(STRUCTURED[each.name]) if each.name in STRUCTURED else own
    return Outline(**found)


def writeable(array: np.ndarray) -> np.ndarray:
    """``array``, or a copy: kernels are compiled once more for arrays that cannot be written to."""
    return np.require(array, requirements=("C", "W"))


@inlined
def _set(own, tag, sectors, full):  # type: ignore[no-untyped-def]
    own.tag = tag
    own.sectors = sectors
    own.full = full


@inlined
def _lines_of(own, request, written, first, shift, bank_mask, line, count):  # type: ignore[no-untyped-def]
    """Fill in the lines of an access whose requests begin at ``first``, and its passes through L1: how many lines there
    are then."""
    used, passes = 0, 1
    tag = np.int64(-1)
    sectors, full = 0, 0
    for i in range(first + own.requests - 1, first - 1, -1):
        sector = request[i]
        bank = 1 << (sector & bank_mask)
        if used & bank:
            passes += 1
            used = 0
        used |= bank
        if sector >> shift != tag:
            if sectors:
                _set(line[count], tag, sectors, full)
                count += 1
            tag = sector >> shift
            sectors, full = 0, 0
        bit = 1 << (sector - (tag << shift))
        sectors |= bit
        if written[i] == FULL:
            full |= bit
    if sectors:
        _set(line[count], tag, sectors, full)
        count += 1
    if own.kind == LOADS or own.kind == STORES:
        own.passes = passes
    return count


@njit(cache=True, nogil=True)
def _coalesce(access, first_access, request, written, shift, bank_mask, past_l1, line, first_line):  # type: ignore[no-untyped-def]
    """Fill in the lines of each access: how many there are. Loads and atomics that pass L1 are not joined, and in the
    order of the addresses."""
    count = 0
    first = 0
    for warp in range(len(first_access) - 1):
        first_line[warp] = count
        for number in range(first_access[warp], first_access[warp + 1]):
            own = access[number]
            own.passes = max(1, own.requests)
            own.lines = 0
            if own.kind == IN_SHARED:
                continue
            own.passes = max(1, (own.requests + past_l1 - 1) // past_l1)
            begin = count
            if own.kind == PASSES_L1:
                for i in range(first, first + own.requests):
                    tag = request[i] >> shift
                    bit = 1 << (request[i] - (tag << shift))
                    _set(line[count], tag, bit, bit if written[i] else 0)
                    count += 1
            else:
                count = _lines_of(own, request, written, first, shift, bank_mask, line, count)
            own.lines = count - begin
            first += own.requests
    first_line[len(first_access) - 1] = count
    return count
