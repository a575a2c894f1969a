"""Paraver traces: lines derived by hand from the format, and a reader that takes a trace apart again."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyscale.models.workload import ANY_SOURCE, ANY_TAG, OperationKind
from manyscale.runner.readers.paraver.labels import CALLS, STATE_NUMBERS
from manyscale.runner.report import text_columns
from manyscale.runner.report.collective_sizes import collective_sizes
from manyscale.runner.report.operation_times import operation_times, receive_rows
from manyscale.runner.report.paraver import ranks as paraver
from manyscale.runner.run.results import Result

from . import tiny

# By hand from tiny.two_ranks: times in ns, rounded to nearest (4,000,499 ps = 4000 ns; 5,000,500 ps = 5001 ns). Node 2
# is the first node in use, so rank 1 has CPU 1 and rank 0 CPU 2. The isend and rank 0's finalize take no time.
TINY = """\
#Paraver (01/01/2000 at 00:00):10000_ns:2(1,1):1:2(1:2,1:1),1
c:1:1:2:1:2
1:2:1:1:1:0:1500:1
1:1:1:2:1:0:1000:1
2:2:1:1:1:0:50000003:31
2:2:1:1:1:0:50000003:0
2:1:1:2:1:0:50000003:31
2:1:1:2:1:0:50000003:0
1:1:1:2:1:1000:4000:3
2:1:1:2:1:1000:50000001:2
1:2:1:1:1:1500:4000:8
2:2:1:1:1:1500:50000001:3
2:2:1:1:1:1500:50000001:0
2:2:1:1:1:1500:50000001:5
3:2:1:1:1:1500:1500:1:1:2:1:1000:4000:1000:7
1:2:1:1:1:4000:5001:1
1:1:1:2:1:4000:9000:13
2:2:1:1:1:4000:50000001:0
2:1:1:2:1:4000:50000001:0
2:1:1:2:1:4000:50000002:10:50100001:8:50100002:8:50100004:1
1:2:1:1:1:5001:9000:13
2:2:1:1:1:5001:50000002:10:50100001:8:50100002:8:50100004:1
1:1:1:2:1:9000:10000:1
2:2:1:1:1:9000:50000002:0
2:2:1:1:1:9000:50000003:32
2:2:1:1:1:9000:50000003:0
2:1:1:2:1:9000:50000002:0
2:1:1:2:1:10000:50000003:32
2:1:1:2:1:10000:50000003:0
"""

ROW = """\
LEVEL CPU SIZE 2
1.node2
2.node5

LEVEL NODE SIZE 2
node2
node5

