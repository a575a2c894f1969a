"""Where the process of the command line begins: an interrupt is one line from the first moment on, also while modules
are loaded."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` itself takes a while to load
import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from types import FrameType


def process() -> int:
    """The command line as a process of its own; its exit status."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # it is ignored in some scripts' background
        _signal.signal(_signal.SIGINT, _stop)
    from manyscale.runner import cli

    return cli.process()


def _stop(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"manyscale: interrupted; run the command again\n")
    os._exit(130)
