"""Groups of Chakra's traces: order of collectives on several streams, members without files, and what files lack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chakra_files import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    COLLECTIVE,
    COMPUTE,
    METADATA,
    REDUCE_SCATTER,
    Node,
    framed,
    message,
    node,
    number,
    old_trace,
    text,
    trace,
    trace_1,
    write,
)

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Severity
from manyscale.runner.errors import UserError
from manyscale.runner.readers import chakra

US = 1_000_000


def kernel(id: int, *parents: int, stream: int = 7, micros: int = 5) -> Node:
    return node(id, COMPUTE, *parents, micros=micros, is_cpu_op=False, stream=stream)


def collective(id: int, *parents: int, type: int = ALL_REDUCE, size: int = 4096, micros: int = 0, name: str = "n",
               **values: object) -> Node:  # fmt: skip
    return node(id, COLLECTIVE, *parents, micros=micros, name=name, is_cpu_op=False, comm_type=type, comm_size=size,
                **values)  # fmt: skip


def collectives(workload: Workload) -> list[dict[str, int]]:
    """Rows of collectives, with stream and duration."""
    operations = workload.tables["operations"].to_pylist()
    return [
        {**row, **operations[workload.rank_offsets[row["rank"]] + row["operation_id"]]}
        for row in workload.tables["gpu_operations"].to_pylist()
        if operations[workload.rank_offsets[row["rank"]] + row["operation_id"]]["communicator_id"]
        or operations[workload.rank_offsets[row["rank"]] + row["operation_id"]]["kind"] != "other"
    ]


def severities(workload: Workload) -> dict[str, Severity]:
    return {note.code: note.severity for note in workload.notes}


def test_equal_collectives_on_two_streams_belong_together_by_stream(tmp_path: Path) -> None:
    """Kernels of 5 and 100 us stand before them, the other way round on the second rank: that one comes to stream 21
    first."""
    ranks = []
    for first, last in ((5, 100), (100, 5)):
        ranks.append(trace(
            kernel(1, stream=7, micros=first), collective(2, 1, stream=20, micros=30, pg_name="9"),
            kernel(3, stream=8, micros=last), collective(4, 3, stream=21, micros=70, pg_name="9"),
        ))  # fmt: skip
    found = chakra.read(write(tmp_path, *ranks))
    assert {(each["stream"], each["duration_ps"] // US) for each in collectives(found)} == {(20, 30), (21, 70)}
    groups = found.tables["groups"].to_pylist()
    assert [each["group_name"] for each in groups] == ["9", "9"]
    assert found.tables["communicators"]["members"].to_pylist() == [[0, 1]] * 3
    assert "collectives-by-stream" in severities(found)


def test_collectives_of_one_stream_in_another_order_are_told(tmp_path: Path) -> None:
    ranks = [trace(*[collective(at, *([at - 1] if at > 1 else []), stream=20, name=name)
                     for at, name in enumerate(order, 1)]) for order in ("ab", "ba")]  # fmt: skip
    assert severities(chakra.read(write(tmp_path, *ranks)))["collectives-reordered"] == Severity.changes


@pytest.mark.parametrize(("type", "received"), [(ALL_TO_ALL, 1024), (REDUCE_SCATTER, 1024), (ALL_REDUCE, 4096)])
def test_sizes_are_those_of_the_whole_group(tmp_path: Path, type: int, received: int) -> None:
    """Of 4096 bytes and a group of four of which two have files."""
    rank = trace(collective(5, type=type, pg_name="3"))
    path = write(tmp_path, rank, rank)
    (path / "t.json").write_text(json.dumps({"3": [0, 1, 2, 3]}))
    found = chakra.read(path)
    assert [each["receive_bytes"] or each["bytes"] for each in collectives(found)] == [received] * 2
    assert "ranks-missing" in severities(found)


@pytest.mark.parametrize("version", ["0.0.1", "0.0.2", "0.0.3", "0.0.3u", "0.0.4"])
def test_sizes_are_inputs_in_each_schema(tmp_path: Path, version: str) -> None:
    """Numbers of kinds differ between schemas, what is counted does not: comm_size is what a rank hands in."""
    kinds = {ALL_REDUCE: ("allreduce", 4096, 4096), ALL_GATHER: ("allgather", 4096, 4096),
             ALL_TO_ALL: ("alltoall", 1024, 1024), REDUCE_SCATTER: ("reduce_scatter", 1, 1024)}  # fmt: skip
    nodes = [node(at, COLLECTIVE, *([at - 1] if at > 1 else []), comm_type=kind, comm_size=4096)
             for at, kind in enumerate(kinds, 1)]  # fmt: skip
    made = {"0.0.1": trace_1, "0.0.4": trace}.get(version) or (lambda *nodes: old_trace(version, *nodes))
    found = collectives(chakra.read(write(tmp_path, *[made(*nodes)] * 4)))
    assert [(each["kind"], each["bytes"], each["receive_bytes"]) for each in found] == 4 * list(kinds.values())


def test_roots_are_places_in_the_group(tmp_path: Path) -> None:
    """Of ranks 7, 1 and 0, of which the first has no file: root 2 is rank 0, the second one here."""
    rank = trace(collective(5, type=BROADCAST, pg_name="3", root_rank=2))
    path = write(tmp_path, rank, rank)
    (path / "t.json").write_text(json.dumps({"3": [7, 1, 0]}))
    found = chakra.read(path)
    assert found.tables["communicators"]["members"].to_pylist()[1:] == [[1, 0]]
    assert [each["peer"] for each in collectives(found)] == [1, 1]
    (path / "t.json").write_text(json.dumps({"3": [1, 0]}))
    with pytest.raises(UserError, match="node 5 has root 2, but there are 2 members"):
        chakra.read(path)


def test_attributes_without_a_value_are_named(tmp_path: Path) -> None:
    """Without its group's name a collective is of all ranks."""
    rank = trace(collective(5, pg_name=None, comm_tag=None))
    (note,) = (each for each in chakra.read(write(tmp_path, rank, rank)).notes if each.code == "attributes-empty")
    assert (note.severity, note.count) == (Severity.changes, 4)
    assert note.text.endswith(": comm_tag, pg_name")


def test_fields_of_a_later_schema_are_told(tmp_path: Path) -> None:
    later = framed(text(1, b"0.0.9"), message(kernel(1)) + number(77, 3))
    assert severities(chakra.read(write(tmp_path, later)))["schema-unknown"] == Severity.changes


def test_metadata_is_no_parent_that_is_missing(tmp_path: Path) -> None:
    found = chakra.read(write(tmp_path / "a", trace(node(1, METADATA), kernel(2, 1))))
    assert "parents-missing" not in severities(found)
    found = chakra.read(write(tmp_path / "b", trace(node(1, METADATA), kernel(2, 1, 9))))
    assert severities(found)["parents-missing"] == Severity.changes
