"""What is told where Ray's own processes on this host have ended, sooner than the head's watch (ray_watch.py) notices:
whatever Ray is asked for then fails with an OSError that names no file, or Ray ends this process, too, at once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from manyscale.runner.errors import LostClusterError

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
