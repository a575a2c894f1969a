"""Cores in Perfetto's and Paraver's timelines: text derived by hand, and traces taken apart again."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import paraver_check
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.runner.predict.node.tables import CORE_CALLS_SCHEMA, MODELS, cores_table, task_instances_table
from manyscale.runner.readers import paraver as paraver_reader
from manyscale.runner.report import text_columns
from manyscale.runner.report.paraver import ranks as paraver
from manyscale.runner.report.perfetto import ranks as perfetto
from manyscale.runner.run.results import Result

from . import tiny

NAMES = ['solve"fast"', "sweep", "initial"]
# Of tiny.two_ranks: in rank 0's first compute core 0 executes two instances and core 2 one; in rank 1's last one core 1
# executes a chunk, so that core 0 schedules before. Times in ps.
IN_COMPUTE = [
    (0, 0, 0, 1_000_000, 0, -1, "burst"),
    (0, 0, 1_000_000, 1_500_000, 3, 0, "detailed"),
    (0, 2, 1_000_001, 1_000_301, 4, 1, "detailed"),  # less than half a nanosecond
    (1, 1, 9_200_000, 10_000_400, -1, 1, "burst"),
]
CREATORS = [-1, 0, 0, 2]
CREATED = [0, 500_000, 250_000, 1_000_100]
READY = [0, 1_000_000, 250_000, 1_000_100]

TRACK = """\
{"ph":"X","pid":10,"tid":2,"ts":0.000000,"dur":1.000000,"name":"initial","args":{"instance_id":0,"task_instance_id":0,"creator_id":-1,"created_us":0.000000,"ready_us":0.000000,"model":"burst"}},
{"ph":"X","pid":10,"tid":2,"ts":1.000000,"dur":0.500000,"name":"solve\\"fast\\"","args":{"instance_id":1,"task_instance_id":3,"creator_id":0,"created_us":0.500000,"ready_us":1.000000,"model":"detailed","instructions":800,"cycles":1000,"l1_misses":10,"ipc":0.800}},
{"ph":"X","pid":10,"tid":4,"ts":1.000001,"dur":0.000300,"name":"sweep","args":{"instance_id":2,"task_instance_id":4,"creator_id":0,"created_us":0.250000,"ready_us":0.250000,"model":"detailed"}},
{"ph":"X","pid":11,"tid":3,"ts":9.200000,"dur":0.800400,"name":"sweep","args":{"instance_id":3,"task_instance_id":-1,"creator_id":2,"created_us":1.000100,"ready_us":1.000100,"model":"burst"}},
"""

# Of the same rows, all of them bursts. Arrows begin where instances are created, but 2 ns before the creator's end,
# lest a viewer's cut lose them; the third creator is shorter than that.
ARROWS = """\
{"ph":"s","name":"creation","cat":"creation","pid":10,"tid":2,"id":1,"ts":0.500000},
{"ph":"f","bp":"e","name":"creation","cat":"creation","pid":10,"tid":2,"id":1,"ts":1.000000},
{"ph":"s","name":"creation","cat":"creation","pid":10,"tid":2,"id":2,"ts":0.250000},
{"ph":"f","bp":"e","name":"creation","cat":"creation","pid":10,"tid":4,"id":2,"ts":1.000001},
{"ph":"s","name":"creation","cat":"creation","pid":10,"tid":4,"id":3,"ts":1.000001},
{"ph":"f","bp":"e","name":"creation","cat":"creation","pid":11,"tid":3,"id":3,"ts":9.200000},
"""

TRACKS = [
    (10, 1, "rank 0", "MPI and computing"), (11, 1, "rank 1", "MPI and computing"), (10, 2, "rank 0", "core 0"),
    (10, 4, "rank 0", "core 2"), (11, 3, "rank 1", "core 1"),
]  # fmt: skip

# Rank 1 is on the first node, its two cores are CPUs 1 and 2; rank 0's three are CPUs 3 to 5. At equal times states
# come first, then MPI, then the end of one instance, then the begin of the next; instance 4 rounds to nothing.
PRV = """\
#Paraver (01/01/2000 at 00:00):10000_ns:2(2,3):1:2(3:2,2:1),1
c:1:1:2:1:2
1:1:1:2:1:0:1000:1
1:3:1:1:1:0:1000:1
2:3:1:1:1:0:50000003:31
2:3:1:1:1:0:50000003:0
2:1:1:2:1:0:50000003:31
2:1:1:2:1:0:50000003:0
2:3:1:1:1:0:60000023:3:60000028:1:63910001:0:63910004:0:63910005:0:63910002:1
1:1:1:2:1:1000:4000:3
1:3:1:1:1:1000:1500:1
2:1:1:2:1:1000:50000001:2
2:3:1:1:1:1000:60000023:0:60000028:0:63910001:0:63910004:0:63910005:0:63910002:0:63910003:0
2:3:1:1:1:1000:60000023:1:60000028:2:63910001:1:63910004:500:63910005:0:63910002:3:63910003:800:42000050:0:42000059:0:42000000:0
1:3:1:1:1:1500:4000:8
2:3:1:1:1:1500:50000001:3
2:3:1:1:1:1500:50000001:0
2:3:1:1:1:1500:50000001:5
2:3:1:1:1:1500:60000023:0:60000028:0:63910001:0:63910004:0:63910005:0:63910002:0:63910003:0:42000050:800:42000059:1000:42000000:10
3:3:1:1:1:1500:1500:1:1:2:1:1000:4000:1000:7
1:3:1:1:1:4000:5001:1
1:1:1:2:1:4000:9000:13
2:3:1:1:1:4000:50000001:0
2:1:1:2:1:4000:50000001:0
2:1:1:2:1:4000:50000002:10:50100001:8:50100002:8:50100004:1
1:3:1:1:1:5001:9000:13
2:3:1:1:1:5001:50000002:10:50100001:8:50100002:8:50100004:1
1:1:1:2:1:9000:9200:7
2:3:1:1:1:9000:50000002:0
2:3:1:1:1:9000:50000003:32
2:3:1:1:1:9000:50000003:0
2:1:1:2:1:9000:50000002:0
1:2:1:2:2:9200:10000:1
2:2:1:2:2:9200:60000023:2:60000028:4:63910001:3:63910004:8200:63910005:8200:63910002:1
2:1:1:2:1:10000:50000003:32
2:1:1:2:1:10000:50000003:0
2:2:1:2:2:10000:60000023:0:60000028:0:63910001:0:63910004:0:63910005:0:63910002:0:63910003:0
"""

ROW = """\
LEVEL CPU SIZE 5
1.node2
2.node2
3.node5
4.node5
5.node5

