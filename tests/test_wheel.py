"""The wheel's compiled kernels: commands of the README and of docs/ compile nothing, wherever it is installed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from manyscale.models.kernels import compiled

ROOT = Path(__file__).parents[1]
# Executes commands in turn, each in a folder of its own: what is told to it, and answered, are lines of JSON.
COUNTING = """
import contextlib, io, json, os, sys
from numba.core import event

compiled = []

class Names(event.Listener):
    def on_start(self, event):
        function = event.data["dispatcher"].py_func
        compiled.append(f"{function.__module__}.{function.__qualname__}{event.data['args']}"[:300])

    def on_end(self, event):
        return

event.register("numba:compile", Names())
from manyscale.runner.cli import main

for line in sys.stdin:
    folder, words = json.loads(line)
    os.chdir(folder)
    compiled.clear()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            status = main(words)
        except SystemExit as stop:
            status = stop.code
    print(json.dumps([status, compiled, told.getvalue()]), flush=True)
"""
# They only repeat for more points what single runs do, for minutes.
SWEEPS = ("bfs-16-sweep", "multizone-8-design")


def commands() -> list[str]:
    """Those of the README and of docs/ that need nothing but what is shipped."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [
        block for page in pages for block in re.findall(r"^```(?:sh|console)\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    text = "\n".join(blocks).replace("\\\n", "")
    lines = re.findall(r"^(?:\$ )?manyscale (.*)$", text, re.MULTILINE)
    found = [shlex.split(line, comments=True) for line in lines]
    shipped = {file.stem for file in (ROOT / "runner" / "examples").glob("*.yaml")} | {"matmul"}
    chosen = [words for words in found if words[0] in ("run", "what-if", "predict") and words[1] in shipped]
    own = re.compile(r"--address|\.yaml|\.csv")  # of the reader's
    chosen = [words for words in chosen if not any(map(own.search, words))]
    return [*sorted({shlex.join(words) for words in chosen if words[1] not in SWEEPS}), "examples", "accuracy lulesh-8"]


def build(directory: Path, **variables: str) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(directory)]
    environment = {**os.environ, **variables}
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True, env=environment)
    (wheel,) = directory.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the package and its kernels, on another path than it was built on."""
    if (compiled.SHIPPED / compiled.environment()).is_dir():
        yield Path(compiled.__file__).parents[3]  # the package under test is one
        return
    if not os.access("/proc/cpuinfo", os.R_OK) or "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor is no x86-64-v3")
    wheel = build(tmp_path_factory.mktemp("dist"), MANYSCALE_KERNELS="all")
    assert "-linux_x86_64" in wheel.name
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    yield folder


@dataclass
class Counting:
    """A process with a cache of its own that executes commands; what it loads once serves all of them."""

    process: subprocess.Popen[str]
    cache: Path

    def __call__(self, folder: Path, words: list[str]) -> tuple[int, list[str], str]:
        """Exit status, functions that were compiled, and what was said."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([str(folder), words]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, f"it died: {self.process.wait()}"
        return tuple(json.loads(answer))


@pytest.fixture(scope="module")
def execute(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counting]:
    folder = tmp_path_factory.mktemp("counting")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(folder)}
    command = [sys.executable, "-c", COUNTING]
    with subprocess.Popen(
        command, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Counting(process, folder)
        process.communicate()


@pytest.mark.slow
@pytest.mark.contract
@pytest.mark.parametrize("command", commands())
def test_commands_of_the_readme_compile_nothing(execute: Counting, command: str, tmp_path: Path) -> None:
    words = shlex.split(command.replace("$PWD", str(tmp_path)))
    status, compiled_functions, told = execute(tmp_path, words)
    assert status == 0, told
    assert compiled_functions == []
    assert not (execute.cache / "manyscale" / "kernels").exists()


@pytest.mark.slow
@pytest.mark.contract
def test_a_wheel_without_kernels_is_for_any_machine(tmp_path: Path) -> None:
    wheel = build(tmp_path, MANYSCALE_KERNELS="0")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".nbc")]
