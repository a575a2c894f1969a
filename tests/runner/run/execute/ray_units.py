"""Units for tests of executors, and what is asked of every run of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from manyscale.runner.predict.units import Outcome, WorkUnit, unit_key
from manyscale.runner.run.store import Store

NUM_PHASES = 6400
SHARED = {
    "phases": {
        "duration_ps": np.random.default_rng(1).integers(1, 10**9, NUM_PHASES),
        "kind": np.zeros(NUM_PHASES, np.uint8),
        "ipc_factor": np.linspace(0.5, 2, NUM_PHASES),
    },
    "values": np.arange(100),
    "unused": object(),  # what no unit needs does not travel: this one could not
}


def odd_unit(function: str, name: str = "", weight: int = 1, **parameters: Any) -> WorkUnit:
    """A unit of odd_units.py."""
    key = unit_key(function, 1, {"name": name}, [], 0)
    return WorkUnit(key, f"odd_units:{function}", {"offset": 0} | parameters, {"values": "values"}, weight)


def good_units(count: int, **parameters: Any) -> list[WorkUnit]:
    return [odd_unit("doubled", str(index), offset=index, **parameters) for index in range(count)]


def burst_units(count: int) -> list[WorkUnit]:
    size = NUM_PHASES // count
    units = []
    for index in range(count):
        parameters = {"cpu_ratio": 1.25, "slowdown": 1.0, "first": index * size, "last": (index + 1) * size}
        key = unit_key("burst", 1, parameters, [], 0)
        units.append(WorkUnit(key, "burst", parameters, {"phases": "phases"}, weight=1 + index % 7))
    return units


def stored_bytes(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}


def pooled_unit(shards: int, name: str = "", **parameters: Any) -> WorkUnit:
    """A unit of odd_units.py whose shards run side by side."""
    return replace(odd_unit("pooled", name, **parameters), shards=shards)


def run(executor: Any, units: list[WorkUnit], store: Store) -> dict[str, Outcome]:
    """Outcomes by key; each unit is told of once."""
    return by_key(units, list(executor.map(units, SHARED, store)))


def lockstep(executor: Any, units: list[WorkUnit], store: Store) -> dict[str, Outcome]:
    """The same for units whose shards run side by side."""
    return by_key(units, list(executor.lockstep(units, SHARED, store)))


def by_key(units: list[WorkUnit], outcomes: list[Outcome]) -> dict[str, Outcome]:
    found = {outcome.key: outcome for outcome in outcomes}
    assert len(outcomes) == len(found) == len(units)
    assert all(outcome.arrays is None for outcome in outcomes)
    return found
