"""The OTF2 reader: archives through the package, where it is installed, and the conversion of events without it."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tarfile
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import zstandard
from told import told

from manyscale.models.network import latency_bandwidth
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.workload import OperationKind, Workload
from manyscale.runner.errors import UserError
from manyscale.runner.problems import load_yaml
from manyscale.runner.readers import otf2
from manyscale.runner.readers.otf2 import events as otf2_events
from manyscale.runner.readers.otf2.events import (
    COLLECTIVE_BEGIN,
    COLLECTIVE_COMPLETE,
    COLLECTIVE_END,
    COLLECTIVE_NAMES,
    COLLECTIVE_REQUEST,
    ENTER,
    IRECEIVE,
    IRECEIVE_REQUEST,
    ISEND,
    ISEND_COMPLETE,
    LEAVE,
    METRIC,
    RECEIVE,
    REQUEST_TEST,
    SEND,
    SWITCHED,
    Archive,
    MetricClass,
)
from manyscale.runner.readers.otf2.reader import _Reader
from manyscale.runner.study.targets import build_machine, shipped_targets

data = Path(__file__).parents[2] / "data" / "otf2"
every = Path(os.environ.get("MANYSCALE_DATA", "/nonexistent"))
needs_traces = pytest.mark.skipif(not every.is_dir(), reason="MANYSCALE_DATA does not name the folder of the traces")
needs_package = pytest.mark.skipif(find_spec("otf2") is None, reason="the package otf2 is not installed")

Event = tuple[int, ...]


def makespan_s(workload: Workload) -> float:
    network = build_machine(load_yaml(shipped_targets()["crossbar256"]), "crossbar256").network
    compute_ps = np.zeros(workload.num_operations, np.int64)
    at = workload.rank_offsets[workload.column("phases", "rank")] + workload.column("phases", "operation_id")
    np.add.at(compute_ps, at, workload.column("phases", "duration_ps"))
    placement = Placement.one_per_node(workload.num_ranks)
    program = build_program(workload, network.collectives)
    return latency_bandwidth.replay(program, compute_ps, network, placement).makespan_ps / 1e12


# Archives


@needs_package
@pytest.mark.golden
@pytest.mark.parametrize("name", ["pipit-ping-pong", "pipit-ping-pong-papi"])
def test_ping_pong(name: str) -> None:
    workload = otf2.read(data / name)

    # pipit's test of the same program: 8 messages of 16 KiB to 2 MiB each way, 4,177,920 bytes
    sent = workload.column("operations", "bytes")
    rank = workload.column("operations", "rank")
    for me in (0, 1):
        mine = workload.send_rows[rank[workload.send_rows] == me]
        assert sent[mine].tolist() == [2**k for k in range(14, 22)]
        assert sent[mine].sum() == 4177920 == 8 * 2**14 * 255 // 8
    kinds = workload.tables["operations"].column("kind").to_pylist()
    assert (kinds.count("send"), kinds.count("recv"), kinds[0]) == (16, 16, "init")
    assert kinds[-2:] == ["finalize", "other"]  # main goes on a little after MPI_Finalize
    assert workload.tables["regions"].to_pylist() == [{"name": "int main(int, char**)"}]
    assert makespan_s(workload) > 2 * 4177920 / 1.25e9


@needs_package
@pytest.mark.golden
def test_counters_are_increases_over_a_phase() -> None:
    workload = otf2.read(data / "pipit-ping-pong-papi")

    # as otf2-print shows: 98850 2191 421 at the entry to main, 122765 2580 539 at that to MPI_Init
    first = [row for row in workload.tables["counters"].to_pylist() if row["phase_id"] == 0]
    assert {row["counter"]: row["value"] for row in first} == {
        "PAPI_TOT_CYC": 122765 - 98850, "PAPI_L2_TCM": 2580 - 2191, "PAPI_BR_MSP": 539 - 421,
    }  # fmt: skip
    # and times: 7396895680158984 to 7396895680197675 ticks of 1 / 2095191439 s
    assert workload.column("phases", "duration_ps")[0] == pytest.approx(38691 / 2095191439 * 1e12, abs=1)


@needs_package
@needs_traces
@pytest.mark.golden
def test_archive_that_says_it_is_not_complete() -> None:
    workload = otf2.read(every / "formats" / "otf2" / "tracer-stencil4d-32" / "traces.otf2")

    # 32 ranks send 8 messages of 128 KiB twice; what the archive holds does pair up
    sent = workload.column("operations", "bytes")[workload.send_rows]
    assert (len(sent), set(sent.tolist())) == (512, {131072})
    assert any("its communication is not complete" in note for note in told(workload.notes))
    assert makespan_s(workload) > 0


@needs_package
@needs_traces
@pytest.mark.golden
def test_many_calls_and_communicators() -> None:
    workload = otf2.read(every / "formats" / "otf2" / "sst-macro-10ranks")

    operations = workload.tables["operations"].to_pylist()
    first = {}
    for row in operations[: workload.rank_offsets[1]]:
        first.setdefault(row["kind"], row)
    # the program's collectives start with one int: Score-P says 4 or 40 B
    collectives = ("gather", "scatter", "reduce", "bcast", "allgather", "alltoall", "allreduce")
    assert {first[kind]["bytes"] for kind in collectives} == {4}
    members = [entry["members"] for entry in workload.tables["communicators"].to_pylist()]
    assert members[:5] == [list(range(10)), [0, 6], [1, 7], [2, 8], [3, 9]]
    assert any("MPI_Iallreduce 360" in note for note in told(workload.notes))
    assert makespan_s(workload) > 0


@needs_package
@needs_traces
def test_archive_that_the_package_cannot_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    packed = every / "mpi" / "native-lulesh-8-otf2" / "trace.tar.zst"
    content = zstandard.ZstdDecompressor().stream_reader(packed.read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(tmp_path)
    folder = next(tmp_path.rglob("*.otf2")).parent

    with pytest.raises(UserError, match=r"the package otf2 cannot read the archive .*Duplicate definition") as caught:
        otf2.read(folder)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in capfd.readouterr().err


@needs_package
def test_damaged_archive_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    shutil.copytree(data / "pipit-ping-pong", folder)
    content = (folder / "traces" / "1.evt").read_bytes()
    (folder / "traces" / "1.evt").write_bytes(content[:300])

    with pytest.raises(UserError, match=r"traces\.otf2: "):
        otf2.read(folder)


def test_anchor_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.otf2").write_bytes(b"something else")

    assert otf2.can_read(data / "pipit-ping-pong" / "traces.otf2")
    assert otf2.can_read(data / "pipit-ping-pong")
    assert not any(otf2.can_read(path) for path in (tmp_path, tmp_path / "a.otf2", tmp_path / "absent"))
    with pytest.raises(UserError, match=r"a\.otf2: byte 0: is no anchor file"):
        otf2.read(tmp_path / "a.otf2")


def test_two_anchors_are_refused(tmp_path: Path) -> None:
    for name in ("a.otf2", "b.otf2"):
        shutil.copy(data / "pipit-ping-pong" / "traces.otf2", tmp_path / name)

    with pytest.raises(UserError, match=r"holds 2 OTF2 anchor files: a\.otf2, b\.otf2; name one"):
        otf2.read(tmp_path)


def test_without_the_package_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "otf2", None)  # as if it were not installed

    with pytest.raises(UserError, match=r"is not installed; run: pip install otf2$") as caught:
        otf2.read(data / "pipit-ping-pong")
    assert "\n" not in str(caught.value)


# Conversion of events, without the package

NAMES = ["main", "work", "MPI_Init", "MPI_Send", "MPI_Recv", "MPI_Isend", "MPI_Irecv", "MPI_Wait", "MPI_Waitall",
         "MPI_Test", "MPI_Sendrecv", "MPI_Ssend", "MPI_Collective", "MPI_Startall", "MPI_Iprobe"]  # fmt: skip
REGION = {name: number for number, name in enumerate(NAMES)}


class Script:
    """Events of one rank, a tick apart."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.time = 0

    def add(self, code: int, *values: int, ticks: int = 1) -> Script:
        self.time += ticks
        self.events.append((code, self.time, *values, *([0] * (6 - len(values)))))
        return self

    def call(self, name: str, *inside: tuple[int, ...]) -> Script:
        self.add(ENTER, REGION[name])
        for event in inside:
            self.add(*event)
        return self.add(LEAVE, REGION[name])


