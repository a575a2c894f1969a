"""Pages of the built site in a browser: contrast, keyboard, narrow windows, console, and nothing from elsewhere."""

from __future__ import annotations

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import page_problems

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.contract, pytest.mark.slow]
pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
PAGES = (  # one of each kind: written, and made of commands, keys, schemas, docstrings, measurements
    "index.html",
    "howto/ask-a-run.html",
    "models/nodes.html",
    "models/methods.html",
    "models/validation/gpu.html",
    "reference/commands.html",
    "reference/study-keys.html",
    "reference/statistics.html",
    "reference/python.html",
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Says nothing of each request."""

    def log_message(self, *_words: object) -> None:
        return


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the built site is served."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_for_everybody(browser: Any, address: str, page: str) -> None:
    assert page_problems(browser, f"{address}/{page}") == []
