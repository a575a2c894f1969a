"""Which files belong to a profile of basic-block vectors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_SUFFIXES: Final = ("", ".xz", ".gz", ".zst")
_LOOPPOINT: Final = re.compile(r"(?P<name>.+)\.T\.0(?P<rest>\.bb)")


def _stem(path: Path) -> tuple[str, str]:
    """The file's name without and the suffix of its compression."""
    suffix = next((each for each in _SUFFIXES[1:] if path.name.endswith(each)), "")
    return path.name.removesuffix(suffix), suffix


def name_of(path: Path) -> str:
    """Of the profiled program, as its file says."""
    return re.sub(r"(\.T\.0)?\.bb(\.\d+)?$", "", _stem(path)[0])


def thread_files(path: Path) -> list[Path]:
    """The files of all threads, that of thread 0 first."""
    stem, suffix = _stem(path)
    found = _LOOPPOINT.fullmatch(stem)
    files = [path]
    while True:
        count = len(files)
        name = f"{found['name']}.T.{count}{found['rest']}" if found else f"{stem}.{count + 1}"
        beside = path.with_name(name + suffix)
        if not beside.is_file():
            return files
        files.append(beside)


def table_file(path: Path) -> Path | None:
    """The table beside a profile, if there is one."""
    names = [f"{name_of(path)}.{kind}{suffix}" for kind in ("cpi.csv", "csv") for suffix in _SUFFIXES]
    return next((beside for name in names if (beside := path.with_name(name)).is_file()), None)
