"""``--json``: what a command found, laid out alike by all commands.

``{"command", "title", "results", "figures", "notes"}``: ``results`` is the folder that was written, null without one. A
figure is ``{"name", "of", "value", "unit"}`` and, where something was sampled, ``ci_low`` and ``ci_high``; ``of`` says
which one it is of several of this name (the axes of a sweep's point, a rank, a method). Units are those of
``stats.json``; "1" is a ratio or a count. Notes are those that the command ends with.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from manyscale.runner.cli.options import written

if TYPE_CHECKING:
    from manyscale.runner.api.answer import Answer
    from manyscale.runner.predict.statistic import Statistic

STANDARD_OUTPUT: Final = "-"
_UNITS: Final = {"s": "s", "seconds": "s", "ps": "ps", "ns": "ns", "bytes": "B", "cycles": "cycles", "hz": "Hz",
                 "ghz": "GHz", "time": "s"}  # fmt: skip
_WHICH: Final = ("cores", "seed", "cluster", "rank", "size", "input_size", "point_id", "first_bytes")  # of several


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument(
        "--json", metavar="FILE",
        help="write the figures with their units, and the notes, as JSON (-: to standard output, with nothing else)",
    )  # fmt: skip


@contextmanager
def alone(options: argparse.Namespace) -> Iterator[None]:
    """Keeps everything but the JSON from standard output, where ``--json -`` asks for that."""
    if getattr(options, "json", None) != STANDARD_OUTPUT:
        yield
        return
    options.json_stream = sys.stdout
    with redirect_stdout(io.StringIO()):
        yield


def show(options: argparse.Namespace, found: Answer) -> None:
    """What ``--json`` asks for of a result. Raises UserError where the file cannot be written."""
    if options.json is None:
        return
    further = {"a", "b", "rows"} & set(found.figures) if options.command == "compare" else ()  # as it was before
    content = {name: found.figures[name] for name in sorted(further)}
    write(options, found.title, list(figures_of(found)), found.notes, found.directory, **content)


def write(
    options: argparse.Namespace,
    title: str,
    figures: list[dict[str, Any]],
    notes: Any = (),
    results: Path | None = None,
    **further: Any,
) -> None:
    """The same of figures as ``figure`` makes them."""
    if options.json is None:
        return
    content = {"command": options.command, "title": title, "results": None if results is None else str(results)}
    text = json.dumps({**content, "figures": figures, "notes": _notes(notes), **further}, indent=1, default=str)
    if options.json == STANDARD_OUTPUT:
        options.json_stream.write(f"{text}\n")
        return
    from manyscale.runner.run.directory import write_atomically

    with written(Path(options.json)):
        write_atomically(Path(options.json), f"{text}\n")


def figure(name: str, value: Any, unit: str, of: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One figure; a value that is no number (infinite, not known) is null."""
    known = value if not isinstance(value, float) or math.isfinite(value) else None
    return {"name": name, "of": dict(of or {}), "value": known, "unit": unit}


def figures_of(found: Answer) -> Iterator[dict[str, Any]]:
    """Of a sweep, the statistics of every point; of other results their statistics, if they have some, else what they
    say of themselves."""
    points = getattr(found, "points", None)
    if points is not None:
        for point in points:
            yield from _statistics(point.statistics, {key: str(value) for key, value in point.axes.items()})
    elif "statistics" in found.tables:
        for row in found.table("statistics").to_pylist():
            yield figure(row["name"], _whole(row["value"]), row["unit"]) | _interval(row["ci_low"], row["ci_high"])
    else:
        yield from _flat("", found.figures, {})


def _statistics(statistics: Mapping[str, Statistic], of: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, each in statistics.items():
        yield figure(name, each.value, each.unit, of) | _interval(each.ci_low, each.ci_high)


def _interval(low: float | None, high: float | None) -> dict[str, Any]:
    return {} if low is None and high is None else {"ci_low": low, "ci_high": high}


def _whole(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value


def _flat(name: str, value: Any, of: Mapping[str, Any], *, is_row: bool = False) -> Iterator[dict[str, Any]]:
    """Every number in nested mappings and lists; rows of a list are told apart by their texts and some numbers."""
    if isinstance(value, Mapping):
        which = {key: each for key, each in value.items() if _says_which(key, each)} if is_row else {}
        unit = which.pop("unit", None)
        for key, each in value.items():
            inner = f"{name}.{key}" if name and name != "rows" else str(key)
            if key in which or key in ("unit", "notes"):
                continue
            if unit is not None and isinstance(each, int | float):
                yield figure(inner, each, str(unit), {**of, **which})
            else:
                yield from _flat(inner, each, {**of, **which})
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            is_mapping = isinstance(each, Mapping)
            yield from _flat(name, each, of if is_mapping else {**of, "index": index}, is_row=is_mapping)
    elif isinstance(value, bool):
        yield figure(name, int(value), "1", of)
    elif isinstance(value, int | float):
        yield figure(name, value, _unit_of(name), of)


def _says_which(key: str, value: Any) -> bool:
    return isinstance(value, str) or key in _WHICH


def _unit_of(name: str) -> str:
    return _UNITS.get(name.rpartition(".")[2].rpartition("_")[2], "1")


def _notes(notes: Any) -> list[dict[str, Any]]:
    from manyscale.models.workload.notes import in_order, to_json

    found: list[dict[str, Any]] = json.loads(to_json(in_order(notes))) if notes else []
    return found
