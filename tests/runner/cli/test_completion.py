"""Completion of words, by real shells: their own functions are called as for the tabulator key."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manyscale.runner.cli.completion import SHELLS, WHAT_IFS
from manyscale.runner.study import what_if

HEAVY = ("numpy", "pyarrow", "numba", "pydantic", "plotly", "pandas", "ray")

PROGRAMS = {
    "bash": """
eval "$(manyscale completion bash)"
COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}; COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
_python_argcomplete manyscale
printf '%s\\n' "${COMPREPLY[@]}"
""",
    "zsh": """
autoload -Uz compinit && compinit -u -D
eval "$(manyscale completion zsh)"
_describe() { print -l -- ${completions%%:*} }
BUFFER="$1"; CURSOR=${#BUFFER}; words=(manyscale)
_python_argcomplete
""",
    "fish": """
manyscale completion fish | source
complete -C "$argv[1]" | string split -f 1 \\t
""",
}
ASKED = {
    "manyscale what-": {"what-if"},
    "manyscale run lulesh-i": {"lulesh-imb-64"},
    "manyscale run --worklo": {"--workload"},
    "manyscale run lulesh-64 --target mare": {"marenostrum3"},
    "manyscale convert trace --to sim": {"simgrid-ti"},
    "manyscale convert trace --format go": {"goal"},
    "manyscale plan trace --method simp": {"simpoint"},
}


@pytest.fixture
def with_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command ``manyscale`` in the path, and an empty folder to be in."""
    command = tmp_path / "bin" / "manyscale"
    command.parent.mkdir()
    program = "import sys; from manyscale.runner.cli import process; sys.exit(process())"
    command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{program}' \"$@\"\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize("line", ASKED)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes(with_command: None, tmp_path: Path, shell: str, line: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "program"
    program.write_text(PROGRAMS[shell])
    bare = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run([shell, *bare, str(program), line], capture_output=True, text=True, check=False)
    assert {word.strip() for word in done.stdout.split("\n")} - {""} == ASKED[line], done.stderr


def test_levels_and_their_names_stand_behind_one_option(with_command: None, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(PROGRAMS["bash"])
    done = subprocess.run(
        ["bash", "--norc", str(program), "manyscale run x --sampling ranks=one"], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["one-in-N"]


@pytest.mark.contract
@pytest.mark.parametrize("line", ["manyscale run ", "manyscale run --target ", "manyscale convert x --format "])
def test_completing_loads_nothing_heavy(line: str) -> None:
    program = (
        "import os, sys\n"
        "from manyscale.runner.cli import process\n"
        "end = os._exit\n"
        f"os._exit = lambda status: (print([name for name in {HEAVY!r} if name in sys.modules]), sys.stdout.flush(),"
        " end(status))\n"
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 8)\n"
        "process()\n"
    )
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | asked, check=False
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.contract
def test_what_ifs_are_those_that_there_are() -> None:
    assert WHAT_IFS == what_if.STANDARD
