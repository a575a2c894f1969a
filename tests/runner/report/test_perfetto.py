"""Chrome trace events: text derived by hand, exact decimals, arrows that lie in the states they tie."""

from __future__ import annotations

import gzip
import json
import logging
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.runner.report import text_columns
from manyscale.runner.report.perfetto import ranks as perfetto
from manyscale.runner.run.results import Result

from . import tiny

# By hand from tiny.two_ranks. The message arrives as rank 1's receive ends, so its arrow ends 2 ns before.
TINY = """\
{"traceEvents":[
{"ph":"X","pid":1,"tid":1,"ts":0.000000,"dur":1.500000,"name":"compute","args":{"operation_id":1,"state":"compute"}},
{"ph":"X","pid":1,"tid":1,"ts":1.500000,"dur":2.500499,"name":"MPI_Wait","args":{"operation_id":2,"state":"wait"}},
{"ph":"X","pid":1,"tid":1,"ts":4.000499,"dur":1.000001,"name":"compute","args":{"operation_id":3,"state":"compute"}},
{"ph":"X","pid":1,"tid":1,"ts":5.000500,"dur":3.999500,"name":"MPI_Allreduce","args":{"operation_id":3,"state":"collective","send_bytes":8,"receive_bytes":8}},
{"ph":"X","pid":1,"tid":2,"ts":0.000000,"dur":1.000000,"name":"compute","args":{"operation_id":1,"state":"compute"}},
{"ph":"X","pid":1,"tid":2,"ts":1.000000,"dur":3.000499,"name":"MPI_Recv","args":{"operation_id":1,"state":"receive","receive_bytes":1000}},
{"ph":"X","pid":1,"tid":2,"ts":4.000499,"dur":4.999501,"name":"MPI_Allreduce","args":{"operation_id":2,"state":"collective","send_bytes":8,"receive_bytes":8}},
{"ph":"X","pid":1,"tid":2,"ts":9.000000,"dur":1.000400,"name":"compute","args":{"operation_id":3,"state":"compute"}},
{"ph":"s","name":"message","cat":"message","pid":1,"tid":1,"id":0,"ts":1.500000,"args":{"bytes":1000,"tag":7}},
{"ph":"f","bp":"e","name":"message","cat":"message","pid":1,"tid":2,"id":0,"ts":3.998499},
{"ph":"M","pid":1,"tid":1,"name":"process_name","args":{"name":"application"}},
{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"rank 0"}},
{"ph":"M","pid":1,"tid":1,"name":"thread_sort_index","args":{"sort_index":0}},
{"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"rank 1"}},
{"ph":"M","pid":1,"tid":2,"name":"thread_sort_index","args":{"sort_index":1}}
],
"""


def read(path: Path) -> dict[str, Any]:
    """The trace, its times as exact decimals."""
    with gzip.open(path, "rt") as file:
        return json.load(file, parse_float=Decimal)


def check(trace: dict[str, Any], result: Result) -> None:
    """Asserts that the events say what the tables say and that every arrow lies in states at both ends."""
    events = trace["traceEvents"]
    spent: Counter[tuple[int, str]] = Counter()
    slices: dict[int, list[tuple[Decimal, Decimal]]] = {}
    for event in events:
        if event["ph"] != "X":
            continue
        assert event["ts"].as_tuple().exponent == event["dur"].as_tuple().exponent == -6
        spent[event["tid"] - 1, event["args"]["state"]] += int(event["dur"] * 10**6)
        slices.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    expected: Counter[tuple[int, str]] = Counter()
    names = ("rank", "state", "start_ps", "end_ps")
    for rank, state, start, end in zip(*(result.ranks.column(name).to_pylist() for name in names), strict=True):
        expected[rank, state] += end - start
    assert spent == expected
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len(begins) + len(ends) == sum(event["ph"] in "sf" for event in events)  # no identity stands twice
    assert begins.keys() == ends.keys()
    assert len(begins) == trace["otherData"]["arrows"]
    rows = {row["message_id"]: row for row in result.messages.to_pylist()}
    for number, begin in begins.items():
        end, row = ends[number], rows[number]
        assert (begin["tid"] - 1, end["tid"] - 1) == (row["source"], row["destination"])
        assert begin["args"] == {"bytes": row["bytes"], "tag": row["tag"]}
        assert end["bp"] == "e"
        assert begin["ts"] <= end["ts"]
        for event, time in ((begin, row["send_ps"]), (end, row["receive_ps"])):
            assert any(start <= event["ts"] < stop for start, stop in slices[event["tid"]])
            assert abs(event["ts"] * 10**6 - time) <= 2000 or time > max(stop for _, stop in slices[event["tid"]])