def send(peer: int, tag: int = 0, size: int = 8, comm: int = 0) -> Event:
    return SEND, peer, comm, tag, size


def receive(peer: int, tag: int = 0, size: int = 8, comm: int = 0) -> Event:
    return RECEIVE, peer, comm, tag, size


def request(code: int, number: int) -> Event:
    return code, 0, 0, 0, 0, number


def collective(name: str, sent: int, received: int, root: int = 2**32 - 1, comm: int = 0, code: int = COLLECTIVE_END,
               number: int = 0) -> Event:  # fmt: skip
    return code, COLLECTIVE_NAMES.index(name), comm, root, sent, received, number


def read(
    *ranks: Script,
    comms: Sequence[np.ndarray | None] | None = None,
    is_complete: bool = True,
    classes: Sequence[MetricClass] = (),
    metrics: Sequence[Sequence[np.ndarray]] | None = None,
) -> Workload:
    """The workload of scripted ranks, at 10^12 ticks a second."""
    world = np.arange(len(ranks), dtype=np.int32)
    archive = Archive(
        ticks_per_second=10**12,
        regions=NAMES,
        communicators=list(comms) if comms is not None else [world, None],
        events=[np.array(rank.events, np.int64).reshape(-1, otf2_events.NUM_COLUMNS) for rank in ranks],
        classes=list(classes),
        metrics=[list(m) for m in metrics] if metrics else [[] for _ in ranks],
        other_locations=Counter(),
        other_events=Counter(),
    )
    return _Reader(Path("t.otf2"), archive, is_complete).workload()


