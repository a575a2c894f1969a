"""The table of inputs, methods and options, against what takes them."""

from __future__ import annotations

import pytest

from manyscale.runner.cli import COMMANDS, _parser
from manyscale.runner.cli.parser import _of
from manyscale.runner.errors import UserError
from manyscale.runner.input_kinds import INTERVALS, KINDS, LAUNCHES, STACKS, TASK_METHODS, TASK_SUFFIXES, TASKS
from manyscale.runner.run.evaluation import tasks
from manyscale.runner.run.plans import launches
from manyscale.runner.run.plans.intervals import method_named


@pytest.mark.contract
@pytest.mark.parametrize(("command", "options"), [("plan", "plan_options"), ("evaluate", "evaluate_options")])
def test_options_of_the_table_are_those_of_the_command(command: str, options: str) -> None:
    known = {option for action in _of(_parser(command), command)._actions for option in action.option_strings}
    assert {option for kind in KINDS for option in getattr(kind, options)} <= known
    assert command in COMMANDS


@pytest.mark.contract
def test_methods_of_the_table_are_known() -> None:
    for name in INTERVALS.methods:
        if name != "FILE.simpoints":
            assert method_named(name)
    for name in LAUNCHES.methods:
        assert launches.method_named(name.replace(":N", ":3"))
    assert set(tasks._PARTS) == {*TASK_METHODS, *TASK_SUFFIXES}


@pytest.mark.parametrize("command", ["plan", "evaluate"])
def test_help_shows_every_kind(cli, command: str) -> None:
    text = cli(command, "--help").out
    for kind in (INTERVALS, STACKS, LAUNCHES, TASKS):
        assert f"\n  {kind.input}: {kind.elements}\n" in text
    assert "tbpoint:auto" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_method_is_not_of_an_input_of_another_kind() -> None:
    with pytest.raises(UserError, match="'tbpoint': unknown"):
        method_named("tbpoint")
