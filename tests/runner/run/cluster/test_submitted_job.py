"""A study that is submitted to the head of a Ray cluster on this machine, and its result."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LINES = {0: ["init", "compute 1e6", "send 1 0 800 6", "finalize"], 1: ["init", "recv 0 0 800 6", "finalize"]}
WAIT_SECONDS = 120.0  # for the dashboard

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="not installed: manyscale[cluster]"),
]


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """That of a head with one CPU and without a token, and the environment of its host."""
    pytest.importorskip("ray")
    ports = [_free_port() for _ in range(3)]
    temporary = Path(tempfile.mkdtemp(prefix="ray-job-", dir="/tmp"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "RAY_USAGE_STATS_ENABLED": "0",
        "XDG_CACHE_HOME": str(tmp_path / "of-the-cluster"),
    }
    command = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--block",
        "--head",
        "--num-cpus=1",
        "--node-ip-address=127.0.0.1",
    ]
    command += [f"--port={ports[0]}", f"--dashboard-port={ports[1]}", f"--dashboard-agent-listen-port={ports[2]}"]
    command += ["--object-store-memory=100000000", f"--temp-dir={temporary}", "--include-dashboard=true"]
    head = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    address = f"http://127.0.0.1:{ports[1]}"
    try:
        _wait_for(f"{address}/api/version", head)
        yield address, environment
    finally:
        os.killpg(head.pid, signal.SIGKILL)
        head.wait()
        shutil.rmtree(temporary, ignore_errors=True)


def test_a_submitted_study_has_the_bytes_of_a_local_run(
    dashboard: tuple[str, dict[str, str]], cli: Callable, write_trace: Callable, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The trace lies beside the study, and travels with it."""
    address, environment = dashboard
    folder = tmp_path / "project"
    folder.mkdir()
    write_trace(LINES, "project/trace")
    (folder / "study.yaml").write_text("schema: 1\nworkload: {path: trace}\ntarget: crossbar256\n")
    submit = [sys.executable, "-m", "manyscale", "submit", "project/study.yaml", "--dashboard", address]
    submit += ["-o", str(tmp_path / "out"), "--no-report"]
    job = subprocess.run(submit, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert job.returncode == 0, job.stdout + job.stderr
    assert f"results: {tmp_path / 'out'}\n" in job.stdout
    monkeypatch.chdir(folder)
    assert cli("run", "study.yaml", "-o", "../calm", "--executor", "local", "--no-report").status == 0
    for name in ("stats.json", "timeline/ranks.parquet", "timeline/messages.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for(address: str, head: subprocess.Popen) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while True:
        assert head.poll() is None, "the head has ended"
        assert time.monotonic() < end, "the dashboard does not answer"
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