LEVEL NODE SIZE 2
node2
node5

LEVEL THREAD SIZE 5
THREAD 1.1.1
THREAD 1.1.2
THREAD 1.1.3
THREAD 1.2.1
THREAD 1.2.2
"""


def table(rows: list[tuple[Any, ...]], creators: list[int] | None = None) -> pa.Table:
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(6)]
    model, number = np.array([MODELS.index(row[6]) for row in rows], np.int64), np.arange(len(rows))
    creator = np.array(creators or [-1] * len(rows), np.int64)
    since = (np.array(each) if creators else np.full(len(rows), -1) for each in (CREATED, READY))
    return cores_table(NAMES, *columns, model, number, creator, *since)


def counted() -> pa.Table:
    """What is known of the second row of IN_COMPUTE."""
    numbers = (0, 0, 3, 0, 800, 1000.0, 10, 2, MODELS.index("detailed"), 5, 1, 0, 0)
    times = (1_000_000, 1_500_000, 500_000, 1_000_000)
    return task_instances_table(NAMES, *(np.array([each]) for each in (*numbers, *times)))


def of_five(rows: list[tuple[Any, ...]]) -> Result:
    """Five ranks that compute for 20 ns each, and then wait for each other."""
    load = tiny.workload(5, [tiny.operation(rank, "barrier") for rank in range(5)])
    of_rank = ((0, 20_000, "compute", 0), (20_000, 30_000, "collective", 0))
    states = tiny.states([(rank, *each) for rank in range(5) for each in of_rank])
    return tiny.result(load, states, tiny.messages([]), cores=table(rows))


def in_perfetto(result: Result, directory: Path) -> str:
    perfetto.write(result, directory)
    return gzip.decompress((directory / "trace.json.gz").read_bytes()).decode()


def in_paraver(result: Result, directory: Path) -> Path:
    paraver.write(result, directory)
    return directory / "trace.prv"


@pytest.mark.golden
def test_tracks_derived_by_hand(tmp_path: Path) -> None:
    text = in_perfetto(tiny.two_ranks(cores=table(IN_COMPUTE, CREATORS), task_instances=counted()), tmp_path)
    assert TRACK in text
    bursts = [(*row[:6], "burst") for row in IN_COMPUTE]
    text = in_perfetto(tiny.two_ranks(cores=table(bursts, CREATORS)), tmp_path)
    assert ARROWS in text
    assert text.count('"cat":"creation"') == 6


@pytest.mark.contract
def test_ranks_are_processes_of_their_states_and_cores(tmp_path: Path) -> None:
    """With an arrow from states to states for the message, and none from what was not simulated to what was."""
    text = in_perfetto(tiny.two_ranks(cores=table(IN_COMPUTE, CREATORS), task_instances=counted()), tmp_path)
    trace = json.loads(text)
    events = trace["traceEvents"]
    assert Counter((event["pid"], event["tid"]) for event in events if event["ph"] == "X") == {
        (10, 1): 4, (11, 1): 4, (10, 2): 2, (10, 4): 1, (11, 3): 1,
    }  # fmt: skip
    named = {
        key: {event["pid"] if key == "process_name" else (event["pid"], event["tid"]): event["args"]["name"]
              for event in events if event["name"] == key}
        for key in ("process_name", "thread_name")
    }  # fmt: skip
    assert named["thread_name"] == {each[:2]: each[3] for each in TRACKS}
    assert {each[0]: each[2] for each in TRACKS}.items() <= named["process_name"].items()
    ends = [(event["ph"], event["pid"], event["tid"]) for event in events if event.get("cat") == "message"]
    assert ends == [("s", 10, 1), ("f", 11, 1)]
    assert trace["otherData"]["creations"] == sum(event.get("cat") == "creation" for event in events) / 2 == 0


@pytest.mark.golden
def test_calls_inside_tasks_are_on_the_cores_that_wait(tmp_path: Path) -> None:
    """Rank 1's receive on its core 1, while nothing hides it; rank 0's send, in which nothing waits, on the first."""
    rows = [(0, 1, -1, 1_500_000, 1_500_000), (1, 1, 1, 1_000_000, 4_000_499)]
    calls = pa.Table.from_arrays([pa.array(each, field.type) for each, field in zip(zip(*rows, strict=True),
                                 CORE_CALLS_SCHEMA, strict=True)], schema=CORE_CALLS_SCHEMA)  # fmt: skip
    result = tiny.two_ranks(cores=table(IN_COMPUTE, CREATORS), core_calls=calls)
    text = in_paraver(result, tmp_path).read_text()
    paraver_check.check(tmp_path / "trace.prv")
    for line in (
        "1:2:1:2:2:1000:4000:3", "2:2:1:2:2:1000:50000001:2", "2:2:1:2:2:4000:50000001:0",
        "2:3:1:1:1:1500:50000001:3", "3:3:1:1:1:1500:1500:2:1:2:2:1000:4000:1000:7",
    ):  # fmt: skip
        assert f"{line}\n" in text
    assert "1:1:1:2:1:1000:4000:3\n" not in text
    slices = in_perfetto(result, tmp_path)
    assert (
        '{"ph":"X","pid":11,"tid":3,"ts":1.000000,"dur":3.000499,"name":"MPI_Recv","args":{"operation_id":1}},'
        in slices
    )


@pytest.mark.contract
def test_too_many_creations_are_thinned_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "MAX_ARROWS", 2)
    bursts = [(*row[:6], "burst") for row in IN_COMPUTE]
    trace = json.loads(in_perfetto(tiny.two_ranks(cores=table(bursts, CREATORS)), tmp_path))
    assert trace["otherData"]["creations"] == 2
    assert trace["otherData"]["left_out"] == ["an arrow for one creation of a task instance in 2 of 3"]


@pytest.mark.golden
def test_paraver_files_derived_by_hand(tmp_path: Path) -> None:
    result = tiny.two_ranks(cores=table(IN_COMPUTE, CREATORS), task_instances=counted())
    path = in_paraver(result, tmp_path)
    assert path.read_text() == PRV
    assert (tmp_path / "trace.row").read_text() == ROW
    text = (tmp_path / "trace.pcf").read_text()
    assert '9    60000023    Task type\nVALUES\n0   End\n1   solve"fast"\n2   sweep\n3   initial\n' in text
    assert "9    63910002    Model that its time is from\nVALUES\n0   End\n1   burst\n" in text
    trace = paraver_check.check(path)
    assert trace.threads == [(3, 2), (2, 1)]


@pytest.mark.contract
def test_a_rank_has_a_thread_for_each_core_that_the_study_gives_it(tmp_path: Path) -> None:
    """Also for those that did nothing; a rank whose cores are not shown has one."""
    resolved = {"placement": [5, 5], "mapping": {"cores_per_rank": 4}}
    trace = paraver_check.check(in_paraver(tiny.two_ranks(cores=table(IN_COMPUTE[:3]), resolved=resolved), tmp_path))
    assert trace.threads == [(4, 1), (1, 1)]
    assert trace.cpus == [5]


@pytest.mark.contract
def test_our_reader_takes_the_trace(tmp_path: Path) -> None:
    """It reads each task's first thread: of rank 0 1,500 ns of core 0 and what no core tells of."""
    path = in_paraver(tiny.two_ranks(cores=table(IN_COMPUTE), task_instances=counted()), tmp_path)
    assert paraver_reader.can_read(path)
    workload = paraver_reader.read(path)
    assert workload.num_ranks == 2
    computing = np.bincount(workload.column("phases", "rank"), workload.column("phases", "duration_ps"), minlength=2)
    assert computing.tolist() == [2_501_000, 1_000_000 + 200_000]


