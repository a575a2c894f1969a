"""Work units: the smallest things worth sending away, keyed by everything that their result depends on.

Same key, same bytes, on any executor, with any number of workers, in any order: caching, resuming and retrying rest on
this rule alone.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from manyscale.runner.registry import lookup

Arrays: TypeAlias = dict[str, np.ndarray]
RESULT_VERSION = 1


@dataclass(frozen=True)
class WorkUnit:
    """``kind`` names the function that computes it, in the registry or as "module:function"; ``parameters`` are small
    and JSON-able; ``inputs`` maps the function's input names to names of shared inputs, which executors deliver once
    per worker. ``weight`` estimates the work in simulated operations, for batching."""

    key: str
    kind: str
    parameters: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    weight: int = 1


@dataclass(frozen=True)
class Outcome:
    """What became of one unit: its result's arrays stand in the store (or, if the worker cannot see the store, come
    along in ``arrays``). ``error`` is empty unless it failed."""

    key: str
    cpu_seconds: float = 0.0
    error: str = ""
    attempts: int = 1
    arrays: Arrays | None = None


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


def compute(unit: WorkUnit, shared: Mapping[str, Any]) -> tuple[Outcome, Arrays]:
    """Run a unit here. A ValueError of the model becomes a failed outcome; anything else is a defect and is raised."""
    begin = time.thread_time()
    try:
        inputs = {name: shared[source] for name, source in unit.inputs.items()}
        arrays = unit_function(unit.kind)(unit.parameters, inputs)
    except ValueError as error:
        return Outcome(unit.key, time.thread_time() - begin, str(error)), {}
    return Outcome(unit.key, time.thread_time() - begin), arrays
