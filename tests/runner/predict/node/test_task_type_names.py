"""Which task types of two traces of one program are the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from rank_events import Recorder

from manyscale.models.workload import SCHEMAS, Workload
from manyscale.runner.predict.node.task_type_names import same_types

pytestmark = pytest.mark.theory


def traced(*types: tuple[str, str, str, int]) -> Workload:
    record = Recorder()
    record.rows["task_types"] = [
        {"construct": construct, "function": function, "file": file, "line": line, "module": "a", "offset": row}
        for row, (construct, function, file, line) in enumerate(types)
    ]
    record.operation()
    workload = record.workload()
    table = pa.Table.from_pylist(record.rows["task_types"], schema=SCHEMAS["task_types"])
    assert workload.tables["task_types"].equals(table)
    return workload


def test_by_place_by_line_and_in_turn() -> None:
    """f's loops have lost their lines, g has another name, h has one loop more there, k is nowhere, m elsewhere."""
    own = traced(
        ("loop", "f", "a/f.f", 0), ("loop", "f", "a/f.f", 0), ("task", "f", "f.c", 9), ("loop", "g", "g.c", 4),
        ("loop", "h", "", 0), ("loop", "k", "k.c", 1), ("loop", "", "", 0),
        ("single", "m", "m.c", 5),
    )  # fmt: skip
    other = traced(
        ("loop", "h", "h.c", 1), ("loop", "h", "h.c", 2), ("task", "f", "f.c", 9), ("loop", "g.1", "g.c", 4),
        ("loop", "f", "b/f.f", 20), ("loop", "f", "b/f.f", 30), ("loop", "", "", 3),
        ("single", "m", "n.c", 5),
    )  # fmt: skip
    assert same_types(own, other).tolist() == [4, 5, 2, 3, -1, -1, -1, -1]
