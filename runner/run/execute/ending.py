"""The end of a process by one of its threads, because its main one hangs in a call that does not come back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from manyscale.runner.errors import one_line

_last_steps: Final[list[Callable[[], str]]] = []


@contextmanager
def last_step(step: Callable[[], str]) -> Iterator[None]:
    """While this holds, ``step`` is taken before the process is ended in this way; what it returns is told."""
    _last_steps.append(step)
    try:
        yield
    finally:
        _last_steps.remove(step)


def end_process(text: str) -> None:
    """Take the last step, tell, and leave with status 1, whatever fails. For a thread whose main one may hang."""
    try:
        print(f"manyscale: {one_line(text + _next_step())}", file=sys.stderr, flush=True)
        sys.stdout.flush()
    finally:
        os._exit(1)


def _next_step() -> str:
    if not _last_steps:
        return ""
    try:
        return f", then: {_last_steps[-1]()}"
    except Exception as error:  # a store that fails, too
        return f"; {error or type(error).__name__}"
