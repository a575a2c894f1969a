"""``manyscale trace`` as a user meets it: programs of every kind, and every way in which they end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from told import told
from tracer_programs import PROGRAMS, need

from manyscale.models.workload import OperationKind
from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.readers import workload_folder
from manyscale.runner.tracers import build, launch

PLAIN = PROGRAMS / "tracer" / "plain.c"
ENDINGS = PROGRAMS / "tracer" / "endings.c"


def kinds(workload, rank: int) -> list[str]:
    """Names of a rank's operations."""
    begin, end = workload.rank_offsets[rank : rank + 2]
    return [OperationKind(int(kind)).name for kind in workload.column("operations", "kind")[begin:end]]


@pytest.mark.contract
@pytest.mark.parametrize("level", ["mpi", "tasks"])
def test_a_program_without_mpi_and_openmp(traced, compiled, level):
    outcome = traced([compiled(PLAIN, "cc"), 20_000_000], "--level", level)
    assert (outcome.status, outcome.out.splitlines()[0]) == (0, "sum 17.388")
    workload = outcome.workload
    assert (workload.num_ranks, kinds(workload, 0)) == (1, ["other"])
    cpu_s = workload.column("phases", "duration_ps").sum() / 1e12
    assert 0.01 < cpu_s < 10


@pytest.mark.contract
def test_what_a_program_starts_is_not_traced(traced, compiled):
    program = compiled(PLAIN, "cc")
    outcome = traced([program, 1000, f"{program} 1000; /bin/true"])
    assert outcome.status == 0
    assert outcome.workload.num_ranks == 1


@pytest.mark.contract
def test_the_predicted_time_of_one_rank_is_its_cpu_time(traced, compiled, cli, tmp_path):
    folder = traced([compiled(PLAIN, "cc"), 20_000_000]).folder
    assert cli("run", "--workload", folder, "--target", "laptop", "-o", tmp_path / "run", "--no-report").status == 0
    workload = workload_folder.read(folder)
    compute = workload.column("phases", "duration_ps").sum() / 1e12
    import json

    stats = json.loads((tmp_path / "run" / "stats.json").read_text())
    assert stats["application.compute"]["value"] == pytest.approx(compute, rel=1e-9)


@pytest.mark.contract
@pytest.mark.parametrize("ending", ["well", "fork"])
def test_a_program_that_ends_well(traced, compiled, mpi, ending):
    outcome = traced([*mpi.start(3), compiled(ENDINGS, mpi.compiler), ending])
    assert outcome.status == 0, outcome.err
    workload = outcome.workload
    for rank in range(3):
        between = ["send", "recv"] if rank == 0 else ["recv", "send"]
        assert kinds(workload, rank) == ["init", *between, *between, "barrier", "finalize", "other"]
    forks = [note for note in workload.notes if note.code == "processes-left-out"]
    assert len(forks) == (1 if ending == "fork" else 0)


@pytest.mark.contract
@pytest.mark.parametrize("ending", ["exit", "crash", "kill", "abort"])
def test_a_program_that_ends_badly_leaves_what_it_did(traced, compiled, cli, mpi, tmp_path, ending):
    outcome = traced([*mpi.start(3), compiled(ENDINGS, mpi.compiler), ending])
    assert outcome.status == 1
    assert "note: the program ended with" in outcome.err
    workload = outcome.workload
    for rank in range(3):
        between = ["send", "recv"] if rank == 0 else ["recv", "send"]
        # the launcher may have killed the others before they were done with the last round
        *done, last = kinds(workload, rank)
        whole = ["init", *between, *between]
        assert (done, last) == (whole[: len(done)], "other")
        assert done
    assert any(note.startswith("rank 1") for note in told(workload.notes))
    ran = cli("run", "--workload", outcome.folder, "--target", "laptop", "-o", tmp_path / "run", "--no-report")
    assert (ran.status, ran.err) == (0, "")