LEVEL THREAD SIZE 2
THREAD 1.1.1
THREAD 1.2.1
"""


@dataclass(frozen=True)
class Trace:
    """A .prv file, taken apart; numbers as they stand there."""

    end: int
    tasks: list[tuple[int, int]]
    records: list[list[int]]


def read(path: Path) -> Trace:
    """Reads strictly: every line must be a record of a known type, numbers only."""
    lines = path.read_text().splitlines()
    header = re.fullmatch(
        r"#Paraver \(\d\d/\d\d/\d{4} at \d\d:\d\d\):(\d+)_ns:(\d+)\(([\d,]+)\):1:(\d+)\(([\d:,]+)\),(\d+)", lines[0]
    )
    assert header, lines[0]
    end, num_nodes, cpus, num_tasks, tasks, num_communicators = header.groups()
    placed = [tuple(map(int, task.split(":"))) for task in tasks.split(",")]
    assert len(placed) == int(num_tasks)
    assert len(cpus.split(",")) == int(num_nodes)
    assert {node for _, node in placed} == set(range(1, int(num_nodes) + 1))
    first = 1 + int(num_communicators)
    assert all(line.startswith("c:1:") for line in lines[1:first])
    records = [[int(number) for number in line.split(":")] for line in lines[first:]]
    for record in records:
        assert (record[0], len(record)) in {(1, 8), (3, 15)} or (record[0] == 2 and len(record) % 2 == 0), record
    return Trace(int(end), [(threads, node) for threads, node in placed], records)


def time_of(record: list[int]) -> int:
    """The time by which a record is sorted."""
    return record[6] if record[0] == 3 else record[5]


def check(trace: Trace, result: Result) -> None:
    """Asserts that a trace says what the result's tables say."""
    times = [time_of(record) for record in trace.records]
    assert times == sorted(times)

    def nanoseconds(name: str, table: str = "ranks") -> np.ndarray:
        return (getattr(result, table).column(name).to_numpy() + 500) // 1000

    assert trace.end == max(nanoseconds("end_ps").max(initial=0), nanoseconds("receive_ps", "messages").max(initial=0))
    spent: Counter[tuple[int, int]] = Counter()
    for _, cpu, application, task, thread, begin, end, state in (r for r in trace.records if r[0] == 1):
        assert begin < end
        assert (cpu, application, thread) == (task, 1, 1) or "placement" in result.resolved
        spent[task - 1, state] += end - begin
    expected: Counter[tuple[int, int]] = Counter()
    rows = zip(*(result.ranks.column(c).to_pylist() for c in ("rank", "state")), strict=True)
    for (rank, state), duration in zip(rows, (nanoseconds("end_ps") - nanoseconds("start_ps")).tolist(), strict=True):
        expected[rank, STATE_NUMBERS[state]] += duration
    assert spent == +expected
    sent = [(r[3] - 1, r[9] - 1, r[6], r[12], r[13], r[14]) for r in sorted(r for r in trace.records if r[0] == 3)]
    wanted = zip(
        *(result.messages.column(c).to_pylist() for c in ("source", "destination")),
        nanoseconds("send_ps", "messages").tolist(),
        nanoseconds("receive_ps", "messages").tolist(),
        *(result.messages.column(c).to_pylist() for c in ("bytes", "tag")),
        strict=True,
    )
    assert Counter(sent) == Counter(wanted)
    check_calls(trace, result)


def check_calls(trace: Trace, result: Result) -> None:
    """Asserts that each task's events open and close its calls one after the other, in the order of the operations."""
    kinds = result.workload.column("operations", "kind")
    for rank in range(result.workload.num_ranks):
        events = [record for record in trace.records if record[0] == 2 and record[3] == rank + 1]
        own = kinds[result.workload.rank_offsets[rank] : result.workload.rank_offsets[rank + 1]]
        assert [tuple(record[6:8]) for record in events[::2]] == [CALLS[OperationKind(kind)] for kind in own]
        assert [record[6:] for record in events[1::2]] == [[CALLS[OperationKind(kind)][0], 0] for kind in own]


def written(result: Result, directory: Path) -> Trace:
    paraver.write(result, directory)
    return read(directory / "trace.prv")


@pytest.mark.golden
def test_lines_derived_by_hand(tmp_path: Path) -> None:
    paraver.write(tiny.two_ranks(), tmp_path)
    assert (tmp_path / "trace.prv").read_text() == TINY
    assert (tmp_path / "trace.row").read_text() == ROW


@pytest.mark.golden
def test_configuration_names_what_the_trace_uses(tmp_path: Path) -> None:
    paraver.write(tiny.two_ranks(), tmp_path)
    blocks = (tmp_path / "trace.pcf").read_text().split("\n\n\n")
    states = next(block for block in blocks if block.startswith("STATES\n"))
    colours = next(block for block in blocks if block.startswith("STATES_COLOR\n"))
    assert "1    Running\n" in states
    assert "13    Group Communication\n" in states
    assert "1    {0,0,255}\n" in colours
    assert len(states.splitlines()) == len(colours.splitlines())
    collective = next(block for block in blocks if "50000002" in block)
    assert collective.startswith("EVENT_TYPE\n9    50000002    MPI Collective Comm\nVALUES\n7   MPI_Bcast\n")
    assert "10   MPI_Allreduce\n" in collective
    assert collective.endswith("\n0   Outside MPI")


