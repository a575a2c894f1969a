"""Work units: the smallest things worth sending away, keyed by everything that their result depends on.

Same key, same bytes, on any executor, with any number of workers, in any order: caching, resuming and retrying rest on
this rule alone.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from manyscale.models.kernels.team import Team, TeamBrokenError
from manyscale.runner.errors import RunError, UserError
from manyscale.runner.registry import lookup

Arrays: TypeAlias = dict[str, np.ndarray]
RESULT_VERSION = 1
BROKEN: Final = "another member of the team has failed"
AS_MANY_AS_THERE_ARE: Final = 0


@dataclass(frozen=True)
class WorkUnit:
    """``kind`` names the function that computes it, in the registry or as "module:function"; ``parameters`` are small
    and JSON-able; ``inputs`` maps the function's input names to names of shared inputs, which executors deliver once
    per worker. ``weight`` estimates the work in simulated operations, for batching.

    ``shards`` other than 1: the function takes a team (models/kernels/team.py) too, and as many run it side by side on
    one node, which makes it faster and changes no result; AS_MANY_AS_THERE_ARE: workers that have no other unit.
    ``instructions``: warp instructions that it goes through, in which its progress is told; 0: in units.
    ``is_kept``: whether its result is kept in the store; else its arrays come along with its outcome."""

    key: str
    kind: str
    parameters: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    weight: int = 1
    shards: int = 1
    instructions: int = 0
    is_kept: bool = True


@dataclass(frozen=True)
class Outcome:
    """What became of one unit: its result's arrays stand in the store (or, if the worker cannot see the store, come
    along in ``arrays``, as those that are not kept). ``error`` is empty unless it failed, ``is_of_user`` if the
    input is wrong, or something else that the user can mend."""

    key: str
    cpu_seconds: float = 0.0
    error: str = ""
    attempts: int = 1
    is_of_user: bool = False
    arrays: Arrays | None = None


class Executes(Protocol):
    """Where work units run, and what came of them (run/execute/execution.py)."""

    def execute(self, units: Sequence[WorkUnit], shared: Callable[[set[str]], Mapping[str, Any]]) -> None:
        """Run the units whose results are not known yet. ``shared`` makes the inputs of the names that these need.
        Raises RunError for the first unit that fails."""

    def result(self, key: str) -> Arrays:
        """The arrays of a finished unit."""


def unit_key(kind: str, version: int, parameters: Mapping[str, Any], content: list[str], seed: int) -> str:
    """Key of a unit: hash of its kind, the model's version, parameters, digests of its inputs' content, and seed."""
    parts = [RESULT_VERSION, kind, version, parameters, content, seed]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def array_digest(*arrays: np.ndarray) -> str:
    """Hexadecimal hash of the arrays' types, shapes and bytes."""
    state = hashlib.blake2b(digest_size=16)
    for array in arrays:
        state.update(f"{array.dtype.str}{array.shape}".encode())
        state.update(np.ascontiguousarray(array).data)
    return state.hexdigest()


def unit_function(kind: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], Arrays]:
    """The function of a kind: a name of the registry, or "module:function" for one that is not registered."""
    module, separator, function = kind.partition(":")
    return getattr(import_module(module), function) if separator else lookup("unit", kind)


def compute(unit: WorkUnit, shared: Mapping[str, Any], *team: Team) -> tuple[Outcome, Arrays]:
    """Run a unit here, as a member of ``team`` if one is given. A ValueError of the model becomes a failed outcome, and
    so does what the user can mend (a limit of the environment); anything else is a defect and is raised."""
    begin = time.thread_time()
    try:
        inputs = {name: shared[source] for name, source in unit.inputs.items()}
        arrays = unit_function(unit.kind)(unit.parameters, inputs, *team)
    except (ValueError, UserError) as error:
        of_user = isinstance(error, UserError)
        return Outcome(unit.key, time.thread_time() - begin, str(error), is_of_user=of_user), {}
    return Outcome(unit.key, time.thread_time() - begin), arrays


def compute_member(unit: WorkUnit, shared: Mapping[str, Any], team: Team) -> tuple[Outcome, Arrays]:
    """``compute`` by one member, which tells the others if it fails; only the first has arrays."""
    try:
        outcome, arrays = compute(unit, shared, team)
    except TeamBrokenError:
        return Outcome(unit.key, error=BROKEN), {}
    except RunError as error:
        outcome, arrays = Outcome(unit.key, error=str(error)), {}
    except BaseException:
        team.fail()
        raise
    if outcome.error:
        team.fail()
    return outcome, arrays if team.me == 0 else {}


def of_members(outcomes: Sequence[Outcome]) -> Outcome:
    """What became of a unit, from those of its members: of the first, or of one that failed for a reason of its own."""
    failed = sorted((each for each in outcomes if each.error), key=lambda each: each.error == BROKEN)
    cpu_seconds = sum(each.cpu_seconds for each in outcomes)
    return replace(failed[0] if failed else outcomes[0], cpu_seconds=cpu_seconds)