def rows(workload: Workload, rank: int = 0) -> list[dict[str, object]]:
    return [row for row in workload.tables["operations"].to_pylist() if row["rank"] == rank]


def kinds(workload: Workload, rank: int = 0) -> list[object]:
    return [row["kind"] for row in rows(workload, rank)]


@pytest.mark.theory
def test_requests_are_completed_by_number() -> None:
    mine = (
        Script()
        .call("MPI_Irecv", request(IRECEIVE_REQUEST, 7))
        .call("MPI_Isend", (ISEND, 1, 0, 4, 100, 2**62))
        .call("MPI_Test", request(REQUEST_TEST, 7))
        .call("MPI_Waitall", request(ISEND_COMPLETE, 2**62), (IRECEIVE, 1, 0, 5, 200, 7))
        .call("MPI_Irecv", request(IRECEIVE_REQUEST, 7))
        .call("MPI_Test", (IRECEIVE, 1, 0, 6, 300, 7))
    )
    other = (
        Script().call("MPI_Recv", receive(0, 4, 100)).call("MPI_Send", send(0, 5, 200)).call("MPI_Ssend", send(0, 6))
    )
    workload = read(mine, other)

    assert kinds(workload) == ["irecv", "isend", "test", "waitall", "irecv", "wait", "finalize"]
    assert [row["completes"] for row in rows(workload)] == [[], [], [], [1, 0], [], [2], []]
    assert [(row["peer"], row["tag"], row["receive_bytes"]) for row in rows(workload) if row["kind"] == "irecv"] == [
        (1, 5, 200), (1, 6, 300),
    ]  # fmt: skip
    assert kinds(workload, 1)[2] == "ssend"
    assert makespan_s(workload) > 0


@pytest.mark.theory
def test_a_region_with_several_requests_is_several_operations() -> None:
    mine = Script().call("MPI_Startall", (ISEND, 1, 0, 1, 10, 1), request(IRECEIVE_REQUEST, 2)).call(
        "MPI_Waitall", request(ISEND_COMPLETE, 1), (IRECEIVE, 1, 0, 2, 20, 2)
    )  # fmt: skip
    workload = read(mine, Script().call("MPI_Recv", receive(0, 1)).call("MPI_Send", send(0, 2)))

    assert kinds(workload)[:3] == ["isend", "irecv", "waitall"]
    assert makespan_s(workload) > 0


@pytest.mark.theory
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_sendrecv_is_one_operation(order: tuple[int, int]) -> None:
    halves = [send(1, 3, 10), receive(2, 3, 20)]
    mine = Script().call("MPI_Sendrecv", *(halves[k] for k in order))
    workload = read(mine, Script().call("MPI_Recv", receive(0, 3)), Script().call("MPI_Send", send(0, 3, 20)))

    row = rows(workload)[0]
    assert (row["kind"], row["peer"], row["source"], row["bytes"], row["receive_bytes"]) == ("sendrecv", 1, 2, 10, 20)


def test_sendrecv_with_two_tags_is_refused() -> None:
    with pytest.raises(UserError, match=r"rank 0, operation 0 \(MPI_Sendrecv\) sends and receives with different tags"):
        read(Script().call("MPI_Sendrecv", send(0, 3), receive(0, 4)))


