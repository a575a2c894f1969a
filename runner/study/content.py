"""A study's content: as it stands in a file, with dotted keys set (``--set KEY=VALUE``, a sweep, a what-if), and at the
points of its sweep."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from manyscale.models.workload.notes import Note
from manyscale.runner.errors import UserError
from manyscale.runner.problems import load_yaml
from manyscale.runner.study import shapes, what_if
from manyscale.runner.study.schema import Study, parse_study

MOST_POINTS: Final = 10_000  # of a sweep, unless more are wanted


def assign(content: dict[str, Any], dotted: str, value: Any) -> dict[str, Any]:
    """``content`` with one dotted key set; a target that is a name becomes a mapping to take keys of the machine."""
    return _assign(content, dotted.split("."), value, dotted)


def _assign(content: dict[str, Any], keys: Sequence[Any], value: Any, place: str) -> dict[str, Any]:
    head, *rest = keys
    if head == "":
        raise UserError(f"{place!r} is not a dotted key such as target.network.latency")
    if not rest:
        return {**content, head: value}
    inner = content.get(head, {})
    if head == "target" and isinstance(inner, str):
        inner = {"name": inner}
    if inner is None:
        inner = {}
    if not isinstance(inner, dict):
        raise UserError(f"{place!r}: {head!r} holds no keys")
    return {**content, head: _assign(inner, rest, value, place)}


def apply_what_if(content: dict[str, Any], text: str) -> dict[str, Any]:
    """``content`` with what a what-if changes. Raises UserError."""
    for change in what_if.changes(text):
        value = change.value
        if change.multiplies:
            inner: Any = content
            for key in change.keys:
                inner = inner.get(key) if isinstance(inner, dict) else None
            value = value * inner if isinstance(inner, int | float) else value
        content = _assign(content, change.keys, value, ".".join(map(str, change.keys)))
    return content


def parse_assignment(text: str, option: str = "--set") -> tuple[str, Any]:
    """KEY=VALUE of the command line; the value is YAML. ``option`` is the one that took it, for errors."""
    key, separator, value = text.partition("=")
    if not separator:
        form = "KEY=VALUE, for example target.network.latency='2 us'" if option == "--set" else "LEVEL=NAME"
        raise UserError(f"{option} {text!r}: write {form}")
    try:
        return key.strip(), yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UserError(f"{option} {text!r}: the value is not valid YAML") from None


TARGET_SUFFIXES: Final = (".yaml", ".cfg")


def load_study_content(path: Path) -> Any:
    """A study file's content, paths of its workload and target made absolute if they are relative to the file."""
    content = load_yaml(path)
    if not isinstance(content, dict):
        return content
    inner_paths = (
        ("mapping", "launches", ""),
        ("target", "name", TARGET_SUFFIXES),
    )
    for key, inner, suffix in inner_paths:
        value = content.get(key)
        if isinstance(value, dict) and inner in value:
            content[key] = {**value, inner: _beside(path, value[inner], suffix)}
    if isinstance(workload := content.get("workload"), dict):
        content["workload"] = _with_paths(path, workload)
    mapping = content.get("mapping")
    if isinstance(mapping, dict) and isinstance(mapping.get("placement"), dict) and "file" in mapping["placement"]:
        placement = {**mapping["placement"], "file": _beside(path, mapping["placement"]["file"])}
        content["mapping"] = {**mapping, "placement": placement}
    if isinstance(content.get("target"), str):
        content["target"] = _beside(path, content["target"], TARGET_SUFFIXES)
    for axis in ("target", f"{shapes.PREFIX}target"):
        if isinstance(content.get("sweep"), dict) and isinstance(content["sweep"].get(axis), list):
            targets = [_beside(path, target, TARGET_SUFFIXES) for target in content["sweep"][axis]]
            content["sweep"] = {**content["sweep"], axis: targets}
    return content


def _with_paths(study: Path, workload: dict[str, Any]) -> dict[str, Any]:
    """A study file's key ``workload``, or that of a job beside it, with the paths in it as ``_beside`` has them."""
    found = dict(workload)
    for key in {"path", "detail", "gpu_trace"} & found.keys():
        found[key] = _beside(study, found[key])
    if isinstance(made := found.get("synthesise"), dict) and "target" in made:
        found["synthesise"] = {**made, "target": _beside(study, made["target"], TARGET_SUFFIXES)}
    if isinstance(others := found.get("beside"), list):
        found["beside"] = [_with_paths(study, each) if isinstance(each, dict) else each for each in others]
    return found


def _beside(study: Path, given: Any, suffix: str | tuple[str, ...] = "") -> Any:
    """The path ``given`` in a study file, absolute if it stands beside the file; anything else as it is."""
    is_path = isinstance(given, str) and given.endswith(suffix) and not Path(given).is_absolute()
    return str((study.parent / given).resolve()) if is_path and os.path.exists(study.parent / given) else given


