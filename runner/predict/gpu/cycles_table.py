"""Tables of what launches took: CSV, or a run's timeline/launches.parquet, with the columns launch_id and cycles."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.errors import UserError


def cycles_table(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Columns ``launch_id`` and ``cycles`` of a table (CSV or Parquet), float64[n] each. Raises UserError."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        table = parquet.read_table(path) if path.suffix == ".parquet" else csv.read_csv(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: is no table of cycles ({str(error).splitlines()[0]})") from None
    number = "launch_id" if "launch_id" in table.column_names else "launch"
    if number not in table.column_names or "cycles" not in table.column_names:
        raise UserError(f"{path}: needs the columns launch_id and cycles; it has {', '.join(table.column_names)}")
    try:
        given, value = (to_numpy(table.column(name).cast(pa.float64())) for name in (number, "cycles"))
    except pa.ArrowException as error:
        raise UserError(f"{path}: launch_id and cycles must be numbers ({str(error).splitlines()[0]})") from None
    return given, value


def cycles_of(path: Path, launch_id: np.ndarray) -> np.ndarray:
    """float64[n] of the launches of a table of cycles."""
    given, value = cycles_table(path)
    order = np.argsort(given, kind="stable")
    at = np.minimum(np.searchsorted(given[order], launch_id), len(given) - 1)
    missing = launch_id[given[order][at] != launch_id] if len(given) else launch_id
    if len(missing):
        raise UserError(f"{path}: has no cycles of launch {missing[0]}; leave it out with --launch, or add its row")
    found = value[order][at]
    if not np.all(found > 0):
        raise UserError(f"{path}: launch {launch_id[np.argmin(found > 0)]} took no cycles; every launch takes some")
    return found