@pytest.mark.theory
def test_ranks_are_those_of_the_communicator() -> None:
    comms = [np.arange(3, dtype=np.int32), np.array([2, 0], np.int32), None]
    mine = Script().call("MPI_Send", send(0, comm=1)).call("MPI_Sendrecv", send(0, comm=2), receive(0, comm=2))
    workload = read(mine, Script().call("MPI_Init"), Script().call("MPI_Recv", receive(1, comm=1)), comms=comms)

    assert [row["peer"] for row in rows(workload)[:2]] == [2, 0]
    assert [row["peer"] for row in rows(workload, 2)[:1]] == [0]
    members = [entry["members"] for entry in workload.tables["communicators"].to_pylist()]
    assert members == [[0, 1, 2], [2, 0], [0]]


def test_communicator_without_members_is_refused() -> None:
    comms = [np.arange(1, dtype=np.int32), np.empty(0, np.int32)]
    with pytest.raises(UserError, match="communicator 1, whose members the archive does not tell"):
        read(Script().call("MPI_Send", send(0, comm=1)), comms=comms)


@pytest.mark.theory
def test_phases_are_cut_by_regions_and_pauses() -> None:
    mine = Script()
    mine.add(ENTER, REGION["main"])
    mine.add(ENTER, REGION["work"], ticks=10)
    mine.call("MPI_Init")  # after 1 tick of work
    mine.add(LEAVE, REGION["work"], ticks=20)
    mine.add(SWITCHED, 0, ticks=30)
    mine.add(SWITCHED, 1, ticks=1000)
    mine.add(LEAVE, REGION["main"], ticks=40)
    workload = read(mine)

    phases = workload.tables["phases"].to_pylist()
    names = [entry["name"] for entry in workload.tables["regions"].to_pylist()]
    found = [(p["operation_id"], names[p["region_id"]], p["duration_ps"]) for p in phases]
    assert found == [(0, "main", 10), (0, "work", 1), (1, "work", 20), (1, "main", 30), (1, "main", 40)]
    assert kinds(workload) == ["init", "finalize"]
    assert any("ranks were not measured all the time" in note for note in told(workload.notes))


@pytest.mark.theory
def test_counters_need_values_at_both_ends() -> None:
    mine = Script()
    mine.add(METRIC, 0, 0)
    mine.add(ENTER, REGION["main"], ticks=0)
    mine.add(METRIC, 0, 1)
    mine.add(ENTER, REGION["work"], ticks=0)
    mine.call("MPI_Init")
    entry = MetricClass(("PAPI_X", "WATTS"), (True, False))
    workload = read(mine, classes=[entry], metrics=[[np.array([[5.0, 70.0], [9.0, 60.0]])]])

    assert workload.tables["counters"].to_pylist() == [{"phase_id": 0, "counter": "PAPI_X", "value": 4}]
    assert "metrics that are levels, not counts, are left out: WATTS" in told(workload.notes)


@pytest.mark.theory
@pytest.mark.parametrize(
    ("name", "totals", "expected"),
    [
        # (sent, received) of ranks 0, 1 and 2 with blocks of 8 B, as if each sent directly to each; root 0
        ("BCAST", [(24, 8), (0, 8), (0, 8)], 8),
        ("REDUCE", [(8, 24), (8, 0), (8, 0)], 8),
        ("GATHER", [(8, 24), (8, 0), (8, 0)], 8),
        ("SCATTER", [(24, 8), (0, 8), (0, 8)], 8),
        ("ALLREDUCE", [(24, 24)] * 3, 8),
        ("ALLREDUCE", [(16, 16)] * 3, 8),  # in place: the own share is left out
        ("ALLGATHER", [(24, 24)] * 3, 8),
        ("ALLTOALL", [(24, 24)] * 3, 8),
        ("SCAN", [(24, 8), (16, 16), (8, 24)], 8),
        ("EXSCAN", [(16, 0), (8, 8), (0, 16)], 8),
    ],
)
@pytest.mark.parametrize("nonblocking", [False, True])
def test_sizes_of_collectives(name: str, totals: list[tuple[int, int]], expected: int, nonblocking: bool) -> None:
    ranks = []
    for sent, received in totals:
        end = collective(name, sent, received, root=0)
        if nonblocking:
            end = collective(name, sent, received, 0, code=COLLECTIVE_COMPLETE, number=5)
            ranks.append(Script().call("MPI_Collective", request(COLLECTIVE_REQUEST, 5)).call("MPI_Wait", end))
        else:
            ranks.append(Script().call("MPI_Collective", (COLLECTIVE_BEGIN,), end))
    workload = read(*ranks)

    kind = name.lower()
    assert [rows(workload, rank)[0]["kind"] for rank in range(3)] == [f"i{kind}" if nonblocking else kind] * 3
    assert [rows(workload, rank)[0]["bytes"] for rank in range(3)] == [expected] * 3
    assert makespan_s(workload) > 0


