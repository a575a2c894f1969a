"""Watches over the head of a joined cluster, from a thread. Where it is gone, calls to Ray come back no more, nor does
Python hear signals in them; after a minute Ray ends the process without a word of what to do. This does it before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.run.execute.ending import end_process
from manyscale.runner.run.execute.ray_join import check_reachable

CHECK_SECONDS: Final = 3.0
MOST_MISSED: Final = 8  # in a row: 24 s of refusals, 48 s of silence; Ray gives up after 60 s


class HeadWatch:
    """Calls ``lost`` once the head at ``address`` has not answered ``MOST_MISSED`` times in a row. Checks are counted,
    not seconds: this process may itself have been stopped."""

    def __init__(self, address: str, lost: Callable[[str], None] = end_process, seconds: float = CHECK_SECONDS) -> None:
        self._address, self._lost, self._seconds = address, lost, seconds
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="head watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no more."""
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        missed = 0
        while not self._is_over.wait(self._seconds):
            try:
                check_reachable(self._address, self._seconds)
                missed = 0
            except UserError:
                missed += 1
            if missed == MOST_MISSED and not self._is_over.is_set():
                self._lost(
                    f"{self._address}: the head of the Ray cluster does not answer any more; what is finished is kept: "
                    "see that a cluster runs"
                )
                return
