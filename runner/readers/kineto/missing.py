"""Tables of all ranks of a job of which some were not traced: these are there, in their groups, without operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from manyscale.models.workload import COLLECTIVES, COMMUNICATORS_SCHEMA, OPERATIONS_SCHEMA
from manyscale.models.workload.columns import to_arrow, to_numpy

_BY_RANK: Final = ("operations", "phases", "gpu_operations", "steps", "measured_steps", "traced_gpus")
_COUNTS: Final = ("send_counts", "receive_counts")


def with_missing(
    tables: dict[str, pa.Table], numbers: Sequence[int], world: int, groups: Sequence[Sequence[int]]
) -> dict[str, pa.Table]:
    """``tables`` of ranks that were traced, whose ``numbers`` in a job of ``world`` ranks ascend, as those of the job;
    ``groups``: ranks of the job behind the world. Of collectives with a size for each member, which are known for those
    that were traced alone, all have the same."""
    number = np.array(numbers, np.int32)
    found = dict(tables)
    for level in _BY_RANK:
        table = tables[level]
        found[level] = _with(table, "rank", to_arrow(number[to_numpy(table.column("rank"))]))
    operations = found["operations"]
    kind, peer, communicator = (to_numpy(operations.column(name)) for name in ("kind", "peer", "communicator_id"))
    is_message = (peer >= 0) & ~np.isin(kind, COLLECTIVES)
    peer = np.where(is_message, number[np.maximum(peer, 0)], peer)
    members = [list(range(world)), *map(list, groups)]
    here = tables["communicators"].column("members").to_pylist()
    for row in np.flatnonzero((peer >= 0) & ~is_message & (communicator > 0)).tolist():  # roots: places in their groups
        of = communicator[row]
        root = int(number[here[of][peer[row]]])
        peer[row] = members[of].index(root) if root in members[of] else 0
    operations = _with(operations, "peer", to_arrow(peer.astype(np.int32)))
    sizes = np.array([len(each) for each in members])[communicator].tolist()
    for side in _COUNTS:
        lists = operations.column(side).to_pylist()
        if any(lists):
            whole = [each if not each or len(each) == size else [each[0]] * size
                     for each, size in zip(lists, sizes, strict=True)]  # fmt: skip
            operations = _with(operations, side, pa.array(whole, OPERATIONS_SCHEMA.field(side).type))
    kind_of = COMMUNICATORS_SCHEMA.field("members").type
    return found | {
        "operations": operations,
        "communicators": pa.Table.from_arrays([pa.array(members, kind_of)], schema=COMMUNICATORS_SCHEMA),
    }


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), column)
