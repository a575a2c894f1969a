"""Runs the code blocks of a page of the documentation, as a reader would, in an empty folder.

What a block is, its language says:

- ``sh``: commands, run by ``bash -e``;
- ``console``: lines that begin with ``$ `` are commands, the lines below each are what it must print: ``...`` stands
  for anything, white space and lines of progress do not count. A command may fail where the page shows manyscale's
  error line;
- ``python``: run; all blocks of a page share one namespace. ``pycon``: the same, with ``>>>`` and what is printed;
- ``yaml``, ``json``, ``toml``: must be well-formed;
- any of them, or another language, with ``title="NAME"``: saved under that name first.

A block below ``<!-- not run: REASON -->`` is a placeholder: it is only saved, if it has a title. Comments at the top
say of a page that it is ``<!-- slow -->``, that it ``<!-- needs: TOOL, TOOL -->``, or that it is
``<!-- tested by: FILE -->``, a test of its own.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
LONGEST_SECONDS: Final = 1800.0  # of one block; a hang ends as a failure that names the block
SHOWN_ONLY: Final = ("text", "c", "cpp", "fortran", "csv", "diff", "dockerfile", "ini")
_FENCE = re.compile(r"^( *)(`{3,})(.*)$")
_PLACEHOLDER = re.compile(r"^\s*<!-- not run:\s*(.*?)\s*-->\s*$")
_PROGRESS = re.compile(r"^manyscale: .*, [\d.]+ (?:s|min|h) (?:so far|left)\n", re.MULTILINE)  # where a machine is slow
_HEADER = re.compile(r"^<!-- (slow|needs|tested by)(?:: *(.*?))? *-->$")


class PageError(AssertionError):
    """A block that does not do what the page says, with page and line."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what the comment above says, and the line it begins in."""

    language: str
    text: str
    line: int
    title: str | None = None
    placeholder: str | None = None


@dataclass(frozen=True)
class PageInfo:
    """A page and what its first lines say of it."""

    path: Path
    slow: bool
    needs: tuple[str, ...]
    tested_by: str | None

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))


def page_info(path: Path) -> PageInfo:
    """What the comments above the title of a page say."""
    found: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if (match := _HEADER.match(line)) is None:
            break
        found[match[1]] = match[2] or ""
    needs = tuple(word.strip() for word in found.get("needs", "").split(",") if word.strip())
    return PageInfo(path, "slow" in found, needs, found.get("tested by"))


