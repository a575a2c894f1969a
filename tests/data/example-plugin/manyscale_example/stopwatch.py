"""A format: a line ``stopwatch 1``, and then ``RANK compute MICROSECONDS``, ``RANK send PEER BYTES`` and
``RANK recv PEER BYTES``, those of each rank in the order in which it did them."""

import pyarrow as pa

from manyscale.models.workload import (
    COMMUNICATORS_SCHEMA,
    OPERATIONS_SCHEMA,
    PHASES_SCHEMA,
    REGIONS_SCHEMA,
    Workload,
    WorkloadError,
    informs,
)

NAME = "stopwatch"
HEAD = "stopwatch 1"
US = 1_000_000  # ps
NOTHING = {"peer": -2, "source": -2, "tag": 0, "bytes": 0, "receive_bytes": 0, "communicator_id": 0, "request": -1}


def can_read(path):
    """Whether the first line says so."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.readline(100).strip() == HEAD.encode()


def reads_one_file(path):
    """What is read from one file is kept for the next run."""
    return True


def read(path, options=None):
    """The workload. Raises WorkloadError, with the line, for what is none of the three kinds."""
    operations, phases = {}, {}  # by rank
    with path.open(errors="replace") as file:
        next(file)
        for number, line in enumerate(file, 2):
            try:
                rank, kind, *values = line.split()
                rank, values = int(rank), [int(value) for value in values]
                mine = operations.setdefault(rank, [])
                if kind == "compute":
                    phase = {"operation_id": len(mine), "kind": 0, "region_id": -1, "duration_ps": values[0] * US}
                    phases.setdefault(rank, []).append(phase)
                elif kind in ("send", "recv"):
                    size = {"bytes" if kind == "send" else "receive_bytes": values[1]}
                    mine.append({**NOTHING, "kind": kind, "peer": values[0], **size})
                else:
                    raise ValueError(kind)
            except (ValueError, IndexError):
                raise WorkloadError(f"line {number}: {line.strip()!r} is no compute, send or recv; mend it") from None
    num_ranks = max(operations, default=0) + 1
    for rank in range(num_ranks):
        operations.setdefault(rank, []).append({**NOTHING, "kind": "other"})  # which ends the last phase
    tables = {
        "operations": _table(operations, num_ranks, OPERATIONS_SCHEMA),
        "phases": _table(phases, num_ranks, PHASES_SCHEMA),
        "regions": REGIONS_SCHEMA.empty_table(),
        "communicators": pa.table({"members": [list(range(num_ranks))]}, COMMUNICATORS_SCHEMA),
    }
    note = informs("times-by-hand", "times were taken by hand")
    return Workload(path.name.split(".")[0], num_ranks, tables, (note,), NAME)


def _table(rows, num_ranks, schema):
    """The rows of all ranks, one rank after another."""
    return pa.Table.from_pylist(
        [{"rank": rank, **row} for rank in range(num_ranks) for row in rows.get(rank, [])], schema
    )
