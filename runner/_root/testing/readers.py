"""What every reader keeps: a workload that holds, the same one each time, and one clear error for a damaged file."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from manyscale.models.network.program import build_program
from manyscale.models.workload import Workload, WorkloadError
from manyscale.models.workload.checks import check
from manyscale.models.workload.notes import Note
from manyscale.runner.errors import UserError
from manyscale.testing.contract import ContractError, contents, name_of, require, require_one_line

_LONGEST: Final = 1000  # characters of a message
_MOST_FILES: Final = 4  # of a folder that are damaged, the largest


def check_reader(reader: Any, path: str | Path, *, damages: int = 6, matches: bool = True) -> None:
    """``reader``: a module (or an object) with ``can_read(path) -> bool`` and ``read(path, options) -> Workload``, the
    options optional. ``path``: a trace in its format, a file or a folder, small: it is read some 50 times.

    Checked: ``can_read`` knows the trace and never raises, whatever it is shown; ``read`` returns a workload whose
    tables keep their promises, the same one each time, with notes of one line, and leaves the trace alone; sends match
    receives (unless not ``matches``: traces of which parts are missing), and ranks call the same collectives; a file
    that is cut short, or has a wrong byte in ``damages`` places, is read, or refused in one line that names it. Raises
    ContractError.
    """
    path, name = Path(path), name_of(reader)
    for function in ("can_read", "read"):
        require(callable(getattr(reader, function, None)), f"{name}: has no function {function}")
    before = contents(path)
    require(_knows(reader, path) is True, f"{name}: can_read does not know {path.name}")
    workload = _workload(reader, path)
    again = _workload(reader, path)
    require(workload.digest == again.digest, f"{name}: reading {path.name} again gives another workload")
    require(contents(path) == before, f"{name}: reading {path.name} changes it")
    if matches:
        _check_messages(workload, name)
    with tempfile.TemporaryDirectory(prefix="manyscale-check-") as folder:
        for strange in _strange_paths(Path(folder)):
            knows = _knows(reader, strange)
            if not strange.exists():
                require(not knows, f"{name}: can_read knows a path that does not exist")
        noticed = [_check_damage(reader, copy, file) for copy, file in _damaged(path, Path(folder), damages)]
    require(any(noticed), f"{name}: none of {len(noticed)} damages of {path.name} is noticed")


def _knows(reader: Any, path: Path) -> bool:
    try:
        answer = reader.can_read(path)
    except Exception as error:
        raise ContractError(
            f"{name_of(reader)}: can_read raises {type(error).__name__} for {path.name} ({error}); return False"
        ) from error
    require(isinstance(answer, bool), f"{name_of(reader)}: can_read returns {type(answer).__name__}, not bool")
    return bool(answer)


def _workload(reader: Any, path: Path) -> Workload:
    name = name_of(reader)
    try:
        workload = reader.read(path)
    except (UserError, WorkloadError) as error:
        raise ContractError(f"{name}: {path.name} is refused ({error})") from error
    require(isinstance(workload, Workload), f"{name}: read returns {type(workload).__name__}, not a Workload")
    require(workload.name.strip(), f"{name}: the workload has no name")
    for note in workload.notes:
        is_note = isinstance(note, Note) and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", note.code) and note.text.strip()
        require(is_note and "\n" not in str(note), f"{name}: {note!r} is no note of one line with a code")
    try:
        check(workload.name, workload.num_ranks, workload.tables)
    except WorkloadError as error:
        raise ContractError(f"{name}: {error}") from error
    return workload


def _check_messages(workload: Workload, name: str) -> None:
    try:
        build_program(workload, "mpich", keep_graph=True)
    except WorkloadError as error:
        raise ContractError(f"{name}: {error}") from error


def _strange_paths(folder: Path) -> Iterator[Path]:
    """Paths that may be shown to any reader."""
    noise = random.Random(1).randbytes(5000)
    files = {
        "empty": b"",
        "noise": noise,
        "noise.gz": b"\x1f\x8b\x08\x00" + noise,
        "noise.tar.zst": b"\x28\xb5\x2f\xfd" + noise,
        "text.txt": b"some words\nof no format\n" * 50,
        "list.json": b'{"a": [1, 2',
    }
    (folder / "strange").mkdir()
    for name, content in files.items():
        (folder / "strange" / name).write_bytes(content)
        yield folder / "strange" / name
    (folder / "bare").mkdir()
    (folder / "dangling").symlink_to(folder / "nowhere")
    yield from (folder / "bare", folder / "dangling", folder / "nowhere", folder / "strange")


def _damaged(path: Path, folder: Path, damages: int) -> Iterator[tuple[Path, Path]]:
    """(copy of the trace with one file damaged, that file), one after another in the same place."""
    copy = folder / "trace" / path.name
    (shutil.copy if path.is_file() else shutil.copytree)(path, _emptied(copy))
    files = [copy] if copy.is_file() else [each for each in copy.rglob("*") if each.is_file()]
    files.sort(key=lambda each: (-each.stat().st_size, each))
    for file in files[:_MOST_FILES]:
        whole = file.read_bytes()
        places = [(2 * each + 1) * len(whole) // (2 * damages) for each in range(damages)] if whole else []
        cuts = sorted({0, len(whole) // 3, 2 * len(whole) // 3, max(0, len(whole) - 1)})
        flips = [whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :] for place in places]
        for content in [*(whole[:cut] for cut in cuts), *flips]:
            file.write_bytes(content)
            yield copy, file
        file.write_bytes(whole)


def _emptied(copy: Path) -> Path:
    copy.parent.mkdir()
    return copy


def _check_damage(reader: Any, path: Path, file: Path) -> bool:
    """Whether the damage was noticed."""
    name, damaged = name_of(reader), file.name
    if not _knows(reader, path):
        return file.stat().st_size > 0
    try:
        workload = reader.read(path)
    except (UserError, WorkloadError) as error:
        require_one_line(error, f"{name}, a damaged {damaged}")
        text = str(error)
        require(len(text) < _LONGEST, f"{name}: the message for a damaged {damaged} has {len(text)} characters")
        names_it = isinstance(error, WorkloadError) or path.name in text or damaged in text
        require(names_it, f"{name}: the message for a damaged {damaged} does not name the file: {text}")
        return True
    except Exception as error:
        raise ContractError(
            f"{name}: a damaged {damaged} ends in {type(error).__name__} ({error}); raise UserError, with the file, "
            "the line or offset, and what to do"
        ) from error
    try:
        check(workload.name, workload.num_ranks, workload.tables)
    except WorkloadError as error:
        raise ContractError(f"{name}: a damaged {damaged} gives a workload that does not hold: {error}") from error
    return False