def all_pages() -> list[PageInfo]:
    """The pages at the top of the repository, and every page of docs/ that is a file."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    pages = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_site" not in path.parts]
    return [page_info(path) for path in (*top, *pages)]


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order. Raises PageError for one that is not closed."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if opened is None:
            number += 1
            continue
        indent, fence, info = opened.groups()
        end = number + 1
        while end < len(lines) and lines[end].strip() != fence:
            end += 1
        if end == len(lines):
            raise PageError(f"line {number + 1}: this block is not closed")
        body = "".join(line.removeprefix(indent) + "\n" for line in lines[number + 1 : end])
        title = re.search(r'title="([^"]+)"', info)
        above = _PLACEHOLDER.match(lines[number - 1]) if number else None
        language = re.match(r"[\w+-]*", info.strip())
        yield Block(
            language[0] if language else "", body, number + 1, title[1] if title else None, above[1] if above else None
        )
        number = end + 1


class PageRun:
    """Runs blocks one after the other in one folder and one Python namespace."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.namespace: dict[str, Any] = {"__name__": "__page__"}

    def run(self, block: Block) -> None:
        """Raises PageError, with the line and what came instead, if the block does not do what the page says."""
        try:
            self._run(block)
        except PageError as error:
            raise PageError(f"line {block.line}: {error}") from None

    def _run(self, block: Block) -> None:
        if block.title is not None:
            target = self.folder / block.title
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
        if block.placeholder is not None:
            if len(block.placeholder) < 8:
                raise PageError("'not run' without a reason")
            return
        parsers = {"yaml": yaml.safe_load, "json": json.loads, "toml": tomllib.loads}
        if block.language in parsers:
            try:
                parsers[block.language](block.text)
            except (ValueError, yaml.YAMLError) as error:
                raise PageError(f"no {block.language}: {error}") from None
        elif block.title is not None:
            pass  # a file that a later block uses
        elif block.language == "sh":
            status, out = self.shell(block.text)
            if status:
                raise PageError(f"exit status {status}:\n{block.text}\n{out}")
        elif block.language == "console":
            for command, expected in commands_of(block.text):
                self._console(command, expected)
        elif block.language == "python":
            exec(compile(block.text, f"<line {block.line}>", "exec"), self.namespace)
        elif block.language == "pycon":
            self._doctest(block)
        elif block.language not in SHOWN_ONLY:
            raise PageError(f"language {block.language!r} is none that a test knows; see tests/docs/page_blocks.py")

    def shell(self, text: str) -> tuple[int, str]:
        """Exit status of bash and what it printed, on both streams, without lines of progress."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", text],
            cwd=self.folder, env=self.environment, check=False, timeout=LONGEST_SECONDS,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        return done.returncode, _PROGRESS.sub("", done.stdout)

    def _console(self, command: str, expected: str) -> None:
        status, out = self.shell(command)
        if not matches(expected, out):
            raise PageError(f"$ {command}\nprinted:\n{out}\nthe page says:\n{expected}")
        if status and not re.search(r"^manyscale: ", expected, re.MULTILINE):
            raise PageError(f"$ {command}\nended with status {status}:\n{out}")

    def _doctest(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(block.text, self.namespace, "page", None, block.line)
        if not test.examples:
            raise PageError("no line begins with >>>")
        told = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        with contextlib.redirect_stdout(io.StringIO()):
            failed = runner.run(test, out=told.write, clear_globs=False).failed
        self.namespace.update(test.globs)
        if failed:
            raise PageError(told.getvalue())


def commands_of(text: str) -> Iterator[tuple[str, str]]:
    """(command, what it must print) of a console block. A command goes on after a backslash."""
    lines = text.splitlines()
    if not lines or not lines[0].startswith("$ "):
        raise PageError("a console block begins with '$ ' and a command")
    number = 0
    while number < len(lines):
        command = lines[number].removeprefix("$ ")
        while command.endswith("\\") and number + 1 < len(lines):
            number += 1
            command = command[:-1] + lines[number].removeprefix("> ")
        number += 1
        first = number
        while number < len(lines) and not lines[number].startswith("$ "):
            number += 1
        yield command, "\n".join(lines[first:number])


def matches(expected: str, out: str) -> bool:
    """Whether ``out`` is what a page shows: ``...`` stands for anything, runs of white space are alike."""
    pieces = [" ".join(piece.split()) for piece in expected.split("...")]
    patterns = [re.escape(piece).replace(r"\ ", r"\s+") for piece in pieces]
    return re.fullmatch(r"\s*" + r"\s*.*?\s*".join(patterns) + r"\s*", out, re.DOTALL) is not None


def page_environment(cache: Path) -> dict[str, str]:
    """The environment of a reader: the command on the path, a cache of the page's own, no terminal."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MANYSCALE_")}
    # what Open MPI refuses where tests run, but not where a reader does: the superuser, more ranks than cores
    refused = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe")
    mpi = {f"OMPI_{name}": "1" for name in refused}
    fixed = {"PATH": path, "XDG_CACHE_HOME": str(cache), "COLUMNS": "120", "PYTHONWARNINGS": "default"}
    return {**kept, **mpi, **fixed}


def run_page(info: PageInfo, folder: Path, cache: Path, commands: Path | None = None) -> int:
    """Runs every block of a page and returns how many. ``commands``: a folder that goes first on its PATH. Raises
    PageError with page and line."""
    environment = page_environment(cache)
    if commands is not None:
        environment["PATH"] = os.pathsep.join([str(commands), environment["PATH"]])
    run, count = PageRun(folder, environment), 0
    try:
        for block in blocks_of(info.path.read_text()):
            run.run(block)
            count += block.placeholder is None
    except PageError as error:
        raise PageError(f"{info.name}: {error}") from None
    return count
