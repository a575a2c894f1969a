"""Runs whose launches stand in streams: hosts, copies, messages and launches in one time.

A launch takes a cycle for each instruction of its longest block, and its launch latency of 5,000 cycles; a cycle is 1 /
1,132 us. Copies take 8 us, and a byte 40 ps (25 GB/s).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_host import with_gpus, with_other_rows
from gpu_launches import Launch, gpu_workload

from manyscale.models.gpu.parameters import Gpu
from manyscale.models.network.coupled.joined import MODELS
from manyscale.models.workload import Workload
from manyscale.models.workload.gpu_tables import GpuFlag, GpuOperationKind
from manyscale.models.workload.launch_trace import LaunchTrace
from manyscale.runner.predict.gpu import models
from manyscale.runner.predict.gpu.launch_results import LaunchResult
from manyscale.runner.predict.gpu.streams.joins import NETWORKS
from manyscale.runner.readers import simgrid_ti

G = GpuOperationKind
CYCLE = 1e12 / 1132e6
US = 1_000_000
COPY = 8 * US
NETWORK = {"latency": "1 us", "bandwidth": "1 GB/s", "eager_threshold": "1 MiB", "topology": None,
           "intra_node": {"latency": "1 us", "bandwidth": "1 GB/s"}}  # fmt: skip


def of_longest_block(
    launches: Iterable[LaunchTrace], before: Iterable[LaunchTrace], gpu: Gpu, *_: Any
) -> list[LaunchResult]:
    """All blocks at once, each an instruction a cycle."""
    results = []
    for trace in launches:
        size = np.diff(trace.warp_instructions)
        block = np.arange(trace.num_blocks)
        results.append(
            LaunchResult(
                launch_id=trace.launch_id, cycles=int(size.max()), warp_instructions=trace.num_instructions,
                simulated_instructions=trace.num_instructions, causes=("issue",),
                stack=np.array([float(size.max())]), block=block, block_sm=block % gpu.sms, block_start=0 * block,
                block_end=size,
            )
        )  # fmt: skip
    return results


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.Detailed, "simulate", staticmethod(of_longest_block))
    monkeypatch.setattr(models.Detailed, "version", staticmethod(lambda: -2))
    monkeypatch.delattr(models.Detailed, "runs_together")


def cycles(count: int) -> int:
    return round((5000 + count) * CYCLE)


def ranks_of(write_trace, *texts: str) -> Workload:
    """One text a rank; ``gpu`` is a row for an operation of its GPU."""
    lines = {
        rank: ["init", *(line.strip().replace("gpu", "init") for line in text.split(";")), "finalize"]
        for rank, text in enumerate(texts)
    }
    return with_other_rows(simgrid_ti.read(write_trace(lines)))


@pytest.mark.theory
def test_launches_of_two_streams_that_fit_together(run_launches):
    """A trace that tells streams alone, of launches of one block each: the longer of the two, and not their sum."""
    workload = gpu_workload(Launch("a", (1000,), stream=1), Launch("b", (3000,), stream=2))
    result = run_launches(workload)
    assert result.statistics["application.makespan"].value * 1e12 == pytest.approx(cycles(3000), abs=1)
    assert result.statistics["gpu.overlap_ratio"].value == pytest.approx(1 / 3, abs=1e-3)
    codes = {note.code for note in result.notes}
    assert {"launches-overlap", "streams-at-once"} <= codes
    assert "streams" not in codes
    table = result.gpu_streams.to_pylist()
    assert [(row["operation"], row["engine"], row["stream"], row["launch_id"]) for row in table] == [
        ("launch", "SMs", 1, 1), ("launch", "SMs", 2, 2),
    ]  # fmt: skip
    assert [row["end_ps"] for row in table] == [row["end_ps"] for row in result.launches.to_pylist()]


def test_streams_are_replayed_with_every_network_that_can_wait_for_them():
    """The one tuple is read before anything is loaded that replays."""
    assert set(NETWORKS) == set(MODELS)


def test_a_network_that_knows_no_streams_says_so(run_launches):
    workload = gpu_workload(Launch("a", (1000,), stream=1), Launch("b", (3000,), stream=2))
    result = run_launches(workload, model={"network": "loggops"})
    assert result.statistics["application.makespan"].value * 1e12 == pytest.approx(cycles(1000) + cycles(3000), abs=2)
    assert "streams" in {note.code for note in result.notes}
    assert result.gpu_streams is None


LAUNCHES = gpu_workload(Launch("a", (50_000,)), Launch("a", (50_000,)))
A = cycles(50_000)  # 48.6 us


def target(nodes: int, **gpus: Any) -> dict[str, Any]:
    return {
        "target": {"name": "rtx3070", "nodes": nodes, "network": NETWORK, **gpus},
        "mapping": {"ranks_per_node": 2 // nodes},
    }


def message(size: int) -> int:
    return US + 1000 * size


@pytest.mark.theory
def test_a_message_that_a_kernel_hides(write_trace, run_launches):
    """Each rank launches, exchanges, and waits for its launch: the longer of the two; then it copies 25,000 B back."""
    exchange = "gpu; {0}; gpu; gpu"
    ranks = ranks_of(write_trace, exchange.format("send 1 0 30000 6"), exchange.format("recv 0 0 30000 6"))
    operations = [
        each
        for rank in range(2)
        for each in (
            {"rank": rank, "operation_id": 1, "kind": G.launch, "stream": 1, "launch_id": 1 + rank},
            {"rank": rank, "operation_id": 3, "kind": G.synchronize_stream, "stream": 1},
            {"rank": rank, "operation_id": 4, "kind": G.copy_to_host, "bytes": 25_000, "flags": GpuFlag.waits},
        )
    ]
    result = run_launches(with_gpus(ranks, LAUNCHES, operations), **target(2))
    assert message(30_000) < A
    assert result.statistics["application.makespan"].value * 1e12 == A + COPY + 25_000 * 40
    assert result.statistics["gpu.copy_time"].value * 1e12 == pytest.approx(2 * (COPY + US))
    codes = {note.code for note in result.notes}
    assert not codes & {"copies", "streams", "launches-of-ranks", "shared-gpus", "ranks-in-turn", "launches-overlap"}
    spent = {(row["rank"], row["state"]): row["end_ps"] - row["start_ps"] for row in result.ranks.to_pylist()}
    assert spent[1, "receive"] == message(30_000)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("gpus", "options", "expected"), [(2, {}, A), (1, {}, 2 * A - round(5000 * CYCLE)), (1, {"mps": True}, A)]
)
def test_ranks_of_a_node_own_a_gpu_take_turns_or_share_it(write_trace, run_launches, gpus, options, expected):
    ranks = ranks_of(write_trace, "gpu; gpu", "gpu; gpu")
    operations = [
        each
        for rank in range(2)
        for each in (
            {"rank": rank, "operation_id": 1, "kind": G.launch, "launch_id": 1 + rank},
            {"rank": rank, "operation_id": 2, "kind": G.synchronize_device},
        )
    ]
    result = run_launches(with_gpus(ranks, LAUNCHES, operations), **target(1, node={"gpus": gpus}), gpu=options)
    assert result.statistics["application.makespan"].value * 1e12 == pytest.approx(expected, abs=2)
    assert ("ranks-in-turn" in {note.code for note in result.notes}) == (gpus == 1 and not options)
    assert len(set(result.gpu_streams.column("gpu").to_pylist())) == gpus


@pytest.mark.theory
def test_a_communication_of_a_stream_begins_when_all_ranks_come_to_it(write_trace, run_launches):
    """Rank 0 launches, then both communicate in their streams; what rank 1 does in another stream goes on meanwhile."""
    ranks = ranks_of(write_trace, "gpu; barrier; gpu", "gpu; barrier; gpu")
    operations = [
        {"rank": 0, "operation_id": 1, "kind": G.launch, "launch_id": 1, "stream": 1},
        {"rank": 0, "operation_id": 2, "kind": G.communication, "stream": 1},
        {"rank": 0, "operation_id": 3, "kind": G.synchronize_stream, "stream": 1},
        {"rank": 1, "operation_id": 1, "kind": G.copy_to_device, "bytes": 1, "stream": 2},
        {"rank": 1, "operation_id": 2, "kind": G.communication, "stream": 1},
        {"rank": 1, "operation_id": 3, "kind": G.synchronize_stream, "stream": 2},
    ]
    launches = replace(LAUNCHES, tables={**LAUNCHES.tables, "launches": LAUNCHES.tables["launches"].slice(0, 1)})
    result = run_launches(with_gpus(ranks, launches, operations), **target(2))
    table = {(row["rank"], row["operation"]): row for row in result.gpu_streams.to_pylist()}
    assert table[1, "communication"]["start_ps"] == 0
    assert table[1, "communication"]["end_ps"] == A + US  # an empty message
    assert table[1, "communication"]["engine"] == "network"
    assert result.statistics["application.makespan"].value * 1e12 == A + US
    waits = [row["end_ps"] for row in result.ranks.to_pylist() if row["rank"] == 1]
    assert waits[0] == COPY + 40  # it waits for its copy alone


@pytest.mark.parametrize("network", ["flow", "dimemas"])
def test_other_networks_wait_for_gpus_too(write_trace, run_launches, network):
    ranks = ranks_of(write_trace, "gpu; send 1 0 30000 6; gpu", "recv 0 0 30000 6")
    operations = [
        {"rank": 0, "operation_id": 1, "kind": G.launch, "launch_id": 1, "stream": 1},
        {"rank": 0, "operation_id": 3, "kind": G.synchronize_stream, "stream": 1},
    ]
    launches = replace(LAUNCHES, tables={**LAUNCHES.tables, "launches": LAUNCHES.tables["launches"].slice(0, 1)})
    study = target(2)
    study["target"]["network"] = {**NETWORK, "topology": {"kind": "crossbar"}}
    result = run_launches(with_gpus(ranks, launches, operations), **study, model={"network": network})
    assert result.statistics["application.makespan"].value * 1e12 == A
    assert result.messages.num_rows == 1


def test_timelines_have_a_track_for_each_stream_and_engine(write_trace, run_launches, tmp_path):
    """In Perfetto's and Paraver's files; slices of a track do not overlap."""
    ranks = ranks_of(write_trace, "gpu; gpu; gpu; gpu")
    operations = [
        {"rank": 0, "operation_id": 1, "kind": G.launch, "stream": 1, "launch_id": 1},
        {"rank": 0, "operation_id": 2, "kind": G.launch, "stream": 2, "launch_id": 2},
        {"rank": 0, "operation_id": 3, "kind": G.copy_to_host, "stream": 2, "bytes": 50},
        {"rank": 0, "operation_id": 4, "kind": G.synchronize_device},
    ]
    run_launches(with_gpus(ranks, LAUNCHES, operations), report=True)
    with gzip.open(tmp_path / "out" / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["pid"] == 5 and e["name"] == "thread_name"}
    slices = [e for e in events if e["pid"] == 5 and e["ph"] == "X"]
    expected = {
        "GPU 0, stream 1": [("a", 1, 0)],
        "GPU 0, stream 2": [("a", 2, 0), ("copy_to_host", 0, 50)],
        "GPU 0, copies to the host": [("copy_to_host", 0, 50)],
    }
    found: dict[str, list[tuple[str, int, int]]] = {name: [] for name in names.values()}
    for each in slices:
        found[names[each["tid"]]].append((each["name"], each["args"]["launch_id"], each["args"]["bytes"]))
    assert found == expected
    rows = (tmp_path / "out" / "trace.row").read_text().splitlines()
    assert rows[2:5] == list(expected)
    assert "1.node0" in rows[1]


@pytest.mark.theory
@pytest.mark.parametrize(
    ("gpus", "on_device", "network"),
    [(2, True, "latency-bandwidth"), (2, True, "flow"), (2, True, "dimemas"), (1, True, "latency-bandwidth"),
     (2, False, "latency-bandwidth")],
)  # fmt: skip
def test_a_message_between_gpus_of_a_node_goes_over_their_link(write_trace, run_launches, gpus, on_device, network):
    """MPI's latency inside a node, the link's 2 us and 20 GB/s; on one GPU its DRAM, read and written; the host's
    memory for buffers there, and under a network that knows links of its own alone, which a note tells."""
    size = 40_000
    ranks = ranks_of(write_trace, f"gpu; gpu; send 1 0 {size} 6", f"gpu; gpu; recv 0 0 {size} 6")
    operations = [
        each
        for rank in range(2)
        for each in (
            {"rank": rank, "operation_id": 1, "kind": G.launch, "launch_id": 1 + rank},
            {"rank": rank, "operation_id": 2, "kind": G.synchronize_device},
            *([{"rank": rank, "operation_id": 3, "kind": G.device_buffer}] if on_device else []),
        )
    ]
    node = {"gpus": gpus, "gpu": {"peer_link": {"bandwidth": "20 GB/s", "latency": "2 us"}}}
    study = target(1, node=node)
    study["target"]["network"] = NETWORK | {"topology": {"kind": "crossbar"}}
    result = run_launches(
        with_gpus(ranks, LAUNCHES, operations), **study, gpu={"mps": True}, model={"network": network}
    )
    row = result.messages.to_pylist()[0]
    took = {(2, True): 2 * US + size * 50, (1, True): round(2 * size / 448.064e9 * 1e12), (2, False): size * 1000}
    knows = network == "latency-bandwidth"
    behind = 0 if network == "dimemas" else US  # there a message is sent behind its latency
    assert row["receive_ps"] - row["send_ps"] == behind + took[gpus, on_device and knows]
    assert [note.count for note in result.notes if note.code == "gpu-messages-as-hosts"] == ([] if knows else [1])
    beside = [note.count for note in result.notes if note.code == "messages-beside-copies"]
    assert beside == ([1] if knows and on_device else [])
    assert "gpu-of-messages" not in {note.code for note in result.notes}


@pytest.mark.theory
def test_the_gpu_of_a_message_is_a_guess_where_its_rank_uses_several(write_trace, run_launches):
    """Rank 0 gives GPU 0 a launch, then GPU 1 an event; rank 1 uses GPU 1 alone. The message goes from the first to the
    other."""
    size = 40_000
    ranks = ranks_of(write_trace, f"gpu; gpu; gpu; send 1 0 {size} 6", f"gpu; gpu; gpu; recv 0 0 {size} 6")
    operations = [
        each
        for rank in range(2)
        for each in (
            {"rank": rank, "operation_id": 1, "kind": G.launch, "launch_id": 1 + rank, "device": rank},
            {"rank": rank, "operation_id": 2, "kind": G.record_event, "event": 1, "device": 1},
            {"rank": rank, "operation_id": 3, "kind": G.synchronize_device, "device": rank},
            {"rank": rank, "operation_id": 4, "kind": G.device_buffer},
        )
    ]
    node = {"gpus": 2, "gpu": {"peer_link": {"bandwidth": "20 GB/s", "latency": "2 us"}}}
    result = run_launches(with_gpus(ranks, LAUNCHES, operations), **target(1, node=node))
    row = result.messages.to_pylist()[0]
    assert row["receive_ps"] - row["send_ps"] == US + 2 * US + size * 50
    assert [note.count for note in result.notes if note.code == "gpu-of-messages"] == [1]


@pytest.mark.parametrize("has_host", [True, False])
def test_an_interval_of_cycles_is_none_of_the_time_where_hosts_come_between(
    write_trace, run_launches, monkeypatch, has_host
):
    """Blocks were sampled, and a host gave the launches to streams."""

    def sampled(*arguments: Any) -> list[LaunchResult]:
        return [replace(each, half_width=0.1) for each in of_longest_block(*arguments)]

    monkeypatch.setattr(models.Detailed, "simulate", staticmethod(sampled))
    monkeypatch.setattr(models.Detailed, "version", staticmethod(lambda: -3))
    operations = [
        {"rank": 0, "operation_id": 1, "kind": G.launch, "stream": 1, "launch_id": 1},
        {"rank": 0, "operation_id": 2, "kind": G.launch, "stream": 2, "launch_id": 2},
        {"rank": 0, "operation_id": 3, "kind": G.synchronize_device},
    ]
    workload = with_gpus(ranks_of(write_trace, "gpu; gpu; gpu"), LAUNCHES, operations) if has_host else LAUNCHES
    result = run_launches(workload)
    assert result.statistics["gpu.cycles"].ci_low is not None
    assert (result.statistics["application.makespan"].ci_low is None) == has_host
    notes = [note.text for note in result.notes if note.code == "sample-without-interval"]
    assert len(notes) == has_host
    assert all("the time of the run has none" in text for text in notes)