@pytest.mark.theory
def test_an_instance_that_was_suspended_shares_its_counts_by_time(tmp_path: Path) -> None:
    """800 instructions and 1,000 cycles over 300 and 200 ns of one instance: 480 and 320, 600 and 400. It waited 60 ns
    since it was created, 40 since it was ready, before it began for the first time."""
    rows = [(0, 0, 100_000, 400_000, 3, 0, "detailed"), (0, 1, 500_000, 700_000, 3, 0, "detailed")]
    cores = table(rows)
    for name, value in (("instance_id", 1), ("created_ps", 40_000), ("ready_ps", 60_000)):
        place = cores.schema.get_field_index(name)
        cores = cores.set_column(place, cores.schema.field(place), pa.array([value, value]))
    trace = paraver_check.check(in_paraver(tiny.two_ranks(cores=cores, task_instances=counted()), tmp_path))
    found = {
        who: [
            sum(pairs.get(kind, 0) for _, pairs in trace.events[who])
            for kind in (42000050, 42000059, 63910004, 63910005)
        ]
        for who in ((1, 1), (1, 2))
    }
    assert found == {(1, 1): [480, 600, 60, 40], (1, 2): [320, 400, 0, 0]}


@pytest.mark.contract
def test_equal_results_give_equal_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        in_paraver(tiny.two_ranks(cores=table(IN_COMPUTE), task_instances=counted()), tmp_path / name)
        contents.append([path.read_bytes() for path in sorted((tmp_path / name).iterdir())])
    assert contents[0] == contents[1]


