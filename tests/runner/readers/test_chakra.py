"""The Chakra reader: schemas, streams and threads, groups, and errors with file and place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chakra_files import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BROADCAST,
    COLLECTIVE,
    COMPUTE,
    LOAD,
    METADATA,
    RECEIVE,
    REDUCE_SCATTER,
    SEND,
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
from manyscale.models.workload.gpu_step_tables import KernelClass
from manyscale.models.workload.gpu_tables import GpuOperationKind as G
from manyscale.runner.errors import UserError
from manyscale.runner.readers import chakra

US = 1_000_000


def given(workload: Workload, rank: int = 0) -> list[dict[str, Any]]:
    """What a rank gives its GPU, with the kind's name and the operation's row."""
    operations = workload.tables["operations"].to_pylist()
    return [
        {**operations[workload.rank_offsets[rank] + row["operation_id"]], **row, "kind": G(row["kind"]).name,
         "call": operations[workload.rank_offsets[rank] + row["operation_id"]]["kind"]}
        for row in workload.tables["gpu_operations"].to_pylist() if row["rank"] == rank
    ]  # fmt: skip


def kinds(workload: Workload, rank: int = 0) -> list[tuple[str, int, int]]:
    """(kind, thread, stream) of these."""
    return [(row["kind"], row["thread"], row["stream"]) for row in given(workload, rank)]


def codes(workload: Workload) -> set[str]:
    return {note.code for note in workload.notes}


def gpu(id: int, *parents: int, stream: int = 7, micros: int = 5, name: str = "k") -> Node:
    return node(id, COMPUTE, *parents, micros=micros, name=name, is_cpu_op=False, stream=stream)


def cpu(id: int, *parents: int, tid: int = 1, micros: int = 3, type: int = COMPUTE, name: str = "aten::x") -> Node:
    return node(id, type, *parents, micros=micros, name=name, is_cpu_op=True, tid=tid)


def collective(id: int, *parents: int, type: int = ALL_REDUCE, size: int = 4096, **values: object) -> Node:
    return node(id, COLLECTIVE, *parents, is_cpu_op=False, comm_type=type, comm_size=size, **values)


GRAPH = (
    node(1, COMPUTE, micros=7, num_ops=1000, tensor_size=64),
    node(2, COLLECTIVE, 1, comm_type=ALL_GATHER, comm_size=4096),
    node(3, COMPUTE, 2, micros=2),
)


@pytest.mark.parametrize("version", ["0.0.1", "0.0.2", "0.0.3", "0.0.3u", "0.0.4"])
def test_one_graph_in_each_schema(version, tmp_path):
    made = {"0.0.1": trace_1, "0.0.4": trace}.get(version) or (lambda *nodes: old_trace(version, *nodes))
    path = write(tmp_path, made(*GRAPH), made(*GRAPH))
    assert chakra.can_read(path)
    workload = chakra.read(path)
    launch, record, wait, gather = given(workload)[:4]
    assert [row["kind"] for row in given(workload)] == [
        "launch", "record_event", "wait_event", "communication", "record_event", "wait_event", "launch",
        "synchronize_device",
    ]  # fmt: skip
    assert (launch["duration_ps"], launch["stream"]) == (7 * US, record["stream"])
    assert record["event"] == wait["event"] > 0
    assert wait["stream"] == gather["stream"] != launch["stream"]
    assert (gather["call"], gather["receive_bytes"]) == ("allgather", 4096)
    assert workload.tables["kernels"].to_pylist()[0] == {
        "kernel_name": "n", "kernel_class": 0, "precision": "bf16", "flops": 1000.0, "bytes": 64.0,
        "blocks": 0, "block_threads": 0,
    }  # fmt: skip
    assert ("run-times-assumed" in codes(workload)) == (version != "0.0.4")


@pytest.mark.parametrize(
    ("type", "call", "sent", "received"),
    [  # ASTRA-sim counts a rank's input: an all-gather's is its part, the others' the whole (Ring.cc: msg_size)
        (ALL_REDUCE, "allreduce", 4096, 4096),
        (ALL_GATHER, "allgather", 4096, 4096),
        (ALL_TO_ALL, "alltoall", 1024, 1024),
        (REDUCE_SCATTER, "reduce_scatter", 1, 1024),
        (BROADCAST, "bcast", 4096, 4096),
    ],
)
def test_sizes_of_collectives(type, call, sent, received, tmp_path):
    workload = chakra.read(write(tmp_path, *[trace(collective(5, type=type))] * 4))
    rows = [row for row in workload.tables["operations"].to_pylist() if row["kind"] == call]
    assert [(row["bytes"], row["receive_bytes"]) for row in rows] == [(sent, received)] * 4


@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "uint64", "sint64"])
def test_numbers_of_any_kind(kind, tmp_path):
    stored = {"comm_size": kind, "comm_type": kind, "is_cpu_op": "int32"}
    content = trace(collective(5, type=ALL_TO_ALL, size=1 << 20), kinds=stored)
    workload = chakra.read(write(tmp_path, content, content))
    assert given(workload)[0]["call"] == "alltoall"


def test_threads_launch_and_streams_keep_the_order_of_launches(tmp_path):
    """Numbers say another order of kernels than launches do, and these decide."""
    nodes = (cpu(10), gpu(31, 10), cpu(11, 10), gpu(21, 11), cpu(12, 11, 21), cpu(13, 12))
    workload = chakra.read(write(tmp_path, trace(*nodes)))
    names = workload.tables["kernels"].column("kernel_name").to_pylist()
    rows = given(workload)
    assert [row["kind"] for row in rows] == [
        "launch", "launch", "record_event", "synchronize_event", "synchronize_device",
    ]  # fmt: skip
    assert names == ["k"]
    assert {row["stream"] for row in rows[:3]} == {7}
    phases = workload.tables["phases"].to_pylist()
    assert [(each["operation_id"], each["duration_ps"]) for each in phases] == [
        (1, 3 * US), (2, 3 * US), (5, 3 * US), (5, 3 * US),
    ]  # fmt: skip


def test_a_step_was_measured_where_all_nodes_tell_when_they_began(tmp_path):
    """Rank 0 from 100 us to 130 + 20, rank 1 from 104 to 160 + 5; of rank 2 one node tells no start, of rank 3 none."""
    nodes = (((5, 100), (20, 130)), ((5, 104), (5, 160)), ((5, 110), (5, 0)), ((5, 0), (5, 0)))
    content = [
        trace(*(node(1 + at, COMPUTE, micros=took, start=begin) for at, (took, begin) in enumerate(each)))
        for each in nodes
    ]
    workload = chakra.read(write(tmp_path, *content))
    assert workload.tables["measured_steps"].to_pylist() == [
        {"rank": 0, "step": 0, "start_ps": 0, "end_ps": 50 * US},
        {"rank": 1, "step": 0, "start_ps": 4 * US, "end_ps": 65 * US},
    ]


def test_a_busy_stream_goes_on_with_what_was_launched_first(tmp_path):
    """While the first kernel runs two more are launched: 41, and behind it 40. Who waits for 41 goes on first."""
    nodes = (
        cpu(1), gpu(50, 1, micros=100), cpu(2, 1), gpu(41, 2), cpu(3, 2), gpu(40, 3),
        cpu(4, 3, 41), gpu(61, 4, stream=8, name="behind 41"),
        cpu(5, 3, 40, tid=2), gpu(60, 5, stream=8, name="behind 40"),
    )  # fmt: skip
    workload = chakra.read(write(tmp_path, trace(*nodes)))
    names = workload.tables["kernels"].column("kernel_name").to_pylist()
    own = [names[row["kernel_id"]] for row in given(workload) if row["kind"] == "launch" and row["stream"] == 8]
    assert own == ["behind 41", "behind 40"]


def test_threads_signal_each_other(tmp_path):
    nodes = (cpu(1, tid=1), cpu(2, 1, tid=2), gpu(3, 2), cpu(4, 2, 1, tid=1))
    workload = chakra.read(write(tmp_path, trace(*nodes)))
    assert kinds(workload) == [
        ("signal_thread", 0, 0), ("await_thread", 1, 0), ("signal_thread", 1, 0), ("launch", 1, 7),
        ("await_thread", 0, 0), ("signal_thread", 1, 0), ("await_thread", 0, 0), ("synchronize_device", 0, 0),
    ]  # fmt: skip


def test_calls_of_collectives_communicate_nothing(tmp_path):
    nodes = (cpu(1), gpu(2, 1), cpu(3, 1, type=COLLECTIVE, name="c10d::allreduce_"), collective(4, 3, stream=20))
    workload = chakra.read(write(tmp_path, trace(*nodes), trace(*nodes)))
    assert [row["kind"] for row in workload.tables["operations"].to_pylist()].count("allreduce") == 2
    # as in PyTorch, the collective waits for the kernel before it
    kernel, record, wait, both = given(workload)[:4]
    assert [row["kind"] for row in (kernel, record, wait, both)] == [
        "launch", "record_event", "wait_event", "communication",
    ]  # fmt: skip
    assert (record["stream"], wait["stream"], record["event"]) == (7, 20, wait["event"])
    assert {"collectives-of-threads", "streams-joined"} <= codes(workload)


def test_a_collective_takes_what_its_last_member_had(tmp_path):
    ranks = [trace(node(1, COLLECTIVE, micros=micros, comm_type=0, comm_size=8)) for micros in (90, 20, 0)]
    workload = chakra.read(write(tmp_path, *ranks))
    assert [given(workload, rank)[0]["duration_ps"] for rank in range(3)] == [20 * US] * 3


def test_groups_of_a_file_and_of_nodes(tmp_path):
    told = '["[{\\"pg_name\\": \\"9\\", \\"ranks\\": [2, 0]}]"]'
    head = framed(text(1, b"0.0.4"), number(1, 1) + number(3, METADATA) + text(8, text(1, told.encode())))

    def rank(*nodes: Node, own: bool = False) -> bytes:
        return (head if own else framed(text(1, b"0.0.4"))) + framed(*map(message, nodes))

    pair, other = collective(3, pg_name="7"), collective(4, pg_name="9", size=16)
    path = write(tmp_path, rank(pair, other, own=True), rank(pair), rank(other, own=True))
    (path / "t.json").write_text(json.dumps({"7": [0, 1]}))
    workload = chakra.read(path)
    assert workload.tables["communicators"].column("members").to_pylist() == [[0, 1, 2], [0, 1], [2, 0]]
    assert workload.tables["groups"].to_pylist() == [
        {"communicator_id": 1, "group_name": "7"}, {"communicator_id": 2, "group_name": "9"},
    ]  # fmt: skip
    assert "groups-inferred" not in codes(workload)
    (path / "t.json").unlink()
    assert "groups-inferred" in codes(chakra.read(path))


def test_messages_are_on_streams_of_their_own(tmp_path):
    one = trace(node(1, SEND, comm_size=64, comm_dst=1, comm_tag=3), node(2, RECEIVE, comm_size=32, comm_src=1))
    two = trace(node(1, RECEIVE, comm_size=64, comm_src=0, comm_tag=3), node(2, SEND, comm_size=32, comm_dst=0))
    workload = chakra.read(write(tmp_path, one, two))
    sends, receives = given(workload)[:2]
    assert (sends["call"], sends["tag"]) == ("isend", 3)
    assert receives["call"] == "irecv"
    assert sends["stream"] != receives["stream"]
    rows = workload.tables["operations"].to_pylist()
    assert rows[sends["operation_id"]]["peer"] == 1
    behind = rows[sends["operation_id"] + 1]
    assert (behind["kind"], behind["completes"]) == ("waitall", [rows[sends["operation_id"]]["request"]])


def test_receives_do_not_wait_for_sends(tmp_path):
    """Ranks that send round a ring before they receive: MSCCL's programs do."""
    ranks = [
        trace(
            node(1, SEND, comm_size=1 << 20, comm_dst=(rank + 1) % 3),
            node(2, RECEIVE, 1, comm_size=1 << 20, comm_src=(rank + 2) % 3),
            node(3, COMPUTE, 2, micros=1),
        )
        for rank in range(3)
    ]  # fmt: skip
    workload = chakra.read(write(tmp_path, *ranks))
    rows = given(workload)
    assert [row["kind"] for row in rows if row["kind"] != "record_event"] == [
        "communication", "communication", "wait_event", "launch", "synchronize_device",
    ]  # fmt: skip
    assert "receives-early" in codes(workload)


