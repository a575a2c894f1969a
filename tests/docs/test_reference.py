"""Generated pages of the reference tell of everything that is there; real runs hold them to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from page_blocks import all_pages

import manyscale
from manyscale.models.workload import SCHEMAS
from manyscale.runner import cli as command_line
from manyscale.runner.tracers.cuda.sass.instructions import instructions

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.contract
pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
sys.path.append(str(ROOT / "docs" / "_site"))

import commands_page  # noqa: E402
import cuda_calls_page  # noqa: E402
import hooks  # noqa: E402
import instructions_page  # noqa: E402
import keys_page  # noqa: E402
import python_page  # noqa: E402
import statistics_page  # noqa: E402
import tables_page  # noqa: E402


def test_links_lead_to_files_where_the_code_is_hosted() -> None:
    """A link leads to a file of the repository, or to a page that is made at each build; to headings, mkdocs sees."""
    made = {f"docs/{page}" for page in (*hooks.GENERATED, *hooks.repository_pages().values())}
    broken = []
    for info in all_pages():
        for link in re.findall(r"\]\(([^)#\s]+)", info.path.read_text()):
            path = os.path.normpath(Path(info.name).parent / link)
            if not re.match("[a-z]+:", link) and path not in made and not (ROOT / path).exists():
                broken.append(f"{info.name}: {link}")
    assert broken == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 35
    loaded = [
        link for page in pages for link in re.findall(r'(?:src|<link[^>]* href)="(https?:[^"]+)"', page.read_text())
    ]
    assert loaded == []  # nothing from elsewhere


def test_every_command_and_option_is_told_of() -> None:
    page = commands_page.page()
    for name in command_line.COMMANDS:
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for action in commands_page.parser_of(name)._actions:
            for option in action.option_strings if action.dest != "help" else ():
                assert option in section, f"{name} {option}"


@pytest.mark.parametrize("kind", ["study", "target", "host"])
def test_keys_have_a_meaning(kind: str) -> None:
    rows = re.findall(r"^\| (`[a-z_0-9]+`) \|.*\| (.*) \|$", keys_page.page(kind), re.MULTILINE)
    assert len(rows) > 4
    assert [key for key, meaning in rows if not meaning.strip()] == []


def test_public_names_are_told_of() -> None:
    page = python_page.page()
    for name in manyscale.__all__:
        assert name.startswith("__") or re.search(
            rf"^::: \S+\.{getattr(manyscale, name).__name__}$", page, re.MULTILINE
        )


def test_tables_of_a_run_say_what_each_column_is() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .*? \| (.*?) ?\|$", tables_page.run_page(), re.MULTILINE)
    assert len(rows) == sum(len(tables_page.schema_of(name)) for name in tables_page.FILES)
    assert [column for column, meaning in rows if not meaning] == []


def test_all_tables_of_a_workload_are_told_of() -> None:
    page = tables_page.workload_page()
    assert re.findall(r"^## `(\w+)`$", page, re.MULTILINE) == list(SCHEMAS)


def pattern(text: str) -> re.Pattern[str]:
    """What a name or description with parts in capitals stands for."""
    parts = re.split(r"(\b[A-Z_]{3,}\b|as the model's name says|\.\.\.| \(\.\.\.\))", text)
    return re.compile("".join(".*" if index % 2 else re.escape(part) for index, part in enumerate(parts)))


def hold(directory: Path) -> None:
    """A run's statistics and tables are those of the pages."""
    figures = statistics_page.figures()
    content: dict[str, Any] = json.loads((directory / "stats.json").read_text())
    for name, entry in content.items():
        alike = [figure for figure in figures if pattern(figure.name).fullmatch(name)]
        fits = [
            figure for figure in alike if (figure.unit, figure.kind) == (entry["unit"], entry["kind"])
            and pattern(figure.description).match(entry["description"])
        ]  # fmt: skip
        assert fits, f"{name}: {entry}; the page has {alike}"
    for file in sorted(directory.glob("timeline/*.parquet")):
        name = str(file.relative_to(directory))
        assert pq.read_schema(file).remove_metadata().equals(tables_page.schema_of(name)), name
    listed = (ROOT / "docs" / "reference" / "run-directory.md").read_text()
    for file in directory.rglob("*.*"):
        name = re.sub(r"\.(prv|pcf|row)(\.gz)?$", ".prv", file.name)  # they go with the file of this name
        assert name in listed, f"docs/reference/run-directory.md does not tell of {file.name}"


def test_a_run_of_mpi_is_as_the_pages_say(cli: Any, tmp_path: Path) -> None:
    done = cli("run", "lulesh-8", "--target", "fattree256", "--model", "network=flow", "-o", "run")
    assert done.status == 0, done.err
    hold(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("bfs-16", "--set", "workload.launches=[9]"),
        (
            "multizone-8",
            "--target",
            "marenostrum3",
            "--model",
            "cpu=detailed",
            "--set",
            "workload.detail=multizone-8-detail",
        ),
    ],
)
def test_other_runs_are_as_the_pages_say(cli: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    shipped = ROOT / "runner" / "examples" / "multizone-8-detail.tar.zst"
    words = tuple(word.replace("=multizone-8-detail", f"={shipped}") for word in words)
    done = cli("run", *words, "-o", "run")
    assert done.status == 0, done.err
    hold(tmp_path / "run")


def test_a_pattern_is_no_blank_cheque() -> None:
    assert pattern("node.cpi.NAME").fullmatch("node.cpi.base")
    assert not pattern("node.cpi.NAME").fullmatch("node.ipc")
    assert not pattern("misses of L1").match("hits of L1")


def test_every_instruction_is_told_of() -> None:
    page = instructions_page.page()
    told = set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))
    assert told == {each.root for each in instructions()}
    assert "| `HMMA` | product of matrices of halves" in page


def test_refused_calls_of_cuda_are_listed():
    from manyscale.runner.errors import UserError
    from manyscale.runner.tracers.cuda import compiler

    page = cuda_calls_page.page()
    assert "- cudaMalloc3DArray with cudaArrayCubemap" in page
    try:
        compiler.toolkit()
    except UserError as error:
        pytest.skip(f"CUDA's headers are not installed: {error}")
    for name in ("cudaIpcGetMemHandle", "cudaImportExternalMemory", "cudaMallocMipmappedArray", "cudaGLSetGLDevice"):
        assert f"- `{name}`" in page
    assert "`cudaMalloc`" not in page
