"""``manyscale view``: a local page of runs, their reports and their timelines."""

from __future__ import annotations

import argparse
from pathlib import Path

from manyscale.runner.cli.options import at, place
from manyscale.runner.errors import TerminationError, UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", type=place, nargs="?", default=Path("runs"), metavar="DIR",
        help="folder of runs, or one run directory (default: runs)",
    )  # fmt: skip
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port on this computer (default: any free one)"
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address alone, and open no browser")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    import tempfile
    import threading

    from manyscale.runner.cache import default_cache
    from manyscale.runner.storage.fetching import fetch
    from manyscale.runner.view.runs import Runs
    from manyscale.runner.view.server import ViewServer
    from manyscale.runner.view.tiles import warm
    from manyscale.runner.view.timelines import Timelines

    folder = options.directory
    fetch(folder)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UserError(f"{folder}: {what}; name the folder that holds the runs")
    if not 0 <= options.port < 65536:
        raise UserError(f"--port {options.port}: a port is a number from 1 to 65535, or 0 for any free one")
    cache = default_cache()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=cache, prefix="view-", ignore_cleanup_errors=True)
    except OSError as error:
        raise UserError(
            f"{cache}: cannot be written ({error.strerror}); set XDG_CACHE_HOME to a folder that can"
        ) from None
    with scratch:
        try:
            server = ViewServer(Runs(folder), Timelines(Path(scratch.name), cache), options.port)
        except OSError as error:
            raise UserError(
                f"--port {options.port}: cannot be used ({error.strerror}); leave it out for a free one"
            ) from None
        with server:
            threading.Thread(target=warm, daemon=True).start()
            print(f"{at(folder)}: {server.address} (Ctrl-C ends it)", flush=True)
            if not options.no_browser and _has_display():
                import webbrowser

                webbrowser.open(server.address)
            try:
                server.serve_forever()
            except TerminationError:
                raise
            except KeyboardInterrupt:
                print("the viewer has ended", flush=True)
    return 0


def _has_display() -> bool:
    """Whether a browser can open a window here."""
    import os
    import sys

    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
