"""Room for the frames of functions that call each other deeply."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Final, TypeVar, cast

T = TypeVar("T")
_FRAME_WORDS: Final = 1 << 17


def in_large_frame(call: Callable[[], T]) -> T:
    """What ``call`` returns, or raises.

    Python keeps the frames of a thread's functions in pieces of 16 KiB that it asks of the system, and gives back,
    whenever calls cross the end of one: a tenth of the time that compiling takes, which calls itself deeply. The piece
    of a function that says that it needs more holds twice of that."""
    return cast(T, FunctionType(_called.__code__.replace(co_stacksize=_FRAME_WORDS), globals())(call))


def _called(call: Callable[[], T]) -> T:
    return call()
