"""Files of a job's ranks: in a folder (or the folders in it), an archive, or one alone; and what lies beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded, is_tar, open_stream, read_head, tar_members
from manyscale.runner.readers.json_text import LOOKED_AT, refuse_cut, refuse_cut_head

_HEAD_BYTES: Final = 1 << 14
_ENDINGS: Final = (".json", ".json.gz", ".json.zst", ".json.xz")
_ARCHIVES: Final = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.zst")
_MOST_BESIDE: Final = 64  # entries of a folder that are looked at beside the one that is read


def is_trace(head: bytes) -> bool:
    """Whether a file that begins so is a trace of Kineto's."""
    start = head.lstrip()[:1]
    if start not in (b"{", b"["):
        return False
    if b'"schemaVersion"' in head and any(
        each in head for each in (b'"traceEvents"', b'"deviceProperties"', b'"computeProperties"', b'"distributedInfo"')
    ):
        return True
    return b'"ph"' in head and any(
        each in head for each in (b'"cpu_op"', b'"cuda_runtime"', b'"gpu_memcpy"', b'"user_annotation"')
    )


def is_host_trace(head: bytes) -> bool:
    """Whether it is a host execution trace of PyTorch's."""
    return head.lstrip()[:1] == b"{" and b'"schema"' in head and b'"nodes"' in head and b'"traceEvents"' not in head


def knows(path: Path, kind: Callable[[bytes], bool]) -> bool:
    """Whether some file at a path is of a kind."""
    if path.is_dir():
        return any(kind(read_head(each, _HEAD_BYTES) or b"") for each in _in_folder(path))
    if not path.is_file():
        return False
    head = read_head(path, _HEAD_BYTES) or b""
    if kind(head):
        return True
    if not path.name.endswith(_ARCHIVES) or not is_tar(path):
        return False
    with guarded(path):
        members = ((name, stream) for name, stream in tar_members(path) if name.endswith(_ENDINGS))
        return any(kind(stream.read(_HEAD_BYTES)) for _, stream in islice(members, 4))


def contents(path: Path, kind: Callable[[bytes], bool]) -> Iterator[tuple[str, bytes]]:
    """(place, content) of all files of a kind at a path, in the order of their names, those of an archive as they stand
    in it. Raises UserError, also for files that are damaged or cut before they tell their kind: they may be ranks."""
    if path.is_dir():
        for each in _in_folder(path):
            if kind(read_head(each, _HEAD_BYTES) or b""):
                with guarded(each), open_stream(each) as stream:
                    yield str(each), stream.read()
            else:
                refuse_cut(each)
    elif kind(read_head(path, _HEAD_BYTES) or b""):
        with guarded(path), open_stream(path) as stream:
            yield str(path), stream.read()
    elif path.name.endswith(_ARCHIVES) and is_tar(path):
        with guarded(path):
            for name, stream in tar_members(path):
                if name.endswith(".json"):
                    place, content = f"{path}: {name}", stream.read(_HEAD_BYTES)
                    if kind(content):
                        yield place, content + stream.read()
                    else:
                        refuse_cut_head(content + stream.read(LOOKED_AT), place)
    else:
        refuse_cut(path)


def beside(path: Path) -> list[Path]:
    """Where host execution traces of a job may lie: with its traces, then in folders and archives beside them."""
    folder = path.parent
    try:
        entries = sorted(islice(folder.iterdir(), _MOST_BESIDE + 1))
    except OSError:
        return [path]
    if len(entries) > _MOST_BESIDE:
        entries = []
    if path.is_file() and not path.name.endswith(_ARCHIVES):
        return [path, *(each for each in entries if each.name.endswith(_ENDINGS) and each != path)]
    others = [each for each in entries if each != path and (each.is_dir() or each.name.endswith(_ARCHIVES))]
    return [path, *(each for each in others if not each.name.startswith("."))]


def host_traces(path: Path) -> Iterator[tuple[str, bytes]]:
    """Those that lie with a job's traces, else those beside it; damaged files beside it are no matter of it."""
    for place, each in enumerate(beside(path)):
        try:
            found = list(contents(each, is_host_trace)) if place == 0 or knows(each, is_host_trace) else []
        except (UserError, OSError):
            if place == 0:
                raise
            continue
        yield from found
        if found and place == 0:
            return


def _in_folder(path: Path) -> list[Path]:
    """Files of JSON in a folder and the folders in it."""
    try:
        own = sorted(path.iterdir())
        inner = [
            each for folder in own if folder.is_dir() and not folder.is_symlink() for each in sorted(folder.iterdir())
        ]
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    return [each for each in (*own, *inner) if each.name.endswith(_ENDINGS) and each.is_file()]
