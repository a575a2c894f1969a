"""docs/design/extending.md: its example package is installed, and does what the page says."""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract
ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "design" / "extending.md").read_text()
EXAMPLE = ROOT / "tests" / "data" / "example-plugin"
MOST_FILES = {"stopwatch.py": 2, "ring.py": 5, "ends.py": 3, "clock.py": 4}  # opened, this page among them


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


(PAIR,) = blocks("text")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The package, installed."""
    folder = tmp_path_factory.mktemp("site")
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", folder]
    source = tmp_path_factory.mktemp("source") / "example"  # a build writes beside what it builds
    subprocess.run(["cp", "-r", EXAMPLE, source], check=True)
    done = subprocess.run([sys.executable, "-m", "pip", *words, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def call(site, tmp_path):
    """Runs Python with the package installed, in a folder with a trace of its format."""
    (tmp_path / "pair.txt").write_text(PAIR)
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip

    return run


def test_commands_of_the_page(call, tmp_path):
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("manyscale")]
    assert len(commands) == 4
    for command in commands:
        done = call("-m", *command.split(), "--executor", "local")
        assert (done.returncode, done.stderr) == (0, ""), command
    makespan = {
        name: json.loads((tmp_path / name / "stats.json").read_text())["application.makespan"]["value"]
        for name in ("pair", "ring", "sampled", "clock")
    }
    assert makespan["pair"] == makespan["ring"]  # neighbours
    assert makespan["pair"] == pytest.approx(45.8e-6, rel=0.01)  # 30 us, 10 us for 1 kB, 5 us
    assert makespan["clock"] < makespan["pair"]  # 2 GHz against 2.6
    with (tmp_path / "pair" / "states.csv").open() as file:
        rows = {(row["rank"], row["state"]): float(row["seconds"]) for row in csv.DictReader(file)}
    assert rows["0", "compute"] == pytest.approx(15e-6)
    assert (tmp_path / "pair" / "report.html").is_file()


def test_a_wrong_line_is_told_of_in_one(call, tmp_path):
    (tmp_path / "pair.txt").write_text(PAIR + "1 rest 5\n")
    done = call("-m", "manyscale", "run", "--workload", "pair.txt", "--target", "crossbar256")
    assert done.returncode == 2
    assert done.stderr == "manyscale: pair.txt: line 8: '1 rest 5' is no compute, send or recv; mend it\n"


def test_checks_of_the_page(call):
    (script,) = [block for block in blocks("python") if "manyscale.testing" in block]
    done = call("-c", script)
    assert done.returncode == 0, done.stderr


def test_unknown_names_list_those_that_are_plugged_in(call):
    done = call("-m", "manyscale", "run", "--workload", "pair.txt", "--target", "crossbar256", "--model", "network=rng")
    assert done.returncode == 2
    assert "ring" in done.stderr


def test_what_the_page_quotes_stands_in_the_example():
    files = {path.name: path.read_text() for path in EXAMPLE.rglob("*.*") if path.suffix in (".py", ".toml")}
    quoted = [block for block in (*blocks("python"), *blocks("toml")) if "manyscale.testing" not in block]
    assert len(quoted) == 5
    for block in quoted:
        assert any(block in text for text in files.values()), block


def test_files_to_open_are_few_and_those_of_the_page():
    """The page's own count, which names at least the modules that each file imports."""
    rows = re.findall(r"^\| a .*? \| `(\w+\.py)` \| (.*?) \|$", PAGE, re.MULTILINE)
    assert {name for name, _ in rows} == {path.name for path in EXAMPLE.rglob("*.py")} - {"__init__.py"}
    for name, text in rows:
        opened = re.findall(r"`(.*?)`", text)
        assert all((ROOT / path).is_file() for path in opened), name
        assert 1 + len(opened) <= MOST_FILES.get(name, 2), name
        for node in ast.walk(ast.parse((EXAMPLE / "manyscale_example" / name).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("manyscale."):
                path = node.module.removeprefix("manyscale.").replace(".", "/")
                told = any(each.startswith((f"{path}.py", f"{path}/")) for each in opened)
                assert told, f"{name} imports {node.module}, of which the page does not tell"