def written(result: Result, directory: Path) -> dict[str, Any]:
    perfetto.write(result, directory)
    return read(directory / "trace.json.gz")


@pytest.mark.golden
def test_text_derived_by_hand(tmp_path: Path) -> None:
    perfetto.write(tiny.two_ranks(), tmp_path)
    text = gzip.decompress((tmp_path / "trace.json.gz").read_bytes()).decode()
    assert text.startswith(TINY)
    assert read(tmp_path / "trace.json.gz")["otherData"]["left_out"] == []


@pytest.mark.theory
def test_slices_are_named_by_call_and_region(tmp_path: Path) -> None:
    """A gather of 8 B by two ranks: the root takes 16 B; a sendrecv of 4 B for 6 B; compute in a region."""
    load = tiny.workload(
        2,
        [
            tiny.operation(0, "sendrecv", peer=1, source=1, bytes=4, receive_bytes=6),
            tiny.operation(0, "gather", peer=0, bytes=8, receive_bytes=8),
            tiny.operation(1, "sendrecv", peer=0, source=0, bytes=6, receive_bytes=4),
            tiny.operation(1, "gather", peer=0, bytes=8, receive_bytes=8),
        ],
    )
    phase = {"rank": 0, "operation_id": 0, "kind": 0, "region_id": 0, "duration_ps": 5}
    schemas = (load.tables["phases"].schema, load.tables["regions"].schema)
    phases, regions = (pa.Table.from_pylist([row], schema) for row, schema in zip(
        (phase, {"name": 'so"lve'}), schemas, strict=True))  # fmt: skip
    load = replace(load, tables={**load.tables, "phases": phases, "regions": regions})
    ranks = tiny.states([
        (0, 0, 5, "compute", 0), (0, 5, 9, "send", 0), (0, 9, 20, "collective", 1),
        (1, 0, 9, "receive", 0), (1, 9, 20, "collective", 1),
    ])  # fmt: skip
    trace = written(tiny.result(load, ranks, tiny.messages([])), tmp_path)

    slices = [(event["name"], event["args"]) for event in trace["traceEvents"] if event["ph"] == "X"]
    assert slices == [
        ('so"lve', {"operation_id": 0, "state": "compute", "region": 'so"lve'}),
        ("MPI_Sendrecv", {"operation_id": 0, "state": "send", "send_bytes": 4, "receive_bytes": 6, "region": 'so"lve'}),
        ("MPI_Gather", {"operation_id": 1, "state": "collective", "send_bytes": 8, "receive_bytes": 16}),
        ("MPI_Sendrecv", {"operation_id": 0, "state": "receive", "send_bytes": 6, "receive_bytes": 4}),
        ("MPI_Gather", {"operation_id": 1, "state": "collective", "send_bytes": 8}),
    ]


@pytest.mark.contract
def test_equal_results_give_equal_bytes_without_time_or_name(tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        perfetto.write(tiny.random_result(3, 3, 20), tmp_path)
        contents.append((tmp_path / "trace.json.gz").read_bytes())
    assert contents[0] == contents[1]
    # gzip's header (RFC 1952): magic, deflate, no flags (so no name), modification time 0
    assert contents[0][:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"


@pytest.mark.property
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), num_ranks=st.integers(1, 5), num_operations=st.integers(0, 30))
def test_a_trace_says_what_the_tables_say(
    tmp_path_factory: pytest.TempPathFactory, seed: int, num_ranks: int, num_operations: int
) -> None:
    result = tiny.random_result(seed, num_ranks, num_operations)
    check(written(result, tmp_path_factory.mktemp("trace")), result)


