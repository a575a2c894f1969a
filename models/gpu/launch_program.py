"""A launch as the detailed model runs it on a target: units and times of its static instructions, and its requests to
memory in pieces of the target's size."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from manyscale.models.gpu.launch_trace import NO_REGISTER, Access, LaunchTrace, Space, UnitClass
from manyscale.models.gpu.parameters import SECTOR_BYTES, UNITS, Gpu
from manyscale.models.kernels import njit

# how the SM treats an instruction: those below NUM_UNITS go to the unit of that number
NUM_UNITS: Final = len(UNITS)
MEMORY: Final = NUM_UNITS  # to L1 and beyond
SHARED: Final = NUM_UNITS + 1
BARRIER: Final = NUM_UNITS + 2
MEMORY_BARRIER: Final = NUM_UNITS + 3
EXIT: Final = NUM_UNITS + 4
COPY_GROUP: Final = NUM_UNITS + 5
COPY_WAIT: Final = NUM_UNITS + 6
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
        ("latency", "i2"), ("interval", "i2"),
        ("kind", "u1"),  # above
        ("front", "u1"),  # its unit; NUM_UNITS: the load/store unit
        ("access", "u1"),  # Access
        ("passes_l1", "u1"),
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


def launch_program(trace: LaunchTrace, gpu: Gpu) -> LaunchProgram:
    """O(static instructions + requests)."""
    static = trace.static
    rows = np.zeros(len(static.pc), STATIC)
    rows["kind"], rows["front"] = _kinds(static.unit, static.space, static.access)
    rows["latency"] = rows["interval"] = 1
    for number, own in enumerate(unit for _, unit in sorted(gpu.units.items(), key=lambda item: UNITS.index(item[0]))):
        of_unit = rows["kind"] == number
        rows["latency"][of_unit] = round(own.latency_cycles)
        rows["interval"][of_unit] = max(1, round(own.interval_cycles))
    written = static.destinations != NO_REGISTER
    read = static.sources != NO_REGISTER
    counts = np.stack((written.sum(axis=1), read.sum(axis=1)), axis=1)
    first = np.concatenate(([0], np.cumsum(counts.sum(axis=1))))
    rows["first"], rows["end"], rows["written"] = first[:-1], first[1:], first[:-1] + counts[:, 0]
    rows["immediate"], rows["access"] = static.immediate, static.access
    rows["passes_l1"] = static.bypasses_l1 | (static.access == ATOMIC) | (static.access == REDUCTION)
    operand = np.concatenate((static.destinations, static.sources), axis=1)
    operand = operand[np.concatenate((written, read), axis=1)]
    requests, request, bytes_written = trace.accesses, trace.sector, trace.written
    warp_requests = trace.warp_accesses
    if gpu.l1.sector_bytes != SECTOR_BYTES:
        shift = (gpu.l1.sector_bytes // SECTOR_BYTES).bit_length() - 1
        space = static.space[trace.instruction]
        requests, request, bytes_written, warp_requests = _coarser(
            trace.warp_instructions, trace.warp_accesses, trace.accesses, space, trace.sector, trace.written, shift
        )
    program = LaunchProgram(
        rows, operand, np.zeros(1, np.int64), trace.block_warps, trace.warp_instructions, warp_requests,
        trace.instruction, trace.active, requests, request, bytes_written,
    )  # fmt: skip
    # (kernels are compiled once more for arrays that cannot be written to)
    return LaunchProgram(*(array if array.flags.writeable else array.copy() for array in program))


def _kinds(unit: np.ndarray, space: np.ndarray, access: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    special = {
        UnitClass.barrier: BARRIER,
        UnitClass.memory_barrier: MEMORY_BARRIER,
        UnitClass.exit: EXIT,
        UnitClass.copy_group: COPY_GROUP,
        UnitClass.copy_wait: COPY_WAIT,
    }
    kind = unit.astype(np.uint8)
    for name, number in special.items():
        kind[unit == name] = number
    memory = unit == UnitClass.load_store
    known = ((space == Space.global_) | (space == Space.local)) & (access != Access.none)
    kind[memory] = np.where(space[memory] == Space.shared, SHARED, np.where(known[memory], MEMORY, _OTHER))
    is_memory = (kind == MEMORY) | (kind == SHARED)
    front = np.where(kind < NUM_UNITS, kind, np.where(is_memory, NUM_UNITS, _OTHER))
    return kind, front.astype(np.uint8)


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
