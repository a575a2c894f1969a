"""What profilers count of launches, as a workload."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.gpu_tables import LAUNCHES_SCHEMA
from manyscale.models.workload.notes import Note, changes, informs
from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.launch_counters.profiler_csv import (
    KERNEL_NAMES,
    ProfilerTable,
    decimal_mark,
    is_time,
    numbers,
    read_table,
)
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.rank_tables import rank_tables

NAME: Final = "launch-counters"
_NO_KERNEL: Final = re.compile(r"\[CUDA mem(cpy|set).*\]")
_WARP_INSTRUCTIONS: Final = (
    "smsp_inst_executed_sum", "sm_inst_executed_sum", "inst_executed", "executed_instructions",
)  # fmt: skip
_THREAD_INSTRUCTIONS: Final = (
    "smsp_thread_inst_executed_sum", "sm_thread_inst_executed_sum", "thread_inst_executed",
)  # fmt: skip
_THREADS_PER_INSTRUCTION: Final = (
    "smsp_thread_inst_executed_per_inst_executed_ratio", "smsp_thread_inst_executed_per_inst_executed",
    "avg_active_threads_per_warp",
)  # fmt: skip
_BY_TYPE: Final = (  # nvprof: metrics, and the names that it describes them by
    ("inst_integer", "integer_instructions"),
    ("inst_fp_16", "fp_instructions_half"),
    ("inst_fp_32", "fp_instructions_single"),
    ("inst_fp_64", "fp_instructions_double"),
    ("inst_bit_convert", "bit_convert_instructions"),
    ("inst_control", "control_flow_instructions"),
    ("inst_compute_ld_st", "load_store_instructions"),
    ("inst_inter_thread_communication", "inter_thread_instructions"),
    ("inst_misc", "misc_instructions"),
)
_L1: Final = "l1tex_t_{}_pipe_lsu_mem_{}_op_{}_sum"
_SECTORS: Final = (
    *((_L1.format("sectors", space, kind),) for space in ("global", "local") for kind in ("ld", "st", "atom", "red")),
    ("gld_transactions", "global_load_transactions"),
    ("gst_transactions", "global_store_transactions"),
    ("local_load_transactions",),
    ("local_store_transactions",),
    ("atomic_transactions",),
)  # fmt: skip
_REQUESTS: Final = (
    *((_L1.format("requests", space, kind),) for space in ("global", "local") for kind in ("ld", "st", "atom", "red")),
    ("gld_request",), ("gst_request",), ("local_load",), ("local_store",),
    ("sass_inst_executed_global_loads",), ("sass_inst_executed_global_stores",),
    ("sass_inst_executed_local_loads",), ("sass_inst_executed_local_stores",),
)  # fmt: skip
SUM_OF_SMS: Final = ("elapsed_cycles_sm",)
CYCLES: Final = (
    "gpc_cycles_elapsed_max", "sm_cycles_elapsed_max", "smsp_cycles_elapsed_max", "gpc_elapsed_cycles_max",
    "elapsed_cycles",
)  # fmt: skip
DURATION: Final = ("gpu_time_duration_sum", "gpu_time_duration", "duration")
_REGISTERS: Final = ("launch_registers_per_thread", "registers_per_thread")
_SHARED: Final = ("launch_shared_mem_per_block_static", "static_shared_memory_per_block", "static_smem")
_DYNAMIC: Final = ("launch_shared_mem_per_block_dynamic", "dynamic_shared_memory_per_block", "dynamic_smem")


@dataclass(frozen=True)
class LaunchCounters:
    """Of each launch, in the file's order: ``kernel_name``; ``grid`` and ``block`` int64[launches, 3] (1 where the file
    does not say); ``registers`` of a thread and ``shared_bytes`` of a block int64 (0 likewise); ``warp_instructions``,
    ``thread_instructions``, ``memory_requests`` float64; ``cycles`` and ``duration_s`` float64 as measured, or None.
    ``cycles_are_summed``: over SMs. ``notes`` say what stands in for what."""

    kernel_name: tuple[str, ...]
    grid: np.ndarray
    block: np.ndarray
    registers: np.ndarray
    shared_bytes: np.ndarray
    warp_instructions: np.ndarray
    thread_instructions: np.ndarray
    memory_requests: np.ndarray
    cycles: np.ndarray | None
    duration_s: np.ndarray | None
    cycles_are_summed: bool
    notes: tuple[Note, ...]

    @property
    def num_launches(self) -> int:
        return len(self.kernel_name)

    @property
    def kernel(self) -> np.ndarray:
        """int64[launches]: a number for each kernel."""
        return np.unique(np.array(self.kernel_name), return_inverse=True)[1].astype(np.int64)


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS) -> Workload:
    """The launches that ``options`` choose. Raises UserError with file and line."""
    counters = read_counters(path)
    number = np.arange(1, counters.num_launches + 1)
    unknown = sorted(set(options.launches) - set(number.tolist()))
    if unknown:
        raise UserError(f"{path}: has {len(number)} launches, none of number {unknown[0]}; choose others with --launch")
    kept = np.flatnonzero(np.isin(number, options.launches)) if options.launches else number - 1
    tables: dict[str, pa.Table] = rank_tables(1, {}) | {"launches": _launches(counters, kept)}
    return Workload(path.name.split(".")[0], 1, tables, counters.notes, NAME)


def read_counters(path: Path) -> LaunchCounters:
    """What the file says of each launch. Raises UserError with file and line; without warp instructions, or anything
    that could stand for thread instructions or memory requests, with what to collect."""
    table = kernels_only(read_table(path))
    find = Finder(table)
    warp_instructions = find.first(_WARP_INSTRUCTIONS)
    if warp_instructions is None:
        raise find.missing("warp instructions", "inst_executed", "smsp__inst_executed.sum")
    cycles, summed = find.cycles()
    if summed:
        find.notes.append(informs("cycles-summed", "elapsed_cycles_sm is the sum over all SMs"))
    grid, block = (shape_of(find, what, len(warp_instructions)) for what in ("grid", "block"))
    return LaunchCounters(
        kernel_name=tuple(map(plain_name, find.texts(KERNEL_NAMES))),
        grid=grid,
        block=block,
        registers=_counted(find.first(_REGISTERS), table),
        shared_bytes=_shared(find),
        warp_instructions=warp_instructions,
        thread_instructions=_thread_instructions(find, warp_instructions),
        memory_requests=_memory_requests(find),
        cycles=cycles,
        duration_s=find.times(DURATION),
        cycles_are_summed=summed,
        notes=tuple(find.notes),
    )


def kernels_only(table: ProfilerTable) -> ProfilerTable:
    """Without nvprof's rows for copies."""
    names = next((table.columns[name] for name in KERNEL_NAMES if name in table.columns), None)
    if names is None:
        raise UserError(f"{table.path}: has no column of kernel names; profile with --print-gpu-trace (nvprof)")
    keep = [row for row, name in enumerate(names) if not _NO_KERNEL.match(name)]
    if not keep:
        raise UserError(f"{table.path}: lists copies but no kernels; profile a run that launches some")
    columns = {name: [texts[row] for row in keep] for name, texts in table.columns.items()}
    units = {name: [texts[row] for row in keep] for name, texts in table.units.items()}
    return ProfilerTable(table.path, columns, units, table.lines[keep])


