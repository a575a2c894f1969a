"""The ways in which a joined cluster is lost, and what is told of each, as Ray tells nothing that helps:

- Ray's processes on this host end: whatever Ray is asked for fails with an OSError that names no file
  (``told_if_lost``), or Ray ends this process at once, out of Python's hands (``LastWords``).
- The head is gone, and Ray still here: calls to Ray come back no more, nor does Python hear signals in them, until Ray
  ends this process after a minute (``HeadWatch`` does before, so that the run is left as an interrupted one).
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from manyscale.runner.errors import LostClusterError, UserError
from manyscale.runner.run.execute.ending import end_process
from manyscale.runner.run.execute.ray_join import check_reachable

CHECK_SECONDS: Final = 3.0
MOST_MISSED: Final = 16  # in a row, of which silence counts twice: 48 s of either; Ray gives up after 60 s
_KEPT: Final = "what is finished is kept: see that a cluster runs"
_BROKEN: Final = ("Broken pipe", "Connection reset by peer", "End of file")
_WAIT: Final = 'trap "" INT TERM HUP; read -r word; [ "$word" = over ] || printf "%s\\n" "$1" >&2'


@contextmanager
def told_if_lost(address: str) -> Iterator[None]:
    """Raises LostClusterError for an error by which Ray tells that its processes here are gone."""
    try:
        yield
    except OSError as error:
        if error.errno is not None or str(error) not in _BROKEN:
            raise
        raise LostClusterError(
            f"{address}: the Ray cluster's processes on this host have ended ({error}); {_KEPT}"
        ) from None


class LastWords:
    """What is said on standard error if this process ends without having taken it back: by another process, which
    waits for that, since Ray may end ours out of Python's hands."""

    def __init__(self, address: str) -> None:
        line = f"manyscale: {address}: this process was ended, as Ray does when a cluster is gone; {_KEPT}"
        self._process = subprocess.Popen(
            ["sh", "-c", _WAIT, "sh", f"{line}, then give the command again with --resume"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )

    def take_back(self) -> None:
        """They need not be said."""
        self._process.communicate(b"over\n")


class HeadWatch:
    """Calls ``lost`` once the head at ``address`` has not answered for ``MOST_MISSED`` intervals in a row: one that is
    started again needs some of them. Checks are counted, not seconds, since this process may itself have been stopped;
    one that waits in vain for an answer takes an interval more than one that is refused."""

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
            begin = time.monotonic()
            try:
                check_reachable(self._address, self._seconds)
                missed = 0
            except UserError:
                missed += 1 if time.monotonic() - begin < self._seconds / 2 else 2
            if missed >= MOST_MISSED and not self._is_over.is_set():
                self._lost(f"{self._address}: the head of the Ray cluster does not answer any more; {_KEPT}")
                return