@pytest.mark.contract
def test_every_kind_of_operation_has_a_call_of_its_own() -> None:
    assert set(CALLS) == set(OperationKind)
    assert len({value for _, value in CALLS.values()}) == len(CALLS)


@pytest.mark.contract
def test_equal_results_give_equal_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in "ab":
        paraver.write(tiny.random_result(3, 3, 20), tmp_path / name)
    for file in ("trace.prv", "trace.pcf", "trace.row"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


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
    monkeypatch.setattr(text_columns, "BATCH_ROWS", 7)
    assert written(result, tmp_path) == whole


@pytest.mark.contract
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1:2:1:1:1:0:1500:1\n", ""),  # a state is missing
        ("1:1:1:2:1:1000:4000:3", "1:1:1:2:1:1000:7000:3"),  # twice as long
        ("1:2:1:1:1:0:1500:1", "1:2:1:1:1:0:1500:8"),  # another state
        (":4000:1000:7", ":4000:2000:7"),  # another size
        (":1000:4000:1000:7", ":1000:8000:1000:7"),  # arrives later
        ("3:2:1:1:1:1500:1500", "3:2:1:1:1:900:900"),  # out of order
        (":10000_ns:", ":20000_ns:"),
        ("2:2:1:1:1:4000:50000001:0\n", ""),  # a call that never ends
        ("1:1:1:2:1:9000:10000:1", "1:1:1:2:1:9000:nan:1"),
    ],
)
def test_the_check_fails_on_a_corrupted_trace(tmp_path: Path, old: str, new: str) -> None:
    result = tiny.two_ranks()
    check(written(result, tmp_path), result)
    text = (tmp_path / "trace.prv").read_text()
    assert text.count(old) == 1
    (tmp_path / "trace.prv").write_text(text.replace(old, new))
    with pytest.raises((AssertionError, ValueError)):
        check(read(tmp_path / "trace.prv"), result)


@pytest.mark.theory
def test_times_of_operations_that_have_no_states() -> None:
    result = tiny.two_ranks()
    begin, end = operation_times(result.workload, result.ranks)
    assert begin.tolist() == [0, 1_500_000, 1_500_000, 5_000_500, 9_000_000, 0, 1_000_000, 4_000_499, 10_000_400]
    assert end.tolist() == [0, 1_500_000, 4_000_499, 9_000_000, 9_000_000, 0, 4_000_499, 9_000_000, 10_000_400]


@pytest.mark.theory
def test_the_kth_send_belongs_to_the_kth_receive() -> None:
    send, receive = tiny.operation(0, "send", peer=1), tiny.operation(1, "irecv", peer=0)
    load = tiny.workload(
        3,
        [
            send, send | {"tag": 4}, send, tiny.operation(0, "sendrecv", peer=2, source=2), send | {"peer": 2},
            receive | {"tag": 4}, receive, receive,
            tiny.operation(2, "recv", peer=0), tiny.operation(2, "recv", peer=0), tiny.operation(2, "send", peer=0),
        ],
    )  # fmt: skip
    # messages: three from 0 to 1, of tags 0, 4, 0; two from 0 to 2; one from 2 to 0, received by the sendrecv in row 3
    assert receive_rows(load).tolist() == [6, 5, 7, 8, 9, 3]


@pytest.mark.theory
@pytest.mark.parametrize("wildcard", [{"peer": ANY_SOURCE}, {"tag": ANY_TAG}])
def test_a_wildcard_leaves_the_receive_unknown(wildcard: dict[str, int]) -> None:
    rows = [tiny.operation(0, "send", peer=1), tiny.operation(0, "send", peer=2)]
    rows += [tiny.operation(1, "recv", peer=0) | wildcard, tiny.operation(2, "recv", peer=0)]
    assert receive_rows(tiny.workload(3, rows)).tolist() == [-1, 3]


