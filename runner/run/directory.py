"""The run directory: explains itself, can be resumed, and is never half-written by accident."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, Final

import yaml

from manyscale.models.workload.notes import Note, from_json
from manyscale.runner import kept
from manyscale.runner.errors import UserError
from manyscale.runner.predict.units import Outcome
from manyscale.runner.storage.address import origin, refuse
from manyscale.runner.storage.fetching import fetch
from manyscale.runner.storage.publishing import prepare, published
from manyscale.runner.study import load_study_content
from manyscale.runner.version import __version__

RESOLVED = "resolved.yaml"
STATUS = "status.json"
PACK: Final = "point.zip"  # of a point of a large sweep (sweeps/point_files.py)
_RECORDED = ("numpy", "numba", "pyarrow", "ray")
_MOST_BLOCKS: Final = 256
_blocks: Final[dict[tuple[str, str], str]] = {}


def new_directory(output: Path | None, name: str, resume: bool | None = None, *, publishes: bool = False) -> Path:
    """The folder of a run: ``output``, or the next free ``runs/NAME-NNN``. ``resume`` says whether an earlier run goes
    on in it, None that nothing of this kind can; ``publishes``: it may be the copy of an address, since the caller
    writes it within ``published``. Raises UserError if it is taken, is no run although ``resume`` asks for one, or
    cannot be written."""
    if output is None:
        if resume:
            raise UserError("--resume needs the run directory: -o DIR")
        output = _next_numbered(Path("runs"), name)
    _refuse_encoding(output)
    is_copy = origin(output) is not None
    if is_copy and not publishes:
        refuse(output, "-o", "what this command makes is written to folders alone")
    is_taken = is_copy and prepare(output, resume=bool(resume))
    try:
        if output.exists() and not output.is_dir():
            raise UserError(f"{output}: is a file; name a directory with -o")
        taken = is_taken or (output.is_dir() and any(output.iterdir()))
        if resume and not (output / "manifest.json").is_file():
            raise UserError(f"{output}: is no run directory (it has no manifest.json); leave out --resume to start one")
        if taken and not resume:
            else_on = "" if resume is None else ", or continue a run with --resume"
            raise UserError(f"{output}: is not empty; name another directory with -o{else_on}")
        output.mkdir(parents=True, exist_ok=True)
        if not os.access(output, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise UserError(f"{output}: cannot be written ({error.strerror}); name another directory with -o") from None
    return output


def _refuse_encoding(output: Path) -> None:
    try:
        str(output.absolute()).encode()
    except UnicodeEncodeError:
        raise UserError(f"{output}: its name is not in UTF-8, as Parquet needs it; name another directory") from None


@contextmanager
def new_results(output: Path | None, name: str) -> Iterator[Path]:
    """The folder of results that are written at once, as ``new_directory`` gives it. Whatever stops the writing,
    nothing of them is left: the same command can be given again."""
    was_there = output is not None and output.is_dir()
    directory = new_directory(output, name, publishes=True)
    with published(directory):
        try:
            yield directory
        except BaseException:
            for entry in directory.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink(missing_ok=True)
            if not was_there:
                directory.rmdir()
            raise


def discard(directory: Path, *, remove: bool) -> None:
    """Take back what a run wrote before its input was refused, unless it holds results already; with ``remove`` the
    directory goes, too."""
    written = {RESOLVED, "manifest.json", "units.jsonl", STATUS, "points.jsonl", "plotly.min.js"}
    with suppress(OSError):  # it is not there, or holds points
        (directory / "points").rmdir()
    if {entry.name for entry in directory.iterdir()} <= written:
        for name in written:
            (directory / name).unlink(missing_ok=True)
        if remove:
            directory.rmdir()


def _next_numbered(parent: Path, name: str) -> Path:
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "run"
    taken = [
        int(match.group(1))
        for entry in (parent.iterdir() if parent.is_dir() else ())
        if (match := re.fullmatch(re.escape(stem) + r"-(\d{3,})", entry.name))
    ]
    return parent / f"{stem}-{max(taken, default=0) + 1:03d}"


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is either the old one or the new one; into what is no regular file (a pipe, a device)
    without replacing it."""
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_page(directory: Path, text: str) -> None:
    """Write ``report.html``; names that are not text are written as escapes."""
    write_atomically(directory / "report.html", text.encode(errors="backslashreplace").decode())


def write_manifest(
    directory: Path, status: str, seed: int, inputs: Mapping[str, str], accepted: Iterable[str] = (),
    command: str | None = None,
) -> None:  # fmt: skip
    """``manifest.json``: how the run was made. ``status`` is running, complete, failed or interrupted; ``accepted``:
    codes of notes that do not refuse it; ``command``: None for that of this process. With the checksums of
    ``resolved.yaml`` and of itself."""
    content: dict[str, Any] = {
        "status": status,
        "command": command or command_line(),
        "versions": dict(versions()),
        "seed": seed,
        "inputs": dict(inputs),
        "accepted": sorted(accepted),
    }
    if (directory / RESOLVED).is_file():
        content["resolved_checksum"] = kept.checksum(directory / RESOLVED)
    content["checksum"] = kept.checksum_of_text(json.dumps(content))
    write_atomically(directory / "manifest.json", json.dumps(content, indent=1) + "\n")