def plain_name(name: str) -> str:
    """Without the correlation number that nvprof puts behind it."""
    return re.sub(r"\s*\[\d+\]$", "", name.strip())


class Finder:
    """Columns of a table by any of their names."""

    def __init__(self, table: ProfilerTable) -> None:
        self.table = table
        self.notes: list[Note] = []
        counts = [*_WARP_INSTRUCTIONS, *_THREAD_INSTRUCTIONS, *SUM_OF_SMS, *CYCLES,
                  *(name for names in (*_BY_TYPE, *_SECTORS, *_REQUESTS) for name in names)]  # fmt: skip
        others = [*_THREADS_PER_INSTRUCTION, *DURATION, *_REGISTERS, *_SHARED, *_DYNAMIC]
        there = [name for name in counts if name in table.columns]
        self._mark = decimal_mark(table, [*there, *(name for name in others if name in table.columns)], there)

    def texts(self, names: Sequence[str]) -> list[str]:
        return next(self.table.columns[name] for name in names if name in self.table.columns)

    def first(self, names: Sequence[str]) -> np.ndarray | None:
        """The first of these columns that the file has, of all launches. Raises UserError if some have it only."""
        refused: UserError | None = None
        for name in names:
            try:
                found = numbers(self.table, name, self._mark)
            except UserError as error:
                refused = refused or error
                continue
            if found is not None:
                if np.any(found < 0):
                    row = int(np.argmax(found < 0))
                    raise UserError(f"{self.table.path}:{self.table.lines[row]}: {name} is negative; it is a count")
                return found
        if refused is not None:
            raise refused
        return None

    def cycles(self) -> tuple[np.ndarray | None, bool]:
        """Cycles of each launch, None where the file has none; and whether they are summed over SMs."""
        found = self.first(CYCLES)
        if found is not None:
            return found, False
        found = self.first(SUM_OF_SMS)
        return found, found is not None

    def times(self, names: Sequence[str]) -> np.ndarray | None:
        """The same in seconds. Raises UserError for a unit that is none of time."""
        for name in names:
            for unit, line in zip(self.table.units.get(name, ()), self.table.lines.tolist(), strict=False):
                if not is_time(unit):
                    raise UserError(f"{self.table.path}:{line}: {name} is in {unit!r}, which is no unit of time known")
        return self.first(names)

    def sum(self, parts: Sequence[Sequence[str]]) -> np.ndarray | None:
        """The sum of all parts that the file has; None if it has none."""
        found = [values for values in map(self.first, parts) if values is not None]
        total: np.ndarray | None = np.sum(found, axis=0) if found else None
        return total

    def missing(self, what: str, nvprof: str, ncu: str) -> UserError:
        return UserError(
            f"{self.table.path}: has no {what}; collect {nvprof} (nvprof --metrics) or {ncu} (ncu --metrics)"
        )


