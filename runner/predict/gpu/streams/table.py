"""What GPUs did, by stream and copy engine: the table ``gpu_streams`` of a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.gpu.device.program import ENGINES
from manyscale.models.workload import Workload
from manyscale.models.workload.columns import text_array, to_arrow
from manyscale.models.workload.gpu_tables import GpuOperationKind

# What takes time, in the order in which it begins. Events and launches that take none have no rows.
STREAMS_SCHEMA: Final = pa.schema(
    [
        pa.field("gpu", pa.int32(), nullable=False),  # number of the GPU in the machine
        pa.field("rank", pa.int32(), nullable=False),  # that gave it to the stream
        pa.field("stream", pa.int64(), nullable=False),  # of the rank
        pa.field("engine", pa.dictionary(pa.int8(), pa.string()), nullable=False),  # SMs, a copy engine, or the network
        pa.field("operation", pa.dictionary(pa.int8(), pa.string()), nullable=False),  # launch, copy_to_device, ...
        pa.field("given_ps", pa.int64(), nullable=False),  # when the host gave it to the stream
        pa.field("start_ps", pa.int64(), nullable=False),  # when it begins
        pa.field("end_ps", pa.int64(), nullable=False),  # when it has ended
        pa.field("bytes", pa.int64(), nullable=False),  # of copies and sets
        pa.field("launch_id", pa.int32(), nullable=False),  # of a launch whose instructions are known, 0 for others
        pa.field("kernel_name", pa.dictionary(pa.int32(), pa.string()), nullable=False),  # of a launch, "" for others
    ]
)
WHERE: Final = ("SMs", *ENGINES, "network")
KINDS: Final = tuple(kind.name for kind in GpuOperationKind)


def stream_table(
    workload: Workload, launch: np.ndarray, arrays: Mapping[str, np.ndarray], kernel: np.ndarray | None = None
) -> pa.Table:
    """``launch`` int64[given]: rows of the table of launches; ``arrays``: the result of the unit that replayed the run
    (run/devices.py). ``kernel`` int[given]: rows of the table of kernels, where launches are theirs."""
    start, end, kind = (arrays[f"given_{name}"] for name in ("start_ps", "end_ps", "kind"))
    rows = np.flatnonzero((start >= 0) & (end > start))
    rows = rows[np.argsort(start[rows], kind="stable")]
    engine = arrays["given_engine"][rows]
    is_launch = kind[rows] == GpuOperationKind.launch
    is_message = kind[rows] == GpuOperationKind.communication
    where = np.where(is_launch, 0, np.where(is_message, len(WHERE) - 1, engine % len(ENGINES) + 1)).astype(np.int8)
    table, of = ("launches", launch) if kernel is None else ("kernels", kernel)
    names, name = np.unique([*workload.tables[table].column("kernel_name").to_pylist(), ""], return_inverse=True)
    number = np.where(is_launch, of[rows], -1)
    ids = np.append(workload.column("launches", "launch_id"), 0)
    columns = [
        to_arrow(arrays["given_gpu"][rows].astype(np.int32)),
        to_arrow(arrays["given_rank"][rows].astype(np.int32)),
        to_arrow(arrays["given_stream"][rows]),
        pa.DictionaryArray.from_arrays(to_arrow(where), text_array(WHERE)),
        pa.DictionaryArray.from_arrays(to_arrow(kind[rows].astype(np.int8)), text_array(KINDS)),
        *(to_arrow(arrays[f"given_{name}_ps"][rows]) for name in ("given", "start", "end")),
        to_arrow(arrays["given_bytes"][rows]),
        to_arrow(ids[number if kernel is None else np.full(len(rows), -1)].astype(np.int32)),
        pa.DictionaryArray.from_arrays(to_arrow(name[number].astype(np.int32)), text_array(names.tolist())),
    ]
    return pa.Table.from_arrays(columns, schema=STREAMS_SCHEMA)
