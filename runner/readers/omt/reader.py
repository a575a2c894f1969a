"""The events and accesses of an OpenMP trace as a workload."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.kernels import njit
from manyscale.models.workload import Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.notes import Errs, changes
from manyscale.models.workload.task_tables import (
    EVENTS_SCHEMA,
    TASK_DEPENDENCES_SCHEMA,
    TASK_TYPES_SCHEMA,
    TASKS_SCHEMA,
    EventKind,
)
from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import parse_json
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import guarded, open_stream
from manyscale.runner.readers.omt.events import Events
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.rank_tables import rank_tables
from manyscale.runner.readers.stores.traced_blocks import (
    ScratchStream,
    TracedBlocks,
    attributes_of,
    block_table,
)

NAME: Final = "omt"
_FORMAT: Final = "omptask-trace-1"
_ARRAYS: Final = {
    "ev_kind": "u1", "ev_a": "u1", "ev_b": "<u2", "ev_c": "<u4", "ev_x": "<u8", "ev_dpos": "<i4", "ev_dt": "<i4",
    "block_instr": "<u2", "block_acc": "<u2", "rec_kind": "u1", "rec_block": "<u2", "rec_delta": "<i8",
}  # fmt: skip
_LINE: Final = re.compile(r"[0-9]{1,9}")
_PS_PER_NS: Final = 1000
_BLOCK: Final = 2  # kind of a record
_PLACES: Final = 64  # accesses of a block with a last address of their own
_CONTINUES: Final = 1 << 16  # added to the number of a block that goes on behind a child


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The workload of a trace (``options`` play no part). Raises UserError with file and event or record."""
    header, arrays = _load(path)
    events = Events.of(path, arrays, len(header["sites"]))
    slow = changes(
        "times-of-instrumented-run",
        "times are of the run that recorded accesses, many times slower than the program by itself",
        errs=Errs.long,
    )
    tables = rank_tables(1, {0: int(events.lap_ns.sum()) * _PS_PER_NS})
    tables |= _task_tables(events, header)
    blocks = TracedBlocks()
    with ScratchStream() as stream:
        _write_stream(path, arrays, events, blocks, stream)
        segments, store = stream.close()
    tables |= {
        "blocks": block_table(np.full(blocks.num_blocks, -1, np.int64), blocks.num_instructions),
        "block_accesses": blocks.accesses(),
        "segments": segments,
    }
    return Workload(str(header.get("program") or path.name.split(".")[0]), 1, tables, (slow,), NAME, store)


