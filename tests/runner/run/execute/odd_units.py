"""Kinds of work units that misbehave, named as "odd_units:FUNCTION"; workers import this module."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manyscale.models.kernels import njit
from manyscale.models.kernels.team import ALONE, Team


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


def stops_once(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Stops its process the first time, as ``kill -STOP`` does; nothing of it runs from then on."""
    marker = Path(parameters["marker"])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return doubled(parameters, inputs)


@njit(nogil=True)
def _spun(rounds):  # type: ignore[no-untyped-def]
    state = np.uint64(1)
    for _ in range(rounds):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    return state


def is_long(parameters: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """In a kernel for seconds, during which its process runs no Python but in other threads."""
    _spun(parameters["rounds"])
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


def pooled(parameters: Mapping[str, Any], inputs: Mapping[str, Any], team: Team = ALONE) -> dict[str, np.ndarray]:
    """Twice the shared input, of which each member of a team doubles every ``team.count``-th value; before that many
    rounds, in each of which all must see what the others wrote."""
    values = inputs["values"]
    if "trace" in parameters:
        Path(parameters["trace"], f"{os.getpid()}").touch()
    if parameters.get("fails") == team.me:
        raise ValueError("these parameters make no sense")
    if parameters.get("breaks") == team.me:
        raise ZeroDivisionError("a defect")
    if parameters.get("kills") == team.me and not Path(parameters["marker"]).exists():
        Path(parameters["marker"]).touch()
        os._exit(1)
    if parameters.get("stops") == team.me and not Path(parameters["marker"]).exists():
        Path(parameters["marker"]).touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    shared = team.arrays("values", {"round": ((team.count,), np.int64), "doubled": (values.shape, values.dtype)})
    for number in range(20):
        shared["round"][team.me] = number
        team.wait()
        assert (shared["round"] == number).all()
        team.wait()
    shared["doubled"][team.me :: team.count] = 2 * values[team.me :: team.count]
    offset = team.once(lambda: parameters["offset"])
    parts = team.gather({"mine": values[: team.me + 1], "offset": np.array([offset])})
    assert [len(part["mine"]) for part in parts] == list(range(1, team.count + 1))
    doubled = shared["doubled"] + parts[-1]["offset"]
    cleared = team.arrays("values", {"again": ((5,), np.float64)})["again"]
    assert not cleared.any()
    return {"doubled": doubled}
