"""``manyscale trace --level detailed`` on an MPI and OpenMP program: two runs become one workload."""

from __future__ import annotations

import os
import subprocess
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
from told import told
from tracer_programs import PROGRAMS, need, need_libomp

from manyscale.models.workload.task_tables import EventKind, TaskFlag
from manyscale.runner.cli import main
from manyscale.runner.readers import workload_folder
from manyscale.runner.tracers import build
from manyscale.runner.tracers.build import NATIVE

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def cholesky(tmp_path_factory, tracer_cache):
    """The marked Cholesky, for the detailed level and for counting, under MPICH."""
    need("clang", "mpicc.mpich", "mpiexec.mpich")
    need_libomp()
    pytest.importorskip("capstone")
    folder = tmp_path_factory.mktemp("detailed")
    stub = build.coverage_stub(tracer_cache)
    source = PROGRAMS / "apps" / "cholesky.c"
    for variant in ("detailed", "counting"):
        words = [
            "mpicc.mpich", "-O2", "-fopenmp", "-DMARKS", f"-I{NATIVE}", f"-I{PROGRAMS}", str(source), "-lm",
            "-o", str(folder / variant), *build.coverage_flags(stub, counting=variant == "counting"),
        ]  # fmt: skip
        subprocess.run(words, env={**os.environ, "MPICH_CC": "clang"}, check=True)
    return folder


@pytest.fixture(scope="module")
def outcome(cholesky, tracer_cache, tmp_path_factory):
    """(the workload that ranks 0 and 3 of four leave, what the command prints)."""
    folder = tmp_path_factory.mktemp("outcome") / "trace"
    words = ["trace", "--cache", tracer_cache, "-o", folder, "--level", "detailed", "--ranks", "0,3"]
    words += ["--counting", cholesky / "counting", "--"]
    words += ["mpiexec.mpich", "-bind-to", "none", "-n", 4, cholesky / "detailed", 6, 8, 3]
    with redirect_stdout(StringIO()) as out:
        assert main([str(word) for word in words]) == 0
    return workload_folder.read(folder), out.getvalue()


@pytest.fixture(scope="module")
def detailed(outcome):
    return outcome[0]


def instances(workload, rank: int, iteration: int) -> set[int]:
    """Explicit task instances that the rank creates in an iteration, by the first run's events."""
    of_rank = workload.tables["events"].filter(workload.column("events", "rank") == rank)
    rows = workload.tables["iterations"].to_pylist()
    cut = next(row for row in rows if (row["rank"], row["iteration"]) == (rank, iteration))
    inside = of_rank.slice(cut["first_event_id"], cut["end_event_id"] - cut["first_event_id"])
    return {row["value"] for row in inside.to_pylist() if row["kind"] == EventKind.task_create}


def test_only_the_chosen_ranks_and_iteration_are_detailed(detailed):
    segments = detailed.tables["segments"].to_pandas()
    assert set(segments["rank"]) == {0, 3}
    tasks = detailed.tables["tasks"].to_pandas()
    explicit = tasks[(tasks["flags"] & (TaskFlag.implicit | TaskFlag.initial)) == 0]
    for rank in (0, 3):
        recorded = set(segments.loc[segments["rank"] == rank, "task_instance_id"])
        mine = set(explicit.loc[explicit["rank"] == rank, "task_instance_id"])
        assert recorded & mine == instances(detailed, rank, 1)
        assert instances(detailed, rank, 1)


def test_whoever_has_times_of_a_slow_build_is_told(outcome):
    workload, out = outcome
    assert any("workload.detail" in note for note in told(workload.notes))
    (following,) = (line for line in out.splitlines() if line.startswith("next: "))
    assert "--set workload.detail=" in following
    assert "--model cpu=detailed" in following


def test_segments_lie_in_their_iteration_and_sum_up_to_the_stream(detailed):
    segments = detailed.tables["segments"].to_pandas()
    for row in detailed.tables["iterations"].to_pylist():
        mine = segments[segments["rank"] == row["rank"]]
        if row["iteration"] == 1 and len(mine):
            assert mine["operation_id"].between(row["first_operation_id"], row["end_operation_id"]).all()
            assert mine["event_id"].between(row["first_event_id"], row["end_event_id"]).all()
    batch = detailed.detail.read(0, len(segments))
    assert np.array_equal(np.diff(batch.block_offsets), segments["num_blocks"])
    assert np.array_equal(np.diff(batch.access_offsets), segments["num_accesses"])
    per_block = np.bincount(detailed.column("block_accesses", "block_id"), minlength=detailed.tables["blocks"].num_rows)
    assert per_block[batch.block_ids].sum() == len(batch.addresses)
    instructions = detailed.column("blocks", "num_instructions")
    assert instructions[batch.block_ids].sum() == segments["num_instructions"].sum()


def test_tasks_of_one_type_do_the_same_work(detailed):
    """Every gemm, syrk and trsm executes the same blocks: the algorithm has no data-dependent branch."""
    segments = detailed.tables["segments"].to_pandas()
    joined = segments.merge(detailed.tables["tasks"].to_pandas(), on=["rank", "task_instance_id"])
    explicit = joined[(joined["flags"] & (TaskFlag.implicit | TaskFlag.initial)) == 0]
    sums = explicit.groupby(["task_type_id", "rank", "task_instance_id"])["num_accesses"].sum()
    assert len(sums.index.unique(0)) >= 4
    for _, of_type in sums.groupby(level=0):
        assert of_type.nunique() == 1


