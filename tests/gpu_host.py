"""A host that gives launches to streams: at which times, with which priorities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from gpu_launches import workload_of_traces

from manyscale.models.workload import KIND_NAMES, OperationKind, Workload
from manyscale.models.workload.columns import to_arrow
from manyscale.models.workload.gpu_tables import GPU_OPERATIONS_SCHEMA, GpuOperationKind
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.readers import simgrid_ti
from manyscale.runner.readers.cuda.ranks import _phases as with_launches


@dataclass(frozen=True)
class Gives:
    """A launch that the host gives a stream ``after_ps`` behind the one before."""

    trace: LaunchTrace
    stream: int
    priority: int = 0
    after_ps: int = 0


def with_gpus(ranks: Workload, launches: Workload, operations: Sequence[dict[str, Any]]) -> Workload:
    """``operations``: of ranks at their rows ``other``, by rank and row."""
    default = {"stream": 0, "launch_id": 0, "bytes": 0, "event": 0, "device": 0, "peer": -1, "priority": 0, "flags": 0}
    default |= {"thread": 0, "kernel_id": -1, "duration_ps": -1}
    rows = [{**default, **each, "kind": int(each["kind"])} for each in operations]
    table = pa.Table.from_pylist(rows, GPU_OPERATIONS_SCHEMA)
    tables = {**ranks.tables, "launches": launches.tables["launches"], "gpu_operations": table}
    tables |= with_launches(ranks, table, launches.tables["launches"])
    return replace(ranks, tables=tables, gpu=launches.gpu)


def with_other_rows(ranks: Workload) -> Workload:
    """All ``init`` but a rank's first are operations of its GPU."""
    kind = ranks.column("operations", "kind").copy()
    first = np.isin(np.arange(len(kind)), ranks.rank_offsets)
    kind[(kind == OperationKind.init) & ~first] = OperationKind.other
    operations = ranks.tables["operations"]
    at = operations.schema.get_field_index("kind")
    column = pa.DictionaryArray.from_arrays(to_arrow(kind), KIND_NAMES)
    return replace(
        ranks, tables={**ranks.tables, "operations": operations.set_column(at, operations.schema.field(at), column)}
    )


def host_of(folder: Path, *gives: Gives) -> Workload:
    """One rank, which waits for its device at the end. Files are written to ``folder``."""
    lines, operations, row = ["0 init"], [], 1
    for number, each in enumerate(gives, start=1):
        if each.after_ps:
            lines.append(f"0 sleep {each.after_ps * 1e-12!r}")
        lines.append("0 init")
        operations.append(
            {"rank": 0, "operation_id": row, "kind": GpuOperationKind.launch, "stream": each.stream,
             "priority": each.priority, "launch_id": number},
        )  # fmt: skip
        row += 1
    operations.append({"rank": 0, "operation_id": row, "kind": GpuOperationKind.synchronize_device})
    path = folder / "actions.txt"
    path.write_text("\n".join([*lines, "0 init", "0 finalize", ""]))
    return with_gpus(
        with_other_rows(simgrid_ti.read(path)), workload_of_traces(*(each.trace for each in gives)), operations
    )
