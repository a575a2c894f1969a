"""Limits of the environment: memory maps, open files, memory, room and numbers of files on disks, shared memory.

They are read at the start of a run and compared with what it needs. What the system refuses later, because one of them
is met, is told as that limit, and never taken for damage of the file at hand.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError

MAPS_OF_OTHERS: Final = 1_000  # that libraries, compiled kernels and threads of a process take
SHARED_MEMORY: Final = Path("/dev/shm")
LEAST_SHARED_BYTES: Final = 200 << 20  # of Ray's object store; containers have 64 MiB unless told
_LIMITS: Final = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LimitError(UserError):
    """A limit of the environment is met; what was finished until then is kept."""


def number(error: BaseException) -> int | None:
    """The number of an error of the system; pyarrow keeps it in the text alone where a file is not mapped."""
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    given = getattr(error, "errno", None)
    if given is not None:
        return int(given)
    text = str(error)
    return next((each for each in (*_LIMITS, errno.EACCES, errno.EIO) if os.strerror(each) in text), None)


def is_limit(error: BaseException) -> bool:
    """Whether an error tells of a limit, not of the file that it came with."""
    return number(error) in _LIMITS


def refuse(error: BaseException, path: Path | str, what: str) -> None:
    """Raises LimitError if ``error`` tells of a limit: ``path`` cannot be ``what`` ("read", "written")."""
    if is_limit(error):
        raise LimitError(f"{path}: cannot be {what}: {in_words(error, Path(path))}") from None


def in_words(error: BaseException, path: Path | None = None) -> str:
    """Which limit is met, and what to do."""
    found = number(error)
    if found == errno.EMFILE:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"this process may open {soft:,} files at a time (RLIMIT_NOFILE); raise that with ulimit -n, and resume"
    if found == errno.ENFILE:
        return "all processes together may open no more files; raise it: sysctl -w fs.file-max=2097152"
    if found == errno.EDQUOT:
        return "your quota is used up (see: quota -s); remove files, or name a place elsewhere"
    if found == errno.EFBIG:
        return "it is larger than files may be here (ulimit -f); raise that, or name a place elsewhere"
    if found == errno.ENOSPC:
        return _no_room(path)
    if maps_are_exhausted():
        most = most_maps()
        return (
            f"this process has all the {most:,} memory maps that Linux allows it; raise that: "
            f"sysctl -w vm.max_map_count={4 * (most or 65530)}"
        )
    most_bytes = memory_bytes()
    of = f" of {most_bytes / 2**30:.1f} GiB" if most_bytes else ""
    return f"the memory{of} that this process may use is used up; give it more, or use fewer workers, ranks or points"


def _no_room(path: Path | None) -> str:
    while path is not None and not path.exists() and path != path.parent:
        path = path.parent
    try:
        free = os.statvfs(path) if path is not None else None
    except OSError:
        free = None
    if free is not None and free.f_files and not free.f_favail:
        return "its file system takes no further files (inodes); remove some, or name a place elsewhere"
    return "its file system is full; make room, or name a place elsewhere"


# Reading them


def most_maps() -> int | None:
    """How many memory maps a process may have; None where that is not limited so."""
    return _integer(Path("/proc/sys/vm/max_map_count"))


def maps_are_exhausted() -> bool:
    """Whether this process has about as many as it may."""
    most = most_maps()
    if most is None:
        return False
    try:
        with open("/proc/self/maps", "rb") as file:
            return sum(1 for _ in file) >= most - 10
    except OSError:
        return False


def memory_bytes() -> int | None:
    """What this process may use: the least of the machine's memory, of that of its control group, and of ``ulimit
    -v``; None where the system does not say."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if sys.platform == "linux" else []
    try:
        group = next(
            (line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"),
            "",
        )
    except OSError:
        group = ""
    folder = Path(f"/sys/fs/cgroup{group}")
    while folder.is_relative_to("/sys/fs/cgroup"):
        found.append(_integer(folder / "memory.max") or 0)
        folder = folder.parent
    found.append(_integer(Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")) or 0)
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    found.append(0 if soft == resource.RLIM_INFINITY else soft)
    return min((each for each in found if each > 0), default=None)


def _integer(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


# At the start of a run


@dataclass(frozen=True)
class Needs:
    """What a run needs at least, as far as it is known: files and bytes that it writes into ``folder``, ``what`` that
    is, and the option that names another."""

    folder: Path
    what: str
    option: str
    files: int
    num_bytes: int = 0


def at_start(needs: tuple[Needs, ...], memory: int = 0, uses_ray: bool = False) -> list[str]:
    """Let this process open as many files as it may, and compare what a run needs with what there is. Returns lines on
    what will only be slow. Raises LimitError for what must fail: ``memory`` is the least that it takes, in bytes."""
    allow_open_files()
    for need in needs:
        _check_room(need)
    most = memory_bytes()
    if most is not None and memory > most:
        raise LimitError(
            f"the run takes at least {memory / 2**30:.1f} GiB of memory, and this process may use {most / 2**30:.1f}; "
            "give it more, or predict fewer ranks or iterations"
        )
    return _of_shared_memory() if uses_ray else []


def allow_open_files() -> None:
    """Raise this process's soft limit of open files to its hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft == hard:
        return
    most = hard if hard != resource.RLIM_INFINITY else max(soft, 1 << 20)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # macOS allows less than it says
        return


def _check_room(need: Needs) -> None:
    place = need.folder
    while not os.path.exists(place) and place != place.parent:  # of a name that is too long, too
        place = place.parent
    try:
        free = os.statvfs(place)
    except OSError:  # whoever writes there says so
        return
    if free.f_files and free.f_favail < need.files:
        raise LimitError(
            f"{need.folder}: {need.what} takes some {need.files:,} files, and its file system takes {free.f_favail:,} "
            f"more (inodes); remove some, or name another place with {need.option}"
        )
    room = free.f_bavail * free.f_frsize
    if room < need.num_bytes:
        raise LimitError(
            f"{need.folder}: {need.what} takes at least {need.num_bytes / 1e6:,.0f} MB, and {room / 1e6:,.0f} MB are "
            f"free; make room, or name another place with {need.option}"
        )


def _of_shared_memory() -> list[str]:
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError:
        return []
    whole = found.f_blocks * found.f_frsize
    if whole >= LEAST_SHARED_BYTES:
        return []
    return [
        f"{SHARED_MEMORY} has {whole / 2**20:,.0f} MiB, so that Ray keeps what workers share on a disk, which is "
        "slower; give it more (docker run --shm-size=2g; in Kubernetes an emptyDir with medium: Memory)"
    ]
