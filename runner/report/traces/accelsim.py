"""Kernel launches in the format of Accel-Sim's NVBit tracer, version 5: ``kernelslist.g`` and ``kernel-N.traceg``.

The format lists the address of each thread. Where the tracer's own folder has them (``manyscale trace --level gpu
--keep-addresses``), they are written. Launches are stored with what a warp accesses together (sectors, conflicts of
banks), from which the addresses do not follow; then addresses are made up, from which just that follows again
(``made_up_lanes``), and a note and the file ``ADDRESSES`` say so. Launches that were read from another trace are
refused: their trace has them. What NVBit writes of the same run on hardware differs in the bases of the heap and of the
windows, and in its version, which is ``none`` here. Immediates are the first whole number among an instruction's
operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, TextIO

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.models.workload.notes import Errs, Note, changes
from manyscale.runner.errors import UserError
from manyscale.runner.readers.cuda.lanes import Lanes, LanesFile, Recorded, RecordedLaunches
from manyscale.runner.readers.stores.launches import LaunchStore
from manyscale.runner.report.traces.made_up_lanes import LOCAL_WINDOW, SHARED_WINDOW, NotMadeError, made_up

NAME: Final = "accelsim"
_VERSION: Final = 5
_BATCH: Final = 1 << 18  # warp instructions
_MADE_UP: Final = (
    "the addresses of threads are made up, so that a warp's accesses have the sectors, the bytes that are written and "
    "the conflicts of banks of the trace; which thread accesses which of them is not known"
)
_FIELDS: Final = (
    "[line_num] PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [adrrescompress?] [mem_addresses] "
    "immediate"
)


def write_trace(workload: Workload, path: Path) -> tuple[Note, ...]:
    """Write the folder ``path``, which exists and is empty; notes on what is made up. Raises UserError where the
    launches tell too little. O(warp instructions), a piece of a launch in memory at a time."""
    launches = workload.gpu
    if launches is None:
        raise UserError(f"{workload.name}: has no kernel launches with instructions, which Accel-Sim's format lists")
    if not isinstance(launches, LaunchStore):
        raise _without_addresses(workload)
    recorded = {launch_id: _recorded(workload, launches, launch_id) for launch_id in launches.launch_ids}
    count = sum(each is None for each in recorded.values())
    try:
        for number, launch_id in enumerate(launches.launch_ids, 1):
            with (path / f"kernel-{number}.traceg").open("w", encoding="utf-8", newline="\n") as file:
                _write_launch(file, number, launches, launch_id, recorded[launch_id])
        (path / "kernelslist.g").write_text("".join(_list(workload, launches.launch_ids)))
        if count:
            (path / "ADDRESSES").write_text(f"{_MADE_UP}\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None
    notes = [changes("addresses-made-up", f"of {count} launches: {_MADE_UP}", count=count)] if count else []
    if left := len(launches.counted_ids):
        text = f"{left} launches were counted, but not recorded; they are not written"
        notes.append(changes("counted-launches-left-out", text, count=left, errs=Errs.short))
    return tuple(notes)


def _recorded(workload: Workload, launches: LaunchStore, launch_id: int) -> Recorded | None:
    """What the tracer's folder has of a launch; None where addresses are to be made up. Raises UserError."""
    found = launches.recorded[launch_id] if isinstance(launches, RecordedLaunches) else None
    if found is not None and found.listed and found.lanes.is_file():
        return found
    if launches.stored(launch_id).static.details is not None:
        return None
    if found is None:
        raise _without_addresses(workload)
    raise UserError(
        f"{found.lanes}: is missing: the trace was made without the address of each thread, which Accel-Sim's "
        "format lists; trace the program again with --keep-addresses"
    )


def _without_addresses(workload: Workload) -> UserError:
    return UserError(
        f"{workload.name}: its launches hold what warps access together, not the address of each thread, which "
        "Accel-Sim's format lists; trace with --keep-addresses and convert the folder raw/ of the trace"
    )


def _list(workload: Workload, launch_ids: Sequence[int]) -> Iterator[str]:
    """A line for each copy to the device, before the launch that follows it, and for each launch."""
    before, address, size = (
        workload.column("copies", name).tolist() for name in ("before_launch_id", "address", "bytes")
    )
    copies = list(zip(before, address, size, strict=True))
    place = 0
    for number, launch_id in enumerate(launch_ids, 1):
        while place < len(copies) and copies[place][0] <= launch_id:
            yield f"MemcpyHtoD,0x{copies[place][1]:016x},{copies[place][2]}\n"
            place += 1
        yield f"kernel-{number}.traceg\n"


