"""A launch as the detailed model runs it on a target: units and times of its static instructions, and its requests to
memory in pieces of the target's size."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.arithmetic.timing import time_instructions
from manyscale.models.gpu.matrix.timing import row_timing
from manyscale.models.gpu.parameters import FRONTS, SECTOR_BYTES, UNITS, Gpu
from manyscale.models.gpu.sm.control.rows import fill_controlled
from manyscale.models.kernels import njit
from manyscale.models.workload.asynchronous import IN_WORDS, NAMED, PREFETCHING
from manyscale.models.workload.launch_trace import (
    NO_REGISTER,
    Access,
    LaunchTrace,
    Space,
    StaticInstructions,
    UnitClass,
)

# how the SM treats an instruction: those below NUM_UNITS go to the unit of that number
NUM_UNITS: Final = len(FRONTS)
MEMORY: Final = NUM_UNITS  # to L1 and beyond
SHARED: Final = NUM_UNITS + 1
BARRIER: Final = NUM_UNITS + 2
MEMORY_BARRIER: Final = NUM_UNITS + 3
EXIT: Final = NUM_UNITS + 4
COPY_GROUP: Final = NUM_UNITS + 5
COPY_WAIT: Final = NUM_UNITS + 6
OPERATION: Final = NUM_UNITS + 7  # asynchronous, with words (gpu/sm/asynchronous)
PRODUCT_FENCE: Final = NUM_UNITS + 8
PRODUCT_WAIT: Final = NUM_UNITS + 9
PRODUCT: Final = NUM_UNITS + 10  # of a group of four warps
CLUSTER_ARRIVE: Final = NUM_UNITS + 11
CLUSTER_WAIT: Final = NUM_UNITS + 12
NAMED_BARRIER: Final = NUM_UNITS + 13  # of a block, for as many threads as it says
_OTHER: Final = int(UnitClass.int)  # what has no unit of its own takes the one for integers

LOAD: Final = int(Access.load)
STORE: Final = int(Access.store)
ATOMIC: Final = int(Access.atomic)
REDUCTION: Final = int(Access.reduction)
COPY: Final = int(Access.copy)


STATIC: Final = np.dtype(  # a static instruction
    [
        ("first", "i4"), ("written", "i4"), ("end", "i4"),  # operands; those before ``written`` are written to
        ("immediate", "i4"),
        ("latency", "i4"), ("interval", "i4"),
        ("kind", "u1"),  # above
        ("front", "u1"),  # its unit; NUM_UNITS: the load/store unit
        ("access", "u1"),  # Access
        ("passes_l1", "u1"),
        # with control bits (gpu/sm/control):
        ("sets", "i1"), ("reads", "i1"),  # dependence counters held up until it has written, or read; -1: none
        ("limited", "i1"),  # counter that must be no larger than ``immediate``; -1: none
        ("fixed", "u1"),  # control.rows: FIXED and so on
        ("stall", "u1"),  # cycles to the warp's next instruction, at least
        ("leaves", "u1"),  # cycles from issue until it leaves its scheduler's queue of memory instructions
        ("after", "u1"),  # cycles from there until its operands have been read (OWN: from issue)
        ("result", "i4"),  # cycles that its result comes later than that of others (OWN: from issue)
        ("reuse", "u1"),  # bit k where operand k stays in the operand cache
        ("wide", "u1"),  # the third operand is two registers
        ("slot_a", "i2"), ("slot_b", "i2"), ("slot_c", "i2"),  # registers by operand; -1: none
        ("place", "i4"),  # among the instructions of the kernel
        ("constant", "i4"), ("constant_block", "i4"),  # line of constants, -1: none; and that of the SM's cache
        ("remote", "u1"),  # in shared memory of another block of a cluster that runs as one
    ],
    align=True,
)  # fmt: skip


class LaunchProgram(NamedTuple):
    """Arrays of a launch, or of its blocks from ``first_block`` (int64[1]) on.

    ``static`` STATIC[rows], ``operand`` int16[operands]; the rest as in LaunchTrace, with requests (``request``:
    address / bytes of a request, ``written``: as there, all ones where the requests are larger than its sectors).
    """

    static: np.ndarray
    operand: np.ndarray
    first_block: np.ndarray
    block_warps: np.ndarray
    warp_instructions: np.ndarray
    warp_requests: np.ndarray
    instruction: np.ndarray
    active: np.ndarray
    requests: np.ndarray
    request: np.ndarray
    written: np.ndarray
    warp_words: np.ndarray
    words: np.ndarray


def launch_program(
    trace: LaunchTrace, gpu: Gpu, asynchronous: bool = False, controlled: bool = False, cluster: int = 1
) -> LaunchProgram:
    """O(static instructions + requests). No array can be written to, so that those of a trace need not be copied,
    wherever they lie: kernels are compiled once. ``asynchronous``: operations that run beside the warp are told from
    others; ``controlled``: with control bits, whose counters are its operands then; ``cluster``: blocks that run as
    one."""
    static = trace.static
    names = [gpu.units[name] for name in UNITS]
    units = _Units(
        _KIND, _FRONT, np.array([round(unit.latency_cycles) for unit in names]),
        np.array([max(1, round(unit.interval_cycles)) for unit in names]),
    )  # fmt: skip
    rows = np.zeros(len(static.pc), STATIC)
    for name in ("sets", "reads", "limited", "slot_a", "slot_b", "slot_c", "constant"):
        rows[name] = -1
    operand = np.empty(static.destinations.size + static.sources.size, np.int16)
    operands = _fill(units, _columns(static), rows, operand)
    if gpu.instructions:
        time_instructions(static, gpu, rows)
    if gpu.matrix is not None:
        _time_matrices(static, gpu, rows)
    if asynchronous:
        mark_asynchronous(trace, rows, cluster)
    if controlled:
        assert gpu.core is not None
        operands = fill_controlled(rows, operand, static, round(gpu.core.other_latency_cycles))
    requests, request, bytes_written = trace.accesses, trace.sector, trace.written
    warp_requests = trace.warp_accesses
    if gpu.l1.sector_bytes != SECTOR_BYTES:
        shift = (gpu.l1.sector_bytes // SECTOR_BYTES).bit_length() - 1
        space = static.space[trace.instruction]
        requests, request, bytes_written, warp_requests = _coarser(
            trace.warp_instructions, trace.warp_accesses, trace.accesses, space, trace.sector, trace.written, shift
        )
    program = LaunchProgram(
        rows, operand[:operands], np.zeros(1, np.int64), trace.block_warps, trace.warp_instructions, warp_requests,
        trace.instruction, trace.active, requests, request, bytes_written,
        trace.warp_words if trace.warp_words is not None else np.zeros(trace.num_warps + 1, np.int64),
        trace.words if trace.words is not None else np.zeros(0, np.int64),
    )  # fmt: skip
    return LaunchProgram(*map(read_only, program))


def _time_matrices(static: StaticInstructions, gpu: Gpu, rows: np.ndarray) -> None:
    """Matrix instructions by shape and type; those that the target has no timing of stay as the unit's."""
    for row in np.flatnonzero(static.unit == UnitClass.tensor):
        if (found := row_timing(static, int(row), gpu)) is not None:
            rows["interval"][row], rows["latency"][row] = found


