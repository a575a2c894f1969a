"""Runs that are told to end: nothing goes on, the journal is kept, and the command that is printed goes on with it."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from processes import still_there

from manyscale.runner.run import directory as rundir

LINES = {0: ["init", "compute 1e6", "send 1 0 800 6", "finalize"], 1: ["init", "recv 0 0 800 6", "finalize"]}


@pytest.fixture(autouse=True)
def interrupts_are_heeded() -> Iterator[None]:
    """Commands are started as from a terminal, also where these tests run in the background, whose processes are born
    deaf to SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# The command line, whose second unit is in a kernel for ever, and tells so in the file MANYSCALE_TEST_TOLD.
STUCK = """
import os, sys
from manyscale.models.kernels import njit
from manyscale.runner.cli import main
from manyscale.runner.predict import units
import numpy as np

@njit(nogil=True)
def spin(word):
    while word[0] == 0:
        word[1] += 1

spin(np.array([1, 0]))  # compiled
known, count = units.unit_function, 0

def function(kind):
    global count
    count += 1
    if count == 2:
        with open(os.environ["MANYSCALE_TEST_TOLD"], "w") as told:
            told.write("x")
        spin(np.zeros(2, np.int64))
    return known(kind)

units.unit_function = function
sys.exit(main())
"""

# The command line, which sends itself a signal once a unit is finished, and tells what processes it has.
FROM_INSIDE = """
import os, signal, sys
from contextlib import contextmanager
import psutil
from manyscale.runner.cli import main, run

@contextmanager
def progress():
    def tell(done, total, what):
        if not done:
            return
        print(*[process.pid for process in psutil.Process().children(recursive=True)], flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    yield tell

run.progress_bar = progress
sys.exit(main())
"""


def started(code: str, *words: object, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def continued(cli: Callable, line: str) -> None:
    """Run the command at the end of a line."""
    words = shlex.split(line.split(": ", 2)[2])
    assert words[0] == "manyscale"
    outcome = cli(*words[1:])
    assert outcome.status == 0, outcome.err


@pytest.mark.parametrize(("number", "status", "what"), [
    (signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted"),
])  # fmt: skip
@pytest.mark.parametrize("named", [True, False])
def test_a_run_in_a_kernel_ends_at_once(
    cli: Callable, tmp_path: Path, write_trace: Callable, number: int, status: int, what: str, named: bool
) -> None:
    study = ["run", "--workload", write_trace(LINES, "a trace"), "--target", "crossbar256", "--cache", "a cache"]
    os.mkfifo("told")
    run = started(STUCK, *study, *(["-o", "the run"] if named else []), MANYSCALE_TEST_TOLD="told")
    try:
        assert Path("told").read_text() == "x"  # which waits for it
        run.send_signal(number)
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()
    assert (run.returncode, out) == (status, "")
    directory = Path("the run" if named else "runs/a-trace-001")
    assert err.startswith(f"manyscale: {what}; continue with: manyscale run --workload ")
    assert err.endswith(" --resume\n" if named else f" --resume -o {directory}\n")
    assert rundir.read_manifest(directory)["status"] == "interrupted"
    entries, num_damaged = rundir.read_journal(directory)
    assert ([entry["status"] for entry in entries], num_damaged) == (["simulated"], 0)
    continued(cli, err)
    assert cli(*study[:-1], "another", "-o", "whole").status == 0
    assert json.loads((directory / "simulator.json").read_text())["units"]["reused"] == 1
    assert (directory / "stats.json").read_bytes() == Path("whole/stats.json").read_bytes()


@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_no_process_goes_on(cli: Callable, tmp_path: Path, executor: str) -> None:
    words = ["run", "nas-is-A-8", "--executor", executor, "-o", "out"]
    run = started(FROM_INSIDE, *words)
    out, err = run.communicate(timeout=300)
    processes = [int(word) for word in out.splitlines()[0].split()]
    assert (len(processes) > 3) is (executor == "ray")
    assert run.returncode == 143
    assert err == f"manyscale: terminated; continue with: manyscale {shlex.join(words)} --resume\n"
    alive = [psutil.Process(process) for process in processes if psutil.pid_exists(process)]
    assert still_there(alive, seconds=5) == []
    assert rundir.read_manifest(Path("out"))["status"] == "interrupted"
    continued(cli, err)


def test_other_commands_end_alike(cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    from manyscale.runner.cli import examples

    def run(_options: object) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        return 0

    monkeypatch.setattr(examples, "run", run)
    before = signal.getsignal(signal.SIGTERM)
    outcome = cli("examples")
    assert (outcome.status, outcome.err) == (143, "manyscale: terminated; run the command again\n")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("most_bytes", [0, 1000, 3000, 20_000])
def test_a_full_disk_is_told_in_one_line_and_the_run_goes_on(
    cli: Callable, write_trace: Callable, refused: Callable, most_bytes: int
) -> None:
    """A file may not grow beyond a limit, from the smallest of the run directory to the report."""
    study = ["run", "--workload", write_trace(LINES), "--target", "crossbar256"]
    assert cli(*study, "-o", "whole").status == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        outcome = cli(*study, "-o", "out", "--set", "seed=1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    refused(outcome, ": cannot be written (File too large); mend this", status=1)
    _, _, again = outcome.err.partition(", then: ")
    assert bool(again) is (most_bytes > 0), "without a manifest there is nothing to go on with"
    words = shlex.split(again)[1:] if again else [*study, "-o", "out", "--set", "seed=1"]
    assert cli(*words).status == 0


# The command line, interrupted where the module MANYSCALE_TEST_MODULE is about to be imported.
WHILE_IMPORTING = """
import os, signal, sys
from manyscale.runner.cli import main

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["MANYSCALE_TEST_MODULE"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.exit(main())
"""


@pytest.mark.parametrize("module", [
    "manyscale.runner.cli.run", "numpy", "numpy.random", "pyarrow.ipc", "numba.core.types", "yaml",
    "manyscale.runner.run.results",
])  # fmt: skip
def test_an_interrupt_during_an_import_is_one_line(tmp_path: Path, write_trace: Callable, module: str) -> None:
    words = ["run", "--workload", write_trace(LINES), "--target", "crossbar256", "-o", tmp_path / "out"]
    done = started(WHILE_IMPORTING, *words, MANYSCALE_TEST_MODULE=module)
    out, err = done.communicate(timeout=60)
    assert (done.returncode, out, err) == (130, "", "manyscale: interrupted; run the command again\n")
    assert not (tmp_path / "out").exists()
