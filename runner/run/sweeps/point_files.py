"""The files of a sweep's points: of few points a whole run directory each; of many ``stats.json``, and ``point.zip``,
which holds the other files of its run directory, not compressed (they are, where it pays)."""

from __future__ import annotations

import atexit
import io
import json
import os
import re
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.run import directory as rundir
from manyscale.runner.storage.fetching import fetch

MOST_WHOLE: Final = 100  # points of a sweep whose run directories are left as they are
STATISTICS: Final = "stats.json"
_OF_POINT: Final = re.compile(r"\.?(?P<index>\d{4,})(?P<scratch>\.[0-9a-f]{32})?")  # its folder, and as it is made
_opened: Final[dict[tuple[str, int], Path]] = {}  # by directory and time of its change


def folder(directory: Path, index: int) -> Path:
    """The folder of a point of the sweep in ``directory``."""
    return directory / "points" / f"{index:04d}"


def pack(files: Mapping[str, bytes], inputs: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """The two files of a point, by name, of all files of its run directory. Equal files give equal bytes. ``inputs``:
    those of its manifest, where they are not the sweep's."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files.keys() - {STATISTICS, "manifest.json"}):
            archive.writestr(zipfile.ZipInfo(name), files[name])
        if inputs is not None:
            archive.comment = json.dumps(dict(inputs)).encode()
    return {rundir.PACK: made.getvalue(), STATISTICS: files[STATISTICS]}


def is_packed(directory: Path) -> bool:
    """Whether a folder is that of a point whose files are packed, and were not taken out there."""
    fetch(directory)
    return (directory / rundir.PACK).is_file() and not (directory / "manifest.json").is_file()


def opened(directory: Path) -> Path:
    """A run directory with all files of the run in ``directory``: itself, or of a point that is packed a temporary one,
    which goes when the process ends. Raises UserError for one that is damaged."""
    if not is_packed(directory):
        return directory
    known = str(directory.absolute()), (directory / rundir.PACK).stat().st_mtime_ns
    if known not in _opened:
        made = Path(tempfile.mkdtemp(prefix="manyscale-point-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        unpack(directory, made)
        _opened[known] = made
    return _opened[known]


def finished_run(directory: Path) -> Path:
    """``opened``. Raises UserError for a sweep, too, and for a run that has not ended."""
    found = opened(directory)
    rundir.check_complete(found)
    return found


def unpack(directory: Path, into: Path) -> None:
    """Write the run directory of a packed point into a folder. Raises UserError for one that is damaged, or whose sweep
    is not there."""
    of_sweep = rundir.read_manifest(directory.parent.parent)
    try:
        with zipfile.ZipFile(directory / rundir.PACK) as archive:
            archive.extractall(into)
            inputs = json.loads(archive.comment) if archive.comment else of_sweep["inputs"]
        shutil.copyfile(directory / STATISTICS, into / STATISTICS)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{directory}: is damaged ({error}); mend it with run --resume -o DIR") from None
    rundir.write_manifest(into, "complete", of_sweep["seed"], inputs, of_sweep["accepted"], command=of_sweep["command"])


def names(directory: Path) -> list[str]:
    """Names of the files of a packed point. Raises UserError for one that is damaged."""
    try:
        with zipfile.ZipFile(directory / rundir.PACK) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{directory}: is damaged ({error}); mend it with run --resume -o DIR") from None


def take_out(directory: Path) -> None:
    """Write the files of a packed point beside it. Raises UserError for one that is damaged."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack(directory, Path(scratch))
        write_files(directory, read_folder(Path(scratch)))


def read_folder(directory: Path) -> dict[str, bytes]:
    """The files of a folder and of those in it, by their paths."""
    files = (file for file in sorted(directory.rglob("*")) if file.is_file())
    return {str(file.relative_to(directory)): file.read_bytes() for file in files}


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a point, each as a whole, ``stats.json`` last. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == STATISTICS):
        path = directory / name
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(exist_ok=True)
            beside.write_bytes(files[name])
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise


def clear(directory: Path, finished: Collection[int]) -> None:
    """Remove what an attempt that did not finish them, or an earlier version, left of the other points of the sweep in
    ``directory``: whoever reads a point would take it for a part of that."""
    for entry in directory.glob("points/*"):
        made = _OF_POINT.fullmatch(entry.name)
        if made and (made["scratch"] or int(made["index"]) not in finished):
            shutil.rmtree(entry, ignore_errors=True)


def move_folder(made: Path, to: Path) -> None:
    """Move a finished folder to its place; one that stands there is of another attempt, and equal. Raises OSError."""
    try:
        os.rename(made, to)
    except OSError:
        if not (to / "manifest.json").is_file():
            raise
        shutil.rmtree(made, ignore_errors=True)


def checksums(files: Mapping[str, bytes]) -> dict[str, str]:
    """Of the files of a point, by name."""
    return {name: kept.checksum_of_bytes(content) for name, content in files.items()}
