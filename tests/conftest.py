"""Fixtures that every test may use: tiny traces, and the command line called in this process."""

from __future__ import annotations

import gc
import io
import os
import secrets
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser import browser  # noqa: F401  (a fixture)
from numba.core import config

from manyscale.models.kernels import compiled
from manyscale.runner.cli import main, progress

# Python would look again and again for what is used no more among the objects of fifteen thousand tests: a fifth of the
# time of collecting them, and a twentieth of that of tests.
gc.set_threshold(50_000)

# Processes that tests start in a home of their own find the kernels that were compiled here.
os.environ.setdefault("NUMBA_CACHE_DIR", str(compiled.folder().parent))
# Numba reads its variables again when it next compiles, and would forget which processor was chosen: every kernel of
# the wheel would then be compiled anew.
config.reload_config()
compiled._choose_processor()

# Ray takes its authentication once, when it is imported: every cluster that this process starts has the same.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

RankLines = Mapping[int, Sequence[str]]


# Files whose slow tests take half a minute and more, mostly waiting for others: where several processes test, these
# begin first, and nobody waits for them in the end.
LONGEST = tuple(
    Path(__file__).parent / name
    for name in (
        "runner/run/cluster/test_faults.py",  # those with clusters lie apart, so that not all run at once
        "docs/test_pages_tutorial.py",
        "runner/run/cluster/test_own_machines.py",
        "docs/test_pages_howto.py",
        "test_interpreters.py",
        "runner/run/cluster/test_traces_elsewhere.py",
        "docs/test_pages_rest.py",
        "runner/run/execute/test_ray_cluster.py",
        "runner/run/execute/test_coming_nodes.py",
        "runner/run/execute/test_ray_sessions.py",
    )
)


@dataclass(frozen=True)
class CommandOutcome:
    """What a command left: its exit status and both of its streams."""

    status: int
    out: str
    err: str


@pytest.fixture
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own; commands without ``--cache`` find it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "manyscale"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--executor", help="executor of every run that does not name one (default: auto)")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In processes of xdist: the longest files, then those with most tests, as xdist itself has them."""
    if hasattr(config, "workerinput"):
        counts = Counter(item.path for item in items)
        place = {path: number for number, path in enumerate(LONGEST)}
        items.sort(key=lambda item: (place.get(item.path, len(LONGEST)), -counts[item.path]))


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # xdist takes files in the order above


def pytest_collection_finish() -> None:
    gc.freeze()  # tests and modules stay until the end


@pytest.fixture(scope="session")
def chosen_executor(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The executor of --executor; for Ray one cluster serves all tests, since runs join the one of their process."""
    name = request.config.getoption("--executor")
    if name != "ray":
        yield name
        return
    from manyscale.runner.run.execute.ray import RayExecutor

    with closing(RayExecutor(num_workers=2)) as cluster:
        cluster.start()
        yield name


@pytest.fixture
def cli(
    tmp_path: Path,
    private_cache: Path,
    chosen_executor: str | None,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Callable[..., CommandOutcome]:
    """``cli("run", study, ...)`` in the test's folder, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(progress._SECONDS_BETWEEN, False, 86400.0)  # on a busy machine a log would get lines of it
    # a test that also traces programs captures what they print, and pytest captures in one way at a time
    capsys = request.getfixturevalue("capfd" if "traced" in request.fixturenames else "capsys")

    def call(*arguments: object) -> CommandOutcome:
        if chosen_executor and arguments[:1] == ("run",) and "--executor" not in arguments:
            arguments = (*arguments, "--executor", chosen_executor)
        capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as stop:  # argparse
            status = int(stop.code or 0)
        captured = capsys.readouterr()
        return CommandOutcome(status, captured.out, captured.err)

    return call


def rank_file(rank: int) -> str:
    """The name of a rank's file in the traces that ``write_trace`` writes."""
    return f"rank-{rank}.txt"


@pytest.fixture
def write_trace(tmp_path: Path) -> Callable[..., Path]:
    """``write_trace({rank: lines}, name="trace")`` writes a folder with a list ``ti.txt`` and a file for each rank.

    A line is written without its rank: ``"send 1 0 8 6"``.
    """

    def write(ranks: RankLines, name: str = "trace", ending: str = "\n") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for rank, lines in ranks.items():
            content = "".join(f"{rank} {line}{ending}" for line in lines)
            (folder / rank_file(rank)).write_bytes(content.encode())
        (folder / "ti.txt").write_text("".join(f"{rank_file(rank)}\n" for rank in ranks))
        return folder

    return write


@pytest.fixture
def tar_bytes() -> Callable[[Mapping[str, bytes]], bytes]:
    """``tar_bytes({name: content})``: a tar archive of these files, in this order."""

    def pack(files: Mapping[str, bytes]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return buffer.getvalue()

    return pack


@pytest.fixture
def folder_as_tar(tar_bytes: Callable[[Mapping[str, bytes]], bytes]) -> Callable[[Path], bytes]:
    """``folder_as_tar(folder)``: the bytes of a tar archive of the folder's files, the list first."""

    def pack(folder: Path) -> bytes:
        files = sorted(folder.iterdir(), key=lambda file: (file.name != "ti.txt", file.name))
        return tar_bytes({f"{folder.name}/{file.name}": file.read_bytes() for file in files})

    return pack