def test_what_is_assumed_is_told(tmp_path):
    nodes = (
        node(1, COMPUTE, 77, is_cpu_op=None, name="gone"),
        node(2, LOAD, tensor_size=512),
        node(3, COLLECTIVE, 1, micros=4, name="mystery"),
        node(4, SEND, comm_size=8, comm_dst=5),
    )
    workload = chakra.read(write(tmp_path, trace(*nodes)))
    assert codes(workload) == {
        "parents-missing", "attributes-empty", "kernels-of-no-time", "memory-as-copies", "communication-unknown",
        "partners-missing", "streams-assumed",
    }  # fmt: skip
    copy = next(row for row in workload.tables["gpu_operations"].to_pylist() if row["kind"] == G.copy_to_device)
    assert copy["bytes"] == 512


def test_kernels_without_times_keep_their_shape(tmp_path):
    workload = chakra.read(write(tmp_path, trace(node(1, COMPUTE, num_ops=10**9, tensor_size=10**6))))
    assert given(workload)[0]["duration_ps"] == -1
    assert workload.tables["kernels"].column("flops").to_pylist() == [1e9]
    named = trace(node(1, COMPUTE, micros=5, name="ampere_sgemm_128x64_nn", is_cpu_op=False))
    (kernel,) = chakra.read(write(tmp_path / "named", named)).tables["kernels"].to_pylist()
    assert (kernel["kernel_class"], kernel["precision"]) == (KernelClass.matrix, "fp32")
    assert "kernels-by-shape" in codes(workload)


