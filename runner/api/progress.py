"""Progress of long work: nothing by default, a bar that a notebook draws, or a function of the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from manyscale.runner import progress as told

Progress = bool | told.Progress


@contextmanager
def watched(progress: Progress) -> Iterator[told.Progress]:
    """``progress(done, total, what)`` for what works (runner/progress.py): that of the caller, with True a bar of
    ``tqdm.auto`` for each phase of the work, else none."""
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        yield told.silent
        return
    from tqdm.auto import tqdm

    with tqdm(bar_format="{desc} {n:.0f}/{total} [{elapsed}<{remaining}]{bar}") as bar:

        def show(done: float, total: float, what: str, /) -> None:
            if bar.desc != what or bar.total != (total or None):
                bar.reset(total or None)
                bar.set_description_str(what)
            bar.update(done - bar.n)

        yield show