def _thread_instructions(find: Finder, warp_instructions: np.ndarray) -> np.ndarray:
    found = find.first(_THREAD_INSTRUCTIONS)
    if found is not None:
        return found
    found = find.sum(_BY_TYPE)
    if found is not None:
        text = "thread instructions are the sum of those by type (without what is predicated off)"
        find.notes.append(changes("counts-derived", text))
        return found
    threads = find.first(_THREADS_PER_INSTRUCTION)
    if threads is None:
        raise find.missing("thread instructions", "thread_inst_executed", "smsp__thread_inst_executed.sum")
    text = "thread instructions are warp instructions times the threads per instruction, rounded"
    find.notes.append(changes("counts-derived", text))
    return np.rint(threads * warp_instructions)


def _memory_requests(find: Finder) -> np.ndarray:
    found = find.sum(_SECTORS)
    if found is not None:
        return found
    found = find.sum(_REQUESTS)
    if found is None:
        raise find.missing(
            "memory requests", "gld_transactions,gst_transactions",
            f"{_L1.format('sectors', 'global', 'ld').replace('_sum', '.sum')} (and so on)",
        )  # fmt: skip
    find.notes.append(changes("counts-derived", "memory requests are those of warps: sectors were not counted"))
    return found


def shape_of(find: Finder, what: str, count: int) -> np.ndarray:
    """int64[launches, 3]: of a grid or a block; ones where the file does not say."""
    shape = np.ones((count, 3), np.int64)
    axes = [numbers(find.table, f"{what}_{axis}", ".") for axis in "xyz"]
    if axes[0] is not None:
        for place, values in enumerate(axes):
            if values is not None:
                shape[:, place] = np.maximum(_counted(values, find.table), 1)
        return shape
    for name in (f"{what}_size", f"launch_{what}_size"):
        texts = find.table.columns.get(name)
        if texts is None:
            continue
        for row, text in enumerate(texts):
            parts = _size_parts(text)
            if len(parts) not in (1, 3) or not all(part.strip().isdecimal() for part in parts):
                raise UserError(
                    f"{find.table.path}:{find.table.lines[row]}: {name} is {text!r}, no size such as (16, 1, 1)"
                )
            line = f"{find.table.path}:{find.table.lines[row]}"
            shape[row, : len(parts)] = [max(bounds.whole(part, line, name, most=2**31 - 1), 1) for part in parts]
        return shape
    return shape


