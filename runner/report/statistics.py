"""Statistics as ``stats.json`` (for scripts) and ``stats.txt`` (to read, one figure a line as gem5 has it)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Final

from manyscale.models.workload.notes import Note, Severity
from manyscale.runner.predict.statistic import Statistic
from manyscale.runner.report.headline import has_launches, has_ranks
from manyscale.runner.run.results import Result

_FIRST: Final = ("gpu.time", "gpu.cycles", "gpu.ipc", "gpu.ipc_per_sm", "gpu.occupancy")


def write(result: Result, directory: Path) -> None:
    """Write both files of a run."""
    title = f"{result.name} on {result.machine.name}"
    write_figures(result.statistics, title, directory, result.notes, _to_read(result))


def _to_read(result: Result) -> Mapping[str, Statistic]:
    """What is worth reading: of a run that is nothing but a GPU's, its figures, those of time first. What MPI would say
    of one process alone (no waits, efficiencies of 1) stands in stats.json."""
    figures = result.statistics
    if not has_launches(result) or has_ranks(result):
        return figures
    of_gpu = [name for name in figures if name.startswith("gpu.")]
    first = [
        name for name in (*_FIRST, *(name for name in of_gpu if name.startswith("gpu.of_peak."))) if name in figures
    ]
    others = [name for name in figures if name.partition(".")[0] not in ("application", "critical_path", "gpu")]
    return {name: figures[name] for name in dict.fromkeys((*first, *of_gpu, "application.makespan", *others))}


def write_figures(
    figures: Mapping[str, Statistic], title: str, directory: Path, notes: Sequence[Note] = (),
    shown: Mapping[str, Statistic] | None = None,
) -> None:  # fmt: skip
    """Write both files; floats in their shortest exact form; ``shown``: those of stats.txt (all). The notes are one
    more figure, ``notes``: how many of them change the number, and all of them, most severe first, as its ``list``."""
    entries = [_entry(name, statistic) for name, statistic in figures.items()]
    (directory / "stats.json").write_text("{\n" + ",\n".join([*entries, _notes(tuple(notes))]) + "\n}\n")
    lines = [_line(name, statistic) for name, statistic in (figures if shown is None else shown).items()]
    lines += [f"# {note}\n" for note in notes]
    text = f"---------- {title} ----------\n" + "".join(lines)
    (directory / "stats.txt").write_text(text, encoding="utf-8", errors="backslashreplace")


def _entry(name: str, statistic: Statistic) -> str:
    """A statistic as ``json.dumps`` with an indent has it, which takes most of the time of a small point of a sweep."""
    head, middle, tail = _around(name, statistic.unit, statistic.kind, statistic.description)
    low, high = json.dumps(statistic.ci_low), json.dumps(statistic.ci_high)
    return f'{head}{json.dumps(statistic.value)}{middle}{low},\n  "ci_high": {high}{tail}'


@lru_cache(maxsize=1024)
def _around(name: str, unit: str, kind: str, description: str) -> tuple[str, str, str]:
    """What stands before, between and behind the numbers of a statistic."""
    own = {key: json.dumps(text) for key, text in (("unit", unit), ("kind", kind), ("description", description))}
    middle = f',\n  "unit": {own["unit"]},\n  "kind": {own["kind"]},\n  "ci_low": '
    return f' {json.dumps(name)}: {{\n  "value": ', middle, f',\n  "description": {own["description"]}\n }}'


@lru_cache(maxsize=64)
def _notes(notes: tuple[Note, ...]) -> str:
    count = sum(note.severity is not Severity.informs for note in notes)
    text = "notes on what the figures leave out or guess"
    figure = {"notes": Statistic(count, "1", "count", text)}
    fields = asdict(figure["notes"])
    content = {key: fields[key] for key in ("value", "unit", "kind", "ci_low", "ci_high", "description")}
    content["list"] = [asdict(note) for note in notes]
    return json.dumps({"notes": content}, indent=1)[2:-2]


def _line(name: str, statistic: Statistic) -> str:
    value = f"{statistic.value:.12g}" if isinstance(statistic.value, float) else str(statistic.value)
    interval = f" [{statistic.ci_low:.6g}, {statistic.ci_high:.6g}]" if statistic.ci_low is not None else ""
    unit = "" if statistic.unit == "1" else f" {statistic.unit}"
    return f"{name:<45} {value:>18}{unit:<3}{interval} # {statistic.description} ({statistic.kind})\n"
