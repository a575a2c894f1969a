"""Traces of a finished run that it left out, made from its directory when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from manyscale.runner.errors import UserError
from manyscale.runner.run import directory as rundir
from manyscale.runner.run import study_runs
from manyscale.runner.run.sweeps import point_files
from manyscale.runner.storage.publishing import published


def write_traces(directory: Path, kinds: Collection[str], cache: Path | None = None) -> list[Path]:
    """Write traces of some kinds (``shown.TRACES``) of the run in ``directory``, or of the point of a sweep, and return
    their files. What is stored is not simulated again; nothing else of the directory changes.

    Raises UserError where the directory is no finished run, or a sweep.
    """
    if point_files.is_packed(directory):
        point_files.take_out(directory)
    manifest = rundir.read_manifest(directory)
    if manifest["status"] != "complete":
        raise UserError(f"{directory}: the run is {manifest['status']}; finish it with run --resume -o DIR")
    content = rundir.read_resolved(directory)
    if content.get("sweep"):
        raise UserError(f"{directory}: is a sweep; name one of its points, such as {directory / 'points' / '0000'}")
    place = str(directory / rundir.RESOLVED)
    with published(directory), TemporaryDirectory(dir=directory, prefix=".traces-") as scratch:
        aside = Path(scratch, "run")
        chosen = study_runs.Options(
            output=aside, executor="local", cache=cache, report=False, traces=kinds,
            accept=manifest.get("accepted", []),
        )  # fmt: skip
        study_runs.run_study(content, place, None, chosen)
        files = [file.name for file in sorted(aside.iterdir()) if file.name.startswith("trace.")]
        for name in files:
            os.replace(aside / name, directory / name)
    return [directory / name for name in files]
