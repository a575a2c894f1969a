"""What a new user gets wrong: one line that names what was typed and what would be right, the exit status of bad input,
and nothing written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STUDY = "workload: {path: trace}\ntarget: laptop\n"
RUN = ("run", "study.yaml", "--no-report", "-o", "out")
NO_UTF8 = os.fsdecode(b"caf\xe9")

WRONG: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "command": (("runn",), ("unknown command 'runn'; did you mean 'run'?", "manyscale --help")),
    "option": (("run", "--worklod", "x"), ("unknown option '--worklod'; did you mean '--workload'?",)),
    "option of another command": (("pop", "trace", "--seed", "1"), ("unknown option '--seed'",)),
    "value of an option": (("trace", "--level", "mpx"), ("--level mpx: is none of mpi, tasks", "did you mean 'mpi'?")),
    "option without its value": (("run", "study.yaml", "-o"), ("-o/--output: ", "value must stand behind it")),
    "word too many": (("run", "study.yaml", "more"), ("'more' is one word too many",)),
    "key that was set": (
        (*RUN, "--set", "target.network.latncy=2 us"),
        ("--set target.network.latncy: unknown key; did you mean 'latency'?",),
    ),
    "key in the middle": ((*RUN, "--set", "mappng.cores_per_rank=2"), ("--set mappng: ", "did you mean 'mapping'?")),
    "unit": (
        (*RUN, "--set", "target.network.latency=2 uss"),
        ("--set target.network.latency: '2 uss'", "did you mean 'us'?"),
    ),
    "number without a unit": (
        (*RUN, "--set", "target.network.latency=2"), ("--set target.network.latency: 2 has no unit", "'1 us'"),
    ),
    "text for a number": ((*RUN, "--set", "cpu_ratio=fast"), ("--set cpu_ratio: 'fast' is not a number",)),
    "number for a list": ((*RUN, "--sampling", "ranks=2.5"), ("--sampling ranks=2.5: 2.5 is not a text or a list",)),
    "target": ((*RUN, "--target", "marenostrum"), ("--target: unknown target", "did you mean 'marenostrum3'?")),
    "model": ((*RUN, "--model", "network=flo"), ("--model network=flo: ", "did you mean 'flow'? known are ")),
    "level of a model": ((*RUN, "--model", "cpus=burst"), ("--model cpus=burst: ", "did you mean 'cpu'?")),
    "method": ((*RUN, "--sampling", "ranks=ful"), ("--sampling ranks=ful: ", "did you mean 'full'?")),
    "format": ((*RUN, "--format", "simgrid"), ("--format: unknown format 'simgrid'; did you mean 'simgrid-ti'?",)),
    "what-if": ((*RUN, "--what-if", "zero-latncy"), ("--what-if: ", "did you mean 'zero-latency'?")),
    "executor": ((*RUN, "--executor", "locla"), ("unknown executor 'locla'; did you mean 'local'?",)),
    "example": (("run", "lulesh64"), ("unknown study 'lulesh64'; did you mean 'lulesh-64'?",)),
    "memory traces": (("predict", "matmull", "--sizes", "9"), ("'matmull'", "did you mean 'matmul'?")),
    "validation case": (("accuracy", "lulesh-9"), ("unknown case 'lulesh-9'; did you mean 'lulesh-",)),
    "missing study": (("run", "nowhere.yaml"), ("unknown study 'nowhere.yaml'", "the path of a study file")),
    "missing trace": (("run", "--workload", "nowhere", "--target", "laptop"), ("nowhere: does not exist",)),
    "missing run": (("report", "nowhere"), ("nowhere: does not exist",)),
    "trace without a target": (("run", "trace"), ("trace: is a trace, which needs a target",)),
    "folder as a study": (("run", "full"), ("full: ",)),
    "study as a trace": (
        ("run", "--workload", "study.yaml", "--target", "laptop"), ("study.yaml: ", "a study goes without --workload"),
    ),
    "target as a study": (("run", "machine.yaml"), ("machine.yaml: ", "workload: this key is missing")),
    "empty trace": (("run", "--workload", "empty", "--target", "laptop"), ("empty: is empty",)),
    "empty study": (("run", "empty.yaml"), ("empty.yaml: a study is a mapping of keys",)),
    "list as a study": (("run", "list.yaml"), ("list.yaml: a study is a mapping of keys",)),
    "wrong YAML": (("run", "bad.yaml"), ("bad.yaml:2: is not valid YAML",)),
    "binary study": (("run", "binary.yaml"), ("binary.yaml: is not a text file",)),
    "wrong key in a study": (("run", "keys.yaml"), ("keys.yaml: modle: unknown key; did you mean 'model'?",)),
    "wrong key deep in a study": (("run", "deep.yaml"), ("deep.yaml: model.netwrk: unknown key", "'network'")),
    "name that is not UTF-8": (("run", NO_UTF8), ("unknown study 'caf\\udce9'",)),
    "file of a name that is not UTF-8": (("run", f"{NO_UTF8}.yaml"), ("caf", "modle: unknown key")),
    "folder that exists": (("run", "study.yaml", "-o", "full"), ("full: is not empty", "--resume")),
    "folder that cannot be": (("run", "study.yaml", "-o", "empty/out"), ("empty/out: ", "name another")),
    "resume of nothing": (("run", "study.yaml", "--resume"), ("--resume needs the run directory: -o DIR",)),
    "too large a sweep": (
        (*RUN, "--set", f"sweep.seed={list(range(10_001))}"), ("the sweep has 10,001 points", "--yes"),
    ),
    "negative seed": ((*RUN, "--seed", "-1"), ("--seed -1: ",)),
    "no workers": ((*RUN, "--workers", "0"), ("--workers 0: at least one is needed",)),
    "format in a study": (("run", "format.yaml", "--dry-run"), ("format.yaml: workload.format: ", "mean 'goal'?")),
    "unit of an option": (
        ("convert", "trace", "-o", "out", "--flop-rate", "3"), ("--flop-rate: '3' has no unit", "'1 Gflop/s'"),
    ),
    "unknown shell": (("completion", "tcsh"), ("tcsh: is none of bash, zsh, fish",)),
}  # fmt: skip


@pytest.fixture
def folder(scene, tmp_path: Path) -> Path:
    """Files to go wrong with, in the test's folder."""
    scene.good_trace()
    for name, text in {
        "study.yaml": STUDY,
        "machine.yaml": "schema: 1\nnodes: 2\n",
        "empty": "",
        "empty.yaml": "",
        "list.yaml": "- a\n- b\n",
        "bad.yaml": "workload: {path: [\n",
        "binary.yaml": bytes(range(256)),
        "keys.yaml": f"{STUDY}modle: {{cpu: burst}}\n",
        "format.yaml": "workload: {path: trace, format: goall}\ntarget: laptop\n",
        "deep.yaml": f"{STUDY}model: {{netwrk: flow}}\n",
        f"{NO_UTF8}.yaml": f"{STUDY}modle: {{cpu: burst}}\n",
        "full/file": "something",
    }.items():
        scene.file(name, text)
    return tmp_path