def test_the_json_form(tmp_path):
    nodes = [
        {"Id": 1, "Name": "k", "NodeType": 4, "runtime": 5, "is_cpu_op": False, "data_deps": []},
        {"Id": 2, "NodeType": 7, "is_cpu_op": False, "data_deps": [1], "comm_type": 0, "comm_size": 64},
    ]
    for rank in (0, 1):
        (tmp_path / f"t.{rank}.json").write_text(json.dumps({"workload_graph": nodes}))
    assert chakra.can_read(tmp_path)
    assert [row["kind"] for row in given(chakra.read(tmp_path), 1)][::3] == ["launch", "communication"]


def test_ranks_are_those_of_the_files(tmp_path):
    path = write(tmp_path, trace(gpu(1)))
    (path / "t.0.et").rename(path / "t.34.et")
    workload = chakra.read(path)
    assert workload.num_ranks == 1
    assert "ranks-missing" in codes(workload)


def broken(folder: Path, *ranks: bytes) -> str:
    with pytest.raises(UserError) as error:
        chakra.read(write(folder, *ranks))
    line = str(error.value)
    assert "\n" not in line
    assert str(folder) in line
    return line


def test_a_file_that_is_cut_tells_where(tmp_path):
    whole = trace(gpu(1), gpu(2))
    start = len(whole) - len(message(gpu(2))) - 1
    assert re.search(rf"t\.0\.et: byte {start}: .* cut short", broken(tmp_path, whole[:-3]))


