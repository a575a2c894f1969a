"""What is asked of a run directory."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from manyscale.runner.errors import UserError
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.study_runs import Options, run_study


def report(directory: str | PathLike[str], *, self_contained: bool = False) -> Path:
    """Write the timeline traces and the report of a finished run; the run's study again, of which what is stored is
    not simulated again. ``self_contained``: of a sweep, every page holds all that it needs. Returns the path of
    ``report.html``. Raises UserError."""
    folder = Path(directory)
    manifest = rundir.read_manifest(folder)
    if manifest["status"] != "complete":
        raise UserError(f"{folder}: the run is {manifest['status']}; finish it with run --resume -o DIR")
    content = rundir.read_resolved(folder)
    chosen = Options(output=folder, executor="local", resume=True, self_contained=self_contained)
    run_study(content, str(folder / rundir.RESOLVED), None, chosen)
    return folder / "report.html"
