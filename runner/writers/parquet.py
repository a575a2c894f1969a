"""Timelines as Parquet, in ``timeline/``: ranks, messages, critical path, use of links, cores, task instances."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from manyscale.runner.results import Result

# Times and indices grow steadily within a rank, so their differences pack into few bits.
_STEADY = {"start_ps", "end_ps", "send_ps", "receive_ps", "operation_id", "message_id"}


def write(result: Result, directory: Path) -> None:
    """Write the tables; equal tables give equal bytes."""
    folder = directory / "timeline"
    folder.mkdir(exist_ok=True)
    write_table(result.ranks, folder / "ranks.parquet")
    write_table(result.messages, folder / "messages.parquet")
    if result.critical_path is not None:
        write_table(result.critical_path, folder / "critical_path.parquet")
    if result.critical_path_links is not None:
        write_table(result.critical_path_links, folder / "critical_path_links.parquet")
    if result.links is not None:
        write_table(result.links, folder / "links.parquet")
    if result.cores is not None:
        write_table(result.cores, folder / "cores.parquet")
    if result.task_instances is not None:
        write_table(result.task_instances, folder / "task_instances.parquet")
    if result.cpi_stacks is not None:
        write_table(result.cpi_stacks, folder / "cpi_stacks.parquet")


def write_table(table: pa.Table, path: Path) -> None:
    """One Parquet file with fixed settings."""
    steady = {name: "DELTA_BINARY_PACKED" for name in table.schema.names if name in _STEADY}
    pq.write_table(table, path, compression="lz4", use_dictionary=False, write_statistics=False, column_encoding=steady)
