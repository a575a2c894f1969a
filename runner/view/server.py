"""Answers the viewer's pages: on the loopback interface alone, and only to whoever knows the token.

Every address begins with the token, so that links between files work as they are. A request with another Host header is
refused, since a page of somebody else may have been given a name that leads to this computer (DNS rebinding). Files of
run directories, reports among them, are served in a sandbox: their scripts run, and reach nothing else of the viewer.
"""

from __future__ import annotations

import json
import mimetypes
import os
import secrets
import shutil
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from manyscale.runner.errors import UserError
from manyscale.runner.report.palette import COLOURS
from manyscale.runner.run.sweeps import point_files
from manyscale.runner.view.runs import Runs, directory_of, place_below
from manyscale.runner.view.tables import TABLES
from manyscale.runner.view.timelines import ChangedError, Timelines

LOOPBACK: Final = "127.0.0.1"
_PAGES: Final = {
    "": "list.html", "timeline": "timeline.html", "view.css": "view.css", "list.js": "list.js", "units.js": "units.js",
    "timeline.js": "timeline.js", "tiles.js": "tiles.js", "drawing.js": "drawing.js",
}  # fmt: skip
_OURS: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_LARGEST: Final = 1 << 62  # of a number in an address
_TYPES: Final = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".json": "application/json", ".txt": "text/plain; charset=utf-8", ".yaml": "text/plain; charset=utf-8",
    ".png": "image/png", ".svg": "image/svg+xml",
}  # fmt: skip


class ViewServer(ThreadingHTTPServer):
    """The server of one folder of runs. ``address``: what a user opens."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, runs: Runs, timelines: Timelines, port: int = 0) -> None:
        """Bind to ``port`` of the loopback interface, 0: any that is free. Raises OSError if it is taken."""
        self.runs, self.timelines = runs, timelines
        self.token = secrets.token_urlsafe(24)
        super().__init__((LOOPBACK, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def origin(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def address(self) -> str:
        return f"{self.origin}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes a connection is no error; others are shown."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    protocol_version = "HTTP/1.1"
    server_version = "manyscale"
    sys_version = ""
    timeout = 300  # seconds of a connection without a request

    def do_GET(self) -> None:
        try:
            self._answer()
        except _RefusedError as refused:
            self._send(str(refused).encode(), "text/plain; charset=utf-8", refused.status)
        except UserError as error:
            text = str(error).encode("utf-8", "backslashreplace")
            self._send(text, "text/plain; charset=utf-8", HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the terminal shows the address."""

    def _answer(self) -> None:
        allowed = {f"{LOOPBACK}:{self.server.port}", f"localhost:{self.server.port}"}
        if self.headers.get("Host") not in allowed:
            raise _RefusedError(HTTPStatus.FORBIDDEN, "this server answers to its own address alone")
        address = urlsplit(self.path)
        token, slash, rest = address.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            raise _RefusedError(HTTPStatus.FORBIDDEN, "open the address that `manyscale view` printed, with its token")
        if slash and rest in _PAGES:
            name = _PAGES[rest]
            content = files(__package__).joinpath("pages", name).read_bytes()
            self._send(content, _TYPES[Path(name).suffix], policy=_OURS)
        elif rest.startswith("files/"):
            self._file(rest.removeprefix("files/"))
        elif rest.startswith("data/"):
            self._data(rest.removeprefix("data/"), _Query(address.query))
        else:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")

    def _data(self, what: str, query: _Query) -> None:
        runs, timelines = self.server.runs, self.server.timelines
        if what == "runs":
            return self._json({"folder": str(runs.root), "runs": runs.listed(), "colours": COLOURS})
        directory = directory_of(runs.root, query.text("run"))
        if what == "points":
            return self._json({"runs": runs.points(directory)})
        directory = point_files.opened(directory)
        if what == "messages":
            window = query.number("from"), query.number("to"), query.number("first"), query.number("last")
            if not (directory / "timeline" / "messages.parquet").is_file():
                return self._json({"state": "none"})
            return self._json(timelines.messages(directory, *window))
        name = query.text("table")
        if name not in TABLES:
            raise _RefusedError(HTTPStatus.NOT_FOUND, f"there is no timeline of {name}; there are {', '.join(TABLES)}")
        if what == "table":
            return self._json({**timelines.describe(directory, name), "colours": COLOURS})
        version = query.text("version")
        try:
            if what == "tile":
                place = query.number("e", 62), query.number("i"), query.number("r", 31), query.number("j")
                return self._send(timelines.tile(directory, name, version, place), "application/octet-stream")
            if what == "at":
                return self._json(timelines.at(directory, name, version, query.number("row"), query.number("ps")))
        except (ChangedError, FileNotFoundError):
            raise _RefusedError(HTTPStatus.GONE, "the timeline was written again; it is read anew") from None
        raise _RefusedError(HTTPStatus.NOT_FOUND, "there is no such data")

    def _file(self, named: str) -> None:
        """A file of a run directory, streamed. Links that lead out of the folder of runs are not followed."""
        path = place_below(self.server.runs.root, named)
        if path is None or not path.is_file():
            raise _RefusedError(HTTPStatus.NOT_FOUND, "there is no such file")
        kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        own = f"{self.server.origin}/{self.server.token}/files/"
        policy = (
            f"sandbox allow-scripts allow-popups allow-downloads; default-src 'none'; "
            f"script-src 'unsafe-inline' {own}; style-src 'unsafe-inline' {own}; img-src data: blob: {own}; "
            "font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        with path.open("rb") as file:
            # pages in the sandbox are of no origin, and load the script that they share as any other page would
            self._head(HTTPStatus.OK, os.fstat(file.fileno()).st_size, kind, policy, "cross-origin")
            if self.command != "HEAD":
                shutil.copyfileobj(file, self.wfile, 1 << 18)

    def _json(self, content: Mapping[str, Any]) -> None:
        self._send(json.dumps(content).encode(), "application/json")

    def _send(
        self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK, policy: str = "default-src 'none'"
    ) -> None:
        self._head(status, len(content), kind, policy)
        if self.command != "HEAD":
            self.wfile.write(content)

    def _head(self, status: HTTPStatus, size: int, kind: str, policy: str, readers: str = "same-origin") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", readers)
        self.end_headers()


class _Query:
    """Parameters of an address, checked."""

    def __init__(self, text: str) -> None:
        self._values = parse_qs(text, keep_blank_values=True)

    def text(self, name: str) -> str:
        values = self._values.get(name, [])
        if len(values) != 1:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, f"the address lacks {name}")
        return values[0]

    def number(self, name: str, most: int = _LARGEST) -> int:
        text = self.text(name)
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, f"{name} is no whole number from 0 to {most}")
        return int(text)