def test_unequal_collectives_name_group_ranks_and_the_first_difference(tmp_path):
    own = [collective(each, *([each - 1] if each > 1 else []), pg_name="5") for each in (1, 2, 3)]
    line = broken(tmp_path, trace(*own), trace(*own[:2]))
    assert re.search(r"t\.1\.et: group '5': ranks 0 and 1 make 3 and 2 collectives; .* number 2: all-reduce .*node 3.* "
                     "on rank 0, none on rank 1", line)  # fmt: skip
    other = [own[0], collective(2, 1, type=ALL_GATHER, pg_name="5"), own[2]]
    assert "number 1: all-reduce" in broken(tmp_path / "b", trace(*own), trace(*other))


def test_other_errors_are_one_line(tmp_path):
    path = write(tmp_path / "jobs", trace(gpu(1)))
    (path / "u.0.et").write_bytes(trace(gpu(1)))
    with pytest.raises(UserError, match="several runs: 't', 'u'"):
        chakra.read(path)
    assert "require each other" in broken(tmp_path / "cycle", trace(gpu(1, 2), gpu(2, 1)))
    assert "node 4 stands there twice" in broken(tmp_path / "twice", trace(gpu(4), gpu(4)))
    assert "no node" in broken(tmp_path / "none", trace())
    send = trace(node(1, SEND, comm_size=8, comm_dst=1))
    assert "sends 1 messages" in broken(tmp_path / "alone", send, trace(gpu(1)))
    assert "collective of type 77" in broken(tmp_path / "type", trace(collective(1, type=77)))
    assert "schemas 0.0.1, 0.0.4" in broken(tmp_path / "mixed", trace(*GRAPH), trace_1(*GRAPH))


