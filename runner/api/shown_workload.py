"""What a trace holds, before anything is predicted: ``show``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from manyscale.models.workload import Workload
from manyscale.models.workload.notes import Note
from manyscale.runner.api.answer import Answer, kept
from manyscale.runner.api.folders import Folder, Output
from manyscale.runner.api.inputs import TraceLike, cache_folder
from manyscale.runner.api.progress import Progress, watched
from manyscale.runner.run import directory as rundir
from manyscale.runner.study import WorkloadChoice
from manyscale.runner.study.traces import counted
from manyscale.runner.study.traces import read_workload as read_choice

if TYPE_CHECKING:
    import pyarrow as pa

    from manyscale.runner.run.questions.contents import Section, Use

_PathLike = str | PathLike[str]


@dataclass(frozen=True, repr=False, eq=False)
class ShowResult(Answer):
    """What a workload holds: ``sections``, one for each level that it has, with figures and tables, and ``uses``, the
    commands that it can be given to, or what it lacks for them. Tables: those of the sections."""

    workload: Workload
    sections: Sequence[Section]
    uses: Sequence[Use]
    report: bool = True
    folder: Folder | None = None

    @property
    def notes(self) -> Sequence[Note]:  # type: ignore[override]
        return self.workload.notes

    @property
    def title(self) -> str:
        return f"trace {self.workload.name}"

    def facts(self) -> Mapping[str, str]:
        from manyscale.runner.report.workload_page import text, words

        found = {"holds": counted(self.workload)}
        for section in self.sections[1:]:
            shown = (f"{words(name)} {text(name, value)}" for name, value in section.facts.items())
            found[section.name] = ", ".join(shown)
        return found

    @property
    def figures(self) -> Mapping[str, Any]:
        """The facts of each section by its name, and which commands the trace can be given to."""
        found: dict[str, Any] = {each.name.replace(" ", "_"): dict(each.facts) for each in self.sections}
        found["uses"] = [
            {"command": use.command, "gives": use.gives, "lacks": use.lacks, "can_be_given": not use.lacks}
            for use in self.uses
        ]
        return found

    def summary(self) -> str:
        """The lines to read, as the command prints them."""
        from manyscale.runner.report import workload_page

        return "\n".join(workload_page.printed(self.sections, self.uses))

    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        tables = {name: table for section in self.sections for name, table in section.tables.items()}
        return {name: partial(tables.__getitem__, name) for name in tables}

    def _chart(self) -> Mapping[str, Any] | None:
        from manyscale.runner.report import figures

        for section in self.sections:
            for name, table in section.tables.items():
                figure = figures.workload(name, table)
                if figure is not None:
                    return figure
        return None

    def _write(self, directory: Path) -> None:
        from manyscale.runner.report import workload_page

        super()._write(directory)
        if self.report:
            rundir.write_page(directory, workload_page.page(self.title, self.sections, self.uses, self.notes))


def show(
    trace: TraceLike,
    output: Output = None,
    *,
    format: str = "auto",
    time: Literal["auto", "cpu", "process", "wall"] = "auto",
    cache: _PathLike | None = None,
    report: bool = True,
    progress: Progress = False,
) -> ShowResult:
    """What a trace in any format (path or shipped name) holds, before anything is predicted: ranks, messages, regions,
    iterations, task instances and what their graph allows, kernel launches, the detailed level, and which commands it
    can be given to. ``time``: the clock of phases. ``output``: a folder for its tables, figures.json and, with
    ``report``, the page. Raises UserError, one line, if it cannot be read."""
    from manyscale.runner.run.questions.contents import contents, uses

    with watched(progress) as told:
        told(0, 0, "reading")
        choice = WorkloadChoice(path=fspath(trace), format=format, time=time)
        workload = read_choice(choice, cache_folder(cache))
        told(0, 0, "counting")
        found = ShowResult(workload, contents(workload), uses(workload, fspath(trace)), report)
    return kept(found, output, f"{workload.name}-show")
