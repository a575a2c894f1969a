"""Kinds of work units that misbehave, named as "odd_units:FUNCTION"; workers import this module."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def doubled(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """A well-behaved unit: twice the shared input ``values``, plus ``offset``; leaves its process id if asked to."""
    if "trace" in parameters:
        Path(parameters["trace"], f"{os.getpid()}").touch()
    time.sleep(parameters.get("seconds", 0.0))
    return {"doubled": 2 * inputs["values"] + parameters["offset"]}


def kills_once(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Ends its process the first time, without a word; ``marker`` is the file that tells the times apart."""
    marker = Path(parameters["marker"])
    if not marker.exists():
        marker.touch()
        os._exit(1)
    return doubled(parameters, inputs)


def kills_always(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Ends its process every time; a byte more in the file ``marker`` for each."""
    with open(parameters["marker"], "ab") as file:
        file.write(b".")
    os._exit(1)


def refuses(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    raise ValueError("these parameters make no sense")


def is_defective(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {"never": np.zeros(1 // parameters.get("zero", 0))}


def writes_to_input(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    inputs["values"][0] = 1
    return {}


def environment(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Thread limits of the process that computes this."""
    return {"threads": np.array([int(os.environ[name]) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")])}
