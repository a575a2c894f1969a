"""Progress of long work: what is told of it, by whoever works, and to whom.

``progress(done, total, what)`` says that ``done`` of ``total`` parts of a phase of work called ``what`` ("reading",
"simulating", "replaying", "writing") are done. Parts are as large as each other in what they cost, as far as that is
known: ``done`` may be a fraction. ``total`` 0: nobody knows how much it is. A command line draws it, a notebook, too
(``runner/api/progress.py``); work that nobody watches tells ``silent``.

Inside a work unit, which knows nothing of who runs it, ``tell`` says which share of it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Progress(Protocol):
    """What is told of work, and may be called some thousand times a second."""

    def __call__(self, done: float, total: float, what: str, /) -> None: ...


def silent(_done: float, _total: float, _what: str, /) -> None:
    """Nobody watches."""


def _nobody(_share: float) -> None:
    return


_hearer: ContextVar[Callable[[float], None]] = ContextVar("hearer", default=_nobody)  # of this thread's work unit


def heard(by: Callable[[float], None], call: Callable[[], _T]) -> _T:
    """What the call returns; ``by`` hears which share of it is done, 0 to 1, as far as it tells."""
    token = _hearer.set(by)
    try:
        return call()
    finally:
        _hearer.reset(token)


def tell(share: float) -> None:
    """Say that this share, 0 to 1, of the work unit at hand is done."""
    _hearer.get()(share)


def telling(items: Iterable[_T], sizes: Iterable[float], first: float = 0.0, last: float = 1.0) -> Iterator[_T]:
    """``items``, saying before each what share of the unit is done: ``first`` to ``last``, by their ``sizes``."""
    known = list(sizes)
    done, total = 0.0, sum(known) or 1.0
    for item, size in zip(items, known, strict=False):
        tell(first + (last - first) * done / total)
        yield item
        done += size
    tell(last)