@pytest.mark.golden
@pytest.mark.parametrize(
    ("kind", "row", "expected"),
    [
        # (sent, received) by ranks 4, 2 and 0 of communicator 1 = (4, 2, 0), whose member 1 is the root
        ("barrier", {}, [(0, 0), (0, 0), (0, 0)]),
        ("bcast", {"bytes": 10}, [(0, 10), (10, 0), (0, 10)]),
        ("reduce", {"bytes": 10}, [(10, 0), (10, 10), (10, 0)]),
        ("iallreduce", {"bytes": 10}, [(10, 10), (10, 10), (10, 10)]),
        ("gather", {"bytes": 10, "receive_bytes": 10}, [(10, 0), (10, 30), (10, 0)]),
        ("scatter", {"bytes": 10, "receive_bytes": 10}, [(0, 10), (30, 10), (0, 10)]),
        ("iallgather", {"bytes": 10, "receive_bytes": 10}, [(10, 30), (10, 30), (10, 30)]),
        ("alltoall", {"bytes": 10, "receive_bytes": 10}, [(10, 30), (10, 30), (10, 30)]),
        ("alltoallv", {"send_counts": [1, 2, 3], "receive_counts": [4, 5, 6]}, [(6, 15), (6, 15), (6, 15)]),
        ("gatherv", {"bytes": 7, "receive_counts": [7, 8, 9]}, [(7, 0), (7, 24), (7, 0)]),
        ("reduce_scatter", {"receive_counts": [4, 5, 6]}, [(15, 4), (15, 5), (15, 6)]),
    ],
)  # fmt: skip
def test_sizes_of_collectives(kind: str, row: dict[str, object], expected: list[tuple[int, int]]) -> None:
    ranks = {4: 0, 2: 1, 0: 2}  # rank: its place in the communicator
    operations = [tiny.operation(r, kind, peer=1, communicator_id=1, **row) for r in sorted(ranks)]
    sizes = collective_sizes(tiny.workload(5, operations, [[4, 2, 0]]))
    found = list(zip(sizes.send_bytes.tolist(), sizes.receive_bytes.tolist(), strict=True))
    assert found == [expected[ranks[rank]] for rank in sorted(ranks)]
    rooted = kind in ("bcast", "reduce", "gather", "gatherv", "scatter")
    assert sizes.is_root.tolist() == [rooted and rank == 2 for rank in sorted(ranks)]


@pytest.mark.golden
def test_the_root_is_marked_and_the_communicator_counted_from_one(tmp_path: Path) -> None:
    rows = [tiny.operation(rank, "bcast", peer=1, bytes=10, communicator_id=1) for rank in (0, 1)]
    ranks = tiny.states([(0, 0, 2000, "collective", 0), (1, 0, 2000, "collective", 0)])
    paraver.write(tiny.result(tiny.workload(2, rows, [[1, 0]]), ranks, tiny.messages([])), tmp_path)
    lines = (tmp_path / "trace.prv").read_text().splitlines()
    assert lines[1:3] == ["c:1:1:2:1:2", "c:1:2:2:2:1"]
    # member 1 of the communicator (1, 0) is rank 0
    assert "2:1:1:1:1:0:50000002:7:50100001:10:50100002:0:50100004:2:50100003:1" in lines
    assert "2:2:1:2:1:0:50000002:7:50100001:0:50100002:10:50100004:2" in lines


@pytest.mark.contract
def test_ranks_of_one_node_share_it(tmp_path: Path) -> None:
    result = tiny.two_ranks(resolved={"placement": [3, 3]})
    trace = written(result, tmp_path)
    assert trace.tasks == [(1, 1), (1, 1)]
    assert "LEVEL NODE SIZE 1\nnode3\n" in (tmp_path / "trace.row").read_text()
    check(trace, result)


@pytest.mark.contract
def test_a_placement_of_another_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 entries for 2 ranks"):
        paraver.write(tiny.two_ranks(resolved={"placement": [0, 1, 2]}), tmp_path)
