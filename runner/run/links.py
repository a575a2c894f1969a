"""Use of the network's links in a predicted run: its stored arrays, its table, its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.machine import Network
from manyscale.models.network.critical_path import CriticalPath
from manyscale.models.network.program import Program
from manyscale.models.network.replay.timeline import LinkLoad, Placement
from manyscale.models.network.routes import routes
from manyscale.models.workload.columns import text_array, to_arrow, to_numpy
from manyscale.runner.predict.statistic import Statistic

SCHEMA: Final = pa.schema(
    [
        pa.field("link", pa.dictionary(pa.int32(), pa.string()), nullable=False),  # name of the link, one direction
        pa.field("start_ps", pa.int64(), nullable=False),  # begin of the interval
        pa.field("end_ps", pa.int64(), nullable=False),  # end of the interval
        pa.field("bytes", pa.float64(), nullable=False),  # carried in the interval
        pa.field("utilisation", pa.float64(), nullable=False),  # of the link's capacity from start to end, 0 to 1
    ]
)


# how long the critical path is in transfers over a link
PATH_SCHEMA: Final = pa.schema(
    [
        pa.field("link", pa.string(), nullable=False),  # name of the link, one direction
        pa.field("time_ps", pa.int64(), nullable=False),  # that the path is in transfers over it
    ]
)


def to_arrays(links: LinkLoad | None) -> dict[str, np.ndarray]:
    """Named arrays, as results of work units are stored: links that carried something, and when; none for None."""
    if links is None:
        return {}
    row, interval = np.nonzero(links.bytes)
    used, link = np.unique(row, return_inverse=True)
    names = "\n".join(links.names[i] for i in used.tolist())
    return {
        "link_names": np.frombuffer(names.encode(), np.uint8),
        "link_ps_per_byte": links.ps_per_byte[used],
        "link_interval_ps": np.array([links.interval_ps], np.int64),
        "link_row": link.astype(np.int32),
        "link_interval": interval.astype(np.int32),
        "link_bytes": links.bytes[row, interval],
    }


def path_arrays(path: CriticalPath, program: Program, network: Network, placement: Placement) -> dict[str, np.ndarray]:
    """Named arrays, as results of work units are stored: links of the transfers on a critical path, and how long the
    path is on each; a transfer counts for every link of its route. O(segments x route)."""
    on_message = np.flatnonzero(path.message >= 0)
    message = path.message[on_message]
    source, destination = program.source[message], program.destination[message]
    node = placement.node_of_rank
    ways = routes(network, placement.num_nodes, node[source], node[destination], source == destination)
    hops = np.diff(ways.offsets)[ways.pair_of_message]
    begin = ways.offsets[ways.pair_of_message]
    within = np.arange(int(hops.sum())) - np.repeat(np.cumsum(hops) - hops, hops)
    link = ways.links[np.repeat(begin, hops) + within]
    length = (path.end_ps - path.start_ps)[on_message]
    total = np.zeros(len(ways.link_names), np.int64)
    np.add.at(total, link, np.repeat(length, hops))
    order = np.argsort(-total, kind="stable")
    used = order[total[order] > 0]
    names = "\n".join(ways.link_names[i] for i in used.tolist())
    return {"path_link_names": np.frombuffer(names.encode(), np.uint8), "path_link_ps": total[used]}


def path_table(arrays: Mapping[str, np.ndarray]) -> pa.Table | None:
    """Table of PATH_SCHEMA from the arrays of ``path_arrays``, longest first; None if there are none."""
    if "path_link_ps" not in arrays:
        return None
    names = arrays["path_link_names"].tobytes().decode()
    columns = [text_array(names.split("\n") if names else []), to_arrow(arrays["path_link_ps"])]
    return pa.Table.from_arrays(columns, schema=PATH_SCHEMA)


def links_table(arrays: Mapping[str, np.ndarray], makespan_ps: int) -> pa.Table | None:
    """Table of SCHEMA from the arrays of ``to_arrays``: a row per link and interval in which it carried something, by
    link and time; None if the network's model knows no links. The last interval ends with the run."""
    if "link_bytes" not in arrays:
        return None
    row, interval, carried = (arrays[f"link_{name}"] for name in ("row", "interval", "bytes"))
    length = int(arrays["link_interval_ps"][0])
    start = interval.astype(np.int64) * length
    end = np.maximum(np.minimum(start + length, makespan_ps), start + 1)
    names = arrays["link_names"].tobytes().decode()
    columns = [
        pa.DictionaryArray.from_arrays(to_arrow(row), text_array(names.split("\n") if names else [])),
        to_arrow(start),
        to_arrow(end),
        to_arrow(carried),
        to_arrow(carried * arrays["link_ps_per_byte"][row] / (end - start)),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def link_names(table: pa.Table) -> list[str]:
    """Names of the links that carried something, by the codes of the column ``link``."""
    chunks = table.column("link").chunks
    return [str(name) for name in chunks[0].dictionary.to_pylist()] if chunks else []


def busy_ps(table: pa.Table) -> np.ndarray:
    """float64 per link: how long it would take at full capacity to carry what it carried."""
    length = to_numpy(table.column("end_ps")) - to_numpy(table.column("start_ps"))
    weight = to_numpy(table.column("utilisation")) * length
    return np.bincount(to_numpy(table.column("link")), weight, minlength=len(link_names(table)))


def carried_bytes(table: pa.Table) -> np.ndarray:
    """float64 per link: bytes that it carried."""
    return np.bincount(
        to_numpy(table.column("link")), to_numpy(table.column("bytes")), minlength=len(link_names(table))
    )


def statistics(table: pa.Table | None, makespan_ps: int) -> dict[str, Statistic]:
    """Figures of stats.json; none where links are not known."""
    if table is None:
        return {}
    share = busy_ps(table) / max(makespan_ps, 1)
    return {
        "network.max_link_utilisation": Statistic(
            float(share.max(initial=0.0)),
            "1",
            "ratio",
            "share of its capacity over the makespan that the busiest link used",
        ),
        "network.mean_link_utilisation": Statistic(
            float(share.mean()) if len(share) else 0.0,
            "1",
            "ratio",
            "the same, mean over the links that carried anything",
        ),
    }