class _Units(NamedTuple):
    """How an SM treats instructions: ``kind_of`` uint8[unit, space, access]; ``front_of`` uint8[kind]; ``latency`` and
    ``interval`` int64[UNITS], cycles."""

    kind_of: np.ndarray
    front_of: np.ndarray
    latency: np.ndarray
    interval: np.ndarray


class _Columns(NamedTuple):
    """Of StaticInstructions those that are needed here."""

    unit: np.ndarray
    space: np.ndarray
    access: np.ndarray
    immediate: np.ndarray
    bypasses_l1: np.ndarray
    destinations: np.ndarray
    sources: np.ndarray


def _columns(static: StaticInstructions) -> _Columns:
    return _Columns(*(read_only(getattr(static, name)) for name in _Columns._fields))


def read_only(array: np.ndarray) -> np.ndarray:
    """A view that cannot be written to."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _kind_of(unit: int, space: int, access: int) -> int:
    if unit == UnitClass.load_store:
        if space in (Space.shared, Space.cluster):
            return SHARED
        known = space in (Space.global_, Space.local) and access != Access.none
        return MEMORY if known else _OTHER
    return {
        UnitClass.barrier: BARRIER,
        UnitClass.memory_barrier: MEMORY_BARRIER,
        UnitClass.exit: EXIT,
        UnitClass.copy_group: COPY_GROUP,
        UnitClass.copy_wait: COPY_WAIT,
    }.get(UnitClass(unit), unit)


# of an instruction of each unit, space and access; and the unit of each kind
_KIND: Final = np.array([[[_kind_of(u, s, a) for a in Access] for s in Space] for u in UnitClass], np.uint8)
_FRONT: Final = np.array(
    [kind if kind < NUM_UNITS else NUM_UNITS if kind in (MEMORY, SHARED) else _OTHER for kind in range(COPY_WAIT + 1)],
    np.uint8,
)


@njit(cache=True, nogil=True)
def _fill(units, columns, rows, operand):  # type: ignore[no-untyped-def]
    """Static instructions and their operands: how many of these there are."""
    unit, space, access = columns.unit, columns.space, columns.access
    count = 0
    for i in range(len(rows)):
        own = rows[i]
        kind = units.kind_of[unit[i], space[i], access[i]]
        own.kind = kind
        own.front = units.front_of[kind]
        own.latency = units.latency[kind] if kind < NUM_UNITS else 1
        own.interval = units.interval[kind] if kind < NUM_UNITS else 1
        own.immediate = columns.immediate[i]
        own.access = access[i]
        own.passes_l1 = columns.bypasses_l1[i] or access[i] == ATOMIC or access[i] == REDUCTION
        own.first = count
        for register in columns.destinations[i]:
            if register != NO_REGISTER:
                operand[count] = register
                count += 1
        own.written = count
        for register in columns.sources[i]:
            if register != NO_REGISTER:
                operand[count] = register
                count += 1
        own.end = count
    return count


@njit(cache=True, nogil=True)
def _coarser(warp_first, warp_access, accesses, space, sector, written, shift):  # type: ignore[no-untyped-def]
    """Requests in larger pieces: neighbours of an instruction that fall into one are one. O(accesses)."""
    requests = accesses.copy()
    request = np.empty_like(sector)
    bytes_written = np.empty_like(written)
    first = np.zeros_like(warp_access)
    done = 0
    for warp in range(len(warp_first) - 1):
        at = warp_access[warp]
        for row in range(warp_first[warp], warp_first[warp + 1]):
            if space[row] != Space.global_ and space[row] != Space.local:
                continue
            begin = done
            for _ in range(accesses[row]):
                piece = sector[at] >> shift
                if done == begin or request[done - 1] != piece:
                    request[done] = piece
                    bytes_written[done] = 0xFFFFFFFF if written[at] else 0
                    done += 1
                at += 1
            requests[row] = done - begin
        first[warp + 1] = done
    return requests, request[:done].copy(), bytes_written[:done].copy(), first


_OPERATIONS: Final = frozenset(("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED", "STAS", "REDAS"))
_OF_BARRIERS: Final = {"SYNCS": {"EXCH", "ARRIVE", "PHASECHK"}, "ARRIVES": {"TRANSCNT", "ARVCNT"}}  # with words
_MEETINGS: Final = {"UCGABAR_ARV": CLUSTER_ARRIVE, "UCGABAR_WAIT": CLUSTER_WAIT}
_PRODUCTS: Final = ("HGMMA", "IGMMA", "QGMMA", "BGMMA")


_MARKED: Final = (PRODUCT, PRODUCT_FENCE, PRODUCT_WAIT, OPERATION, COPY_GROUP, CLUSTER_ARRIVE, CLUSTER_WAIT)


def mark_asynchronous(trace: LaunchTrace, rows: np.ndarray, cluster: int) -> None:
    """Kinds of rows of asynchronous operations that the trace has words of, and of products of groups of warps. Where
    no instruction is known to end a group of products, one ends where warps next meet."""
    static = trace.static
    kinds: dict[int, list[int]] = {kind: [] for kind in _MARKED}
    has_words = trace.words is not None and math.prod(trace.cluster) == cluster
    for number, opcode in enumerate(static.opcodes):
        if (kind := _asynchronous_kind(opcode, has_words, cluster)) is not None:
            kinds[kind].append(number)
    for kind, opcodes in kinds.items():
        of_kind = np.isin(static.opcode, opcodes)
        rows["kind"][of_kind] = kind
        if kind != PRODUCT:
            rows["front"][of_kind & (rows["front"] == NUM_UNITS)] = _OTHER
    prefetching = [number for number, opcode in enumerate(static.opcodes) if opcode.split(".")[0] in PREFETCHING]
    rows["kind"][np.isin(static.opcode, prefetching) & (has_words & (static.immediate & IN_WORDS != 0))] = OPERATION
    rows["kind"][named_barriers(static, trace.words is not None)] = NAMED_BARRIER
    rows["remote"] = (static.space == Space.cluster) & (cluster > 1)
    products = rows["kind"] == PRODUCT
    rows["immediate"][products] = static.immediate[products] == 1
    meets = (rows["kind"] == PRODUCT_FENCE) | (rows["kind"] == PRODUCT_WAIT)
    rows["passes_l1"][meets] = not rows["immediate"][products].any()


def named_barriers(static: StaticInstructions, has_words: bool) -> np.ndarray:
    """bool[rows]: barriers of a block for a number of threads, which the instruction says or the trace has words of."""
    is_told = (static.immediate & NAMED != 0) | (has_words & (static.immediate & IN_WORDS != 0))
    found: np.ndarray = (static.unit == UnitClass.barrier) & is_told
    return found


def _asynchronous_kind(opcode: str, has_words: bool, cluster: int) -> int | None:
    root, *modifiers = opcode.split(".")
    if root in _PRODUCTS:
        return PRODUCT
    if root == "WARPGROUP":
        return PRODUCT_WAIT if "DEPBAR" in modifiers else PRODUCT_FENCE
    if root in _MEETINGS and cluster > 1:
        return _MEETINGS[root]
    if not has_words:
        return None
    if root == "UTMACMDFLUSH":
        return COPY_GROUP
    is_of_barrier = bool(_OF_BARRIERS.get(root, set()) & set(modifiers))
    return OPERATION if root in _OPERATIONS or is_of_barrier else None
