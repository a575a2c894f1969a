"""Tables of a result that tell of kernel launches."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.workload import Workload
from manyscale.models.workload.columns import nullable_array, text_array, to_arrow
from manyscale.runner.kernel_names import demangled
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.runner.predict.gpu.mapping import Launches
from manyscale.runner.predict.gpu.predictions import Predictions
from manyscale.runner.predict.gpu.resources import NAMES, resources_of
from manyscale.runner.predict.gpu.source_tables import source_tables

# Ratios and counts of a launch that was not simulated are those of the one that stands for it; its cycles are its own.
LAUNCHES_SCHEMA: Final = pa.schema(
    [
        pa.field("launch_id", pa.int32(), nullable=False),  # number of the launch, from 1
        pa.field("kernel_name", pa.string(), nullable=False),  # as in the trace
        pa.field("rank", pa.int32(), nullable=False),  # MPI rank that launches it
        pa.field("start_ps", pa.int64(), nullable=False),  # when it is launched
        pa.field("end_ps", pa.int64(), nullable=False),  # when it has ended
        pa.field("cycles", pa.int64(), nullable=False),  # with the launch latency
        pa.field("launch_latency_cycles", pa.int64(), nullable=False),  # before its first instruction
        pa.field("warp_instructions", pa.int64(), nullable=False),  # that it executes
        pa.field("thread_instructions", pa.int64(), nullable=False),  # of all threads that take part
        pa.field("l1_miss_ratio", pa.float64(), nullable=False),  # of this launch alone
        pa.field("l2_miss_ratio", pa.float64(), nullable=False),  # misses of accesses, by sector
        pa.field("l1_accesses", pa.int64(), nullable=False),  # sectors asked of L1
        pa.field("l1_misses", pa.int64(), nullable=False),  # of these, not held
        pa.field("l2_accesses", pa.int64(), nullable=False),  # sectors asked of L2
        pa.field("l2_misses", pa.int64(), nullable=False),  # of these, not held
        pa.field("occupancy", pa.float64(), nullable=False),  # mean share of an SM's warps that are resident
        pa.field("blocks", pa.int64(), nullable=False),  # thread blocks
        pa.field("simulated_instructions", pa.int64(), nullable=False),  # warp instructions of it that were simulated
        pa.field("ci_low_cycles", pa.float64()),  # 95 %; null where nothing was sampled
        pa.field("ci_high_cycles", pa.float64()),  # 95 %; null where nothing was sampled
        # that simulated it, or the launch that stands for it
        pa.field("model", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("representative_id", pa.int32(), nullable=False),  # the launch whose simulation it follows from
        pa.field("kernel", pa.string(), nullable=False),  # the kernel's name, demangled
        pa.field("grid_x", pa.int32(), nullable=False),  # thread blocks of the grid
        pa.field("grid_y", pa.int32(), nullable=False),  # thread blocks of the grid
        pa.field("grid_z", pa.int32(), nullable=False),  # thread blocks of the grid
        pa.field("block_x", pa.int32(), nullable=False),  # threads of a block
        pa.field("block_y", pa.int32(), nullable=False),  # threads of a block
        pa.field("block_z", pa.int32(), nullable=False),  # threads of a block
        pa.field("dram_reads", pa.int64()),  # sectors read from DRAM; null where the model does not tell
        pa.field("dram_writes", pa.int64()),  # sectors written to DRAM; null where the model does not tell
    ]
)
# Of launches that were simulated; times count from the first cycle after the launch latency. Blocks that were not
# simulated have no SM and no times. region: TBPoint's homogeneous region, -1 in none.
BLOCKS_SCHEMA: Final = pa.schema(
    [
        pa.field("launch_id", pa.int32(), nullable=False),  # number of the launch
        pa.field("block", pa.int64(), nullable=False),  # index within the launch
        pa.field("sm", pa.int32()),  # that ran it; null where it was not simulated
        pa.field("start_cycle", pa.int64()),  # when it becomes resident
        pa.field("end_cycle", pa.int64()),  # when its last warp ends
        pa.field("warp_instructions", pa.int64(), nullable=False),  # that it executes
        pa.field("thread_instructions", pa.int64(), nullable=False),  # of all threads that take part
        pa.field("memory_requests", pa.int64(), nullable=False),  # for sectors of global and local memory
        pa.field("region", pa.int32(), nullable=False),  # homogeneous region of TBPoint; -1 in none
    ]
)
IPC_SCHEMA: Final = pa.schema(
    [
        pa.field("launch_id", pa.int32(), nullable=False),  # number of the launch
        pa.field("start_cycle", pa.int64(), nullable=False),  # begin of the interval
        pa.field("end_cycle", pa.int64(), nullable=False),  # end of the interval
        pa.field("warp_instructions", pa.int64(), nullable=False),  # issued in the interval
        pa.field("ipc", pa.float64(), nullable=False),  # warp instructions per cycle, all SMs
    ]
)
STACKS_SCHEMA: Final = pa.schema(
    [
        pa.field("launch_id", pa.int32(), nullable=False),  # number of the launch
        pa.field("part", pa.dictionary(pa.int8(), pa.string()), nullable=False),  # what the cycles are spent on
        pa.field("cycles", pa.float64(), nullable=False),  # parts sum to the launch's cycles, latency left out
        pa.field("cycles_per_instruction", pa.float64(), nullable=False),  # over the launch's warp instructions
    ]
)
# What launches that were simulated ask of each resource, and how long it would take if nothing else held them up.
RESOURCES_SCHEMA: Final = pa.schema(
    [
        pa.field("launch_id", pa.int32(), nullable=False),  # number of the launch
        pa.field("resource", pa.dictionary(pa.int8(), pa.string()), nullable=False),  # issue, a unit, a type, a memory
        pa.field("amount", pa.float64(), nullable=False),  # warp instructions (issue, units), operations, or bytes
        pa.field("peak_cycles", pa.float64(), nullable=False),  # that it takes at the peak rate of the whole GPU
        pa.field("share", pa.float64(), nullable=False),  # of the launch's cycles, its latency left out
    ]
)
_SHAPE: Final = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")


def begin_of_phases(workload: Workload, phase_ps: np.ndarray, end_ps: np.ndarray) -> np.ndarray:
    """int64[phases]: when each begins: after the operation before it, and those before the same operation. ``phase_ps``
    int64[phases], ``end_ps`` int64[operations]. O(phases)."""
    own = workload.column("phases", "operation_id")
    operation = workload.rank_offsets[workload.column("phases", "rank")] + own
    before = np.where(own > 0, end_ps[np.maximum(operation - 1, 0)], 0)
    until = np.concatenate(([0], np.cumsum(phase_ps)))
    return np.asarray(before + until[:-1] - until[np.searchsorted(operation, operation, "left")], np.int64)


def times_of_executions(
    launches: Launches, predicted: Predictions, begin_ps: np.ndarray, copied_ps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """int64[executions]: when each launch begins and ends, those of a phase one after the other. ``begin_ps``
    int64[phases]; ``copied_ps`` int64[executions]: what copies before each take."""
    executions = launches.executions
    duration = predicted.duration_ps[np.searchsorted(predicted.plan.row, executions.launch)]
    until = np.cumsum(copied_ps + duration)
    before = until - copied_ps - duration
    first = np.searchsorted(executions.phase, executions.phase, "left")
    start = begin_ps[executions.phase] + before - before[first] + copied_ps
    return start, start + duration


def launch_tables(
    launches: Launches, predicted: Predictions, start_ps: np.ndarray, end_ps: np.ndarray, model: str, gpu: Gpu
) -> dict[str, pa.Table]:
    """``launches``, ``blocks``, ``gpu_ipc``, ``gpu_cpi_stacks`` and ``gpu_resources`` of a Result; and ``gpu_lines``
    and ``gpu_branches`` where the trace tells them. ``start_ps`` and ``end_ps`` int64[executions]."""
    simulated = _simulated(predicted)
    return {
        "launches": _launches(launches, predicted, start_ps, end_ps, model),
        "blocks": _blocks(simulated),
        "gpu_ipc": _ipc(simulated),
        "gpu_cpi_stacks": _stacks(simulated),
        "gpu_resources": _resources(simulated, gpu),
        **source_tables(launches, predicted),
    }


def _simulated(predicted: Predictions) -> list[LaunchResult]:
    found = {each.launch_id: each for each in predicted.result}
    return [found[launch_id] for launch_id in sorted(found)]


def _launches(
    launches: Launches, predicted: Predictions, start_ps: np.ndarray, end_ps: np.ndarray, model: str
) -> pa.Table:
    """A row per execution, in the order of phases."""
    executions, source, workload = launches.executions, launches.source, launches.workload
    row = np.searchsorted(predicted.plan.row, executions.launch)
    results = [predicted.result[each] for each in row.tolist()]
    number = {
        name: np.array([getattr(each, name) for each in results], np.int64)
        for name in (
            "l1_accesses", "l1_misses", "l2_accesses", "l2_misses", "dram_reads", "dram_writes", "launch_id",
            "simulated_instructions",
        )
    }  # fmt: skip
    own_id = source.column("launches", "launch_id")[executions.launch]
    half = predicted.half_width_cycles[row]
    cycles = predicted.cycles[row]
    names = source.tables["launches"].column("kernel_name").to_pylist()
    columns = [
        to_arrow(own_id),
        text_array([names[each] for each in executions.launch.tolist()]),
        to_arrow(workload.column("phases", "rank")[executions.phase].astype(np.int32)),
        to_arrow(start_ps),
        to_arrow(end_ps),
        to_arrow(cycles),
        to_arrow(np.full(len(row), predicted.latency_cycles, np.int64)),
        to_arrow(source.column("launches", "warp_instructions")[executions.launch]),
        to_arrow(source.column("launches", "thread_instructions")[executions.launch]),
        to_arrow(ratio(number["l1_misses"], number["l1_accesses"])),
        to_arrow(ratio(number["l2_misses"], number["l2_accesses"])),
        *(to_arrow(number[name]) for name in ("l1_accesses", "l1_misses", "l2_accesses", "l2_misses")),
        to_arrow(np.array([each.occupancy for each in results], np.float64)),
        to_arrow(source.column("launches", "blocks")[executions.launch]),
        to_arrow(np.where(number["launch_id"] == own_id, number["simulated_instructions"], 0)),
        *(nullable_array(cycles + sign * half, half == 0) for sign in (-1, 1)),
        pa.DictionaryArray.from_arrays(to_arrow(np.zeros(len(row), np.int8)), text_array([model])),
        to_arrow(number["launch_id"].astype(np.int32)),
        text_array([demangled(names[each]) for each in executions.launch.tolist()]),
        *(to_arrow(source.column("launches", name)[executions.launch].astype(np.int32)) for name in _SHAPE),
        *(nullable_array(number[name].astype(np.int64), number[name] < 0) for name in ("dram_reads", "dram_writes")),
    ]
    return pa.Table.from_arrays(columns, schema=LAUNCHES_SCHEMA)


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """float64: 0 where there is no whole."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _blocks(simulated: list[LaunchResult]) -> pa.Table:
    def joined(name: str) -> np.ndarray:
        return np.concatenate([np.asarray(getattr(each, name), np.int64) for each in simulated])

    ids = np.repeat([each.launch_id for each in simulated], [len(each.block) for each in simulated])
    sm = joined("block_sm")
    columns = [to_arrow(ids.astype(np.int32)), to_arrow(joined("block"))]
    columns.append(nullable_array(sm.astype(np.int32), sm < 0))
    columns += [nullable_array(joined(f"block_{end}"), sm < 0) for end in ("start", "end")]
    columns += [to_arrow(joined(f"block_{what}")) for what in ("warp_instructions", "thread_instructions", "requests")]
    columns.append(to_arrow(joined("block_region").astype(np.int32)))
    return pa.Table.from_arrays(columns, schema=BLOCKS_SCHEMA)