@pytest.mark.contract
def test_a_hanging_program_that_is_interrupted_leaves_what_it_did(compiled, tracer_cache, mpi, tmp_path):
    program = compiled(ENDINGS, mpi.compiler)
    words = ["timeout", "-s", "TERM", "3", *mpi.start(2), str(program), "hang"]
    command = [sys.executable, "-m", "manyscale", "trace", "--cache", str(tracer_cache), "-o", "t", "--", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    workload = workload_folder.read(tmp_path / "t")
    assert kinds(workload, 0)[:5] == ["init", "send", "recv", "send", "recv"]
    assert any("MPI_Recv had not returned" in note for note in told(workload.notes))


@pytest.mark.contract
def test_a_script_around_the_program(traced, compiled, mpi, tmp_path):
    """The program's name stands in no word of the command: the processes that initialise MPI are traced."""
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\necho started\n{' '.join(mpi.start(2))} {compiled(ENDINGS, mpi.compiler)}\n")
    script.chmod(0o755)
    outcome = traced([script], "--mpi", mpi.name)
    assert outcome.status == 0, outcome.err
    assert outcome.workload.num_ranks == 2
    assert kinds(outcome.workload, 1)[:2] == ["init", "recv"]


@pytest.mark.contract
def test_several_binaries(traced, compiled, mpi):
    program = compiled(ENDINGS, mpi.compiler)
    separate = compiled(ENDINGS, mpi.compiler, "-O1")
    assert program != separate
    outcome = traced([*mpi.start(1), program, ":", "-n", "2", separate])
    assert outcome.status == 0, outcome.err
    assert outcome.workload.num_ranks == 3


@pytest.mark.contract
def test_the_limit_on_disk_stops_the_tracer_only(traced, compiled, mpi):
    outcome = traced([*mpi.start(2), compiled(ENDINGS, mpi.compiler)], "--disk-gb", "0.0000005")
    assert outcome.status == 0, outcome.err
    assert "the limit of --disk-gb was reached" in outcome.err
    assert any("tracing stopped" in note for note in told(outcome.workload.notes))


@pytest.mark.contract
def test_a_static_program_is_refused_with_the_reason(traced, compiled):
    program = compiled(PLAIN, "cc", "-static")
    outcome = traced([program])
    assert outcome.status == 2
    expected = (
        f"manyscale: {program}: is statically linked, so that no tracer can be loaded into it; link it dynamically"
    )
    assert outcome.err.splitlines() == [expected]
    assert not outcome.folder.exists()


@pytest.mark.contract
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], r"no command to trace; give it after --.*"),
        (["--", "/no/such/program"], r"/no/such/program: no such program.*"),
        (["--ranks", "1-x", "--", "/bin/true"], r"--ranks 1-x: is no list of numbers from 0.*"),
        (["--iterations", "0", "--", "/bin/true"], r"--iterations 0: is no list of numbers from 1.*"),
        (["--mpi", "lam", "--", "/bin/true"], r"--mpi lam: is none of mpich, openmpi.*"),
        (["--disk-gb", "many", "--", "/bin/true"], r"--disk-gb many: is not a number.*"),
    ],
)  # fmt: skip
def test_what_cannot_be_traced_is_refused_in_one_line(cli, tmp_path, words, line):
    outcome = cli("trace", "-o", tmp_path / "t", *words)
    assert outcome.status == 2
    assert len(outcome.err.splitlines()) == 1
    assert re.fullmatch(f"manyscale: {line}", outcome.err.strip())
    assert not (tmp_path / "t").exists()


@pytest.mark.contract
def test_a_missing_compiler_is_named_with_its_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"mpicc.*Debian: libmpich-dev.*MPICC"):
        build.tracer("mpich", tmp_path)
    with pytest.raises(UserError, match=r"no C compiler 'cc'.*Debian: gcc"):
        build.tracer(None, tmp_path)


@pytest.mark.contract
def test_a_tracer_is_built_once(tracer_cache):
    need("cc")
    first = build.tracer(None, tracer_cache)
    stamp = first.stat().st_mtime_ns
    assert build.tracer(None, tracer_cache) == first
    assert first.stat().st_mtime_ns == stamp


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("kind", ["bit", "cut", "without a checksum"])
def test_a_damaged_tracer_is_built_again(tmp_path, kind):
    need("cc")
    built = build.tracer(None, tmp_path)
    whole = built.read_bytes()
    damaged = {
        "bit": whole[:5000] + bytes([whole[5000] ^ 4]) + whole[5001:],
        "cut": whole[:5000],
        "without a checksum": whole[:-24],
    }[kind]
    built.write_bytes(damaged)
    assert build.tracer(None, tmp_path) == built
    assert kept.mapped(built) is not None


@pytest.mark.theory
def test_the_tracer_stands_before_the_program_alone(compiled, monkeypatch, tmp_path):
    program = str(compiled(PLAIN, "cc"))
    command = ["env", "A=1", program, "5"]
    found = launch.find_program(command)
    assert (found.words, found.library, found.runtime) == ((2,), None, None)
    started = launch.traced_command(command, found, {"X": "1"})
    assert started == ["env", "A=1", "/usr/bin/env", "X=1", "MANYSCALE_TRACE_ALWAYS=1", program, "5"]


