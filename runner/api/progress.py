"""Progress of long work: nothing by default, a bar that a notebook draws, or a function of the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = bool | Callable[[int, int], None]


@contextmanager
def watched(progress: Progress) -> Iterator[Callable[[int, int], None]]:
    """``progress(done, total)`` for what works: that of the caller, with True a bar of ``tqdm.auto``, else none."""
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield lambda done, total: None
        return
    from tqdm.auto import tqdm

    with tqdm(unit=" units") as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield show
