"""What is asked of a run directory: ``status``, how far it is; ``report`` writes its pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from manyscale.runner.api.answer import Answer
from manyscale.runner.api.folders import Folder
from manyscale.runner.errors import UserError
from manyscale.runner.run import directory as rundir
from manyscale.runner.run import standing
from manyscale.runner.run.sweeps import finished, point_files
from manyscale.runner.storage.address import located, located_or_none
from manyscale.runner.storage.fetching import fetch

if TYPE_CHECKING:
    import pyarrow as pa

    from manyscale.models.workload.notes import Note

_STATES: Final = ("simulated", "reused", "failed")


@dataclass(frozen=True, repr=False, eq=False)
class StatusResult(Answer):
    """How far a run is. ``state``: running, complete, failed or interrupted; ``units``: what became of each unit, by
    its key; ``num_points``: points of a sweep that are written; ``num_damaged``: damaged lines of the journal;
    ``standing``: what the run said last of its progress and its nodes (docs/reference/run-directory.md), empty for a
    run of an earlier version. Table: ``units``."""

    folder: Folder
    state: str
    units: Mapping[str, str]
    num_points: int = 0
    num_damaged: int = 0
    standing: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[Note] = ()

    @property
    def title(self) -> str:
        return f"{self.folder.path}: {self.state}"

    def facts(self) -> Mapping[str, str]:
        found = {"units finished": f"{len(self.units)} ({', '.join(f'{n} {each}' for each, n in self.counts.items())})"}
        found |= {"points written": f"{self.num_points}"} if self.num_points else {}
        return found | {f"now {number}": line for number, line in enumerate(self.lines, 1)}

    @property
    def lines(self) -> Sequence[str]:
        """What the run said last of its progress and of each node; of a run that has ended, of nodes alone."""
        return standing.lines(self.standing, is_running=self.state == "running")

    @property
    def counts(self) -> Mapping[str, int]:
        """How many units were simulated, reused, and failed."""
        return {each: sum(state == each for state in self.units.values()) for each in _STATES}

    @property
    def figures(self) -> Mapping[str, Any]:
        """State, units by what became of them, points, damaged lines, and what the run said last."""
        return {
            "state": self.state, **self.counts, "points": self.num_points, "damaged_lines": self.num_damaged,
            "standing": dict(self.standing),
        }  # fmt: skip

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        def made() -> pa.Table:
            import pyarrow as pa

            return pa.table({"key": list(self.units), "status": list(self.units.values())})

        return {"units": made}


def status(directory: str | PathLike[str]) -> StatusResult:
    """How far a run is, as its manifest and its journal say. Raises UserError for what is no run directory."""
    folder = located(directory)
    fetch(folder, again=True)
    manifest = rundir.read_manifest(folder)
    entries, num_damaged = rundir.read_journal(folder)
    latest = {entry["key"]: entry["status"] for entry in entries}
    num_points = finished.count(folder)
    said = standing.read(folder)
    return StatusResult(Folder(folder), manifest["status"], latest, num_points, num_damaged, said)


def report(
    directory: str | PathLike[str],
    *,
    points: Iterable[int] | Literal["all"] = (),
    self_contained: bool = False,
    cache: str | PathLike[str] | None = None,
) -> Path:
    """Write the timeline traces and the report of a finished run; the run's study again, of which what is stored is
    not simulated again. Of a sweep it is the page of all points; ``points``: numbers of those, or "all", whose own run
    directories are to have traces and a page. ``self_contained``: of a sweep, every page holds all that it needs;
    ``cache``: where the run kept the results of its work units. Returns the path of ``report.html``. Raises
    UserError."""
    from manyscale.runner.run.study_runs import Options, run_study

    folder = located(directory)
    manifest = rundir.read_manifest(folder)
    if manifest["status"] != "complete":
        raise UserError(f"{folder}: the run is {manifest['status']}; finish it with run --resume -o DIR")
    content = rundir.read_resolved(folder)
    number = finished.count(folder) if content.get("sweep") else 0
    shown = range(number) if points == "all" else sorted({int(index) for index in points})
    if not number and (shown or points == "all"):
        raise UserError(f"{folder}: is no sweep, and has no points; leave --point out")
    for index in shown:
        if not 0 <= index < number:
            raise UserError(f"{folder}: has no point {index}; its points are 0 to {number - 1}")
    chosen = Options(
        output=folder, executor="local", resume=True, self_contained=self_contained, shown_points=shown, yes=True,
        cache=located_or_none(cache),
    )  # fmt: skip
    run_study(content, str(folder / rundir.RESOLVED), None, chosen)
    return (point_files.folder(folder, shown[0]) if shown else folder) / "report.html"
