"""Run directories below a folder, with what a list of them shows. A run is read again once a file of it has changed, so
that one in progress is followed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from manyscale.runner.errors import UserError
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.sweeps import finished, point_files
from manyscale.runner.view.tables import TABLES, tables_of

_DEPTH: Final = 3  # folders below the one that was named in which runs are looked for
_READ: Final = ("manifest.json", "stats.json", "sweep.parquet", rundir.RESOLVED)
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def identifier(root: Path, directory: Path) -> str:
    """A run's name in addresses: its path below the root, every byte that is no plain letter escaped."""
    return quote(os.fsencode(os.path.relpath(directory, root)))


def directory_of(root: Path, named: str) -> Path:
    """The directory that ``identifier`` names. Raises UserError if it does not lie below the root."""
    directory = place_below(root, named)
    if directory is None or not directory.is_dir():
        raise UserError("there is no such run")
    return directory


def place_below(root: Path, named: str) -> Path | None:
    """The file or folder of an escaped path below the root, links followed; None if it lies elsewhere, or is hidden."""
    try:
        base = root.resolve()
        path = (base / os.fsdecode(unquote_to_bytes(named))).resolve()
    except (OSError, ValueError, RuntimeError):  # a name too long, a zero byte, links in a circle
        return None
    if not path.is_relative_to(base) or any(part.startswith(".") for part in path.relative_to(base).parts):
        return None
    return path


class Runs:
    """The runs below ``root``; ``root`` may be one itself."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[Path, tuple[Any, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def listed(self) -> list[dict[str, Any]]:
        """A row for each run and for each folder with a page, the latest first."""
        with self._lock:
            found = [self._row(directory) for directory in _results(self.root, _DEPTH)]
            gone = self._known.keys() - {self.root / row["path"] for row in found}
            for directory in gone:
                del self._known[directory]
        return sorted(found, key=lambda row: (-row["date"], row["name"]))

    def points(self, directory: Path) -> list[dict[str, Any]]:
        """A row for each point of a sweep that is finished, in their order."""
        axes = list(_mapping(directory / rundir.RESOLVED).get("sweep") or {})
        table = _table(directory / "sweep.parquet")
        values = table.to_pylist() if table is not None else []
        rows = []
        for path in sorted(filter(rundir.is_run, (directory / "points").glob("*"))):
            row = self._read(path)
            index = int(path.name) if path.name.isdigit() else -1
            known = values[index] if 0 <= index < len(values) else {}
            row["name"] = ", ".join(f"{axis}: {known[axis]}" for axis in axes if axis in known) or path.name
            rows.append(row)
        return rows

    def _row(self, directory: Path) -> dict[str, Any]:
        stamp = tuple(_stamp(directory / name) for name in (*_READ, "timeline", "points", "."))
        known = self._known.get(directory)
        if known is None or known[0] != stamp:
            known = self._known[directory] = (stamp, self._read(directory))
        return known[1]

    def _read(self, directory: Path) -> dict[str, Any]:
        path = os.path.relpath(directory, self.root)
        row: dict[str, Any] = {
            "id": identifier(self.root, directory), "path": path, "name": _printable(path), "date": 0.0, "status": "",
            "target": "", "seconds": None, "most_seconds": None, "notes": [], "points": 0, "pages": [], "tables": [],
            "problem": "",
        }  # fmt: skip
        if path == ".":
            row["name"] = _printable(directory.name)
        pages = sorted(directory.glob("*.html"), key=lambda page: (page.name != "report.html", page.name))
        row["pages"] = [quote(os.fsencode(page.name)) for page in pages]
        row["tables"] = tables_of(directory)
        if point_files.is_packed(directory):
            return _of_packed(row, directory)
        has_manifest = (directory / "manifest.json").is_file()
        row["date"] = os.stat(
            directory / "manifest.json" if has_manifest else pages[0] if pages else directory
        ).st_mtime
        if not has_manifest:
            return row
        try:
            row["status"] = rundir.read_manifest(directory)["status"]
            resolved = _mapping(directory / rundir.RESOLVED)
            _add_figures(row, directory)
        except UserError as error:
            row["problem"] = str(error)
            return row
        target = resolved.get("target", "")
        row["target"] = _printable(str(target.get("name", "") if isinstance(target, dict) else target))
        row["points"] = finished.count(directory)
        return row


def _of_packed(row: dict[str, Any], directory: Path) -> dict[str, Any]:
    """A point whose files are packed: what is known of it without taking them out."""
    row |= {"date": os.stat(directory / rundir.PACK).st_mtime, "status": "complete"}
    try:
        row["tables"] = [name for name in TABLES if f"timeline/{name}.parquet" in point_files.names(directory)]
        _add_figures(row, directory)
    except UserError as error:
        row["problem"] = str(error)
    return row


def _add_figures(row: dict[str, Any], directory: Path) -> None:
    """Predicted time and notes: of a run from stats.json, of a sweep the least and the most of its points."""
    path = directory / "stats.json"
    try:
        content = json.loads(path.read_text()) if path.is_file() else {}
        makespan, notes = content.get("application.makespan", {}), content.get("notes", {})
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: is damaged ({error})") from None
    row["seconds"] = makespan.get("value")
    row["notes"] = [
        {"severity": note.get("severity", ""), "text": _printable(str(note.get("text", "")))}
        for note in notes.get("list", [])
    ]
    table = _table(directory / "sweep.parquet")
    if table is not None and "application.makespan" in table.column_names and table.num_rows:
        seconds = [value for value in table.column("application.makespan").to_pylist() if value is not None]
        row["seconds"], row["most_seconds"] = min(seconds, default=None), max(seconds, default=None)
        if "notes" in table.column_names:
            codes = sorted({code for text in table.column("notes").to_pylist() for code in str(text or "").split()})
            row["notes"] = [{"severity": "", "text": code} for code in codes]


def _results(folder: Path, depth: int) -> Iterator[Path]:
    """Run directories, and folders with pages, from ``folder`` downward; not those within them."""
    if (folder / "manifest.json").is_file() or any(folder.glob("*.html")):
        yield folder
        if (folder / "manifest.json").is_file():
            return
    if depth:
        with os.scandir(folder) as entries:
            inner = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith("."))
        for name in inner:
            try:
                yield from _results(folder / name, depth - 1)
            except PermissionError:
                continue


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _mapping(path: Path) -> dict[str, Any]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _LOADER) if path.is_file() else {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path}: is damaged ({' '.join(str(error).split())})") from None
    return content if isinstance(content, dict) else {}


def _table(path: Path) -> pa.Table | None:
    try:
        return pq.read_table(path) if path.is_file() else None
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: is damaged ({' '.join(str(error).split())})") from None


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
