"""A workload written as GOAL and read again is predicted the same, to the picosecond."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from manyscale.models.machine import Link, Network
from manyscale.models.network import latency_bandwidth
from manyscale.models.network.loggops import model as loggops
from manyscale.models.network.loggops.parameters import LogGops
from manyscale.models.network.operation_graph import is_ordered
from manyscale.models.network.program import build_program
from manyscale.models.network.replay.timeline import Placement
from manyscale.models.workload import Workload
from manyscale.runner import shipped
from manyscale.runner.errors import UserError
from manyscale.runner.readers import goal, simgrid_ti
from manyscale.runner.readers.options import ReadOptions
from manyscale.runner.report.traces import goal as goal_writer
from manyscale.runner.report.traces.goal import write_trace
from manyscale.runner.run.pipeline import compute_per_operation

CASES = Path(__file__).parents[2] / "data" / "goal"


def makespan_ps(workload: Workload, model, preset: str = "mpich", overhead_bandwidth: str = "2 GB/s") -> int:
    route = {"latency": "2 us", "bandwidth": "1 GB/s"}
    network = Network(
        **route, envelope="0 B", eager_threshold="8192 B", transfer_start="match", collectives=preset,
        intra_node=Link(**route), self=Link(**route),
        loggops=LogGops(overhead="500 ns", gap="200 ns", overhead_bandwidth=overhead_bandwidth),
    )  # fmt: skip
    program = build_program(workload, preset, keep_graph=True)
    compute = compute_per_operation(workload, workload.column("phases", "duration_ps"))
    return model.replay(program, compute, network, Placement.one_per_node(workload.num_ranks)).makespan_ps


def again(workload: Workload, folder: Path, **options: object) -> Workload:
    write_trace(workload, folder / "written.goal", **options)
    return goal.read(folder / "written.goal")


def trace(folder: Path, *ranks: str, flop_rate: float = 1e9) -> Workload:
    path = folder / "actions.txt"
    lines = [
        f"{rank} {line.strip()}" for rank, text in enumerate(ranks) for line in ["init", *text.split(";"), "finalize"]
    ]
    path.write_text("\n".join(line for line in lines if line.split()[1:]) + "\n")
    return simgrid_ti.read(path, ReadOptions(flop_rate=flop_rate))


@pytest.mark.property
@pytest.mark.parametrize("model", [latency_bandwidth, loggops], ids=lambda model: model.NAME)
@pytest.mark.parametrize("name", ["comd-8", "hpcg-8", "lulesh-8", "nas-cg-A-8", "nas-is-A-8"])
def test_prediction_survives(tmp_path, name, model):
    workload = simgrid_ti.read(shipped.folder() / f"{name}.tar.zst")
    written = again(workload, tmp_path)
    assert is_ordered(written)
    assert makespan_ps(written, model) == makespan_ps(workload, model)


@pytest.mark.property
@pytest.mark.parametrize("preset", ["mpich", "simgrid-3.32"])
def test_collectives_are_those_of_the_preset(tmp_path, preset):
    workload = trace(tmp_path, *["compute 10; allreduce 1000 0 6; compute 20; alltoall 3000 3000 6 6"] * 6)
    written = again(workload, tmp_path, collectives=preset)
    assert makespan_ps(written, loggops, preset) == makespan_ps(workload, loggops, preset)


def test_convert_takes_the_collectives_of_a_target(cli, write_trace):
    trace_file = write_trace({rank: ["init", "allreduce 1000 0 6", "barrier", "finalize"] for rank in range(6)})
    workload = simgrid_ti.read(trace_file)
    texts = {}
    for preset, further in (("mpich", ()), ("simgrid-3.32", ("--target", "crossbar256"))):
        assert cli("convert", trace_file, "--to", "goal", "-o", preset, *further).status == 0
        texts[preset] = Path(preset, "schedule.goal").read_text()
        folder = Path(f"{preset}-expected")
        folder.mkdir()
        goal_writer.write_trace(workload, folder, collectives=preset)
        assert texts[preset] == (folder / "schedule.goal").read_text()
    assert texts["mpich"] != texts["simgrid-3.32"]
    refused = cli("convert", trace_file, "--to", "simgrid-ti", "-o", "ti", "--target", "laptop")
    assert refused.status == 2
    assert "names collectives, whatever the machine" in refused.err


def test_messages_of_collectives_have_tags_of_their_own(tmp_path):
    ring = [f"isend {(r + 1) % 4} 0 8; recv {(r + 3) % 4} 0 8; allreduce 8 0 6; barrier" for r in range(4)]
    write_trace(trace(tmp_path, *ring), tmp_path)
    sent = re.findall(r"send (\d+)b to \d+ tag (\d+)", (tmp_path / "schedule.goal").read_text())
    of_collectives = [int(tag) for _, tag in sent if int(tag) > 0]
    assert len(set(of_collectives)) == len(of_collectives) >= 4 * 2 * 2


def test_the_text_of_a_small_workload(tmp_path):
    workload = trace(
        tmp_path, "compute 5; isend 1 7 100; compute 6; recv 1 8 20", "irecv 0 7 100; send 0 8 20; wait 0 1 7"
    )
    write_trace(workload, tmp_path)
    assert (tmp_path / "schedule.goal").read_text() == (
        "// time unit: 1 ns\nnum_ranks 2\n"
        "\nrank 0 {\nl0: calc 5\nl1: send 100b to 1 tag 7\nl2: calc 6\nl3: recv 20b from 1 tag 8\n"
        "l1 requires l0\nl2 irequires l1\nl3 requires l2\n}\n"
        "\nrank 1 {\nl0: recv 100b from 0 tag 7\nl1: send 20b to 0 tag 8\nl1 irequires l0\n}\n"
    )


def test_times_below_a_nanosecond_choose_picoseconds(tmp_path):
    workload = trace(tmp_path, "compute 3; send 1 0 8", "recv 0 0 8; compute 7", flop_rate=2e9)
    written = again(workload, tmp_path)
    assert (tmp_path / "written.goal").read_text().startswith("// time unit: 1 ps\n")
    assert makespan_ps(written, loggops) == makespan_ps(workload, loggops)


def test_rounding_is_told(tmp_path):
    workload = trace(tmp_path, "compute 3; send 1 0 8", "recv 0 0 8; compute 8", flop_rate=2e9)
    written = again(workload, tmp_path, time_unit_ps=1000)
    assert "// 1 times were rounded to the unit\n" in (tmp_path / "written.goal").read_text()
    assert written.column("phases", "duration_ps").tolist() == [2000, 4000]


@pytest.mark.parametrize("path", sorted(CASES.glob("*.goal")), ids=lambda path: path.stem)
def test_graphs_are_written_as_they_are(tmp_path, path):
    workload = goal.read(path)
    write_trace(workload, tmp_path / path.name)
    assert goal.read(tmp_path / path.name).digest == workload.digest


def test_communicators_get_tags_of_their_own(tmp_path):
    """Messages of one tag on two communicators do not meet."""
    workload = trace(tmp_path, "isend 1 5 100; isend 1 5 200", "recv 0 5 200; recv 0 5 100")
    table = workload.tables["operations"]
    column = table.schema.get_field_index("communicator_id")
    ids = [1 if size == 200 else 0 for size in map(max, table["bytes"].to_pylist(), table["receive_bytes"].to_pylist())]
    table = table.set_column(column, table.schema.field(column), pa.array(ids, pa.int32()))
    communicators = workload.tables["communicators"]
    both = {"operations": table, "communicators": communicators.take([0, 0])}
    split = Workload("split", 2, {**workload.tables, **both})
    text = again(split, tmp_path) and (tmp_path / "written.goal").read_text()
    sent = re.findall(r"send (\d+)b to 1 tag (\d+)", text)
    received = re.findall(r"recv (\d+)b from 0 tag (\d+)", text)
    assert sorted(sent) == sorted(received)
    assert len({tag for _, tag in sent}) == 2


class TestRefused:
    def test_wait_for_any(self, tmp_path):
        workload = trace(tmp_path, "irecv 1 0 8; irecv 1 1 8; waitany; waitany", "send 0 0 8; send 0 1 8")
        with pytest.raises(UserError, match="waits for any of several requests"):
            write_trace(workload, tmp_path)

    def test_incomplete_trace(self, tmp_path):
        with pytest.raises(UserError, match="never"):
            write_trace(trace(tmp_path, "send 1 0 8", ""), tmp_path)


def test_kinds_that_goal_does_not_know_are_told(tmp_path):
    write_trace(trace(tmp_path, "Ssend 1 0 8; sleep 1e-6", "recv 0 0 8"), tmp_path)
    text = (tmp_path / "schedule.goal").read_text()
    assert "// 1 synchronous or buffered sends are written as sends\n" in text


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("LogGOPSim") is None, reason="LogGOPSim is not on PATH")
@pytest.mark.parametrize("name", ["hpcg-8", "nas-is-A-8"])
def test_loggopsim_runs_what_we_write(tmp_path, name):
    workload = simgrid_ti.read(shipped.folder() / f"{name}.tar.zst")
    write_trace(workload, tmp_path / "w.goal")
    subprocess.run(["txt2bin", "-i", tmp_path / "w.goal", "-o", tmp_path / "w.bin"], check=True, capture_output=True)
    options = ["-L", "2000", "-o", "500", "-g", "200", "-G", "1", "-S", "8191", "-O", "0"]
    run = subprocess.run(["LogGOPSim", "-b", "-f", tmp_path / "w.bin", *options], check=True, capture_output=True)
    found = re.search(rb"Maximum finishing time at host \d+: (\d+)", run.stdout)
    assert found is not None
    assert int(found[1]) * 1000 == makespan_ps(workload, loggops, overhead_bandwidth="inf B/s")


@pytest.mark.parametrize("form", ["goal", "simgrid-ti"])
def test_profiles_without_times_are_no_schedules(cli, tmp_path, form):
    (tmp_path / "app.bb").write_text("T:1:5 :2:7 \nT:1:5 \n")
    done = cli("convert", "app.bb", "--to", form, "-o", "out")
    assert done.status == 2
    assert f"has neither times nor MPI calls, of which format {form} consists; record it" in done.err
    assert not (tmp_path / "out").exists()
