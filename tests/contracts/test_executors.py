"""Every executor keeps its contract; those that do not are found out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from manyscale.runner.registry import lookup, names
from manyscale.runner.run.execute.local import LocalExecutor
from manyscale.testing import ContractError, check_executor

pytestmark = pytest.mark.contract


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names("executor") if name != "local"])
def test_built_in_with_workers(name):
    check_executor(lookup("executor", name)(num_workers=2))


def test_local():
    check_executor(lookup("executor", "local")())


class Forgets(LocalExecutor):
    def map(self, units, shared, store):
        return list(super().map(units, shared, store))[1:]


class Repeats(LocalExecutor):
    def map(self, units, shared, store):
        return [outcome for outcome in super().map(units, shared, store) for _ in range(2)]


class DropsResults(LocalExecutor):
    def map(self, units, shared, store):
        for outcome in super().map(units, shared, store):
            store.path(outcome.key).unlink(missing_ok=True)
            yield outcome


class Rounds(LocalExecutor):
    """Results of its own type."""

    def map(self, units, shared, store):
        for outcome in super().map(units, shared, store):
            if not outcome.error:
                store.write(outcome.key, {n: v.astype(np.float32) for n, v in store.read(outcome.key).items()})
            yield outcome


class GivesUp(LocalExecutor):
    """What follows a unit that fails is not done."""

    def map(self, units, shared, store):
        for outcome in super().map(units, shared, store):
            yield outcome
            if outcome.error:
                return


class HidesErrors(LocalExecutor):
    def map(self, units, shared, store):
        return [
            replace(outcome, error="failed" if outcome.error else "") for outcome in super().map(units, shared, store)
        ]


class SendsAll(LocalExecutor):
    """All inputs travel, whether a unit names them or not."""

    def map(self, units, shared, store):
        import pickle

        return super().map(units, pickle.loads(pickle.dumps(shared)), store)


class Alone(LocalExecutor):
    def lockstep(self, units, shared, store):
        return self.map([], shared, store)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (Forgets, "1 of 40 units have no outcome"),
        (Repeats, "a unit has two outcomes"),
        (DropsResults, "0 results are stored for 40 units"),
        (Rounds, "has other bytes than the local executor's"),
        (GivesUp, "a unit that fails takes 3 others with it"),
        (HidesErrors, "a failed unit's outcome lacks its message"),
        (Alone, "2 of 2 units have no outcome"),
    ],
)
def test_broken(broken, reason):
    with pytest.raises(ContractError, match=reason):
        check_executor(broken())


def test_inputs_that_no_unit_names_cannot_travel():
    with pytest.raises(TypeError, match="cannot pickle"):
        check_executor(SendsAll())