def _load(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays."""
    with guarded(path), open_stream(path) as stream:
        content = stream.read()
    end = content.find(b"\n")
    try:
        header = parse_json(content[:end])
        listed = [(str(name), np.dtype(kind), int(count)) for name, kind, count in header["arrays"]]
        sites = [(str(function), str(place)) for function, place in header["sites"]]
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: its first line is no header of an omptask-trace ({error}); copy it again") from None
    if header.get("format") != _FORMAT:
        raise UserError(f"{path}: is in format {header.get('format')!r}; {_FORMAT!r} can be read")
    header["sites"] = sites
    place, arrays = end + 1, {}
    for name, kind, count in listed:
        bounds.inside(count, max(kind.itemsize, 1), len(content) - place, f"{path}: byte {place}", f"array {name!r}")
        arrays[name] = np.frombuffer(content, kind, count, place)
        place += kind.itemsize * count
    for name, kind in _ARRAYS.items():
        if name not in arrays or arrays[name].dtype != np.dtype(kind):
            raise UserError(f"{path}: array {name!r} is missing or not of type {kind}; trace the program again")
    if place != len(content):
        raise UserError(f"{path}: goes on at byte {place} behind its arrays; copy it again")
    records = arrays["rec_kind"]
    num_blocks = int(np.count_nonzero(records == _BLOCK))
    if num_blocks != len(arrays["rec_block"]) or len(records) - num_blocks != len(arrays["rec_delta"]):
        raise UserError(f"{path}: its records are not as many as its blocks and addresses; copy or trace it again")
    if len(arrays["rec_block"]) and arrays["rec_block"].max() >= len(arrays["block_instr"]):
        raise UserError(
            f"{path}: names block {arrays['rec_block'].max()} of {len(arrays['block_instr'])}; trace it again"
        )
    return header, arrays


def _task_tables(events: Events, header: dict[str, Any]) -> dict[str, pa.Table]:
    construct = _constructs(events, len(header["sites"]))
    places = [place.rpartition(":") for _, place in header["sites"]]
    lines = [int(line) if _LINE.fullmatch(line) else 0 for _, _, line in places]
    num_sites, num_tasks, num_events = len(places), len(events.parent), len(events.kind)
    program = str(header.get("program", ""))
    cpu_ps = np.bincount(events.running, events.lap_ns, num_tasks).astype(np.int64) * _PS_PER_NS
    types = [
        text_array(construct),
        text_array([function for function, _ in header["sites"]]),
        text_array([file for file, _, _ in places]),
        to_arrow(np.array(lines, np.int32)),
        text_array([program] * num_sites),
        to_arrow(np.full(num_sites, -1, np.int64)),
    ]
    nobody = np.zeros(num_events, np.int64)
    rows = [nobody, nobody, events.kind, events.running, events.task_type, events.value, events.lap_ns * _PS_PER_NS]
    none = np.zeros(num_tasks, np.int64)
    tasks = [none, np.arange(num_tasks), events.parent, events.type_of_task, none, events.flags, cpu_ps]
    by_task = np.argsort(events.dependent, kind="stable")
    dependences = [
        np.zeros(len(by_task)),
        events.dependent[by_task],
        events.dependence[by_task],
        events.address[by_task],
    ]
    return {
        "task_types": pa.Table.from_arrays(types, schema=TASK_TYPES_SCHEMA),
        "events": _table(rows, EVENTS_SCHEMA),
        "tasks": _table(tasks, TASKS_SCHEMA),
        "task_dependences": _table(dependences, TASK_DEPENDENCES_SCHEMA),
    }


def _constructs(events: Events, num_sites: int) -> list[str]:
    """What stands at each site, by the first event that names it."""
    names = {
        EventKind.task_create: "task", EventKind.parallel_begin: "parallel", EventKind.taskwait_begin: "taskwait",
        EventKind.taskgroup_begin: "taskgroup", EventKind.barrier_begin: "barrier",
    }  # fmt: skip
    construct = ["unknown"] * num_sites
    for kind, name in names.items():
        for site in np.unique(events.task_type[events.kind == kind]).tolist():
            if site >= 0 and construct[site] == "unknown":
                construct[site] = name
    return construct


def _table(columns: list[np.ndarray], schema: pa.Schema) -> pa.Table:
    arrays = [
        to_arrow(values.astype(field.type.to_pandas_dtype())) for values, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _write_stream(
    path: Path, arrays: dict[str, np.ndarray], events: Events, blocks: TracedBlocks, stream: ScratchStream
) -> None:
    """Number the blocks and write the segments."""
    records, block = arrays["rec_kind"], arrays["rec_block"].astype(np.int64)
    if np.any(np.diff(events.position, prepend=0) < 0) or events.position.max(initial=0) > len(records):
        raise UserError(f"{path}: its events stand at records beyond the last, {len(records)}; trace it again")
    bounds = np.concatenate((np.zeros(1, np.int64), events.position, [len(records)]))
    segment = np.flatnonzero(np.diff(bounds))
    first, end = bounds[segment], bounds[segment + 1]
    task = np.append(events.running, events.last_running)[segment]
    is_block = records == _BLOCK
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(is_block)))  # blocks before each record
    latest = _latest_block(task, before[first], before[end], block)
    begins = is_block.copy()
    begins[first] = True
    execution = np.flatnonzero(begins)
    goes_on = np.flatnonzero(~is_block[execution])
    if np.any(latest[np.searchsorted(first, execution[goes_on])] < 0):
        raise UserError(f"{path}: a task's stream begins with an access instead of a block; trace it again")
    keys = np.zeros(len(execution), np.int64)
    sizes = np.zeros(len(execution), np.int32)
    whole = is_block[execution]
    keys[whole], sizes[whole] = block, arrays["block_instr"][block]
    keys[goes_on] = latest[np.searchsorted(first, execution[goes_on])] + _CONTINUES
    accesses_before = np.arange(len(records) + 1) - before
    counts = np.diff(np.append(accesses_before[execution], accesses_before[-1])).astype(np.int32)
    kinds = records[~is_block].astype(np.int64)
    addresses = np.empty(len(kinds), np.uint64)
    last = np.zeros((len(arrays["block_instr"]), _PLACES), np.int64)
    if not _decode(records, block, arrays["rec_delta"], last, addresses):
        raise UserError(f"{path}: its stream begins with an access instead of a block; trace it again")
    ids = blocks.number(keys, sizes, counts, attributes_of(-1, np.left_shift(1, kinds >> 2), kinds & 1))
    instructions = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    from_, to = np.searchsorted(execution, first), np.searchsorted(execution, end)
    rows = zip(segment.tolist(), task.tolist(), from_.tolist(), to.tolist(), first.tolist(), end.tolist(), strict=True)
    for index, owner, low, high, start, stop in rows:
        stream.writer.add(ids[low:high], counts[low:high], addresses[accesses_before[start] : accesses_before[stop]])
        event = index if index < len(events.kind) else -1
        stream.writer.end_segment(0, 0, 0, event, owner, int(instructions[high] - instructions[low]))


def _latest_block(task: np.ndarray, first: np.ndarray, end: np.ndarray, block: np.ndarray) -> np.ndarray:
    """int64[segments]: the block that the segment's task entered last before the segment, -1 if none. ``first``,
    ``end``: block records before the segment's begin and end."""
    order = np.argsort(task, kind="stable")
    place = np.where(end > first, end - 1, -1)[order]
    starts = np.append(True, np.diff(task[order]) != 0)
    # of a task's earlier segments the last that has a block: places only grow within a task
    group = np.cumsum(starts) - 1
    reached = np.maximum.accumulate(place + group * (len(block) + 1)) - group * (len(block) + 1)
    earlier = np.where(starts, -1, np.append(-1, np.maximum(reached, -1)[:-1]))
    latest = np.empty(len(task), np.int64)
    latest[order] = np.where(earlier >= 0, np.append(block, -1)[earlier], -1)
    return latest


@njit(cache=True, nogil=True)
def _decode(records, block, deltas, last, addresses):  # type: ignore[no-untyped-def]
    """Fill in the accesses' addresses. ``last`` int64[blocks, 64] zeroed. False if the first record is an access.
    O(records)."""
    num_blocks = 0
    num_accesses = 0
    place = 0
    for i in range(records.shape[0]):
        if records[i] == _BLOCK:
            num_blocks += 1
            place = 0
            continue
        if num_blocks == 0:
            return False
        each = block[num_blocks - 1]
        address = last[each, place] + deltas[num_accesses]
        last[each, place] = address
        addresses[num_accesses] = np.uint64(address)
        num_accesses += 1
        place = min(place + 1, _PLACES - 1)
    return True
