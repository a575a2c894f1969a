"""Which files belong to a time-independent trace: those of actions, by their first lines, and lists of them."""

from __future__ import annotations

import os
from pathlib import Path

from manyscale.runner.readers.archive import guarded, open_stream
from manyscale.runner.readers.simgrid_ti.verb_names import CODE


def looks_like_actions(head: bytes) -> bool:
    return first_rank(head) is not None


def first_rank(head: bytes) -> int | None:
    """The rank of a file's first action; None if the file starts otherwise."""
    for line in head.splitlines():
        words = line.split()
        if words and not words[0].startswith(b"#"):
            if len(words) >= 2 and words[0].isdigit() and words[1].decode(errors="replace").lower() in CODE:
                return int(words[0][:12])
            return None
    return None


def looks_like_list(head: bytes, folder: Path) -> bool:
    lines = head.decode(errors="replace").split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    return first.endswith(".txt") or listed_file(folder, first) is not None


def listed_file(folder: Path, line: str) -> Path | None:
    """The file that a line of a list in ``folder`` names; None if there is none."""
    beside = folder / Path(line).name  # a moved trace: the list still holds the old folder
    try:
        return next((file for file in (folder / line, Path(line), beside) if file.is_file()), None)
    except OSError:  # too long to be a name
        return None


def list_in_folder(folder: Path) -> Path | None:
    candidates = [folder / "ti.txt", *sorted(folder.glob("*.txt"))]
    for candidate in candidates:
        if candidate.is_file():
            with guarded(candidate), open_stream(candidate) as stream:
                head = stream.read(4096)
            if not looks_like_actions(head) and (candidate.name == "ti.txt" or looks_like_list(head, folder)):
                return candidate
    return None


def action_files(folder: Path) -> list[Path]:
    """The files of actions in a folder, by rank."""
    files = []
    with os.scandir(folder) as entries:
        names = sorted(each.name for each in entries if each.is_file())
    for name in names:
        file = folder / name
        with guarded(file), open_stream(file) as stream:
            rank = first_rank(stream.read(512))
        if rank is not None:
            files.append((rank, file))
    return [file for _, file in sorted(files)]
