"""The local executor: every unit here, one after another. It is the reference that others must equal byte for byte."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from manyscale.runner.predict.units import Outcome, WorkUnit, compute, compute_member, of_members
from manyscale.runner.run.execute.state import RunState
from manyscale.runner.run.store import Store


class LocalExecutor:
    """Runs units in this process."""

    name = "local"

    def __init__(self, **_options: Any) -> None:
        return

    def map(self, units: Sequence[WorkUnit], shared: Mapping[str, Any], store: Store) -> Iterator[Outcome]:
        """Compute units and store their results; yields an outcome per unit as it is done."""
        state = RunState(batch_weight=1)
        state.add(units)
        while batch := state.next_batch(worker=0):
            for unit in batch:
                outcome, arrays = compute(unit, shared)
                if not outcome.error:
                    store.write(unit.key, arrays)
                finished = state.finished(outcome)
                if finished is not None:
                    yield finished

    def lockstep(self, units: Sequence[WorkUnit], shared: Mapping[str, Any], store: Store) -> Iterator[Outcome]:
        """The same for units whose shards run side by side, here in threads."""
        from manyscale.runner.run.execute.teams import in_threads  # loads Numba, which few commands need this early

        for unit in units:
            count = unit.shards or os.cpu_count() or 1
            members = in_threads(count, partial(compute_member, unit, shared))
            outcome = of_members([outcome for outcome, _ in members])
            if not outcome.error:
                store.write(unit.key, members[0][1])
            yield outcome

    def close(self) -> None:
        return
