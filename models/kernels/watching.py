"""How far a call is that takes long, told by a thread beside it: kernels do without Python's lock, and what they count
stands in arrays that anybody can read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SECONDS: Final = 0.5


@contextmanager
def watched(
    done: Callable[[], float], told: Callable[[float], None] | None, seconds: float = SECONDS
) -> Iterator[None]:
    """``told`` hears every ``seconds`` of the ``done`` share, 0 to 1, of what is computed inside; None: nobody does.
    What it raises is raised at the end."""
    if told is None:
        yield
        return
    ended = threading.Event()
    errors: list[BaseException] = []

    def tell() -> None:
        try:
            while not ended.wait(seconds):
                told(min(max(done(), 0.0), 1.0))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if errors:
        raise errors[0]
