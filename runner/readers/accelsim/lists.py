"""What belongs to an Accel-Sim trace: the list of kernels, with a trace file for each launch, or one trace."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from manyscale.runner.errors import UserError
from manyscale.runner.readers import bounds
from manyscale.runner.readers.archive import read_head

LISTS: Final = ("kernelslist.g", "kernelslist")
_SUFFIXES: Final = ("", ".xz", ".gz", ".zst")
_TRACE_NAME: Final = re.compile(r"(.+\.traceg|kernel.*\.trace)(\.xz|\.gz|\.zst)?")
_COPY: Final = re.compile(r"MemcpyHtoD\s*,\s*(?:0[xX])?([0-9a-fA-F]{1,16})\s*,\s*(\d{1,18})")
HEAD: Final = re.compile(rb"\s*-(kernel name|kernel id|grid dim|block dim) *=")
LIST_LINE: Final = re.compile(rb"\s*(Memcpy\w+,|(\S*/)?kernel\S*\.traceg?)")
_LAUNCH: Final = re.compile(r"kernel|[^#].*\.trace", re.IGNORECASE)  # how a line looks that cannot but mean a launch
_MAX_NAMED: Final = 5  # opcodes, keys or lines that a note lists


@dataclass(frozen=True)
class Commands:
    """What a list says: a trace file for each launch, with the list's line; copies (launch that follows, address,
    bytes); how many ``other`` lines begin with a word; how many files (``moved``) stand beside the list, not where it
    names them."""

    source: Path
    files: tuple[Path, ...]
    copies: tuple[tuple[int, int, int], ...] = ()
    other: Counter[str] = field(default_factory=Counter)
    is_list: bool = True
    moved: int = 0


def trace_files(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if _TRACE_NAME.fullmatch(file.name) and file.is_file())
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror or error})") from None


def commands_of(path: Path) -> Commands:
    if path.is_dir():
        for name in LISTS:
            if (path / name).is_file():
                return _read_list(path / name)
        files = trace_files(path)
        if len(files) != 1:
            raise UserError(
                f"{path}: has {len(files)} traces of kernels and no list of their order (kernelslist.g); "
                "copy the list that stood beside them, or name one trace"
            )
        return Commands(files[0], (files[0],), is_list=False)
    head = read_head(path, 256) or b""
    if HEAD.match(head) or not LIST_LINE.match(head):
        return Commands(path, (path,), is_list=False)
    return _read_list(path)


def _read_list(path: Path) -> Commands:
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    files, copies = [], []
    other: Counter[str] = Counter()
    moved: dict[Path, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        command = line.strip()
        if command.startswith("kernel") or _TRACE_NAME.fullmatch(command.rpartition("/")[2]):
            files.append(_trace_file(path, number, command, moved))
        elif command.startswith("MemcpyHtoD"):
            match = _COPY.fullmatch(command)
            if match is None:
                raise UserError(f"{path}:{number}: {command[:60]!r} is no 'MemcpyHtoD,0xADDRESS,BYTES'; mend the line")
            address = bounds.whole(match[1], f"{path}:{number}", "an address", most=2**64 - 1, base=16)
            size = bounds.whole(match[2], f"{path}:{number}", "the size of a copy")
            copies.append((len(files) + 1, address - (address >> 63 << 64), size))
        elif _LAUNCH.match(command):
            raise UserError(
                f"{path}:{number}: {command[:60]!r} is neither a launch's trace (such as kernel-1.traceg, alone in its "
                "line) nor a copy; mend the line, or put # before it"
            )
        elif command:
            other[command.split(",")[0][:40]] += 1
    if not files:
        raise UserError(f"{path}: names no kernel; a line for each launch is expected, such as kernel-1.traceg")
    return Commands(path, tuple(files), tuple(copies), other, moved=len(moved))


def _trace_file(path: Path, number: int, name: str, moved: dict[Path, str]) -> Path:
    """The file that a list names, compressed or not. A list may hold the paths of the run that was traced: a file that
    is not there is looked for beside the list, by its own name; ``moved``: names by such files."""
    place, _, own = name.rpartition("/")
    plain = re.sub(r"\.(xz|gz|zst)$", "", own)
    candidates = dict.fromkeys((own, *(plain + suffix for suffix in _SUFFIXES)))
    for folder in dict.fromkeys((path.parent / place, path.parent)):
        file = next((folder / each for each in candidates if bounds.is_file(folder / each)), None)
        if file is None:
            continue
        if folder != path.parent / place and moved.setdefault(file, name) != name:
            raise UserError(
                f"{path}:{number}: names {name}, which does not exist; {own} beside the list is taken for "
                f"{moved[file]} already; copy the files to where the list names them"
            )
        return file
    raise UserError(
        f"{path}:{number}: names {name}, which does not stand beside it (nor compressed, as .xz, .gz or .zst); "
        "copy the file, or take the line out"
    )


def named(counts: Counter[str]) -> str:
    """The most frequent with their numbers: "FOO 12, BAR 3 and 2 more"."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{name} {count}" for name, count in ranked[:_MAX_NAMED])
    return text if len(ranked) <= _MAX_NAMED else f"{text} and {len(ranked) - _MAX_NAMED} more"
