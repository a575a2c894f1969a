"""The command line itself: a file for each command, of which help loads no more than that one."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from manyscale.runner import cli as command_line
from manyscale.runner.cli import COMMANDS

HEAVY = ("numpy", "pyarrow", "numba", "pydantic", "yaml", "plotly")
_SHARED = {"__init__", "figures", "options", "parser", "progress"}


@pytest.mark.contract
def test_every_file_is_a_command_and_every_command_has_a_file():
    files = {path.stem for path in Path(command_line.__file__).parent.glob("*.py")} - _SHARED
    assert files == {name.replace("-", "_") for name in COMMANDS}
    for name in files:
        module = import_module(f"manyscale.runner.cli.{name}")
        assert callable(module.arguments)
        assert callable(module.run)


@pytest.mark.contract
def test_help_loads_nothing_heavy():
    """``manyscale --help`` and that of every command, in one new process."""
    program = (
        "import contextlib, io, sys\n"
        "from manyscale.runner.cli import COMMANDS, main\n"
        "for words in [['--help'], *([name, '--help'] for name in COMMANDS)]:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        main(words)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_lists_the_commands_in_their_order(cli):
    text = cli("--help").out
    places = [text.index(f"\n  {name}  ") for name in COMMANDS]
    assert places == sorted(places)


def test_without_a_command_help_is_printed_and_the_status_is_that_of_bad_input(cli):
    outcome = cli()
    assert (outcome.status, outcome.out == cli("--help").out) == (2, True)


@pytest.mark.parametrize("words", [("runn",), ("run", "--no-such-option"), ("plan", "x")])
def test_what_is_not_known_is_refused_in_one_line(cli, words):
    outcome = cli(*words)
    assert outcome.status == 2
    assert outcome.err.startswith("manyscale: ")
    assert outcome.err.count("\n") == 1
