"""Timelines as Parquet, in ``timeline/``: ranks, messages, critical path, use of links, cores, task instances,
intervals, launches of kernels."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.runner.run.results import Result

_OPTIONAL = (
    "critical_path", "critical_path_links", "links", "cores", "core_calls", "task_instances", "cpi_stacks",
    "intervals", "launches", "blocks", "gpu_ipc", "gpu_cpi_stacks", "gpu_resources", "gpu_lines", "gpu_branches",
    "gpu_streams", "steps", "collectives", "step_path",
)  # fmt: skip
# Times and indices grow steadily within a rank, so their differences pack into few bits.
_STEADY = {"start_ps", "end_ps", "send_ps", "receive_ps", "operation_id", "message_id", "instance_id", "creator_id"}
_STEADY |= {"created_ps", "ready_ps"}


def write(result: Result, directory: Path) -> None:
    """Write the tables; equal tables give equal bytes."""
    folder = directory / "timeline"
    folder.mkdir(exist_ok=True)
    write_table(result.ranks, folder / "ranks.parquet")
    write_table(result.messages, folder / "messages.parquet")
    for name in _OPTIONAL:
        table = getattr(result, name)
        if table is not None:
            write_table(table, folder / f"{name}.parquet")


def write_table(table: pa.Table, path: Path) -> None:
    """One Parquet file with fixed settings."""
    steady = {name: "DELTA_BINARY_PACKED" for name in table.schema.names if name in _STEADY}
    pq.write_table(table, path, compression="lz4", use_dictionary=False, write_statistics=False, column_encoding=steady)
