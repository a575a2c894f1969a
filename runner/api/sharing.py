"""Jobs that share a machine: what each takes alone, and beside the others: ``share``."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from manyscale.models.workload.notes import Note
from manyscale.runner.api.answer import Answer
from manyscale.runner.api.folders import Folder, Output, Scratch, place
from manyscale.runner.api.inputs import Asked, StudyLike, TargetLike, asked_study
from manyscale.runner.api.progress import Progress
from manyscale.runner.api.studies import predicted
from manyscale.runner.api.study_results import RunResult
from manyscale.runner.errors import UserError
from manyscale.runner.report.text import duration
from manyscale.runner.run import directory as rundir
from manyscale.runner.run.parquet import write_table
from manyscale.runner.storage.address import origin
from manyscale.runner.study import assign, parse_study

SCHEMA: Final = pa.schema(
    [
        pa.field("job", pa.int32(), nullable=False),  # from 1
        pa.field("job_name", pa.string(), nullable=False),
        pa.field("num_ranks", pa.int32(), nullable=False),
        pa.field("alone_s", pa.float64(), nullable=False),  # until its last rank has ended
        pa.field("together_s", pa.float64(), nullable=False),
        pa.field("slowdown", pa.float64(), nullable=False),  # together / alone
        pa.field("step_alone_s", pa.float64()),  # mean over its ranks and steps; null without steps
        pa.field("step_together_s", pa.float64()),
        pa.field("step_slowdown", pa.float64()),
    ]
)


@dataclass(frozen=True, repr=False, eq=False)
class ShareResult(Answer):
    """What jobs cost each other. Table ``jobs``: a row for each, with its time alone and together. ``notes`` are those
    of the run of all."""

    jobs: pa.Table
    notes: Sequence[Note] = ()
    folder: Folder | None = None

    @property
    def title(self) -> str:
        return f"{self.jobs.num_rows} jobs on one machine"

    def facts(self) -> Mapping[str, str]:
        return {
            f"job {row['job']} ({row['job_name']})": f"{duration(row['alone_s'])} alone, {duration(row['together_s'])} "
            f"together, slowdown {row['slowdown']:.3f}"
            for row in self.jobs.to_pylist()
        }

    @property
    def figures(self) -> Mapping[str, Any]:
        """All rows of the table."""
        return {"rows": self.jobs.to_pylist()}

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        return {"jobs": lambda: self.jobs}


def share(
    study: StudyLike,
    beside: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    output: Output = None,
    *,
    target: TargetLike | None = None,
    format: str | None = None,
    time: str | None = None,
    model: Mapping[str, str] | None = None,
    sampling: Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    executor: str = "auto",
    address: str | None = None,
    workers: int | None = None,
    cache: str | PathLike[str] | None = None,
    report: bool = True,
    accept: Collection[str] = (),
    strict: bool = False,
    progress: Progress = False,
) -> ShareResult:
    """What jobs that share a machine cost each other: all are predicted together, and each alone at the same place.

    ``study`` names the first job; ``beside``: traces of the others, by path or shipped name, if it does not name them
    itself (``workload.beside``). The network is ``flow`` unless the study chooses another. All else as ``run`` has it.
    ``output``: a folder for ``jobs.parquet`` and the runs, ``together`` and ``alone-N``. Raises UserError for bad
    input, RunError if a run fails."""
    asked = asked_study(
        study, target=target, format=format, time=time, model=model, sampling=sampling, set=set, seed=seed
    )
    others = [beside] if isinstance(beside, str | PathLike) else list(beside)
    if others:
        content = assign(asked.content, "workload.beside", [{"path": fspath(each)} for each in others])
        asked = asked._replace(content=content)
    return shared(asked, output, executor=executor, address=address, workers=workers, cache=cache, report=report,
                  accept=accept, strict=strict, progress=progress)  # fmt: skip


def shared(asked: Asked, output: Output = None, **options: Any) -> ShareResult:
    """The same of a study's content, ``options`` as of ``studies.predicted``."""
    content = assign(asked.content, "workload.job", None)
    if "network" not in (content.get("model") or {}):
        content = assign(content, "model.network", "flow")
    study = parse_study(content, asked.place)
    if study.sweep:
        raise UserError(f"{asked.place}: is a sweep; ask of one of its points")
    count = 1 + len(study.workload.beside)
    if count < 2:
        raise UserError(f"{asked.place}: is one job; name those beside it with --beside PATH (workload.beside)")
    wanted, scratch = place(output)
    name = f"{study.name or Path(study.workload.path).name.partition('.')[0]}-shared"
    with rundir.new_results(wanted, name) as directory, _runs(directory) as runs:

        def run(job: int | None) -> RunResult:
            folder = runs / ("together" if job is None else f"alone-{job}")
            own = assign(content, "workload.job", job) | {"name": folder.name}
            found = predicted(asked._replace(content=own), folder, **options)
            assert isinstance(found, RunResult)
            return found

        together = run(None)
        rows = [_row(job, together, run(job)) for job in range(1, count + 1)]
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        write_table(table, directory / "jobs.parquet")
        return ShareResult(table, together.notes, Folder(directory, scratch))


@contextmanager
def _runs(directory: Path) -> Iterator[Path]:
    """Where the runs are written that go into ``directory``. At an address this is published as a whole, and runs that
    were written there would publish themselves."""
    if origin(directory) is None:
        yield directory
        return
    scratch = Scratch()
    yield scratch.path
    shutil.copytree(scratch.path, directory, dirs_exist_ok=True)
    scratch.remove()


def _row(job: int, together: RunResult, alone: RunResult) -> dict[str, Any]:
    own = together.workload.tables["jobs"].to_pylist()[job - 1]
    found = {"job": job, "job_name": own["job_name"], "num_ranks": own["num_ranks"]}
    time = alone.statistics.get(f"job.{job}.time")
    if time is None or not time.value:
        raise UserError(f"job {job} ({own['job_name']}) takes no time alone, so that nothing can slow it; leave it out")
    for prefix, name in (("", "time"), ("step_", "step_time")):
        times = [each.statistics.get(f"job.{job}.{name}") for each in (alone, together)]
        before, after = (None if each is None else float(each.value) for each in times)
        slowdown = None if after is None or not before else after / before
        found |= {f"{prefix}alone_s": before, f"{prefix}together_s": after, f"{prefix}slowdown": slowdown}
    return found
