"""Progress of long work: what is told of it, by whoever works, and to whom.

``progress(done, total, what)`` says that ``done`` of ``total`` parts of a phase of work called ``what`` ("reading",
"simulating", "replaying", "writing") are done. Parts are as large as each other in what they cost, as far as that is
known: ``done`` may be a fraction. ``total`` 0: nobody knows how much it is. A command line draws it, a notebook, too
(``runner/api/progress.py``); work that nobody watches tells ``silent``.

Inside a work unit, which knows nothing of who runs it, ``tell`` says which share of it is done; inside a part of one
that ``telling`` goes through, which share of the part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
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


def teller() -> Callable[[float], None]:
    """``tell`` as it is here and now, for another thread."""
    return _hearer.get()


def telling(items: Iterable[_T], sizes: Iterable[float], first: float = 0.0, last: float = 1.0) -> Iterator[_T]:
    """``items``, saying before each what share of the unit is done: ``first`` to ``last``, by their ``sizes``. While
    one is worked on, what ``tell`` says is the share of this one."""
    known = list(sizes)
    whole = teller()
    done, total = 0.0, sum(known) or 1.0
    for item, size in zip(items, known, strict=False):
        begin = first + (last - first) * done / total
        whole(begin)
        _hearer.set(partial(_tell_part, whole, begin, (last - first) * size / total))
        try:
            yield item
        finally:
            _hearer.set(whole)
        done += size
    whole(last)


def _tell_part(whole: Callable[[float], None], begin: float, size: float, share: float) -> None:
    whole(begin + size * share)
