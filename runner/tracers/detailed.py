"""The detailed level's two runs: where the second one records, and how what it recorded fits the first one's times.

Both runs execute the same program, but not with the same number of tests and probes. So places are told by *positions*:
operations that happen in every run, counted from the start of each rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.iterations import windows
from manyscale.models.workload.notes import Errs, changes
from manyscale.runner.errors import UserError
from manyscale.runner.readers.qemu_trace import ranks as emulated_detail
from manyscale.runner.readers.raw_trace import detail as native_detail
from manyscale.runner.readers.raw_trace.calls import Calls
from manyscale.runner.readers.raw_trace.files import Process, read_processes
from manyscale.runner.readers.raw_trace.mpi_calls import NAMES, UNREPEATED
from manyscale.runner.readers.raw_trace.reader import choose_ranks
from manyscale.runner.readers.raw_trace.task_events import DEPENDENCE, event_ids

_REPEATS = np.array([name not in UNREPEATED for name in NAMES])
_EVER = 2**32 - 1
SLOW_BUILD: Final = changes(
    "times-of-instrumented-run",
    "times are those of a build that counts its blocks, several times as long as without; name this trace by "
    "workload.detail beside one of the usual build (--level tasks)",
    errs=Errs.long,
)


def window_lines(workload: Workload, raw: Path, ranks: Sequence[int], iterations: Sequence[int] | None) -> list[str]:
    """The tracer's windows, one line each: of the ranks the iterations, counted from 1; None: all of the run.

    ``raw``: the first run's trace, that ``workload`` was read from. Raises UserError for ranks or iterations that the
    run did not have.
    """
    beyond = [rank for rank in ranks if rank >= workload.num_ranks]
    if beyond:
        raise UserError(f"--ranks {beyond[0]}: the program has {workload.num_ranks} ranks, counted from 0")
    if iterations is None:
        return [f"o {rank} 0 {_EVER}" for rank in ranks]
    number = workload.column("iterations", "iteration")
    if not len(number):
        raise UserError(
            "no iterations were found in the program; mark them in its source (manyscale.h), or trace all of it with "
            "--iterations all"
        )
    if max(iterations) > int(number.max()) + 1:
        raise UserError(f"--iterations {max(iterations)}: the program has {int(number.max()) + 1} iterations")
    processes, _ = choose_ranks(raw, read_processes(raw))
    sizes = np.diff(workload.rank_offsets)  # shorter than what was recorded where a broken run was trimmed
    repeats = np.concatenate(
        [_positions_of_operations(process)[:size] for process, size in zip(processes, sizes, strict=True)]
    )
    lines = windows(workload, repeats, [each - 1 for each in iterations], ranks)
    if not lines:
        raise UserError(f"--iterations {_listed(iterations)}: none of the chosen ranks has them; choose others")
    return [" ".join(str(word) for word in line) for line in lines]


def check_recorded(workload: Workload, iterations: Sequence[int] | None, regions: str | None) -> None:
    """Raises UserError where the windows held no block of the program."""
    if workload.detail is None or workload.tables["segments"].num_rows:
        return
    chosen = [] if iterations is None else [f"--iterations {_listed(iterations)}"]
    chosen += [] if regions is None else [f"--regions {regions}"]
    others = ", or trace all of it with --iterations all" if iterations is not None else ""
    raise UserError(
        f"{' '.join(chosen) or 'the detailed level'}: nothing was recorded, since no block of what was built with "
        f"coverage ran there; choose others{others}"
    )


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def add_detail(
    workload: Workload, raw: Path, detailed: Path, store: Path, counting: Path | None, *, is_emulated: bool = False
) -> Workload:
    """The workload of the first run (``raw``) with the blocks and accesses that the second one (``detailed``) recorded.

    ``store``: file to write the stream to. ``counting``: the program built for counting instructions, or None.
    ``is_emulated``: the second run was of the same program as the first, under QEMU.
    """
    first, _ = choose_ranks(raw, read_processes(raw))
    second, endings = choose_ranks(detailed, read_processes(detailed))
    if len(first) != len(second):
        raise UserError(f"the program ran with {len(first)} ranks, then with {len(second)}; trace it again")
    tables, stream, notes = (
        emulated_detail.build(second, store) if is_emulated else native_detail.build(second, store, counting)
    )
    segments = tables["segments"]
    operation = segments.column("operation_id").to_numpy().copy()
    event = segments.column("event_id").to_numpy().copy()
    rank_of = segments.column("rank").to_numpy()
    for rank in np.unique(rank_of):
        mine = rank_of == rank
        operation[mine] = _same_place(Calls(second[rank]), Calls(first[rank]), operation[mine])
        if not _same_events(first[rank], second[rank]):
            text = "the runtime system's events differ between the two runs; segments name none"
            notes.append(changes("runs-differ", text, f"rank {rank}"))
            event[mine] = -1
        else:
            event[mine] = _event_ids(second[rank], event[mine])
    for name, column in (("operation_id", operation), ("event_id", event)):
        index = segments.schema.get_field_index(name)
        segments = segments.set_column(index, segments.schema.field(index), to_arrow(column.astype(np.int32)))
    found: dict[str, pa.Table] = {**workload.tables, **tables, "segments": segments}
    of_second = (replace(note, where=f"detailed run, {note.where}".removesuffix(", ")) for note in endings)
    told = (*workload.notes, *of_second, *notes, *(() if is_emulated else (SLOW_BUILD,)))
    return Workload(workload.name, workload.num_ranks, found, told, workload.source_format, stream)


def _positions_of_operations(process: Process) -> np.ndarray:
    """int64[operations of the workload]: 1 for the first operation of each call that happens in every run."""
    calls = Calls(process)
    first = calls.operation_ids()
    counts = np.zeros(int(first[-1]) + 1, np.int64)
    counts[first[:-1][_REPEATS[calls.call]]] = 1
    return counts


def _positions_of_calls(calls: Calls) -> np.ndarray:
    """int64[calls + 1]: positions before each call."""
    return np.append(0, np.cumsum(_REPEATS[calls.call]))


def _same_place(there: Calls, here: Calls, call: np.ndarray) -> np.ndarray:
    """The operations here that follow the places before the calls there: as far behind the last position, if there are
    as many tests."""
    after, before = _positions_of_calls(there), _positions_of_calls(here)
    call = np.minimum(call, len(after) - 1)
    behind = call - np.searchsorted(after, after[call], side="left")
    start = np.searchsorted(before, after[call], side="left")
    end = np.searchsorted(before, after[call], side="right") - 1
    found: np.ndarray = here.operation_ids()[
        np.minimum(np.minimum(start + behind, np.maximum(end, start)), len(before) - 1)
    ]
    return found


def _same_events(first: Process, second: Process) -> bool:
    there, here = (each.events["kind"][each.events["kind"] < DEPENDENCE] for each in (first, second))
    return bool(np.array_equal(there, here))


def _event_ids(process: Process, event: np.ndarray) -> np.ndarray:
    """Rows of the table ``events`` for indices of the process's records."""
    rows = event_ids(process)
    return rows[np.minimum(event, len(rows) - 1)]
