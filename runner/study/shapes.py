"""Shapes of a step of training that a sweep goes through: its axes ``workload.synthesise.KEY``. Not every combination
of their values can be: heads are divided by tensor parallelism, layers by stages, GPUs by both. Those that cannot are
no points of the sweep, and are counted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from manyscale.models.transformer.shape import ImpossibleShapeError
from manyscale.models.workload.notes import Note, informs
from manyscale.runner.errors import UserError, placed
from manyscale.runner.problems import wrong_key
from manyscale.runner.study.workload import Synthesis, copies_of

KEY: Final = "workload.synthesise"
PREFIX: Final = f"{KEY}."
COPIES: Final = f"{PREFIX}dp"
MOST_COMBINATIONS: Final = 1_000_000  # 50 us each


@dataclass(frozen=True)
class Shapes:
    """``possible``: bool, an axis for each of ``axes``, the axes of shapes; ``why``: how many combinations cannot be,
    and the first of them in words, by the key that says so."""

    axes: tuple[str, ...]
    possible: np.ndarray
    why: Mapping[str, tuple[int, str]]

    @property
    def notes(self) -> tuple[Note, ...]:
        left = self.possible.size - int(self.possible.sum())
        if not left:
            return ()
        text = f"{left} of the sweep's {self.possible.size} shapes cannot be, and are no points: {_reasons(self.why)}"
        return (informs("shapes-left-out", text, count=left),)

    def points(self, axes: Mapping[str, Sequence[Any]]) -> np.ndarray:
        """int64: the numbers, in the product of all ``axes`` of the sweep, of the combinations that can be."""
        own = [len(values) if name in self.axes else 1 for name, values in axes.items()]
        return np.flatnonzero(np.broadcast_to(self.possible.reshape(own), [len(each) for each in axes.values()]))


def is_shape(axis: str) -> bool:
    """Whether an axis of a sweep changes what is synthesised."""
    return axis.startswith(PREFIX)


def shapes(base: Mapping[str, Any], sweep: Mapping[str, Sequence[Any]], place: str) -> Shapes:
    """Of a study's ``workload.synthesise`` as it is written, and its sweep, which has such axes. Raises UserError for a
    value that is wrong, and if none can be."""
    axes = {name: values for name, values in sweep.items() if is_shape(name)}
    lengths = [len(values) for values in axes.values()]
    _refuse_many(lengths, place)
    possible = np.ones(math.prod(lengths), np.bool_)
    why: dict[str, tuple[int, str]] = {}
    for index, chosen in enumerate(product(*axes.values())):
        try:
            Synthesis.model_validate(_changed(base, axes, chosen))
        except ValidationError as error:
            if (reason := _impossible(error)) is None:
                at = ", ".join(f"{name}={value}" for name, value in zip(axes, chosen, strict=True))
                raise placed(wrong_key(error, Synthesis, "", KEY), f"{place}: sweep {at}") from None
            possible[index] = False
            key, _, text = reason.partition(": ")
            why[key] = (why[key][0] + 1, why[key][1]) if key in why else (1, text)
    if not possible.any():
        raise UserError(_told(place, f"none of the {len(possible)} shapes can be: {_reasons(why)}"))
    return Shapes(tuple(axes), possible.reshape(lengths), why)


def first_shape(base: Mapping[str, Any], sweep: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """``base`` with the first combination of a sweep's axes of shapes that can be, or has a value that is wrong. Raises
    ValueError if there is none, or there are too many to look at."""
    axes = {name: values for name, values in sweep.items() if is_shape(name)}
    try:
        _refuse_many([len(values) for values in axes.values()], "")
    except UserError as error:
        raise ValueError(str(error)) from None
    for chosen in product(*axes.values()):
        found = _changed(base, axes, chosen)
        try:
            Synthesis.model_validate(found)
        except ValidationError as error:
            if _impossible(error) is not None:
                continue
        return found
    try:
        shapes(base, axes, "")
    except UserError as error:
        raise ValueError(str(error)) from None
    raise AssertionError("none of them can be")


def derived_copies(base: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, int]:
    """``dp`` of a point, by its key, where it follows from GPUs, and 1 where a sweep says at this one alone that these
    do not tell it; else nothing. ``values`` of the point's axes."""
    keys = {**base, **{name.removeprefix(PREFIX): value for name, value in values.items() if is_shape(name)}}
    if "dp" in keys or "gpus" not in keys:
        return {}
    return {COPIES: copies_of(keys) or 1}


def ranks(base: Mapping[str, Any], values: Mapping[str, Any]) -> int:
    """Of a point whose shape can be."""
    keys = {**base, **{name.removeprefix(PREFIX): value for name, value in values.items() if is_shape(name)}}
    return math.prod(keys.get(name, 1) for name in ("tp", "pp", "dp"))


def _refuse_many(lengths: Sequence[int], place: str) -> None:
    """Raises UserError for more combinations than are looked at."""
    if math.prod(lengths) > MOST_COMBINATIONS:
        raise UserError(_told(place, f"{math.prod(lengths):,} shapes are more than {MOST_COMBINATIONS:,}"))


def _told(place: str, text: str) -> str:
    return f"{place}: sweep: {text}" if place else f"sweep: {text}"


def _changed(base: Mapping[str, Any], axes: Mapping[str, Any], chosen: Sequence[Any]) -> dict[str, Any]:
    return {**base, **{name.removeprefix(PREFIX): value for name, value in zip(axes, chosen, strict=True)}}


def _impossible(error: ValidationError) -> str | None:
    """What the shape is told to lack, if that is all that is wrong."""
    causes = [each.get("ctx", {}).get("error") for each in error.errors()]
    return str(causes[0]) if all(isinstance(each, ImpossibleShapeError) for each in causes) else None


def _reasons(why: Mapping[str, tuple[int, str]]) -> str:
    return ", ".join(f"{count} for {key} (such as: {text})" for key, (count, text) in why.items())