def test_numbers_that_cannot_be_are_one_line(tmp_path):
    root = trace(collective(1, type=BROADCAST, root_rank=2))
    assert "node 1 has root 2, but there are 2 members" in broken(tmp_path / "root", root, root)
    path = write(tmp_path / "twice", *[trace(collective(1, pg_name="7"))] * 2)
    (path / "t.json").write_text(json.dumps({"7": [0, 1, 1]}))
    with pytest.raises(UserError, match="group '7' has a rank twice"):
        chakra.read(path)
    assert "tensor_size is" in broken(tmp_path / "bytes", trace(node(1, LOAD, tensor_size=2**63 - 1)))
    assert "comm_size is" in broken(tmp_path / "size", trace(collective(1, size=2**63 - 1)))
    long = [gpu(each, micros=3 * 10**12) for each in (1, 2, 3)]
    assert "more than 53 days in all" in broken(tmp_path / "time", trace(*long))


def test_barriers_need_no_size(tmp_path):
    rank = trace(node(1, COLLECTIVE, is_cpu_op=False, comm_type=9))
    assert given(chakra.read(write(tmp_path, rank, rank)))[0]["call"] == "barrier"


def test_copies_without_times_take_those_of_their_bytes(tmp_path):
    name = "Memcpy HtoD (Pageable -> Device)"
    nodes = (gpu(1, micros=0, name=name), node(2, COMPUTE, 1, name=name, is_cpu_op=False, stream=7, tensor_size=64))
    workload = chakra.read(write(tmp_path, trace(*nodes)))
    rows = [row for row in given(workload) if row["kind"] == "copy_to_device"]
    assert [(row["bytes"], row["duration_ps"]) for row in rows] == [(0, 0), (64, -1)]
    assert [note.count for note in workload.notes if note.code == "kernels-of-no-time"] == [1]


def test_lanes_run_in_the_order_of_their_nodes():
    """A wait is left out only where a lane's order, or an earlier wait, says the same."""
    from manyscale.runner.readers.chakra.order import needed

    # lanes: 0 a thread, 1 and 2 streams; nodes 0 1 2 on stream 1, 3 4 5 on stream 2 (3 after 0, 4 after 2, 5 after 1)
    lane, is_cpu = np.array([1, 1, 1, 2, 2, 2]), np.zeros(6, np.bool_)
    first_parent, parent = np.array([0, 0, 0, 0, 1, 2, 3]), np.array([0, 2, 1])
    thread, is_needed = np.zeros(6, np.int64), np.zeros(3, np.uint8)
    needed(lane, is_cpu, first_parent, parent, np.arange(6), thread, is_needed)
    assert is_needed.tolist() == [1, 1, 0]