def num_points(study: Study, place: str, yes: bool = False) -> int:
    """How many points a study has. Raises UserError for more than MOST_POINTS, unless the answer is ``yes``."""
    return _num_points(study, _shapes(study, place), place, yes)


def _num_points(study: Study, possible: shapes.Shapes | None, place: str, yes: bool) -> int:
    number = math.prod(map(len, study.sweep.values()))
    if possible is not None:
        number = number // possible.possible.size * int(possible.possible.sum())
    if number > MOST_POINTS and not yes:
        raise UserError(f"{place}: the sweep has {number:,} points, over {MOST_POINTS:,}; say --yes if they are wanted")
    return number


def _shapes(study: Study, place: str) -> shapes.Shapes | None:
    """Of a sweep over what is synthesised; None of any other."""
    if study.workload.synthesise is None or not any(map(shapes.is_shape, study.sweep)):
        return None
    return shapes.shapes(study.workload.synthesise.model_dump(exclude_unset=True), study.sweep, place)


class Sweep:
    """The points of a study's content by their numbers, the last axis fastest; without a sweep one point with no
    values. No more is held than the content, and which points there are where some combinations of values cannot be.
    ``notes``: how many these are. Raises UserError for too many, unless the answer is ``yes``."""

    def __init__(self, content: dict[str, Any], place: str, yes: bool = False) -> None:
        study = parse_study(content, place)
        possible = _shapes(study, place)
        self._number = _num_points(study, possible, place, yes)
        self._base = {key: value for key, value in content.items() if key not in ("sweep", what_if.AXIS)}
        self.place = place
        self.axes: Mapping[str, Sequence[Any]] = study.sweep
        self.notes: Sequence[Note] = () if possible is None else possible.notes
        self._points = None if possible is None else possible.points(self.axes)
        self._synthesis = None if possible is None else self._base["workload"]["synthesise"]

    @property
    def has_shapes(self) -> bool:
        """Whether points differ in what is synthesised."""
        return self._points is not None

    @property
    def columns(self) -> list[str]:
        """Names of ``values``: the axes, and what follows from them."""
        return list(self.values(0))

    def __len__(self) -> int:
        return self._number

    def values(self, index: int) -> dict[str, Any]:
        """Values of the axes at a point; of shapes on a number of GPUs with data parallelism, which follows."""
        chosen = []
        rest = index if self._points is None else int(self._points[index])
        for axis in reversed(list(self.axes.values())):
            rest, position = divmod(rest, len(axis))
            chosen.append(axis[position])
        found = dict(zip(self.axes, reversed(chosen), strict=True))
        return found if self._synthesis is None else found | shapes.derived_copies(self._synthesis, found)

    def study(self, index: int) -> Study:
        """The study of a point. Raises UserError that names the point."""
        point, chosen = self._base, self.values(index)
        for key in self.axes:
            try:
                value = chosen[key]
                point = apply_what_if(point, value) if key == what_if.AXIS else assign(point, key, value)
            except UserError as error:
                raise UserError(f"{self.place}: sweep: {error}") from None
        return parse_study(point, point_place(self.place, chosen))

    def shape(self, index: int) -> tuple[Any, ...]:
        """What tells what is synthesised at a point from that at others."""
        return tuple(repr(value) for key, value in self.values(index).items() if shapes.is_shape(key))

    def largest_shape(self) -> int | None:
        """The number of the first point with the most ranks, where shapes differ in these: it shows whether all fit on
        the machine."""
        if self._synthesis is None:
            return None
        ranks = [shapes.ranks(self._synthesis, self.values(index)) for index in range(len(self))]
        most = max(ranks)
        return ranks.index(most) if ranks[0] < most else None

    def first_with_each_value(self) -> list[int]:
        """Numbers of the points that are the first ones with some value of some axis, the first point among them: what
        is wrong with a value alone shows in these. All shapes are right, and of these there is the first alone."""
        found, stride = {0}, math.prod(map(len, self.axes.values()))
        for name, axis in self.axes.items():
            stride //= len(axis)
            if self._points is None:
                found.update(range(0, stride * len(axis), stride))
            elif not shapes.is_shape(name):
                firsts = np.unique(self._points // stride % len(axis), return_index=True)[1]
                found.update(firsts.tolist())
        return sorted(found)


def sweep_points(content: dict[str, Any], place: str, yes: bool = False) -> Iterator[tuple[dict[str, Any], Study]]:
    """(values of the axes, study) of every point, in order. Raises UserError for too many, unless the answer is
    ``yes``."""
    sweep = Sweep(content, place, yes)
    return ((sweep.values(index), sweep.study(index)) for index in range(len(sweep)))


def point_place(place: str, axes: Mapping[str, Any]) -> str:
    """Where a point of a sweep stands, for errors."""
    return f"{place}: sweep {', '.join(f'{key}={value}' for key, value in axes.items())}" if axes else place
