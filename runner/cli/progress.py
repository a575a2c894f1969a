"""What a terminal, or a log, shows while a command works."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

from manyscale.models.kernels.later import when_loaded
from manyscale.runner.progress import Progress

_SECONDS_TO_BE_LONG: Final = 1.0  # work of less is not told of
_SECONDS_BETWEEN: Final = {True: 0.2, False: 10.0}  # what is drawn on a terminal, lines of a log
_CLEAR: Final = "\r\033[K"


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


class Meter:
    """The phase of the work at hand, how much of it is done, how fast, and how long the rest takes at this rate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._what, self._done, self._total, self._begin, self._first = "", 0.0, 0.0, clock(), 0.0

    def __call__(self, done: float, total: float, what: str, /) -> None:
        """As runner/progress.py says; a phase begins where its name, or how much it is, changes."""
        if what != self._what or total != self._total:
            self._what, self._total, self._begin, self._first = what, total, self._clock(), done
        self._done = done

    def line(self) -> str:
        """ "simulating 12/64, 0.8/s, 65 s left"; empty where nothing was told."""
        seconds = self._clock() - self._begin
        if not self._what:
            return ""
        if not self._total:
            return f"{self._what}, {_duration(seconds)} so far"
        of = f"{self._what} {_count(self._done, self._total)}"
        gone = self._done - self._first
        if gone <= 0 or seconds <= 0:
            return f"{of}, {_duration(seconds)} so far"
        rate = gone / seconds
        return f"{of}, {_large(rate) or f'{rate:.3g}'}/s, {_duration((self._total - self._done) / rate)} left"


def _count(done: float, total: float) -> str:
    """Whole parts; of few parts that take long, and of very many, their share, too."""
    share = f" ({int(100 * done / total)} %)" if total < 100 or _large(total) else ""
    return f"{_large(done) or int(done)}/{_large(total) or int(total)}{share}"


def _large(number: float) -> str:
    """Such as 12.3 M; nothing for a number below 100,000."""
    length, unit = next(((length, unit) for length, unit in ((1e9, "G"), (1e6, "M")) if number >= length), (1e3, "k"))
    return f"{number / length:.3g} {unit}" if number >= 1e5 else ""


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole / 3600:.1f} h"


class _Ticker(threading.Thread):
    """Shows a meter's line as often as ``stream`` bears it, whether or not anything is told meanwhile."""

    def __init__(self, meter: Meter, stream: TextIO) -> None:
        super().__init__(daemon=True)
        self._meter, self._stream = meter, stream
        self._draws = stream.isatty()
        self._ended = threading.Event()
        self._drawn = False

    def run(self) -> None:
        wait = _SECONDS_BETWEEN[self._draws]
        first = max(wait, _SECONDS_TO_BE_LONG)
        while not self._ended.wait(first):
            first = wait
            if line := self._meter.line():
                self._drawn = self._draws
                text = f"{_CLEAR}{line}" if self._draws else f"manyscale: {line}\n"
                self._stream.write(text)
                self._stream.flush()

    def end(self) -> None:
        """Nothing more is shown, and what was drawn is gone."""
        self._ended.set()
        self.join()
        if self._drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Progress with rate and time left on standard error, for work of over a second: drawn on a terminal, elsewhere a
    line every ten seconds."""
    meter = Meter()
    ticker = _Ticker(meter, sys.stderr)
    ticker.start()
    try:
        yield meter
    finally:
        ticker.end()