def _size_parts(text: str) -> list[str]:
    """Of ``(1,024, 2, 1)``, whose separators are followed by a space, ``(1024,2,1)``, or a product ``1,024.00``."""
    if "(" not in text:
        return [re.sub(r"[.,]0+$|[.,]", "", text)]
    inner = text.strip(" ()")
    parts = re.split(r"[,;]\s+", inner)
    return [re.sub(r"[.,\s]", "", part) for part in parts] if len(parts) > 1 else inner.split(",")


def _shared(find: Finder) -> np.ndarray:
    """int64[launches]. R's tables have lost nvprof's units: what they hold may be bytes or kilobytes."""
    total = np.zeros(find.table.num_launches)
    for names in (_SHARED, _DYNAMIC):
        values = find.first(names)
        if values is None:
            continue
        if not find.table.units:
            find.notes.append(changes("counts-incomplete", "shared memory has no unit in the file: left out"))
            return np.zeros(find.table.num_launches, np.int64)
        total += values
    return _counted(total, find.table)


def _counted(values: np.ndarray | None, table: ProfilerTable) -> np.ndarray:
    if values is None:
        return np.zeros(table.num_launches, np.int64)
    return bounds.counts(values, table.path, "a count")


def _launches(counters: LaunchCounters, kept: np.ndarray) -> pa.Table:
    blocks = counters.grid.prod(axis=1)
    threads = counters.block.prod(axis=1)
    counts = [bounds.counts(values, "counters", "a count of a launch") for values in
              (counters.warp_instructions, counters.thread_instructions, counters.memory_requests)]  # fmt: skip
    shape = np.concatenate((counters.grid, counters.block), axis=1)
    columns: dict[str, np.ndarray] = {
        "launch_id": np.arange(1, counters.num_launches + 1),
        **{f"{what}_{axis}": shape[:, place] for place, (what, axis) in enumerate(product(("grid", "block"), "xyz"))},
        "shared_bytes": counters.shared_bytes,
        "registers": counters.registers,
        "binary_version": np.zeros(counters.num_launches, np.int64),
        "stream": np.zeros(counters.num_launches, np.int64),
        "blocks": blocks,
        "warps": blocks * -(-threads // 32),
        "warp_instructions": counts[0],
        "thread_instructions": counts[1],
        "memory_requests": counts[2],
        "block_size_cov": np.full(counters.num_launches, np.nan),
    }  # fmt: skip
    what = np.concatenate((shape, *(values[:, None] for values in counts)), axis=1)
    texts: dict[str, Callable[[int], str]] = {
        "kernel_name": lambda row: counters.kernel_name[row],
        "digest": lambda row: hashlib.blake2b(
            f"{counters.kernel_name[row]} {what[row].tolist()}".encode(), digest_size=20
        ).hexdigest(),
    }
    arrays = [
        text_array([texts[field.name](row) for row in kept.tolist()])
        if field.name in texts
        else to_arrow(columns[field.name][kept].astype(field.type.to_pandas_dtype()))
        for field in LAUNCHES_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=LAUNCHES_SCHEMA)
