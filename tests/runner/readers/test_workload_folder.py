"""The project's own workload folder: what is read back is what was written, and every change is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from gpu_steps import Steps

from manyscale.models.workload import REQUIRED_LEVELS, PhaseKind
from manyscale.models.workload.gpu_tables import GpuOperationKind
from manyscale.runner.errors import UserError
from manyscale.runner.readers import simgrid_ti, workload_folder

PROGRAM = {
    0: ["init", "location a.c 5", "compute 10", "isend 1 7 8 6", "wait 0 1 7", "alltoallv 8 3 4 9 5 6 1 0", "finalize"],
    1: ["init", "location b.c 6", "recv 0 7 8 6", "alltoallv 8 3 4 9 5 6 1 0"],
}


@pytest.fixture
def workload(write_trace):
    return simgrid_ti.read(write_trace(PROGRAM))


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_round_trip(tmp_path, workload, compression):
    workload_folder.write(workload, tmp_path / "w", compression=compression)
    assert workload_folder.can_read(tmp_path / "w")
    again = workload_folder.read(tmp_path / "w")
    assert again == workload
    assert (again.digest, again.notes, again.source_format) == (workload.digest, workload.notes, "simgrid-ti")


def test_convert_keeps_the_digest_and_tells_the_notes(cli, write_trace, workload, tmp_path):
    outcome = cli("convert", write_trace(PROGRAM, "again"), "-o", "w")
    assert (outcome.status, outcome.err) == (0, "")
    assert "2 ranks, 9 operations: w" in outcome.out
    assert "note: changes [no-finalize] 1 ranks end without finalize" in outcome.out
    assert workload_folder.read(tmp_path / "w").digest == workload.digest
    assert cli("convert", "w", "-o", "w2").status == 0
    assert workload_folder.read(tmp_path / "w2").digest == workload.digest


def test_convert_leaves_out_what_only_polling_did_where_a_format_cannot_tell_it(cli, write_trace):
    lines = ["init", "irecv 1 0 8 6", "test 1 0 0", "compute 5e6", "test 1 0 0", "finalize"]
    trace = write_trace({0: lines, 1: ["init", "send 0 0 8 6", "finalize"]})
    assert cli("convert", trace, "-o", "w").status == 0
    assert workload_folder.read(Path("w")).column("phases", "kind").tolist() == [PhaseKind.polled_compute]
    for name, further, phases in (("t", (), []), ("kept", ("--set", "workload.polls=keep"), [5 * 10**9])):
        assert cli("convert", trace, "--to", "simgrid-ti", "-o", name, *further).status == 0
        assert simgrid_ti.read(Path(name)).column("phases", "duration_ps").tolist() == phases


def test_a_converted_trace_predicts_the_same(cli, write_trace, tmp_path):
    trace = write_trace(PROGRAM)
    assert cli("convert", trace, "-o", "w").status == 0
    for path, output in ((trace, "a"), ("w", "b")):
        assert cli("run", "--workload", path, "--target", "laptop", "-o", output, "--no-report").status == 0
    for name in ("stats.json", "timeline/ranks.parquet", "timeline/messages.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("level", REQUIRED_LEVELS)
def test_a_changed_table_is_noticed(tmp_path, workload, level):
    folder = tmp_path / "w"
    workload_folder.write(workload, folder)
    table = pa.ipc.open_file(str(folder / f"{level}.arrow")).read_all()
    with pa.ipc.new_file(str(folder / f"{level}.arrow"), table.schema) as writer:
        writer.write_table(pa.concat_tables([table, table.slice(0, 1)]).combine_chunks())
    with pytest.raises(UserError, match=r"workload.json: the tables were changed .*; convert the original trace again"):
        workload_folder.read(folder)


@pytest.mark.parametrize("level", REQUIRED_LEVELS)
@pytest.mark.parametrize("content", [None, b"", b"ARROW1 nothing"])
def test_a_damaged_or_missing_table_is_noticed(tmp_path, workload, level, content):
    workload_folder.write(workload, tmp_path / "w")
    path = tmp_path / "w" / f"{level}.arrow"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match=r"workload.json: the workload is damaged .*; convert the original trace again"):
        workload_folder.read(tmp_path / "w")


def header(folder, **changes: object) -> None:
    content = json.loads((folder / "workload.json").read_text())
    merged = {key: value for key, value in {**content, **changes}.items() if value != "gone"}
    (folder / "workload.json").write_text(json.dumps(merged))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 99}, "version 99 is not 4"),
        ({"digest": "0"}, "were changed"),
        ({"num_ranks": 3}, "were changed"),
        ({"num_ranks": 0}, "0 ranks; between 1 and"),
        ({"num_ranks": "two"}, "damaged"),
        ({"notes": "gone"}, "damaged"),
        ({"notes": ["as before version 4"]}, "damaged"),
        ({"notes": [{"code": "a", "severity": "harms", "text": "b"}]}, "damaged"),
        ({"name": "gone"}, "damaged"),
    ],
)
def test_a_changed_header_is_noticed(tmp_path, workload, changes, words):
    workload_folder.write(workload, tmp_path / "w")
    header(tmp_path / "w", **changes)
    with pytest.raises(UserError, match=words):
        workload_folder.read(tmp_path / "w")


@pytest.mark.parametrize("content", [b"", b"[]", b"5", b"\xff\xfe", b"{"])
def test_a_damaged_header_is_noticed(cli, tmp_path, workload, content):
    workload_folder.write(workload, tmp_path / "w")
    (tmp_path / "w" / "workload.json").write_bytes(content)
    outcome = cli("convert", "w", "-o", "out")
    assert outcome.status == 2
    assert outcome.err.startswith("manyscale: w/workload.json: the workload is damaged")
    assert len(outcome.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_header_is_not_a_workload(tmp_path, workload):
    workload_folder.write(workload, tmp_path / "w")
    (tmp_path / "w" / "workload.json").unlink()
    assert not workload_folder.can_read(tmp_path / "w")


def test_a_kept_trace_is_read_again_if_it_was_damaged(cli, private_cache, tmp_path):
    (tmp_path / "t.txt").write_text("0 init\n0 compute 5\n0 finalize\n")
    command = ("run", "--workload", "t.txt", "--target", "laptop", "--no-report", "-o")
    assert cli(*command, "a").status == 0
    [kept] = (private_cache / "workloads").iterdir()
    (kept / "operations.arrow").write_bytes(b"")
    assert cli(*command, "b").status == 0
    assert (tmp_path / "a" / "stats.json").read_bytes() == (tmp_path / "b" / "stats.json").read_bytes()
    assert [path.name for path in (private_cache / "workloads").iterdir()] == [kept.name]
    assert (kept / "operations.arrow").stat().st_size > 0


def test_a_cache_that_fills_up_holds_no_halves(cli, private_cache, tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text("0 init\n0 finalize\n")

    def fill_up(workload, path, **_options):
        path.mkdir(parents=True)
        (path / "operations.arrow").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(workload_folder, "write", fill_up)
    outcome = cli("run", "--workload", "t.txt", "--target", "laptop", "-o", "out")
    assert outcome.status == 2
    assert outcome.err.startswith(
        f"manyscale: {private_cache}/workloads: cannot be written: its file system is full; make room"
    )
    assert list((private_cache / "workloads").iterdir()) == []
    assert not (tmp_path / "out").exists()


def test_notes_of_a_folder_that_had_no_codes_are_kept(tmp_path, workload):
    workload_folder.write(workload, tmp_path / "w")
    header(tmp_path / "w", version=3, notes=["7 calls are left out"])
    (note,) = workload_folder.read(tmp_path / "w").notes
    assert (note.code, note.severity, note.text) == ("note-without-code", "changes", "7 calls are left out")


@pytest.mark.parametrize(
    ("level", "columns"),
    [("gpu_operations", ["thread", "kernel_id", "duration_ps"]), ("kernels", ["blocks", "block_threads"])],
)
def test_tables_of_gpus_that_were_written_before_they_had_all_columns(tmp_path, level, columns):
    """As `manyscale trace` and `convert` wrote them: the digest is that of the tables as they stand in the folder."""
    steps = Steps()
    if level == "kernels":
        steps.launch(0, 100, flops=2.0, moves=8.0)
    else:
        steps.copy(0, GpuOperationKind.copy_to_device, 100)
    workload = steps.workload()
    table = workload.tables[level].drop_columns(columns)
    workload_folder.write(workload, tmp_path / "w")
    with (
        pa.OSFile(str(tmp_path / "w" / f"{level}.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    header = json.loads((tmp_path / "w" / "workload.json").read_text())
    with pytest.raises(UserError, match="were changed"):
        workload_folder.read(tmp_path / "w")
    header["digest"] = workload.digest_with({level: table})
    (tmp_path / "w" / "workload.json").write_text(json.dumps(header))
    again = workload_folder.read(tmp_path / "w")
    assert again.tables[level].equals(workload.tables[level])
    assert again.digest == workload.digest
    assert workload_folder.read(tmp_path / "w", verify=False).digest == workload.digest