@pytest.mark.theory
def test_a_program_is_found_on_the_path(compiled, monkeypatch):
    program = compiled(PLAIN, "cc")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    assert launch.find_program([program.name]).path == Path(program)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Made-up programs on the PATH: "app" and "worker" of MPI, "node" and "python" not, "wrap" a script."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("mpirun", "bash", "env", "time", "app", "worker", "node", "python", "wrap"):
        (folder / name).write_bytes(b"#!/bin/sh\n" if name == "wrap" else b"\x7fELF" + bytes(60))
        (folder / name).chmod(0o755)
    (folder / "n=4").mkdir()
    (folder / "n=4" / "app").write_bytes(b"\x7fELF" + bytes(60))
    (folder / "n=4" / "app").chmod(0o755)
    (folder / "mine").mkdir()
    (folder / "mine" / "time").write_bytes(b"\x7fELF" + bytes(60))
    (folder / "mine" / "time").chmod(0o755)
    is_mpi = ("app", "worker", "mine/time")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr(launch, "is_static", lambda path: False)
    monkeypatch.setattr(
        launch, "_needed", lambda path: ("libmpich.so.12",) if str(path).endswith(is_mpi) else ("libc.so.6",)
    )
    return folder


@pytest.mark.theory
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("mpirun -n 2 app worker", (3,)),  # what the program starts itself is an argument of its
        ("mpirun -n 2 app node", (3,)),
        ("mpirun -n 1 app : -n 2 worker app", (3, 7)),
        ("mpirun --map-by node app", (3,)),
        ("mpirun --map-by node python job.py", ()),  # in doubt: found at run time
        ("mpirun -n 2 python job.py", (3,)),
        ("mpirun -n 2 wrap app", (4,)),
        ("mpirun -n 2 wrap node", ()),  # the script may start something else
        ("bash -c app", (2,)),
        ("bash job.sh 5", ()),
        ("mpirun -n 2 bash job.sh", ()),
        ("mpirun -n 2 {bin}/mine/time 5", (3,)),  # a program with the name of a launcher
        ("{bin}/mine/time 5", (0,)),
        ("time app", (1,)),
        ("python mpirun", (0,)),
    ],
)
def test_which_words_of_a_command_are_programs(programs, command, words):
    assert launch.find_program(command.format(bin=programs).split()).words == words


@pytest.mark.theory
def test_an_interpreter_under_a_launcher_of_mpi_may_load_it(programs, monkeypatch):
    monkeypatch.setattr(launch.os.path, "realpath", lambda path: path.replace("mpirun", "mpirun.openmpi"))
    assert launch.find_program(["mpirun", "-n", "2", "python", "job.py"]).library == "openmpi"
    assert launch.find_program(["env", "A=1", "python", "job.py"]).library is None


@pytest.mark.theory
@pytest.mark.parametrize(
    "words", [["env", "LD_PRELOAD=b"], ["mpirun", "-x", "LD_PRELOAD=b"], ["mpirun", "-genv", "LD_PRELOAD", "b"]]
)
def test_what_the_command_preloads_stays_preloaded(programs, monkeypatch, words):
    monkeypatch.setenv("LD_PRELOAD", "a")
    found = launch.find_program([*words, "app"])
    started = launch.traced_command([*words, "app"], found, {"LD_PRELOAD": "tracer:a"})
    variables = ["LD_PRELOAD=tracer:a:b", "MANYSCALE_TRACE_ALWAYS=1", "MANYSCALE_TRACE_PRELOAD=a:b"]
    assert started == [*words, "/usr/bin/env", *variables, "app"]


@pytest.mark.theory
def test_a_program_whose_path_looks_like_an_assignment(traced, compiled, tmp_path):
    (tmp_path / "n=4 b").mkdir()
    program = tmp_path / "n=4 b" / "plain"
    program.write_bytes(compiled(PLAIN, "cc").read_bytes())
    program.chmod(0o755)
    outcome = traced([program, "1000"])
    assert (outcome.status, outcome.out.splitlines()[0]) == (0, "sum 7.485")  # the harmonic number of 1000


@pytest.mark.theory
def test_a_cache_that_nothing_can_be_preloaded_from_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"a b: has a blank or a colon.*--cache"):
        build.tracer(None, tmp_path / "a b")
