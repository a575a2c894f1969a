"""The reader of Dimemas traces: every record, and every way in which a file may be wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from told import told

from manyscale.models.network.program import build_program
from manyscale.models.workload import ANY_SOURCE, NO_RANK, OperationKind, PhaseKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers import dimemas as dimemas_dim
from manyscale.runner.readers.dimemas.operations import GLOBAL_KINDS

DATA = Path(__file__).parents[2] / "data" / "dimemas"


def trace_text(threads, records, definitions=(), *, offsets=True):
    """A .dim file of records per (task, thread), with a right table of offsets."""
    definitions = definitions or [f"d:1:1:{len(threads)}:" + ":".join(map(str, range(len(threads))))]
    width = len(f'#DIMEMAS:"toy":1,{0:015d}:') if offsets else len('#DIMEMAS:"toy":0:')
    rest = f"{len(threads)}({','.join(map(str, threads))}),{len(definitions)},0,0\n"
    place = width + len(rest) + sum(len(line) + 1 for line in definitions)
    body, table = "", {}
    for (task, _), lines in records.items():
        table.setdefault(task, []).append(place + len(body))
        body += "".join(f"{line}\n" for line in lines)
    head = f'#DIMEMAS:"toy":1,{place + len(body):015d}:' if offsets else '#DIMEMAS:"toy":0:'
    tail = "".join(f"s:{task}:{':'.join(map(str, places))}\n" for task, places in table.items()) if offsets else ""
    return head + rest + "".join(f"{line}\n" for line in definitions) + body + tail


@pytest.fixture
def read(tmp_path):
    def of(threads, records, definitions=(), **options):
        path = tmp_path / "toy.dim"
        path.write_text(trace_text(threads, records, definitions, **options))
        return dimemas_dim.read(path)

    return of


def pair(first, second):
    """Two tasks of one thread."""
    return [1, 1], {(0, 0): first, (1, 0): second}


def operations(workload):
    return workload.tables["operations"].to_pylist()


def kinds(workload, rank):
    return [row["kind"] for row in operations(workload) if row["rank"] == rank]


def test_bursts_are_phases_before_the_next_operation(read):
    burst = ["1:0:0:0.000000001", "1:0:0:1.5", "2:0:0:1:-1:8:3:1:0", "0:0:0", "1:0:0:2e-06"]
    workload = read(*pair(burst, ["3:1:0:0:-1:8:3:1:0"]))
    phases = workload.tables["phases"].to_pydict()
    assert phases["operation_id"] == [0, 0, 1]
    assert phases["duration_ps"] == [1000, 1_500_000_000_000, 2_000_000]
    assert kinds(workload, 0) == ["send", "other"]  # the last holds the burst that nothing follows
    assert kinds(workload, 1) == ["recv"]
    assert workload.name == "toy"


@pytest.mark.parametrize(("sync", "kind"), [(0, "send"), (1, "ssend"), (2, "isend"), (3, "issend")])
def test_the_bits_of_a_send(read, sync, kind):
    workload = read(*pair([f"2:0:0:1:-1:70000:3:1:{sync}"], ["3:1:0:0:-1:70000:3:1:0"]))
    row = operations(workload)[0]
    assert (row["kind"], row["peer"], row["bytes"], row["tag"]) == (kind, 1, 70000, 3)
    assert (row["request"] >= 0) == (sync >= 2)


def test_records_without_the_partner_s_thread(read):
    workload = read(*pair(["2:0:0:1:8:3:1:0"], ["3:1:0:0:8:3:1:0"]))
    assert [row["peer"] for row in operations(workload)] == [1, 0]


def test_a_wait_completes_the_oldest_receive_of_its_source_and_tag(read):
    receiver = [
        *(f"3:1:0:0:-1:8:{tag}:1:1" for tag in (5, 6, 5)),
        *(f"3:1:0:0:-1:8:{tag}:1:2" for tag in (6, 5, 5)),
    ]
    workload = read(*pair([f"2:0:0:1:-1:8:{tag}:1:2" for tag in (5, 6, 5)], receiver))
    rows = [row for row in operations(workload) if row["rank"] == 1]
    assert [row["request"] for row in rows[:3]] == [0, 1, 2]
    assert [row["completes"] for row in rows[3:]] == [[1], [0], [2]]
    build_program(workload, "mpich")  # sends match receives


def test_a_receive_from_any_source(read):
    workload = read(*pair(["2:0:0:1:-1:8:3:1:0"], ["3:1:0:-1:-1:8:3:1:0"]))
    assert operations(workload)[1]["peer"] == ANY_SOURCE


def test_receives_that_nobody_waits_for_are_noted(read):
    workload = read(*pair(["2:0:0:1:-1:8:3:1:0"], ["3:1:0:0:-1:8:3:1:1"]))
    assert told(workload.notes) == ("1 non-blocking receives and collectives are never waited for: nobody does",)


def everyone(number, sent, received, flags=(0, 0, 1), mode=1):
    return [1, 1, 1], {
        (task, 0): [f"10:{task}:0:{number}:1:{flags[task]}:0:{sent[task]}:{received[task]}:{mode}"] for task in range(3)
    }


@pytest.mark.parametrize(
    ("number", "sent", "received", "kind", "bytes"),
    [
        (0, (0, 0, 0), (0, 0, 0), "barrier", (0, 0, 0)),
        (1, (0, 0, 9), (9, 9, 0), "bcast", (9, 9, 9)),
        (2, (9, 9, 9), (0, 0, 27), "gather", (9, 9, 9)),
        (4, (0, 0, 27), (9, 9, 9), "scatter", (9, 9, 9)),
        (6, (9, 9, 9), (27, 27, 27), "allgather", (9, 9, 9)),
        (8, (9, 9, 9), (27, 27, 27), "alltoall", (9, 9, 9)),
        (11, (9, 9, 9), (9, 9, 9), "allreduce", (9, 9, 9)),
        (14, (9, 9, 9), (9, 9, 9), "scan", (9, 9, 9)),
    ],
)
def test_collectives_and_their_sizes(read, number, sent, received, kind, bytes):
    rows = operations(read(*everyone(number, sent, received)))
    assert [row["kind"] for row in rows] == [kind] * 3
    assert tuple(row["bytes"] for row in rows) == bytes
    rooted = kind in ("bcast", "gather", "scatter")
    assert {row["peer"] for row in rows} == {2 if rooted else NO_RANK}


def test_a_reduction_names_its_root_s_task(read):
    rows = operations(read(*everyone(10, (9, 9, 9), (0, 9, 0), flags=(1, 1, 1))))
    assert [(row["kind"], row["peer"], row["bytes"]) for row in rows] == [("reduce", 1, 9)] * 3


@pytest.mark.parametrize(
    ("number", "sent", "received", "side", "row", "counts"),
    [
        (3, (1, 2, 3), (0, 0, 6), "receive_counts", 2, [1, 2, 3]),
        (5, (0, 0, 6), (1, 2, 3), "send_counts", 2, [1, 2, 3]),
        (7, (1, 2, 3), (6, 6, 6), "receive_counts", 0, [1, 2, 3]),
        (12, (6, 6, 6), (1, 2, 3), "receive_counts", 0, [1, 2, 3]),
    ],
)
def test_irregular_collectives_list_the_sizes_of_all(read, number, sent, received, side, row, counts):
    assert operations(read(*everyone(number, sent, received)))[row][side] == counts


def test_an_irregular_all_to_all_is_spread_over_its_receivers(read):
    workload = read(*everyone(9, (12, 0, 24), (6, 12, 18)))
    assert [row["send_counts"] for row in operations(workload)] == [[2, 4, 6], [0, 0, 0], [4, 8, 12]]
    assert "1 irregular all-to-alls record totals only" in told(workload.notes)[0]


def test_non_blocking_collectives_complete_in_their_order(read):
    lines = {
        (task, 0): [
            f"10:{task}:0:11:1:{int(task == 0)}:0:8:8:0",
            f"10:{task}:0:0:1:{int(task == 0)}:0:0:0:0",
            f"10:{task}:0:0:1:0:0:0:0:2",
            f"10:{task}:0:0:1:0:0:0:0:2",
        ]
        for task in range(2)
    }
    workload = read([1, 1], lines)
    assert kinds(workload, 0) == ["iallreduce", "ibarrier", "wait", "wait"]
    assert [row["completes"] for row in operations(workload)[2:4]] == [[0], [1]]


def test_communicators_the_world_first(read):
    definitions = ["d:1:4:2:2:0", "d:1:9:3:0:1:2", "d:2:1:ignored"]
    lines = {(0, 0): ["10:0:0:11:4:0:0:8:8:1"], (1, 0): ["1:1:0:0.1"], (2, 0): ["10:2:0:1:4:1:0:8:0:1"]}
    lines[(0, 0)] = ["10:0:0:1:4:0:0:0:8:1"]
    workload = read([1, 1, 1], lines, definitions)
    assert workload.tables["communicators"]["members"].to_pylist() == [[0, 1, 2], [2, 0]]
    rows = [row for row in operations(workload) if row["kind"] == "bcast"]
    assert [(row["communicator_id"], row["peer"]) for row in rows] == [(1, 0), (1, 0)]  # task 2 is its first member


def test_user_events_name_the_innermost_region(read):
    lines = [
        "1:0:0:0.1", "20:0:0:60000019:5", "1:0:0:0.1", "20:0:0:1000:2", "1:0:0:0.1", "20:0:0:50000001:1", "1:0:0:0.1",
        "20:0:0:1000:0", "1:0:0:0.1", "20:0:0:60000019:0", "1:0:0:0.1", "20:0:0:42000050:77", "1:0:0:0.1",
    ]  # fmt: skip
    workload = read([1], {(0, 0): lines})
    names = workload.tables["regions"]["name"].to_pylist()
    found = [names[region] if region >= 0 else None for region in workload.column("phases", "region_id")]
    assert found == [None, "60000019:5", "1000:2", "1000:2", "60000019:5", None, None]


def test_other_threads_are_left_out_and_noted(read):
    workload = read([2, 1], {(0, 0): ["1:0:0:0.1"], (0, 1): ["1:0:1:0.5"], (1, 0): ["1:1:0:0.2"]})
    assert workload.column("phases", "duration_ps").tolist() == [10**11, 2 * 10**11]
    assert told(workload.notes)[0].startswith("1 records of threads other than the first")


def test_bursts_on_a_gpu_do_not_scale(read):
    workload = read([1], {(0, 0): ["11:0:0:0.5"]})
    assert workload.column("phases", "kind").tolist() == [PhaseKind.sleep]


def test_a_file_without_offsets_is_read_in_order(read):
    workload = read(*pair(["2:0:0:1:-1:8:3:1:0"], ["3:1:0:0:-1:8:3:1:0"]), offsets=False)
    assert kinds(workload, 1) == ["recv"]
    assert "no table of offsets" in told(workload.notes)[0]


def test_tasks_may_stand_in_any_order(read):
    workload = read([1, 1], {(1, 0): ["3:1:0:0:-1:8:3:1:0"], (0, 0): ["2:0:0:1:-1:8:3:1:0"]})
    assert kinds(workload, 0) == ["send"]


def test_compressed_and_archived_traces_are_the_same(tmp_path, tar_bytes):
    text = gzip.decompress((DATA / "links.dim.gz").read_bytes())
    plain, archive = tmp_path / "links.dim", tmp_path / "links.tar"
    plain.write_bytes(text)
    archive.write_bytes(tar_bytes({"a/links.pcf": b"#", "a/links.dim": text}))
    digests = {dimemas_dim.read(path).digest for path in (plain, archive, DATA / "links.dim.gz")}
    assert len(digests) == 1
    assert all(dimemas_dim.can_read(path) for path in (plain, archive, DATA / "links.dim.gz"))
    assert not dimemas_dim.can_read(DATA / "dim8.cfg")
    assert not dimemas_dim.can_read(tmp_path)


def test_blocks_of_any_size_give_the_same(tmp_path, monkeypatch):
    whole = dimemas_dim.read(DATA / "links.dim.gz").digest
    monkeypatch.setattr("manyscale.runner.readers.dimemas.reader.CHUNK_BYTES", 300)
    assert dimemas_dim.read(DATA / "links.dim.gz").digest == whole


def test_carriage_returns_and_blank_lines_are_no_records(tmp_path):
    text = trace_text(*pair(["1:0:0:0.5", "2:0:0:1:-1:8:3:1:0"], ["3:1:0:0:-1:8:3:1:0"]), offsets=False)
    path = tmp_path / "toy.dim"
    path.write_bytes(text.replace("\n", "\r\n").encode() + b"\r\n")
    assert kinds(dimemas_dim.read(path), 0) == ["send"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("1:0:0:0.5", "1:0:0:x"), r"toy.dim:3: '1:0:0:x' has a duration that is no number of seconds"),
        (("1:0:0:0.5", "1:0:0:-1"), r":3: .* has a duration that is no number"),
        (("1:0:0:0.5", "1:0:0"), r":3: .* wrong number of fields"),
        (("1:0:0:0.5", "7:0:0:1"), r":3: .* unknown record type"),
        (("1:0:0:0.5", "CPU"), r":3: 'CPU' is no record"),
        (("1:0:0:0.5", "1:2:0:0.5"), r":3: is of task 2; the header has 2"),
        (("1:0:0:0.5", "1:0:1:0.5"), r":3: is of thread 1 of task 0; the header has 1 there"),
        (("-1:8:3:1:0", "-1:8:3:1:4"), r":4: is a send of unknown kind"),
        (("2:0:0:1:", "2:0:0:5:"), r":4: names a task beyond the last, 1"),
        (("2:0:0:1:-1", "2:0:0:1:0"), r":4: is a synchronisation of threads"),
        (("-1:8:3:1:0", "-1:8:3:7:0"), r":4: names communicator 7, which no line d:1: defines"),
        (("3:1:0:0:-1:8:3:1:0", "3:1:0:0:-1:8:3:1:2"), r":5: waits for a non-blocking receive that no record before"),
        (("3:1:0:0:-1:8:3:1:0", "10:1:0:0:1:0:0:0:0:2"), r":5: waits for a non-blocking collective that no record"),
        (("3:1:0:0:-1:8:3:1:0", "10:1:0:11:1:0:0:8:8:1"), r":5: is a collective that some member of its communicator"),
        (("3:1:0:0:-1:8:3:1:0", "10:1:0:16:1:0:0:8:8:1"), r":5: is an unknown collective"),
        (("d:1:1:2:0:1", "d:1:1:2:0:2"), r":2: 'd:1:1:2:0:2' has members that are not different tasks"),
        (("d:1:1:2:0:1", "d:1:1:3:0:1"), r":2: 'd:1:1:3:0:1' is no communicator"),
        (("2(1,1)", "3(1,1)"), r":1: 3 tasks, but 2 numbers of threads"),
        (('#DIMEMAS:"toy":0:', '#DIMEMAS2:"toy":0:'), r":1: the header is not #DIMEMAS"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(tmp_path, change, message):
    text = trace_text(*pair(["1:0:0:0.5", "2:0:0:1:-1:8:3:1:0"], ["3:1:0:0:-1:8:3:1:0"]), offsets=False)
    assert change[0] in text
    path = tmp_path / "toy.dim"
    path.write_text(text.replace(*change, 1))
    with pytest.raises(UserError, match=message) as error:
        dimemas_dim.read(path)
    assert "\n" not in str(error.value)


def test_offsets_that_do_not_fit_are_refused(tmp_path):
    text = trace_text(*pair(["1:0:0:0.5", "2:0:0:1:-1:8:3:1:0"], ["3:1:0:0:-1:8:3:1:0"]))
    path = tmp_path / "toy.dim"
    path.write_text(text.replace("1:0:0:0.5", "1:0:0:0.55"))  # one byte more
    with pytest.raises(UserError, match=r"toy.dim:1: the header puts the table of offsets at byte \d+, it is at \d+"):
        dimemas_dim.read(path)
    line = text.splitlines()[-1]
    path.write_text(text.replace(line, line[:-1] + str((int(line[-1]) + 1) % 10)))
    with pytest.raises(
        UserError, match=r"toy.dim:7: the table puts task 1, thread 0 at byte \d+, its records begin at"
    ):
        dimemas_dim.read(path)
    path.write_text(text[: text.index("s:0:")])
    with pytest.raises(UserError, match=r"the table of offsets \(lines s:\) is missing; the file may be cut short"):
        dimemas_dim.read(path)


def test_records_of_a_thread_that_are_apart_are_refused(read):
    with pytest.raises(UserError, match=r"toy.dim:5: continues task 0, thread 0"):
        read([1, 1], {(0, 0): ["1:0:0:0.1"], (1, 0): ["1:1:0:0.1", "1:0:0:0.1"]}, offsets=False)


def test_a_task_without_records_is_refused(read):
    with pytest.raises(UserError, match=r"toy.dim: task 1 has no records"):
        read([1, 1], {(0, 0): ["1:0:0:0.1"]}, offsets=False)


def test_the_old_format_is_refused_by_name(tmp_path):
    path = tmp_path / "old.trf"
    path.write_text('SDDFA;;\n#1:\n"CPU burst" {\n')
    assert dimemas_dim.can_read(path)
    with pytest.raises(UserError, match=r"old.trf:1: is a trace of the old Dimemas format .* trf2dim of Dimemas 5.3.0"):
        dimemas_dim.read(path)


def test_a_cut_archive_is_one_line(tmp_path):
    path = tmp_path / "cut.dim.gz"
    path.write_bytes((DATA / "links.dim.gz").read_bytes()[:-200])
    with pytest.raises(UserError, match=r"cut.dim.gz: the archive is damaged or cut short"):
        dimemas_dim.read(path)


def test_all_kinds_of_collectives_have_a_number():
    names = [OperationKind(int(kind)).name for kind in GLOBAL_KINDS]
    assert len(names) == 16
    assert (names[0], names[11]) == ("barrier", "allreduce")