def _ipc(simulated: list[LaunchResult]) -> pa.Table:
    counts = [len(each.ipc_instructions) for each in simulated]
    width = np.repeat([each.bin_cycles for each in simulated], counts).astype(np.int64)
    start = np.concatenate([np.arange(count) for count in counts]) * width
    issued = np.concatenate([each.ipc_instructions for each in simulated]).astype(np.int64)
    most = np.repeat([each.cycles for each in simulated], counts)
    end = np.maximum(np.minimum(start + width, most), start + 1)  # the last bin ends with the launch
    ids = np.repeat([each.launch_id for each in simulated], counts).astype(np.int32)
    columns = [to_arrow(each) for each in (ids, start.astype(np.int64), end.astype(np.int64), issued)]
    columns.append(to_arrow(issued / (end - start)))
    return pa.Table.from_arrays(columns, schema=IPC_SCHEMA)


def _stacks(simulated: list[LaunchResult]) -> pa.Table:
    causes = simulated[0].causes
    stack = np.array([each.stack for each in simulated], np.float64)
    instructions = np.maximum(np.array([each.warp_instructions for each in simulated], np.float64), 1)
    part = np.tile(np.arange(len(causes), dtype=np.int8), len(simulated))
    columns = [
        to_arrow(np.repeat([each.launch_id for each in simulated], len(causes)).astype(np.int32)),
        pa.DictionaryArray.from_arrays(to_arrow(part), text_array(list(causes))),
        to_arrow(stack.ravel()),
        to_arrow((stack / instructions[:, None]).ravel()),
    ]
    return pa.Table.from_arrays(columns, schema=STACKS_SCHEMA)


def _resources(simulated: list[LaunchResult], gpu: Gpu) -> pa.Table:
    """Those that a launch asks nothing of are left out."""
    amount, cycles = resources_of(simulated, gpu)
    launch, resource = np.nonzero(amount > 0)
    whole = np.maximum(np.array([each.cycles for each in simulated], np.float64), 1)
    columns = [
        to_arrow(np.array([each.launch_id for each in simulated], np.int32)[launch]),
        pa.DictionaryArray.from_arrays(to_arrow(resource.astype(np.int8)), text_array(list(NAMES))),
        to_arrow(amount[launch, resource]),
        to_arrow(cycles[launch, resource]),
        to_arrow((cycles / whole[:, None])[launch, resource]),
    ]
    return pa.Table.from_arrays(columns, schema=RESOURCES_SCHEMA)
