"""What every executor keeps: an outcome per unit, results as the local executor has them byte for byte, errors of
units their own."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from manyscale.models.kernels.team import ALONE, Team
from manyscale.runner.predict.units import AS_MANY_AS_THERE_ARE, Outcome, WorkUnit, unit_key
from manyscale.runner.run.execute.local import LocalExecutor
from manyscale.runner.run.store import Store
from manyscale.testing.contract import name_of, require, require_one_line

_VALUES: Final = np.arange(1000)


def check_executor(executor: Any, num_units: int = 40) -> None:
    """``executor``: an object with ``map(units, shared, store)`` and ``lockstep``, iterators of Outcomes, and
    ``close()``, which is called at the end.

    Checked: every unit has one outcome, however often it is named, and its result is in the store, the same bytes as
    the local executor's, whatever the order of the units; a unit that fails has the message of its error and no
    result, and leaves the others alone; inputs that no unit names do not travel; shards side by side change no result;
    without units nothing happens; closing twice does no harm. Raises ContractError.
    """
    name = name_of(executor)
    units = [_unit("doubled", offset, weight=1 + offset % 7) for offset in range(num_units)]
    with tempfile.TemporaryDirectory(prefix="manyscale-check-") as folder:
        stores = {each: Store(Path(folder) / each) for each in ("reference", "first", "turned", "failing", "shards")}
        reference = LocalExecutor()
        _outcomes(reference.map, units, stores["reference"])
        require(not list(executor.map([], _shared(), stores["first"])), f"{name}: an outcome without a unit")
        for each, asked in (("first", units), ("turned", [*units[::-1], *units[:3]])):
            told = _outcomes(executor.map, asked, stores[each])
            _check_outcomes(told, units, name)
            _check_bytes(stores[each], stores["reference"], f"{name}, map")
        _check_failures(executor, units[:5], stores["failing"])
        sharded = [_unit("pooled", offset, shards=shards) for offset, shards in enumerate((2, AS_MANY_AS_THERE_ARE))]
        told = _outcomes(executor.lockstep, sharded, stores["shards"])
        _check_outcomes(told, sharded, f"{name}, lockstep")
        for unit in sharded:
            found = stores["shards"].read(unit.key)
            require(
                found is not None and np.array_equal(found["doubled"], 2 * _VALUES + unit.parameters["offset"]),
                f"{name}: shards side by side have another result than one alone",
            )
    executor.close()
    executor.close()


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


def _unit(function: str, offset: int, weight: int = 1, shards: int = 1) -> WorkUnit:
    kind, parameters = f"manyscale.testing.executors:{function}", {"offset": offset}
    return WorkUnit(unit_key(kind, 1, parameters, [], 0), kind, parameters, {"values": "values"}, weight, shards)


def _shared() -> dict[str, Any]:
    return {"values": _VALUES, "unused": threading.Lock()}  # which cannot be sent anywhere


def _outcomes(
    execute: Callable[[Sequence[WorkUnit], dict[str, Any], Store], Iterable[Outcome]],
    units: Sequence[WorkUnit],
    store: Store,
) -> list[Outcome]:
    return list(execute(units, _shared(), store))


def _check_outcomes(told: Sequence[Outcome], units: Sequence[WorkUnit], name: str) -> None:
    keys = [outcome.key for outcome in told]
    require(len(keys) == len(set(keys)), f"{name}: a unit has two outcomes")
    missing = {unit.key for unit in units} - set(keys)
    require(not missing, f"{name}: {len(missing)} of {len(units)} units have no outcome")
    require(set(keys) == {unit.key for unit in units}, f"{name}: an outcome of a unit that was not asked for")
    failed = next((outcome for outcome in told if outcome.error), None)
    require(failed is None, f"{name}: a unit failed: {failed.error if failed else ''}")
    require(all(outcome.cpu_seconds >= 0 for outcome in told), f"{name}: an outcome with negative CPU seconds")


def _check_bytes(store: Store, reference: Store, what: str) -> None:
    found, wanted = _stored(store), _stored(reference)
    require(set(found) == set(wanted), f"{what}: {len(found)} results are stored for {len(wanted)} units")
    other = next((key for key in wanted if found[key] != wanted[key]), None)
    require(other is None, f"{what}: the result of unit {other} has other bytes than the local executor's")


def _stored(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}


def _check_failures(executor: Any, good: Sequence[WorkUnit], store: Store) -> None:
    name, bad = name_of(executor), _unit("refuses", 7)
    told = {outcome.key: outcome for outcome in _outcomes(executor.map, [*good[:2], bad, *good[2:]], store)}
    require(bad.key in told, f"{name}: a unit that fails has no outcome")
    require("parameter 7 makes no sense" in told[bad.key].error, f"{name}: a failed unit's outcome lacks its message")
    require_one_line(ValueError(told[bad.key].error), f"{name}, a unit that fails")
    require(store.read(bad.key) is None, f"{name}: a unit that failed has a result")
    lost = [unit for unit in good if unit.key not in told or told[unit.key].error or store.read(unit.key) is None]
    require(not lost, f"{name}: a unit that fails takes {len(lost)} others with it")