@pytest.mark.contract
@pytest.mark.parametrize("cores", [None, table([])])
def test_without_cores_nothing_is_written_of_them(tmp_path: Path, cores: pa.Table | None) -> None:
    text = in_paraver(tiny.two_ranks(cores=cores), tmp_path).read_text()
    assert "60000023" not in text
    assert "2(1:2,1:1)" in text
    events = json.loads(in_perfetto(tiny.two_ranks(cores=cores), tmp_path))["traceEvents"]
    assert {event["pid"] for event in events} == {1}


@st.composite
def tables_of_cores(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Stretches that follow each other on each core, in the order of the table (rank, time, core)."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        rank, core = int(generator.integers(5)), int(generator.integers(12))
        if any(row[:2] == (rank, core) for row in rows):
            continue
        times = np.sort(generator.integers(0, 20_000, 2 * draw(st.integers(1, 12)))).tolist()
        kinds = generator.integers(-1, 2, len(times)).tolist()
        rows += [
            (rank, core, start, end, 7, kind, "burst")
            for start, end, kind in zip(times[::2], times[1::2], kinds[::2], strict=True)
        ]
    return sorted(rows, key=lambda row: (row[0], row[2], row[1]))


@pytest.mark.property
@settings(max_examples=30, deadline=None)
@given(rows=tables_of_cores())
def test_slices_of_a_track_say_what_the_table_says_and_never_overlap(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_columns, "BATCH_ROWS", 7)
        text = in_perfetto(of_five(rows), tmp_path_factory.mktemp("cores"))
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    slices = [event for event in events if event["ph"] == "X" and event["tid"] > 1]
    found = sorted(
        (event["pid"] - 10, event["tid"] - 2, int(event["ts"] * 10**6), int((event["ts"] + event["dur"]) * 10**6),
         event["name"])
        for event in slices
    )  # fmt: skip
    assert found == sorted((*row[:4], NAMES[row[5]]) for row in rows)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name" and event["tid"] > 1}
    assert named == {(event["pid"], event["tid"]) for event in slices}
    ends: dict[tuple[int, int], int] = {}
    for event in slices:  # Perfetto cuts begin and duration to nanoseconds
        begin, duration = int(event["ts"] * 1000), int(event["dur"] * 1000)
        assert begin >= ends.get((event["pid"], event["tid"]), 0)
        ends[event["pid"], event["tid"]] = begin + duration


@pytest.mark.property
@settings(max_examples=30, deadline=None)
@given(rows=tables_of_cores())
def test_paraver_holds_the_time_of_every_type(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]]
) -> None:
    """Of five ranks that compute for 20 ns each, and then wait for each other."""
    load = tiny.workload(5, [tiny.operation(rank, "barrier") for rank in range(5)])
    states = tiny.states(
        [
            each
            for rank in range(5)
            for each in ((rank, 0, 20_000, "compute", 0), (rank, 20_000, 30_000, "collective", 0))
        ]
    )
    result = tiny.result(load, states, tiny.messages([]), cores=table(rows))
    trace = paraver_check.check(in_paraver(result, tmp_path_factory.mktemp("cores")))
    spent: Counter[tuple[int, int, int]] = Counter()
    for (task, thread), events in trace.events.items():
        since, value = 0, 0
        for time, pairs in events:
            if 60000023 in pairs:
                assert (value == 0) != (pairs[60000023] == 0)  # begin and end take turns
                spent[task - 1, thread - 1, value] += time - since if value else 0
                since, value = time, pairs[60000023]
        assert value == 0
    expected: Counter[tuple[int, int, int]] = Counter()
    busy: Counter[int] = Counter()
    for rank, core, start, end, _, kind, _ in rows:
        lasted = (end + 500) // 1000 - (start + 500) // 1000
        expected[rank, core, kind % 3 + 1] += lasted
        busy[rank] += lasted
    assert +spent == +expected
    running = {
        rank: sum(end - begin for (task, _), mine in trace.states.items() for begin, end, state in mine
                  if task == rank + 1 and state == 1)
        for rank in range(5)
    }  # fmt: skip
    shown = {row[0] for row in rows}
    assert running == {rank: busy[rank] if rank in shown else 20 for rank in range(5)}