def _write_launch(file: TextIO, number: int, launches: LaunchStore, launch_id: int, recorded: Recorded | None) -> None:
    lanes = None if recorded is None else LanesFile(recorded.lanes)
    windows = (SHARED_WINDOW, LOCAL_WINDOW) if lanes is None else (lanes.shared_base, lanes.local_base)
    _write_head(file, number, launches.stored(launch_id).head, windows)
    of_blocks = None if lanes is None else lanes.blocks()
    details = launches.stored(launch_id).static.details
    listed = recorded.listed if recorded else details.listed if details else ()
    widths = [int(each.rpartition(" ")[2]) for each in listed]
    block = 0
    for trace in launches.block_batches(launch_id, _BATCH):
        ends = trace.warp_instructions[trace.block_warps]
        first = block
        for k in range(len(ends) - 1):
            if lanes is not None and of_blocks is not None:
                own = lanes.check(next(of_blocks, None), trace, int(ends[k]), int(ends[k + 1]))
            else:
                own = _made_up(trace, first, k, widths)
            _write_block(file, trace, k, block, own, listed)
            block += 1


def _made_up(trace: LaunchTrace, first: int, place: int, widths: Sequence[int]) -> Lanes:
    try:
        return made_up(trace, first, place, widths)
    except NotMadeError:
        raise UserError(
            f"launch {trace.launch_id}, block {first + place}: accesses memory in a way that no aligned addresses give "
            "again; trace the program with --keep-addresses and convert the folder raw/ of the trace"
        ) from None


def _write_head(file: TextIO, number: int, head: dict[str, object], windows: tuple[int, int]) -> None:
    def triple(name: str) -> str:
        return f"({','.join(map(str, head[name]))})"  # type: ignore[call-overload]

    values = {
        "kernel name": head["kernel_name"],
        "kernel id": number,
        "grid dim": triple("grid"),
        "block dim": triple("block"),
        "shmem": head["shared_bytes"],
        "nregs": head["registers"],
        "binary version": head["binary_version"],
        "cuda stream id": head["stream"],
        "shmem base_addr": f"0x{windows[0]:016x}",
        "local mem base_addr": f"0x{windows[1]:016x}",
        "nvbit version": "none",
        "accelsim tracer version": _VERSION,
        "enable lineinfo": 0,
    }
    file.writelines(f"-{key} = {value}\n" for key, value in values.items())
    file.write(f"\n#traces format = {_FIELDS}\n\n\n")


def _write_block(
    file: TextIO, trace: LaunchTrace, place: int, number: int, lanes: Lanes, listed: Sequence[str]
) -> None:
    """Block ``number`` of the grid, which is at ``place`` in the trace."""
    x, y, _ = trace.grid
    first_warp, end_warp = (int(each) for each in trace.block_warps[place : place + 2])
    starts = trace.warp_instructions[first_warp : end_warp + 1]
    lines = _lines(trace, trace.instruction[int(starts[0]) : int(starts[-1])], lanes, listed)
    file.write(f"\n#BEGIN_TB\n\nthread block = {number % x},{number // x % y},{number // (x * y)}\n")
    bounds = (starts - starts[0]).tolist()
    for warp, (first, end) in enumerate(pairwise(bounds)):
        file.write(f"\nwarp = {warp}\ninsts = {end - first}\n")
        file.writelines(lines[first:end])
    file.write("\n#END_TB\n")


def _lines(trace: LaunchTrace, rows: np.ndarray, lanes: Lanes, listed: Sequence[str]) -> list[str]:
    """A line for each warp instruction; those without addresses are made once for each row and mask."""
    static = trace.static
    key = rows.astype(np.int64) << 32 | lanes.mask
    known, which = np.unique(key, return_inverse=True)
    heads, plain = [], []
    for each in known.tolist():
        row, mask = each >> 32, each & 0xFFFFFFFF
        head = f"{int(static.pc[row]):04x} {mask:08x} {listed[row]} "
        is_access = not listed[row].endswith(" 0")
        tail = f"{int(static.immediate[row])} \n"
        heads.append(head)
        plain.append(f"{head}1 0x0 0 {tail}" if is_access else head + tail)
    which = which.reshape(-1)
    lines = [plain[each] for each in which.tolist()]
    ends = np.cumsum(lanes.count, dtype=np.int64)
    places = np.flatnonzero(lanes.count)
    for place, end, count, number in zip(
        places.tolist(), ends[places].tolist(), lanes.count[places].tolist(), which[places].tolist(), strict=True
    ):
        addresses = lanes.address[end - count : end].tolist()
        mask, row = int(known[number]) & 0xFFFFFFFF, int(known[number]) >> 32
        if listed[row].endswith(" 0"):
            continue  # the format has no addresses of it
        lines[place] = f"{heads[number]}{_compressed(addresses, mask)} {int(static.immediate[row])} \n"
    return lines


def _compressed(addresses: Sequence[int], mask: int) -> str:
    """Of the lanes in ``mask``: base and stride, where they lie beside each other and so do their addresses, or base
    and differences (NVBit's tracer writes one lane so, too)."""
    lowest = mask & -mask
    steps = [after - before for before, after in pairwise(addresses)]
    is_run = mask + lowest & mask == 0
    if steps and is_run and -(1 << 31) <= steps[0] < 1 << 31 and steps.count(steps[0]) == len(steps):
        return f"1 0x{addresses[0]:x} {steps[0]}"
    return " ".join((f"2 0x{addresses[0]:x}", *map(str, steps)))
