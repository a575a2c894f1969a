"""The detailed level of programs that are not built again: one process under QEMU or Valgrind.

The program runs twice, as for the other route: the first run's times are the truth, the emulated one gives blocks and
accesses, of the whole program or of one function. Tasks and MPI calls are not told apart in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from manyscale.models.workload import Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.runner.errors import UserError
from manyscale.runner.readers import lackey, qemu_trace
from manyscale.runner.tracers import lackey_route, qemu_route
from manyscale.runner.tracers.launch import Program

ROUTES: Final = ("qemu", "valgrind")
_LEVELS: Final = ("blocks", "instructions", "block_accesses", "segments")


def check(command: Sequence[str], program: Program) -> None:
    """Raises UserError for what the routes cannot run: several processes, or a program inside another command."""
    if program.library is not None or program.words != (0,):
        raise UserError(
            f"{command[0]}: --route {' and '.join(ROUTES)} run one program without MPI and without a launcher; build "
            "it with --flags detailed instead"
        )


def add_detail(
    workload: Workload,
    route: str,
    command: Sequence[str],
    raw: Path,
    function: str | None,
    cache: Path,
    limit: int | None,
) -> tuple[Workload, int]:
    """(the workload with what the emulated run recorded, that run's exit status). ``raw``: an existing folder;
    ``limit``: bytes of the trace."""
    output = raw / "emulated.trace"
    if route == "qemu":
        words = qemu_route.command(command, output, function, cache=cache, limit_bytes=limit)
        environment = qemu_route.ENVIRONMENT
    else:
        words = lackey_route.command(command, output, function)
        environment = lackey_route.ENVIRONMENT
    print(f"manyscale: recording blocks and accesses by {route}", file=sys.stderr, flush=True)
    status = subprocess.run(words, env={**os.environ, **environment}, check=False).returncode
    if not output.is_file():
        raise UserError(f"{output}: {route} left no trace (exit status {status}); does {' '.join(words[:3])} run?")
    if route == "qemu":
        seen = qemu_trace.read(output)
    else:
        entry = None if function is None else lackey_route.entry_address(command, function)
        seen = lackey.read(output, entry=entry)
    tables = {**workload.tables, **{level: seen.tables[level] for level in _LEVELS}}
    if function is not None:  # it is not what precedes an operation, but a part of it
        segments = tables["segments"]
        place = segments.schema.get_field_index("operation_id")
        unknown = to_arrow(np.full(segments.num_rows, -1, np.int32))
        tables["segments"] = segments.set_column(place, segments.schema.field(place), unknown)
    return replace(workload, tables=tables, notes=(*workload.notes, *seen.notes), detail=seen.detail), status
