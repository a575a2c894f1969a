"""The command `manyscale view`: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from timeline_runs import made_run


@pytest.mark.parametrize(("stop", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_it_serves_until_it_is_stopped_and_leaves_nothing(tmp_path: Path, stop: signal.Signals, status: int) -> None:
    made_run(tmp_path / "runs" / "one", ranks=2, segments_each=3)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    command = [sys.executable, "-m", "manyscale", "view"]
    # a shell that runs tests in the background has its children ignore SIGINT
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        address = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
        with urllib.request.urlopen(address + "data/runs", timeout=60) as answer:
            assert b'"one"' in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address[: address.index("/", 8)] + "/data/runs", timeout=60)
        process.send_signal(stop)
        out, err = process.stdout.read(), process.stderr.read()
        assert process.wait() == status
    assert len((out + err).splitlines()) == 1, out + err
    assert list((tmp_path / "cache" / "manyscale").glob("view-*")) == []


def test_a_folder_that_is_not_there_is_named(
    cli: Callable[..., Any], refused: Callable[..., None], tmp_path: Path
) -> None:
    refused(cli("view"), "runs: does not exist", "name the folder that holds the runs")
    (tmp_path / "file").write_text("")
    refused(cli("view", "file"), "file: is a file")


def test_a_port_that_cannot_be_had_is_named(
    cli: Callable[..., Any], refused: Callable[..., None], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused(cli("view", tmp_path, "--port", port), f"--port {port}", "leave it out")
    refused(cli("view", tmp_path, "--port", 70000), "--port 70000", "65535")
    refused(cli("view", tmp_path, "--port", "http"), "--port", "http")
