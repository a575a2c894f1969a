"""Use of the network's links as counters of the Chrome trace: per cent of the capacity of the most used links, in a
process of its own. A counter keeps its value until the next event, so a link that goes idle is set to 0."""

from __future__ import annotations

import gzip
import json
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload.columns import to_numpy
from manyscale.runner.report.text_columns import batches, contents, integers, join, microseconds, picked
from manyscale.runner.run.links import busy_ps, link_names

MAX_COUNTERS: Final = 32


def write_links(file: gzip.GzipFile, links: pa.Table | None) -> None:
    """Counters of at most MAX_COUNTERS links, the most used first; nothing where links are not known."""
    if links is None:
        return
    names = link_names(links)
    shown = np.argsort(-busy_ps(links), kind="stable")[:MAX_COUNTERS]
    code, start, end, used = (to_numpy(links.column(name)) for name in ("link", "start_ps", "end_ps", "utilisation"))
    rows = np.flatnonzero(np.isin(code, shown))
    code, start, end, used = code[rows], start[rows], end[rows], used[rows]
    follows = np.append((code[1:] == code[:-1]) & (start[1:] == end[:-1]), False)  # rows are sorted by link and time
    # a change per row, and one to zero after each row that no other one follows
    link = np.concatenate((code, code[~follows]))
    time = np.concatenate((start, end[~follows]))
    percent = np.concatenate((np.rint(100 * used), np.zeros(np.count_nonzero(~follows)))).astype(np.int64)
    order = np.lexsort((time, link))
    link, time, percent = link[order], time[order], percent[order]
    head = [f'{{"ph":"C","pid":3,"name":{json.dumps(name)},"ts":' for name in names]
    for batch in batches(len(time)):
        text = join(
            picked(head, link[batch]), microseconds(time[batch]),
            ',"args":{"percent":', integers(percent[batch]), "}},\n",
        )  # fmt: skip
        file.write(contents(text))
    if len(time):
        named = {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "most used links"}}
        file.write((json.dumps(named, separators=(",", ":")) + ",\n").encode())