@pytest.mark.contract
def test_the_batches_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = tiny.random_result(5, 4, 30)
    whole = written(result, tmp_path)
    assert whole["otherData"]["arrows"] > 1
    monkeypatch.setattr(text_columns, "BATCH_ROWS", 7)
    again = written(result, tmp_path)
    assert sorted(again["traceEvents"], key=str) == sorted(whole["traceEvents"], key=str)


@pytest.mark.contract
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"dur":2.500499', '"dur":5.000998'),
        ('"dur":2.500499', '"dur":2.5005'),
        ('"ts":3.998499', '"ts":0.998499'),  # ends in another state
        ('"ph":"f","bp":"e"', '"ph":"f","bp":"x"'),
        ('"tid":2,"id":0', '"tid":1,"id":0'),  # ends on another rank
        ('"tid":2,"id":0', '"tid":2,"id":1'),  # pairs with nothing
        ('"bytes":1000', '"bytes":2000'),
        ('"state":"receive"', '"state":"wait"'),
    ],
)
def test_the_check_fails_on_a_corrupted_trace(tmp_path: Path, old: str, new: str) -> None:
    result = tiny.two_ranks()
    check(written(result, tmp_path), result)
    path = tmp_path / "trace.json.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    assert text.count(old) == 1
    path.write_bytes(gzip.compress(text.replace(old, new).encode()))
    with pytest.raises(AssertionError):
        check(read(path), result)


@pytest.mark.contract
def test_a_message_that_takes_no_time_is_drawn(tmp_path: Path) -> None:
    load = tiny.workload(2, [tiny.operation(0, "isend", peer=1), tiny.operation(1, "recv", peer=0)])
    ranks = tiny.states([(0, 0, 9_000, "compute", 0), (1, 0, 4_000, "receive", 0), (1, 4_000, 9_000, "compute", 0)])
    result = tiny.result(load, ranks, tiny.messages([(0, 0, 1, 4_000, 4_000, 8, 0, 0)]))
    trace = written(result, tmp_path)
    assert trace["otherData"]["arrows"] == 1
    check(trace, result)


@pytest.mark.contract
def test_what_is_left_out_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load = tiny.workload(2, [tiny.operation(0, "isend", peer=1), tiny.operation(1, "irecv", peer=0)])
    ranks = tiny.states([(0, 0, 9_000, "compute", 0)])  # rank 1 has no states that an arrow could end in
    result = tiny.result(load, ranks, tiny.messages([(0, 0, 1, 4_000, 9_000, 8, 0, 0)]))
    with caplog.at_level(logging.WARNING):
        trace = written(result, tmp_path)
    assert trace["otherData"]["left_out"] == ["no arrow for 1 messages that no two states tie"]
    assert "no arrow for 1 messages" in caplog.text


@pytest.mark.contract
def test_too_many_arrows_are_thinned_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    result = tiny.random_result(5, 4, 40)
    num_messages = result.messages.num_rows
    assert num_messages > 10
    monkeypatch.setattr(perfetto, "MAX_ARROWS", 10)
    step = -(-num_messages // 10)
    with caplog.at_level(logging.WARNING):
        trace = written(result, tmp_path)
    assert trace["otherData"]["left_out"][0] == f"an arrow for one message in {step} of {num_messages}"
    assert all(event["id"] % step == 0 for event in trace["traceEvents"] if event["ph"] == "s")
    assert f"one message in {step}" in caplog.text


@pytest.mark.theory
def test_microseconds_are_exact() -> None:
    times = np.array([0, 1, 999_999, 1_000_000, 2**62, 10**15 + 1])
    expected = ["0.000000", "0.000001", "0.999999", "1.000000", "4611686018427.387904", "1000000000.000001"]
    assert text_columns.microseconds(times).to_pylist() == expected
