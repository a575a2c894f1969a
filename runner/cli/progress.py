"""What a terminal shows while a command works."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from manyscale.models.kernels.later import when_loaded


def announce_compilation() -> None:
    """Say why the first run takes longer, when somebody watches."""
    if not sys.stderr.isatty():
        return
    when_loaded(_announce)


def _announce() -> None:
    from numba.core import event

    class Once(event.Listener):
        told = False

        def on_start(self, event: Any) -> None:
            if not self.told:
                print("compiling kernels, once on this machine ...", file=sys.stderr)
                self.told = True

        def on_end(self, event: Any) -> None:
            return

    event.register("numba:compile", Once())


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int], None]]:
    """Progress with rate and time left on standard error, for work of over a second; every 30 s where it is a log."""
    bar = None
    interval = 0.2 if sys.stderr.isatty() else 30.0
    begin = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal bar
        if bar is None and time.monotonic() - begin > max(1.0, interval):
            from tqdm import tqdm

            bar = tqdm(total=total, unit=" units", mininterval=interval)
        if bar is not None:
            bar.total = total
            bar.update(done - bar.n)

    try:
        yield progress
    finally:
        if bar is not None:
            bar.close()
