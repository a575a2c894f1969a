"""Which files belong to a DUMPI trace: those that its .meta file names, or the binary files of one prefix.

A trace is ``PREFIX.meta`` (lines ``key=value``: ``fileprefix``, ``numprocs``, ``startime``) and ``PREFIX-NNNN.bin``,
one file a rank. The .meta file may be missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from manyscale.models.workload import MAX_RANKS
from manyscale.runner.errors import UserError
from manyscale.runner.readers.archive import guarded
from manyscale.runner.readers.dumpi.head import is_meta, is_rank_file, read_meta

_NAME: Final = re.compile(r"(.*)-(\d{4,})\.bin")


@dataclass(frozen=True)
class TraceFiles:
    """``files``: (rank, file) in rank order. ``num_ranks`` of the traced program, 0 where only its calls can tell."""

    name: str
    files: list[tuple[int, Path]]
    num_ranks: int


def find(path: Path) -> TraceFiles:
    """The files of a trace. Raises UserError for a trace that is not whole, or a folder with several."""
    with guarded(path):
        if not path.is_dir():
            return _from_meta(path) if path.suffix == ".meta" else _one_rank(path)
        metas = sorted(file for file in path.glob("*.meta") if is_meta(file))
        if len(metas) > 1:
            raise UserError(f"{path}: holds {len(metas)} traces; name one: {', '.join(file.name for file in metas)}")
        if metas:
            return _from_meta(metas[0])
        prefixes = sorted({match[1] for match in map(_NAME.fullmatch, _binaries(path)) if match})
        if len(prefixes) > 1:
            raise UserError(f"{path}: holds {len(prefixes)} traces ({', '.join(prefixes)}); keep one in the folder")
        if not prefixes:
            raise UserError(f"{path}: no file is named as DUMPI names a rank's (PREFIX-NNNN.bin); rename the files")
        return _of_prefix(path, prefixes[0], 0, path)


def _binaries(folder: Path) -> list[str]:
    return [file.name for file in folder.glob("*.bin") if is_rank_file(file)]


def _from_meta(path: Path) -> TraceFiles:
    try:
        content = read_meta(path)
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not text; give the .meta file of a DUMPI trace") from None
    count = content.get("numprocs", "")
    if not count.isdecimal() or not 1 <= int(count) <= MAX_RANKS or "fileprefix" not in content:
        raise UserError(f"{path}: has no lines 'fileprefix=...' and 'numprocs=...' (1 to {MAX_RANKS}); mend the file")
    prefix = Path(content["fileprefix"]).name
    if not any(path.parent.glob(f"{_literal(prefix)}-*.bin")):
        prefix = path.stem  # a renamed trace: the line still holds the old prefix
    return _of_prefix(path.parent, prefix, int(count), path)


def _literal(text: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", text)


def _of_prefix(folder: Path, prefix: str, num_ranks: int, place: Path) -> TraceFiles:
    found: dict[int, Path] = {}
    for file in sorted(folder.glob(f"{_literal(prefix)}-*.bin")):
        match = _NAME.fullmatch(file.name)
        if match and match[1] == prefix:
            found[int(match[2])] = file
    expected = num_ranks or max(found, default=0) + 1
    missing = [rank for rank in range(expected) if rank not in found]
    if missing:
        raise UserError(
            f"{place}: the file of rank {missing[0]} ({prefix}-{missing[0]:04d}.bin) is missing ({len(missing)} of "
            f"{expected}); copy all ranks' files into the folder"
        )
    if len(found) > expected:
        raise UserError(f"{place}: says {expected} ranks, the folder has {len(found)} files; mend 'numprocs'")
    return TraceFiles(prefix or folder.name, sorted(found.items()), num_ranks)


def _one_rank(path: Path) -> TraceFiles:
    match = _NAME.fullmatch(path.name)
    return TraceFiles(path.stem, [(int(match[2]) if match else 0, path)], 0)
