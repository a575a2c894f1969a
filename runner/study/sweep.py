"""The points of a study's sweep."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from manyscale.runner.errors import UserError
from manyscale.runner.study import what_if
from manyscale.runner.study.assignment import apply_what_if, assign
from manyscale.runner.study.schema import Study, parse_study


def sweep_points(content: dict[str, Any], place: str) -> Iterator[tuple[dict[str, Any], Study]]:
    """(values of the axes, study) of every point, the last axis fastest; one point with no values without a sweep."""
    study = parse_study(content, place)
    axes = study.sweep
    for values in itertools.product(*axes.values()):
        point = {key: value for key, value in content.items() if key not in ("sweep", what_if.AXIS)}
        for key, value in zip(axes, values, strict=True):
            try:
                point = apply_what_if(point, value) if key == what_if.AXIS else assign(point, key, value)
            except UserError as error:
                raise UserError(f"{place}: sweep: {error}") from None
        chosen = dict(zip(axes, values, strict=True))
        yield chosen, parse_study(point, point_place(place, chosen))


def point_place(place: str, axes: Mapping[str, Any]) -> str:
    """Where a point of a sweep stands, for errors."""
    return f"{place}: sweep {', '.join(f'{key}={value}' for key, value in axes.items())}" if axes else place
