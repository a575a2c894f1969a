"""What the tracer says of a run in the folder of its trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import read_json

FORMAT: Final = "manyscale raw trace"
VERSION: Final = 2
READABLE: Final = (1, 2)  # before 2: without the times of other threads
HEADER: Final = "trace.json"


def is_trace(path: Path) -> bool:
    """Whether the folder was written by the tracer."""
    try:
        return (path / HEADER).is_file() and read_json(path / HEADER).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        return False


def read_header(directory: Path) -> dict[str, Any]:
    """What was run, and how. Raises UserError for a folder that is not a trace of this version."""
    path = directory / HEADER
    try:
        header: dict[str, Any] = read_json(path)
        if header["format"] != FORMAT or header["version"] not in READABLE:
            raise UserError(f"{path}: version {header['version']} is not {VERSION}; trace the program again")
        if not isinstance(header["name"], str) or not header["name"].strip():
            raise ValueError("the name is missing")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: is not a trace ({error}); trace the program again") from None
    return header
