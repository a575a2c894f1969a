"""Tables of a result that tell of a kernel's source: lines by what they execute, and branches by how often they part
the threads of a warp. They are of the trace, whatever the target, and count each launch as often as the run makes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.gpu.roofline.waits import spread
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.instruction_details import InstructionDetails
from manyscale.models.workload.launch_trace import Access, StaticInstructions
from manyscale.runner.kernel_names import demangled
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.runner.predict.gpu.mapping import Launches
from manyscale.runner.predict.gpu.predictions import Predictions

# Of all launches of a kernel together, most warp instructions first. An inlined function's instructions count for their
# line in that function. cycles: those of the kernel's CPI stack, spread over its instructions by what each executes and
# asks for (models/gpu/roofline/waits.py); an estimate for all but the cycles of issue.
LINES_SCHEMA: Final = pa.schema(
    [
        pa.field("kernel_name", pa.string(), nullable=False),  # as in the trace
        pa.field("file", pa.string(), nullable=False),  # of the source, as the compiler was given it
        pa.field("line", pa.int32(), nullable=False),  # from 1
        pa.field("warp_instructions", pa.int64(), nullable=False),  # that come from the line
        pa.field("thread_instructions", pa.int64(), nullable=False),  # of all threads that take part
        pa.field("active_threads", pa.float64(), nullable=False),  # mean, of the 32 of a warp
        pa.field("memory_instructions", pa.int64(), nullable=False),  # warp instructions that access memory
        pa.field("cycles", pa.float64()),  # of the kernel's, those for it; null where not simulated
        pa.field("waits_for", pa.string()),  # the part of the CPI stack that most of them are
        pa.field("kernel", pa.string(), nullable=False),  # the kernel's name, demangled
    ]
)
# Branches, calls and returns that were executed, of all launches of a kernel together; those that diverge most first.
BRANCHES_SCHEMA: Final = pa.schema(
    [
        pa.field("kernel_name", pa.string(), nullable=False),  # as in the trace
        pa.field("pc", pa.int64(), nullable=False),  # bytes from the kernel's begin
        pa.field("text", pa.string(), nullable=False),  # the instruction
        pa.field("file", pa.string()),  # of the source; null where it is not known
        pa.field("line", pa.int32()),  # of the source; null where it is not known
        pa.field("executed", pa.int64(), nullable=False),  # by warps
        pa.field("diverged", pa.int64(), nullable=False),  # of these, how often some threads went on elsewhere
        pa.field("active_threads", pa.float64(), nullable=False),  # mean, for which its predicate holds
        pa.field("kernel", pa.string(), nullable=False),  # the kernel's name, demangled
    ]
)
_BRANCHES: Final = frozenset(("BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET"))


@dataclass
class _Kernel:
    """What all launches of the same code come to."""

    name: str
    static: StaticInstructions
    details: InstructionDetails
    executed: np.ndarray
    threads: np.ndarray
    diverged: np.ndarray | None
    causes: tuple[str, ...] = ()
    cycles: np.ndarray | None = None  # float64[static instructions, causes]


def source_tables(launches: Launches, predicted: Predictions | None = None) -> dict[str, pa.Table]:
    """``gpu_lines`` where lines of source are known, and ``gpu_branches`` where divergence is; ``predicted``: how many
    cycles launches take. O(launches x static instructions)."""
    kernels = _kernels(launches, predicted)
    found = {"gpu_lines": _lines(kernels), "gpu_branches": _branches(kernels)}
    return {name: table for name, table in found.items() if table is not None}


def _kernels(launches: Launches, predicted: Predictions | None) -> list[_Kernel]:
    streams, source = launches.source.gpu, launches.source
    if streams is None:
        return []
    times = np.bincount(launches.executions.launch, minlength=source.tables["launches"].num_rows)
    ids = source.column("launches", "launch_id")
    names = source.tables["launches"].column("kernel_name").to_pylist()
    found: dict[tuple[str, bytes], _Kernel] = {}
    cycles_of = {} if predicted is None else _represented(launches, predicted)
    for row in np.flatnonzero(times).tolist():
        known = streams.detailed_counts(int(ids[row]))
        if known is None:
            continue
        counts = known[1]
        kernel = found.get((names[row], known[0]))
        if kernel is None:
            static = streams.instruction_counts(int(ids[row]))[0]
            assert static.details is not None
            none = np.zeros(len(static.pc), np.int64)
            kernel = _Kernel(names[row], static, static.details, none, none, none)
            found[names[row], known[0]] = kernel
        kernel.executed = kernel.executed + times[row] * counts.executed
        kernel.threads = kernel.threads + times[row] * counts.threads
        if counts.diverged is None or kernel.diverged is None:
            kernel.diverged = None
        else:
            kernel.diverged = kernel.diverged + times[row] * counts.diverged
        if int(ids[row]) in cycles_of:
            _add_cycles(kernel, *cycles_of[int(ids[row])])
    return list(found.values())


def _represented(launches: Launches, predicted: Predictions) -> dict[int, tuple[LaunchResult, float]]:
    """By the id of each launch that was simulated: what it came to, and the cycles of all executions that it stands
    for, without latencies."""
    at = np.searchsorted(predicted.plan.row, launches.executions.launch)
    inside = (predicted.cycles[at] - predicted.latency_cycles).tolist()
    found: dict[int, tuple[LaunchResult, float]] = {}
    for place, cycles in zip(at.tolist(), inside, strict=True):
        result = predicted.result[place]
        found[result.launch_id] = result, found.get(result.launch_id, (result, 0.0))[1] + cycles
    return found


def _add_cycles(kernel: _Kernel, result: LaunchResult, cycles: float) -> None:
    if len(result.row_weights) != len(kernel.executed) or not result.cycles:
        return
    own = spread(result.causes, result.stack * (cycles / result.cycles), result.row_weights)
    kernel.causes, kernel.cycles = result.causes, own if kernel.cycles is None else kernel.cycles + own


def _lines(kernels: list[_Kernel]) -> pa.Table | None:
    sums: dict[tuple[str, str, int], np.ndarray] = {}
    cycles: dict[tuple[str, str, int], np.ndarray] = {}
    for kernel in kernels:
        details, reads = kernel.details, kernel.static.access != Access.none
        for row in np.flatnonzero((kernel.executed > 0) & (details.source_file >= 0)).tolist():
            key = (kernel.name, details.files[details.source_file[row]], int(details.source_line[row]))
            executed = int(kernel.executed[row])
            own = np.array([executed, int(kernel.threads[row]), executed * int(reads[row])])
            sums[key] = sums[key] + own if key in sums else own
            if kernel.cycles is not None:
                cycles[key] = cycles.get(key, 0) + kernel.cycles[row]
    if not sums:
        return None
    keys = sorted(sums, key=lambda key: (-int(sums[key][0]), key))
    values = np.array([sums[key] for key in keys], np.int64)
    columns = [text_array([key[0] for key in keys]), text_array([key[1] for key in keys])]
    columns += [to_arrow(np.array([key[2] for key in keys], np.int32)), to_arrow(values[:, 0]), to_arrow(values[:, 1])]
    columns += [to_arrow(values[:, 1] / values[:, 0]), to_arrow(values[:, 2])]
    causes = next((kernel.causes for kernel in kernels if kernel.causes), ())
    columns.append(pa.array([float(cycles[key].sum()) if key in cycles else None for key in keys], pa.float64()))
    most = [causes[int(cycles[key].argmax())] if key in cycles else None for key in keys]
    columns += [pa.array(most, pa.string()), text_array([demangled(key[0]) for key in keys])]
    return pa.Table.from_arrays(columns, schema=LINES_SCHEMA)


def _branches(kernels: list[_Kernel]) -> pa.Table | None:
    rows: list[dict[str, Any]] = []
    known = [kernel for kernel in kernels if kernel.diverged is not None]
    for kernel in known:
        details, roots = kernel.details, [each.split(".")[0] for each in kernel.static.opcodes]
        for row in np.flatnonzero(kernel.executed).tolist():
            if roots[kernel.static.opcode[row]] not in _BRANCHES:
                continue
            file, _, line = details.source(row).rpartition(":")
            executed = int(kernel.executed[row])
            assert kernel.diverged is not None
            rows.append(
                {
                    "kernel_name": kernel.name, "pc": int(kernel.static.pc[row]), "text": details.text[row],
                    "file": file or None, "line": int(line) if line else None, "executed": executed,
                    "diverged": int(kernel.diverged[row]), "active_threads": int(kernel.threads[row]) / executed,
                    "kernel": demangled(kernel.name),
                }
            )  # fmt: skip
    rows.sort(key=lambda row: (-row["diverged"], row["kernel_name"], row["pc"]))
    return pa.Table.from_pylist(rows, schema=BRANCHES_SCHEMA) if known else None