def test_only_the_chosen_regions_are_detailed(traced, cholesky):
    """Cholesky's marked region "fill" computes the matrix anew, without tasks."""
    command = ["mpiexec.mpich", "-bind-to", "none", "-n", 2, cholesky / "detailed", 4, 8, 3]
    recorded = {}
    for regions in ("fill", "factorise", "fill,factorise"):
        outcome = traced(command, "--level", "detailed", "--regions", regions)
        assert outcome.status == 0, outcome.err
        workload = outcome.workload
        batch = workload.detail.read(0, workload.tables["segments"].num_rows)
        functions = workload.tables["blocks"].column("function").take(batch.block_ids).to_pylist()
        recorded[regions] = {function for function in functions if function in ("gemm", "visit")}
    assert recorded == {"fill": {"visit"}, "factorise": {"gemm"}, "fill,factorise": {"visit", "gemm"}}


def test_a_recording_of_nothing_is_refused(traced, cholesky):
    outcome = traced(
        ["mpiexec.mpich", "-bind-to", "none", "-n", 2, cholesky / "detailed", 4, 8, 3],
        *("--level", "detailed", "--iterations", "2", "--regions", "nothing"),
    )
    assert outcome.status == 2
    assert outcome.err.splitlines()[-1].startswith(
        "manyscale: --iterations 2 --regions nothing: nothing was recorded, since no block of what was built with "
        "coverage ran there; choose others, or trace all of it with --iterations all"
    )


def test_a_detailed_workload_is_predicted_as_the_first_run(detailed, cli, tmp_path):
    workload_folder.write(detailed, tmp_path / "copy")
    assert workload_folder.read(tmp_path / "copy").digest == detailed.digest
    outcome = cli("run", "--workload", tmp_path / "copy", "--target", "laptop", "-o", tmp_path / "run", "--no-report")
    assert (outcome.status, outcome.err) == (0, "")


def test_an_iteration_or_rank_that_does_not_exist_is_refused(traced, cholesky):
    command = ["mpiexec.mpich", "-n", 2, cholesky / "detailed", 4, 8, 3]
    for words, line in (
        (["--iterations", "4"], "--iterations 4: the program has 3 iterations"),
        (["--ranks", "2"], "--ranks 2: the program has 2 ranks, counted from 0"),
    ):
        outcome = traced(command, "--level", "detailed", *words)
        assert outcome.status == 2
        kept = f" (what was recorded is kept in {outcome.folder / 'raw'})"
        assert outcome.err.splitlines()[-1] == f"manyscale: {line}{kept}"
        assert (outcome.folder / "raw" / "burst" / "trace.json").is_file()


def test_a_program_without_coverage_is_refused_with_what_to_do(traced, compiled):
    program = compiled(PROGRAMS / "tracer" / "plain.c", "cc")
    pytest.importorskip("capstone")
    outcome = traced([program, 1000], "--level", "detailed", "--iterations", "all")
    assert outcome.status == 2
    assert "manyscale trace --flags detailed" in outcome.err.splitlines()[-1]


@pytest.mark.parametrize(("route", "tool"), [("qemu", "qemu-x86_64"), ("valgrind", "valgrind")])
def test_a_program_as_it_is(traced, compiled, route, tool):
    """Of a sum of 1,000 products: two loads in each step, and that of the return address."""
    need(tool)
    pytest.importorskip("capstone")
    program = compiled(PROGRAMS / "detail" / "dot.c", "clang", "-O1", "-g")
    outcome = traced([program], "--level", "detailed", "--route", route, "--function", "dot")
    assert outcome.status == 0, outcome.err
    workload = outcome.workload
    batch = workload.detail.read(0, workload.tables["segments"].num_rows)
    is_store = workload.column("block_accesses", "is_store").astype(bool)
    executions = np.bincount(batch.block_ids, minlength=workload.tables["blocks"].num_rows)
    times = executions[workload.column("block_accesses", "block_id")]
    assert (times[~is_store].sum(), times[is_store].sum()) == (2_001, 0)
    assert workload.column("phases", "duration_ps").sum() > 0
    # the function is a part of what precedes the only operation, which part of its time is not known
    assert set(workload.column("segments", "operation_id").tolist()) == {-1}


def test_valgrind_runs_one_program(traced, cholesky):
    outcome = traced(["mpiexec.mpich", "-n", 2, cholesky / "counting"], "--level", "detailed", "--route", "valgrind")
    assert outcome.status == 2
    assert "runs one program that stands in the command itself, without MPI" in outcome.err
    assert not outcome.folder.exists()


def test_the_flags_are_one_line(cli):
    need("cc")
    for kind, word in (("detailed", "trace-pc-guard"), ("counting", "inline-8bit-counters")):
        outcome = cli("trace", "--flags", kind)
        assert outcome.status == 0
        assert len(outcome.out.splitlines()) == 1
        assert word in outcome.out