@pytest.mark.contract
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (":2(2,3):", ":2(3,2):"),
        ("2(3:2,2:1)", "2(3:1,2:1)"),
        ("c:1:1:2:1:2", "c:1:1:3:1:2"),
        ("1:3:1:1:1:1000:1500:1", "1:3:1:1:1:999:1500:1"),  # back in time, and two states at once
        ("1:1:1:2:1:9000:9200:7", "1:1:1:2:1:9000:9200:99"),  # no such state
        ("2:2:1:2:2:9200:60000023:2", "2:2:1:2:2:9200:60000023:9"),  # no such task type
        ("2:2:1:2:2:9200:60000023:2", "2:2:1:2:3:9200:60000023:2"),  # no such thread
        ("2:2:1:2:2:9200:60000023:2", "2:3:1:2:2:9200:60000023:2"),  # of another node
        ("2:2:1:2:2:9200:60000023:2", "2:2:1:2:2:9200:60000099:2"),  # no such type
        (":63910003:800:", ":63910003:0.8:"),
        ("10000_ns", "9000_ns"),
        ("1:1:2:1:1000:4000:1000:7", "1:1:2:1:4001:4000:1000:7"),  # received before it was asked for
    ],
)
def test_the_check_fails_on_a_corrupted_trace(tmp_path: Path, old: str, new: str) -> None:
    path = in_paraver(tiny.two_ranks(cores=table(IN_COMPUTE, CREATORS), task_instances=counted()), tmp_path)
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(paraver_check.ParaverError):
        paraver_check.check(path)