def command_line() -> str:
    """How this process was called: a command of manyscale, or a program that imports it."""
    program = Path(sys.argv[0])
    is_ours = program.stem == "manyscale" or program.parts[-2:] == ("manyscale", "__main__.py")
    return shlex.join(["manyscale" if is_ours else program.name or "python", *sys.argv[1:]])


@cache
def versions() -> Mapping[str, str]:
    """Of what results depend on, and of Ray."""
    found = {"manyscale": __version__, "python": sys.version.split()[0]}
    for package in _RECORDED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of a run directory. Raises UserError if the directory is no run, or its manifest is damaged."""
    path = directory / "manifest.json"
    fetch(directory)
    if not directory.exists():
        raise UserError(f"{directory}: does not exist")
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{directory}: is no run directory (it has no manifest.json)") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is damaged ({error}); start the run again in another directory") from None
    if not isinstance(content, dict) or "status" not in content:
        raise UserError(f"{path}: is not the manifest of a run; start the run again in another directory")
    checksum = content.pop("checksum", None)  # an earlier version wrote none
    if checksum is not None and checksum != kept.checksum_of_text(json.dumps(content)):
        raise UserError(f"{path}: is damaged (its checksum differs); start the run again in another directory")
    return content


def is_run(path: Path) -> bool:
    """Whether a path is a run directory, or that of a sweep's point whose files are packed."""
    fetch(path)
    return (path / "manifest.json").is_file() or (path / PACK).is_file()


def check_complete(directory: Path) -> None:
    """Raises UserError for a sweep, and for a run that has not ended."""
    status = read_manifest(directory)["status"]
    if (directory / "points").is_dir():
        raise UserError(f"{directory}: is a sweep; name one of its points, such as {directory}/points/0000")
    if status != "complete":
        raise UserError(f"{directory}: the run is {status}; finish it with run --resume -o DIR")


def read_notes(directory: Path) -> list[Note]:
    """What a run's figures leave out. Raises UserError."""
    try:
        content = json.loads((directory / "stats.json").read_text())
        return list(from_json(json.dumps(content.get("notes", {}).get("list", []))))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{directory}/stats.json: is damaged ({error}); run again with --resume -o DIR") from None


def read_resolved(directory: Path) -> Any:
    """The content of a run's ``resolved.yaml``. Raises UserError where the directory is no run, or where the file is
    not as the run wrote it."""
    path = directory / RESOLVED
    checksum = read_manifest(directory).get("resolved_checksum")
    content = load_study_content(path)
    if checksum is not None and checksum != kept.checksum(path):
        raise UserError(
            f"{path}: is damaged or was changed since the run wrote it; give the study, and start a new run"
        )
    return content


def write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    write_atomically(path, "".join(_block(key, value) for key, value in content.items()))


def _block(key: str, value: Any) -> str:
    """A key of a mapping with its value, as YAML. Points of a sweep have most of them in common, and to make the text
    anew would take longer than the rest of a small point."""
    name = key, repr(value)
    if name not in _blocks:
        if len(_blocks) >= _MOST_BLOCKS:
            _blocks.clear()
        _blocks[name] = yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True)
    return _blocks[name]


class Journal:
    """``units.jsonl``: one line per finished unit, written as it finishes, with its checksum. Lines of earlier attempts
    stay, as far as they are whole."""

    def __init__(self, directory: Path) -> None:
        path = directory / "units.jsonl"
        found = [(line, entry) for line in _journal_lines(path) if (entry := _entry(line)) is not None]
        self.earlier = {entry["key"]: _outcome(entry) for _, entry in found}  # kind, outcome and status by key
        whole = "".join(line for line, _ in found)
        if path.is_file() and path.read_bytes() != whole.encode():
            print(f"manyscale: {path}: damaged lines are left out", file=sys.stderr)
            write_atomically(path, whole)
        self._file: IO[str] = path.open("a", buffering=1)

    def record(self, kind: str, outcome: Outcome, status: str) -> None:
        fields = asdict(outcome)
        line = {"key": outcome.key, "kind": kind, "status": status}
        line |= {name: fields[name] for name in ("attempts", "cpu_seconds", "error")}
        line["check"] = kept.checksum_of_text(json.dumps(line))
        self._file.write(json.dumps(line) + "\n")

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_journal(directory: Path) -> tuple[list[dict[str, Any]], int]:
    """Entries of a journal, and how many of its lines are damaged; one that is not yet written to its end is not."""
    lines = _journal_lines(directory / "units.jsonl")
    entries = [entry for line in lines if (entry := _entry(line)) is not None]
    return entries, sum(line.endswith("\n") for line in lines) - len(entries)


def _outcome(entry: Mapping[str, Any]) -> tuple[str, Outcome, str]:
    fields = {name: entry[name] for name in ("cpu_seconds", "error", "attempts") if name in entry}
    return entry.get("kind", ""), Outcome(entry["key"], **fields), entry["status"]


def _journal_lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines(keepends=True) if path.is_file() else []


def _entry(line: str) -> dict[str, Any] | None:
    """What a line of a journal says, if it is whole."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return None
    if not line.endswith("\n") or not isinstance(entry, dict) or not {"key", "status"} <= set(entry):
        return None
    checksum = entry.pop("check", None)  # an earlier version wrote none
    return entry if checksum in (None, kept.checksum_of_text(json.dumps(entry))) else None
