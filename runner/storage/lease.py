"""Which process writes the run at an address: one at a time, on whichever machine.

Who wants to write puts an object of its own beside the run, its claim, and then lists all claims. It may write if there
is no other: of two that begin at once at most one sees none, since storage lists all that was put before, as S3 and
Google's do. (Conditional writes, which pyarrow does not offer, are not needed.) It puts its claim again every few
seconds. A claim that grows old is that of a writer that is gone, and is removed. Ages are differences of the storage's
own times, so that no machine's clock matters.

A writer that was stopped for so long and goes on finds its claim removed, and publishes nothing more.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading
import time
import uuid
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from manyscale.runner.errors import UserError

if TYPE_CHECKING:
    from manyscale.runner.storage.remote import Remote

CLAIM: Final = ".writes-"  # how names of claims begin
OLD_SECONDS: Final = 30.0  # without a sign of life
RENEWAL_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 2.0  # between looks at who may be gone; S3 tells times in whole seconds
_TOLD_AFTER_LOOKS: Final = 4  # one that lives would have renewed its claim by then
_WAITS: Final = b"waits: "


class Lease:
    """The right to write the run at an address. ``folder``: that of this machine's copies; the caller holds the lock of
    this one there, so that what other processes claimed from there is left over."""

    def __init__(self, target: Remote, folder: Path) -> None:
        self._target = target
        self._here = f"{CLAIM}{_of_folder(folder)}-"
        self.claim = self._name = f"{self._here}{uuid.uuid4().hex[:8]}"
        self._content = f"{socket.gethostname()}, process {os.getpid()}".encode()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewed = time.time()  # goes on, as time.monotonic does not, while the machine sleeps
        self.is_lost = False

    def take(self) -> None:
        """Take it, if need be when whoever had it last is known to be gone. Raises UserError where another has it."""
        try:
            self._wait()
        except BaseException:
            with suppress(UserError):
                self._target.remove(self._name)
            raise
        self._thread.start()

    def _wait(self) -> None:
        seen: dict[str, int] = {}  # times of claims, as they were found first
        for look in count():
            self._renewed = time.time()
            self._target.put(self._name, _WAITS + self._content)
            claims = {entry.name: entry.changed_ns for entry in self._target.hidden(CLAIM)}
            if self._name not in claims:
                continue  # this process was stopped for so long that another removed it
            now = claims.pop(self._name)
            for name in list(claims):
                if name.startswith(self._here) or now - claims[name] > OLD_SECONDS * 1e9:
                    self._target.remove(name)
                    del claims[name]
            if not claims:
                return
            said = {name: words for name in claims if (words := self._target.read(name)) is not None}  # else just gone
            alive = [name for name in said if claims[name] != seen.get(name, claims[name])]
            before_me = [name for name in alive if not said[name].startswith(_WAITS) or name < self._name]
            if before_me:
                raise UserError(
                    f"{self._target.address.url}: another process writes there ({_words(said[before_me[0]])}); wait "
                    "until it has ended, or name another place with -o"
                )
            if look == _TOLD_AFTER_LOOKS and said:
                who = _words(next(iter(said.values())))
                line = f"{self._target.address.url}: {who} may write there; {OLD_SECONDS:.0f} s are waited for a sign"
                print(f"manyscale: {line}", file=sys.stderr, flush=True)
            seen = claims | seen
            time.sleep(LOOK_SECONDS)

    def _renew(self) -> None:
        while not self.is_lost:
            with suppress(UserError):  # the publication tells of that
                if self._ends.is_set():
                    return
                self._renew_once()
            if self._ends.wait(RENEWAL_SECONDS):
                return

    def _renew_once(self) -> None:
        begin = time.time()
        if self._target.entry(self._name) is None:
            self.is_lost = True
            return
        self._target.put(self._name, self._content)
        if self._is_long_since(begin) and len(self._target.hidden(CLAIM)) > 1:
            # stopped between the two, so that another may have removed it before it was put again
            self.is_lost = True
            self._target.remove(self._name)
        self._renewed = begin

    def _is_long_since(self, begin: float) -> bool:
        return abs(time.time() - begin) > OLD_SECONDS / 2  # a clock that was set back says nothing

    def check(self) -> None:
        """Raises UserError where it was lost, or where storage does not say whether it was."""
        if not self.is_lost and self._is_long_since(self._renewed):
            self.is_lost = self._target.entry(self._name) is None
        if self.is_lost:
            raise UserError(_lost(self._target, "this process"))

    def leave(self) -> None:
        """Give it back. Raises UserError."""
        self._ends.set()
        self._thread.join()
        if not self.is_lost:
            self._target.remove(self._name)


def check_claim(target: Remote, claim: str) -> None:
    """Raises UserError where the process that put this claim has lost its lease, for processes that write for it."""
    if target.entry(claim) is None:
        raise UserError(_lost(target, "the process that writes the run"))


def _lost(target: Remote, of: str) -> str:
    return (
        f"{target.address.url}: nothing was heard of {of} for {OLD_SECONDS:.0f} s, and another may have taken over; "
        "nothing more is written there; look at it with: manyscale status"
    )


def _words(said: bytes) -> str:
    return said.removeprefix(_WAITS).decode(errors="replace")


def _of_folder(folder: Path) -> str:
    """A name of a folder that no folder of another machine has, nor of another container."""
    status = folder.stat()
    try:
        system = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        system = f"{socket.gethostname()} {uuid.getnode()}"
    return hashlib.sha256(f"{system} {status.st_dev} {status.st_ino}".encode()).hexdigest()[:16]
