"""Kinds of work units that executors are checked with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from manyscale.models.kernels.team import ALONE, Team


def doubled(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Twice the shared input ``values``, plus ``offset``."""
    return {"doubled": 2 * inputs["values"] + parameters["offset"]}


def refuses(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Fails as a model does whose parameters make no sense."""
    raise ValueError(f"parameter {parameters['offset']} makes no sense")


def pooled(parameters: Mapping[str, Any], inputs: Mapping[str, Any], team: Team = ALONE) -> dict[str, np.ndarray]:
    """``doubled``, of which each member of a team computes every ``team.count``-th value."""
    values = inputs["values"]
    shared = team.arrays("values", {"doubled": (values.shape, values.dtype)})["doubled"]
    shared[team.me :: team.count] = 2 * values[team.me :: team.count] + parameters["offset"]
    team.wait()
    return {"doubled": np.array(shared)}
