"""Task instances on cores as tracks of the Chrome trace: a process per rank that was chosen, a track per core.

A complete event per row, its name the task type; those of a track never overlap, cut to nanoseconds neither.
"""

from __future__ import annotations

import gzip
import json
from typing import Any, Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.predict.node.tables import codes_and_names
from manyscale.runner.report.text_columns import batches, contents, integers, join, microseconds, picked

_FIRST_PROCESS: Final = 10  # those before are the application, its critical path and its links


def write_cores(file: gzip.GzipFile, cores: pa.Table | None) -> None:
    """A complete event per row, and the names of the tracks; nothing where no cores were simulated."""
    if cores is None or not cores.num_rows:
        return
    names = ("rank", "core", "start_ps", "end_ps", "task_instance_id")
    rank, core, start, end, instance = (to_numpy(cores.column(name)) for name in names)
    (kind, types), (model, models) = (codes_and_names(cores.column(name)) for name in ("task_type", "model"))
    width = int(core.max()) + 1
    known, track = np.unique(rank.astype(np.int64) * width + core, return_inverse=True)
    tracks = [divmod(each, width) for each in known.tolist()]
    head = [f'{{"ph":"X","pid":{_FIRST_PROCESS + owner},"tid":{number + 1},"ts":' for owner, number in tracks]
    called = [f',"name":{json.dumps(name)},"args":{{"task_instance_id":' for name in types]
    tail = [f',"model":{json.dumps(name)}}}}},\n' for name in models]
    for batch in batches(len(rank)):
        text = join(
            picked(head, track[batch]), microseconds(start[batch]),
            ',"dur":', microseconds(end[batch] - start[batch]),
            picked(called, kind[batch]), integers(instance[batch]), picked(tail, model[batch]),
        )  # fmt: skip
        file.write(contents(text))
    events: list[dict[str, Any]] = []
    for owner in dict.fromkeys(owner for owner, _ in tracks):
        common = {"ph": "M", "pid": _FIRST_PROCESS + owner, "tid": 1}
        events.append({**common, "name": "process_name", "args": {"name": f"cores of rank {owner}"}})
        events.append({**common, "name": "process_sort_index", "args": {"sort_index": _FIRST_PROCESS + owner}})
    for owner, number in tracks:
        common = {"ph": "M", "pid": _FIRST_PROCESS + owner, "tid": number + 1}
        events.append({**common, "name": "thread_name", "args": {"name": f"core {number}"}})
        events.append({**common, "name": "thread_sort_index", "args": {"sort_index": number}})
    file.write("".join(json.dumps(event, separators=(",", ":")) + ",\n" for event in events).encode())
