"""What every result can do: show itself in a line, a terminal or a notebook, and hand out its tables."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from manyscale.runner.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import pyarrow as pa

    from manyscale.models.workload.notes import Note
    from manyscale.runner.api.folders import Folder, Output

LONGEST: Final = 400  # characters of a repr
_LONGEST_LINE: Final = 120
_LONGEST_NAME: Final = 50  # of a fact, so that the line has room for its text


class Answer(ABC):
    """A result: short to print, a card in a notebook, tables as data frames, figures as numbers.

    ``notes``: what the numbers leave out or assume. ``folder``: where its files are, if it has any; a temporary one is
    removed with the last result that refers to it.
    """

    notes: Sequence[Note]
    folder: Folder | None

    @property
    @abstractmethod
    def title(self) -> str:
        """What the result is of, in a few words."""

    @abstractmethod
    def facts(self) -> Mapping[str, str]:
        """What it says first: name to text, in order."""

    @abstractmethod
    def _makers(self) -> Mapping[str, Callable[[], pa.Table]]:
        """What makes each table, by its name."""

    @property
    @abstractmethod
    def figures(self) -> Mapping[str, Any]:
        """Its numbers by name, ready for JSON."""

    def _chart(self) -> Mapping[str, Any] | None:
        """A Plotly figure as a mapping (data, layout); None where there is nothing to draw."""
        return None

    @property
    def directory(self) -> Path | None:
        """The folder of its files, None where there are none."""
        return None if self.folder is None else self.folder.path

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its tables, for ``frame`` and ``table``."""
        return tuple(self._makers())

    def table(self, name: str | None = None) -> pa.Table:
        """A table as Arrow has it; by default the first. Raises UserError for an unknown name."""
        makers = self._makers()
        if not makers:
            raise UserError("the result has no tables")
        chosen = next(iter(makers)) if name is None else name
        if chosen not in makers:
            raise UserError(f"table {chosen!r}: the result has none of this name; its tables are {', '.join(makers)}")
        return makers[chosen]()

    def frame(self, name: str | None = None) -> pd.DataFrame:
        """A table as pandas has it; by default the first. Units stand in the names of columns (``_ps``, ``_bytes``), or
        in a column ``unit``, and all that are known in ``frame.attrs["units"]``. Raises UserError for an unknown
        name."""
        from manyscale.runner.api.frames import data_frame

        return data_frame(self.table(name))

    def to_json(self, *, indent: int | None = 1) -> str:
        """The title, ``figures`` and notes as JSON."""
        from manyscale.models.workload.notes import in_order, to_json

        content = {"title": self.title, "figures": self.figures, "notes": json.loads(to_json(in_order(self.notes)))}
        return json.dumps(content, indent=indent)

    def plot(self) -> go.Figure:
        """What the report of such a result draws, as a figure of Plotly. Raises UserError where there is nothing to
        draw."""
        chart = self._chart()
        if chart is None:
            raise UserError(
                f"{self.title}: there is nothing to draw; its tables are {', '.join(self.tables) or 'none'}"
            )
        import plotly.graph_objects as go

        return go.Figure(dict(chart))

    def save(self, directory: str | PathLike[str]) -> Path:
        """Write its files into a new folder: those it has, or each table as Parquet and its figures as JSON. Returns
        the folder. Raises UserError where that is taken or cannot be written."""
        from manyscale.runner.run import directory as rundir
        from manyscale.runner.storage.address import located

        place = located(directory)
        with rundir.new_results(place, "result") as target:
            if self.folder is not None:
                self.folder.copy(target)
            else:
                self._write(target)
        return place

    def _write(self, directory: Path) -> None:
        """Write its files into an empty folder."""
        from manyscale.runner.run import directory as rundir
        from manyscale.runner.run.parquet import write_table

        for name, make in self._makers().items():
            write_table(make(), directory / f"{name}.parquet")
        rundir.write_atomically(directory / "figures.json", self.to_json() + "\n")

    def __repr__(self) -> str:
        shown = [(_shortened(name, _LONGEST_NAME), text) for name, text in self.facts().items()]
        width = max((len(name) for name, _ in shown), default=0)
        room = _LONGEST_LINE - width - 4
        lines = [_shortened(self.title, _LONGEST_LINE)]
        lines += [f"  {name:<{width}}  {_shortened(text, room)}" for name, text in shown]
        told = noted(self.notes)
        if told:
            lines.append(_shortened(f"  {told}", _LONGEST_LINE))
        while len("\n".join(lines)) > LONGEST:
            del lines[-2 if told and len(lines) > 2 else -1]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """A card for notebooks."""
        from manyscale.models.workload.notes import Severity, in_order

        rows = "".join(
            f'<tr><th style="text-align:left;font-weight:normal">{escape(name)}</th>'
            f'<td style="text-align:left"><b>{escape(text)}</b></td></tr>'
            for name, text in self.facts().items()
        )
        told = [note for note in in_order(self.notes) if note.severity is not Severity.informs]
        items = "".join(f"<li>{escape(str(note))}</li>" for note in told)
        notes = f"<details><summary>{escape(noted(self.notes))}</summary><ul>{items}</ul></details>" if items else ""
        return f"<div><p><b>{escape(self.title)}</b></p><table>{rows}</table>{notes}</div>"


_Kind = TypeVar("_Kind", bound=Answer)


def kept(answer: _Kind, output: Output, name: str) -> _Kind:
    """A result with its files written to ``output``, as ``run/directory.new_results`` has it (``name``: of a folder
    with a number); as it is where no files are asked for. Raises UserError."""
    if output is None:
        return answer
    from manyscale.runner.api.folders import Folder, place
    from manyscale.runner.run import directory as rundir

    with rundir.new_results(place(output)[0], name) as directory:
        answer._write(directory)
    return replace(answer, folder=Folder(directory))  # type: ignore[type-var]


def distinct(names: Sequence[str]) -> list[str]:
    """``names``, those that come again with how often they did."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def noted(notes: Sequence[Note]) -> str:
    """How many notes there are, by severity; "" for none."""
    if not notes:
        return ""
    from manyscale.models.workload.notes import Severity, in_order

    verbs = {
        Severity.forbids: "forbid the number",
        Severity.changes: "change the number",
        Severity.informs: "inform",
    }
    kinds = [note.severity for note in in_order(notes)]
    counts = [f"{kinds.count(each)} {verbs[each]}" for each in Severity if each in kinds]
    return f"notes: {', '.join(counts)}"


def _shortened(text: str, longest: int) -> str:
    """Cut between its parts, or else its words, so that no figure is read wrong; within one only where it is all."""
    if len(text) <= longest:
        return text
    room = longest - len(" ...")
    for separator in (", ", " "):
        whole = text[: room + len(separator)].rpartition(separator)[0]
        if whole.strip():
            return whole + " ..."
    return text[:room] + " ..."