def contents(folder: Path) -> set[str]:
    """All files of the folder but the cache's."""
    found = (path.relative_to(folder) for path in folder.rglob("*"))
    return {str(path) for path in found if path.parts[0] != "cache"}


@pytest.mark.contract
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line(cli: Callable, refused: Callable, folder: Path, name: str) -> None:
    words, needles = WRONG[name]
    before = contents(folder)
    outcome = cli(*words)
    refused(outcome, *needles)
    assert "pydantic" not in outcome.err
    assert "Input should" not in outcome.err
    assert outcome.out == ""
    assert contents(folder) == before


@pytest.mark.contract
def test_files_that_come_with_the_package_stand_without_its_folder(cli: Callable, refused: Callable) -> None:
    outcome = cli("run", "lulesh-8", "--set", "mapping.cores_per_rank=9")
    refused(outcome, "manyscale: shipped lulesh-8.yaml: mapping.cores_per_rank: a node of crossbar256 has 1 cores")


@pytest.mark.contract
def test_resume_of_another_study(cli: Callable, refused: Callable, folder: Path) -> None:
    assert cli(*RUN).status == 0
    before = contents(folder)
    refused(cli(*RUN, "--set", "cpu_ratio=0.5", "--resume"), "out/resolved.yaml: ", "another study (cpu_ratio differ)")
    assert contents(folder) == before


@contextmanager
def room_for(most_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.contract
def test_a_file_that_does_not_fit(cli: Callable, refused: Callable, folder: Path) -> None:
    assert cli(*RUN).status == 0
    with room_for(100):
        outcome = cli("compare", "out", "out", "-o", "table.parquet")
    refused(outcome, "table.parquet: cannot be written (File too large); name another file")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full here")
def test_a_full_disk(cli: Callable, refused: Callable, folder: Path) -> None:
    """A device is written to, and stays what it is."""
    (folder / "device").symlink_to("/dev/full")
    assert cli(*RUN).status == 0
    refused(cli("compare", "out", "out", "--json", "device"), "device: cannot be written (No space left on device)")
    assert Path("/dev/full").is_char_device()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only(cli: Callable, refused: Callable, folder: Path) -> None:
    (folder / "closed").mkdir(mode=0o500)
    refused(cli("run", "study.yaml", "-o", "closed/out"), "closed/out: cannot be written (Permission denied)", "-o")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_is_not_for_you(cli: Callable, refused: Callable, folder: Path) -> None:
    (folder / "study.yaml").chmod(0)
    refused(cli(*RUN), "study.yaml: cannot be read (Permission denied)")


INTERRUPTED_IMPORT = """
import builtins, os, signal, sys
imports = builtins.__import__

def interrupted(name, *rest, **more):
    if name == "argparse":
        os.kill(os.getpid(), signal.SIGINT)
    return imports(name, *rest, **more)

from manyscale.runner import entry
builtins.__import__ = interrupted
sys.argv[1:] = ["run", "lulesh-8"]
sys.exit(entry.process())
"""
INTERRUPTED_READING = """
import os, signal, sys
from manyscale.runner import entry, problems

def load_yaml(path):
    os.kill(os.getpid(), signal.SIGINT)

problems.load_yaml = load_yaml
sys.argv[1:] = ["run", "study.yaml"]
sys.exit(entry.process())
"""


@pytest.mark.parametrize("program", [INTERRUPTED_IMPORT, INTERRUPTED_READING])
def test_an_interrupted_start_is_one_line(folder: Path, program: str) -> None:
    before = contents(folder)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=folder,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # tests may run in the background
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "manyscale: interrupted; run the command again\n"
    assert contents(folder) == before


def test_without_a_terminal_nothing_is_drawn(folder: Path) -> None:
    """Neither colours nor a bar, in what is piped and in what stands on standard error."""
    program = "import sys; from manyscale.runner.entry import process; sys.exit(process())"
    done = subprocess.run([sys.executable, "-c", program, *RUN], capture_output=True, text=True, cwd=folder, check=True)
    assert "\033" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr
    assert done.stderr == ""
