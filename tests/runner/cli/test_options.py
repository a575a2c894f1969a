"""Options mean the same, and are spelt the same, in all commands; former names work for a release."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from manyscale.runner.cli import COMMANDS, GROUPS, _parser
from manyscale.runner.cli.parser import _of

SAME = {  # the help of these is the same wherever they are
    "--cache", "--executor", "--address", "--workers", "--json", "--format", "--accept", "--strict", "--no-report",
    "--seed", "--debug", "--max-gb", "--time", "--self-contained",
}  # fmt: skip
ONCE = {  # a word for one thing: the metavar that it has everywhere
    "--target": "NAME", "--set": "KEY=VALUE", "--sampling": "LEVEL=METHOD", "--model": "LEVEL=NAME", "--json": "FILE",
    "--cache": "DIR", "--seed": "N",
}  # fmt: skip
THREADS = ("trace", "--workers")  # of the tracer: it has no executor
WITHOUT_FIGURES = {"convert", "trace", "report", "view", "completion", "examples", "submit"}


def options_of(command: str) -> dict[str, argparse.Action]:
    parser = _of(_parser(command), command)
    return {option: action for action in parser._actions for option in action.option_strings}


@pytest.mark.contract
def test_an_option_of_a_name_is_one_thing() -> None:
    helps: dict[str, set[str | None]] = {}
    for command in COMMANDS:
        for option, action in options_of(command).items():
            if option in SAME and (command, option) != THREADS:
                helps.setdefault(option, set()).add(action.help)
            if option in ONCE:
                assert action.metavar == ONCE[option], f"{command} {option}"
    assert {option: texts for option, texts in helps.items() if len(texts) > 1} == {}


@pytest.mark.contract
def test_a_target_has_no_default_but_the_studys() -> None:
    for command in COMMANDS:
        if (target := options_of(command).get("--target")) is not None:
            assert target.default is None, command


@pytest.mark.contract
def test_executors_come_with_their_address_and_workers() -> None:
    for command in COMMANDS:
        known = {"--executor", "--address", "--workers"} & options_of(command).keys()
        known -= {option for of, option in [THREADS] if of == command}
        assert len(known) in (0, 3), command


@pytest.mark.contract
def test_commands_that_show_figures_write_them_as_json() -> None:
    assert {command for command in COMMANDS if "--json" not in options_of(command)} == WITHOUT_FIGURES


@pytest.mark.contract
def test_every_command_stands_in_one_group() -> None:
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)


FORMER = [
    (("iterations", "trace", "--level", "1"), "--level is --depth now"),
    (("iterations", "trace", "--level=1"), "--level is --depth now"),
]


@pytest.mark.parametrize(("words", "line"), FORMER)
def test_a_former_name_does_the_same_and_says_so(
    cli: Callable, write_trace: Callable, words: tuple[str, ...], line: str
) -> None:
    write_trace({0: ["init", *["compute 1000", "barrier"] * 8], 1: ["init", *["compute 1000", "barrier"] * 8]})
    new = [word.replace("--level", "--depth") for word in words]
    assert cli(*words).out == cli(*new).out
    assert cli(*words).err == f"manyscale: {line}; its former name goes with the next release\n"
    assert cli(*new).err == ""


def test_a_former_name_whose_values_were_others(cli: Callable, refused: Callable) -> None:
    """--amm KEY=VALUE of predict is --set amm.KEY=VALUE: the error names what is right now, in one line."""
    refused(cli("predict", "matmul", "--sizes", "30", "--amm", "gap_byte=8"), "--set amm.gap_byte: ", "'gap_bytes'?")


def test_what_stands_behind_two_dashes_is_left_alone() -> None:
    parser = _parser("trace")
    words = ["trace", "--max-gb", "1", "-o", "x", "--", "program", "--max-gb", "2"]
    assert parser.parse_args(words).program == ["--", "program", "--max-gb", "2"]
    assert len(parser.told) == 1


def test_help_is_a_word_too(cli: Callable) -> None:
    assert cli("help").out == cli("--help").out
    assert cli("help", "run").out == cli("run", "--help").out


class TestJson:
    @pytest.fixture
    def finished(self, cli: Callable, write_trace: Callable) -> Path:
        ranks = {rank: ["init", "compute 2000000", "barrier"] for rank in (0, 1)}
        write_trace(ranks)
        words = ("run", "--workload", "trace", "--target", "crossbar256", "--no-report", "-o", "out")
        assert cli(*words, "--json", "run.json").status == 0
        return Path("run.json")

    def test_layout(self, finished: Path) -> None:
        """Of a run the figures are those of stats.json, with their units."""
        content = json.loads(finished.read_text())
        assert list(content) == ["command", "title", "results", "figures", "notes"]
        assert (content["command"], content["results"]) == ("run", "out")
        statistics = json.loads(Path("out/stats.json").read_text())
        assert {each["name"]: (each["value"], each["unit"]) for each in content["figures"]} == {
            name: (each["value"], each["unit"]) for name, each in statistics.items() if name != "notes"
        }
        assert all(set(note) >= {"code", "severity", "text"} for note in content["notes"])

    @pytest.mark.parametrize("words", [("pop", "out"), ("compare", "out", "out"), ("status", "out")])
    def test_alone_on_standard_output(self, cli: Callable, finished: Path, words: tuple[str, ...]) -> None:
        content = json.loads(cli(*words, "--json", "-").out)
        assert content["command"] == words[0]
        assert content["figures"]
        assert all({"name", "of", "value", "unit"} <= set(each) for each in content["figures"])

    def test_points_of_a_sweep_are_told_apart(self, cli: Callable, finished: Path) -> None:
        words = ("run", "--workload", "trace", "--target", "crossbar256", "--set", "sweep.cpu_ratio=[1.0, 0.5]")
        content = json.loads(cli(*words, "--no-report", "--json", "-").out)
        times = {each["of"]["cpu_ratio"]: each["value"] for each in content["figures"]
                 if each["name"] == "application.compute"}  # fmt: skip
        assert times == {"1.0": pytest.approx(2e-3), "0.5": pytest.approx(1e-3)}


@pytest.mark.parametrize(("words", "file"), [
    (("pop", "out"), "pop.parquet"), (("compare", "out", "out"), "differences.parquet"),
    (("iterations", "trace"), "iterations.parquet"),
])  # fmt: skip
def test_output_is_a_folder_or_a_file_of_the_table(
    cli: Callable, write_trace: Callable, tmp_path: Path, words: tuple[str, ...], file: str
) -> None:
    loop = ["init", *["compute 1000", "barrier"] * 8]
    write_trace({0: loop, 1: loop})
    assert cli("run", "--workload", "trace", "--target", "crossbar256", "--no-report", "-o", "out").status == 0
    assert cli(*words, "-o", "folder").status == 0
    assert cli(*words, "-o", "table.parquet").status == 0
    assert pq.read_table(tmp_path / "folder" / file).equals(pq.read_table(tmp_path / "table.parquet"))


def test_a_report_is_made_from_the_cache_of_its_run(cli: Callable, write_trace: Callable, tmp_path: Path) -> None:
    write_trace({0: ["init", "compute 1000"], 1: ["init", "compute 1000"]})
    words = ("run", "--workload", "trace", "--target", "crossbar256", "--no-report", "-o", "out", "--cache", "mine")
    assert cli(*words).status == 0
    assert cli("report", "out", "--cache", "mine").status == 0
    assert json.loads((tmp_path / "out" / "simulator.json").read_text())["units"]["simulated"] == 0


def test_keys_of_the_target_are_replaced_wherever_it_is_read(cli: Callable) -> None:
    """An L1 cache of one set of one line misses wherever the line changes; the shipped one of 32 KiB hardly does."""
    words = ("profile", "matmul-10", "--target", "laptop", "--no-report", "--json", "-")
    small = [f"target.node.caches.L1D.{key}" for key in ("size=64 B", "ways=1")]

    def hits(*further: str) -> float:
        outcome = cli(*words, *further)
        assert outcome.status == 0, outcome.err
        figures = json.loads(outcome.out)["figures"]
        return next(each["value"] for each in figures if each["name"] == "memory.L1D.sdcm.hit_ratio")

    assert hits() > 0.95
    assert hits("--set", small[0], "--set", small[1]) < 0.6


@pytest.mark.parametrize("words", [
    ("profile", "matmul-10", "--target", "laptop", "--set", "target.nodee=1"),
    ("predict", "matmul", "--sizes", "20", "--set", "target.nodee=1"),
    ("run", "lulesh-8", "--set", "target.nodee=1"),
])  # fmt: skip
def test_a_wrong_key_of_the_target_is_named_alike(cli: Callable, refused: Callable, words: tuple[str, ...]) -> None:
    refused(cli(*words), "manyscale: --set target.nodee: unknown key; did you mean 'node'?")


def test_what_a_command_does_not_read_is_refused(cli: Callable, refused: Callable) -> None:
    refused(cli("profile", "matmul-10", "--target", "laptop", "--set", "seed=1"), "--set seed=1: profile reads keys of")
    refused(cli("predict", "matmul", "--sizes", "20", "--set", "seed=1"), "--set seed: predict reads keys of amm and")