@pytest.mark.theory
@pytest.mark.parametrize(
    ("name", "totals", "side", "expected"),
    [
        ("GATHERV", [(8, 24), (16, 0)], "receive_counts", [8, 16]),
        ("SCATTERV", [(24, 8), (0, 16)], "send_counts", [8, 16]),
        ("ALLGATHERV", [(16, 24), (32, 24)], "receive_counts", [8, 16]),
        ("REDUCE_SCATTER", [(24, 16), (24, 32)], "receive_counts", [8, 16]),
        ("ALLTOALLV", [(9, 9), (9, 9)], "send_counts", [5, 4]),
    ],
)
def test_sizes_of_vector_collectives(name: str, totals: list[tuple[int, int]], side: str, expected: list[int]) -> None:
    workload = read(*(Script().call("MPI_Collective", collective(name, *total, root=0)) for total in totals))

    assert [rows(workload, rank)[0][side] for rank in (0, 1)] == [expected] * 2
    assert any("record their sums only" in note for note in told(workload.notes)) == (name == "ALLTOALLV")
    assert makespan_s(workload) > 0


def test_messages_that_do_not_pair_up_are_refused_if_the_archive_warns() -> None:
    ranks = Script().call("MPI_Send", send(1, 3)), Script().call("MPI_Init")

    with pytest.raises(
        UserError, match=r"MPI_COMMUNICATION_COMPLETE = false\): 1 sends from rank 0 to rank 1 with tag 3"
    ):
        read(*ranks, is_complete=False)


@pytest.mark.theory
def test_regions_that_are_never_left() -> None:
    mine = Script()
    mine.add(ENTER, REGION["main"])
    mine.add(ENTER, REGION["work"])
    mine.call("MPI_Init")
    mine.add(LEAVE, REGION["main"])
    mine.add(LEAVE, REGION["work"])
    workload = read(mine)

    assert kinds(workload) == ["init", "finalize"]
    assert any(note.startswith("1 regions are left") for note in told(workload.notes))


@pytest.mark.theory
def test_measured_times() -> None:
    workload = read(Script().call("MPI_Init"), Script().add(ENTER, REGION["main"], ticks=5).call("MPI_Init"))

    assert workload.column("measured", "start_ps").tolist() == [0, 1, 5, 6]
    assert workload.column("measured", "end_ps").tolist() == [1, 1, 6, 6]
    assert OperationKind.finalize.name in kinds(workload)


@needs_package
@pytest.mark.property
@pytest.mark.parametrize("file", ["traces.otf2", "traces.def", "traces/0.def"])
def test_a_file_cut_short_is_read_or_refused(file: str, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    shutil.copytree(data / "pipit-ping-pong", folder)
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) // 2])

    with contextlib.suppress(UserError):
        otf2.read(folder)


@pytest.mark.theory
def test_work_between_polls_is_marked() -> None:
    mine = (
        Script()
        .call("MPI_Irecv", request(IRECEIVE_REQUEST, 7))
        .call("MPI_Test", request(REQUEST_TEST, 7))
        .call("MPI_Test", request(REQUEST_TEST, 7))
        .call("MPI_Test", (IRECEIVE, 1, 0, 6, 300, 7))
        .call("MPI_Iprobe")
        .call("MPI_Iprobe")
        .call("MPI_Recv", receive(1, 5, 8))
    )
    workload = read(mine, Script().call("MPI_Send", send(0, 6, 300)).call("MPI_Send", send(0, 5, 8)))

    assert kinds(workload)[:7] == ["irecv", "test", "test", "wait", "other", "other", "recv"]
    of_rank = workload.column("phases", "rank") == 0
    kind = dict(
        zip(*(workload.column("phases", name)[of_rank].tolist() for name in ("operation_id", "kind")), strict=True)
    )
    # the first probe comes after a success: what was computed before it may be what was done with the message
    assert [kind.get(each, 0) for each in range(1, 7)] == [0, 2, 2, 0, 2, 0]
