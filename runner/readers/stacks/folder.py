"""Reader for the folder that manyscale's recorder of call stacks leaves (``runner/tracers/stacks.py``): ``stacks.json``
and a folder ``rank-N`` per rank with what perf, py-spy or Java Flight Recorder wrote.

The processes of a rank are its threads. Times of different ranks are compared only where the profiler's clock is that
of the machine, and only to merge threads within a rank.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from manyscale.runner.errors import UserError
from manyscale.runner.plain_files import read_json
from manyscale.runner.readers.options import DEFAULT_OPTIONS, ReadOptions
from manyscale.runner.readers.stacks import jfr, perf_script, speedscope
from manyscale.runner.readers.stacks.profile import Profile
from manyscale.runner.readers.stacks.units import UnitRules

if TYPE_CHECKING:
    from manyscale.models.workload import Workload

NAME: Final = "stacks"
KEEPS_THREADS: Final = True  # read takes options.threads and options.idle
HEADER: Final = "stacks.json"
FORMAT: Final = "manyscale call stacks"
VERSION: Final = 1
PERF_TEXT: Final = "perf.txt"
SPEEDSCOPE: Final = "speedscope.json"
_RANK: Final = re.compile(r"rank-(\d{1,7})")


def can_read(path: Path) -> bool:
    """Whether the folder was written by the recorder."""
    header = path / HEADER
    try:
        return header.is_file() and read_json(header).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        return False


def read(path: Path, options: ReadOptions = DEFAULT_OPTIONS, *, rules: UnitRules | None = None) -> Workload:
    """The workload of all ranks (of ``options`` those of threads count), in units as recorded unless ``rules`` say
    otherwise.

    Raises UserError for a folder of another version, for ranks that are missing and for damaged files.
    """
    from manyscale.models.workload.notes import Errs, changes
    from manyscale.runner.readers.stacks.tables import workload

    header = read_header(path)
    if rules is None:
        rules = UnitRules(**header["rules"])
    rules = rules.chosen(options)
    folders = {int(found[1]): one for one in path.iterdir() if (found := _RANK.fullmatch(one.name))}
    missing = next((rank for rank in range(max(folders, default=0) + 1) if rank not in folders), None)
    if missing is not None:
        raise UserError(
            f"{path}: rank {missing} left no profile; did the program run, on a node that sees this folder?"
        )
    source = header["source"]
    profile = Profile(has_common_clock=source != "py-spy")
    for rank, folder in sorted(folders.items()):
        before = len(profile.rows["rank"])
        _collect(folder, source, profile, rank, rules)
        if len(profile.rows["rank"]) == before:
            text = "has no samples: it computed too little"
            profile.notes.append(changes("ranks-without-samples", text, f"rank {rank}", errs=Errs.short))
    return workload(profile, path, str(header["name"]), len(folders), rules, NAME)


def read_header(path: Path) -> dict[str, Any]:
    """What ``stacks.json`` says. Raises UserError."""
    try:
        header: dict[str, Any] = read_json(path / HEADER)
        if header["version"] != VERSION:
            raise UserError(f"{path / HEADER}: version {header['version']} is not {VERSION}; record again")
        UnitRules(**header["rules"])
        if header["source"] not in ("perf", "py-spy", "jfr") or not isinstance(header["name"], str):
            raise ValueError("unknown source")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path / HEADER}: is damaged ({error}); record again") from None
    return header


def _collect(folder: Path, source: str, profile: Profile, rank: int, rules: UnitRules) -> None:
    files = sorted(folder.glob({"perf": PERF_TEXT, "py-spy": SPEEDSCOPE, "jfr": "*.jfr"}[source]))
    if not files:
        raise UserError(f"{folder}: holds nothing that {source} wrote; see what it said when the program ran")
    if source == "jfr":
        for process, file in enumerate(files):
            jfr.collect(file, profile, rank, rules, process)
    else:
        collect: Callable[[Path, Profile, int], None] = {"perf": perf_script, "py-spy": speedscope}[source].collect
        collect(files[0], profile, rank)
