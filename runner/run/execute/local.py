"""The local executor: every unit here, one after another. It is the reference that others must equal byte for byte."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, cast

from manyscale.models.kernels.team import Team
from manyscale.runner.frames import in_large_frame
from manyscale.runner.predict.units import Arrays, Outcome, WorkUnit, compute, compute_member, of_members
from manyscale.runner.progress import heard
from manyscale.runner.run.execute.state import HEAR_SECONDS, RunState
from manyscale.runner.run.store import Store
from manyscale.runner.system import usable_cpus

T = TypeVar("T")
FEW: Final = 100_000  # warp instructions of a unit that two groups of SMs need longer for than strict order does


class _Aside:
    """A thread that computes, one call after the other: so the one that waits for it hears signals, which Python
    handles between its own instructions, while a kernel takes its minutes. It ends with its process."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        threading.Thread(target=in_large_frame, args=[self._work], daemon=True).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._results.put((call(), None))
            except BaseException as error:
                self._results.put((None, error))

    def __call__(self, call: Callable[[], T]) -> T:
        """What the call returns, or raises."""
        self._calls.put(call)
        while True:
            with suppress(Empty):  # one that came just before the wait does not end it
                result, error = self._results.get(timeout=HEAR_SECONDS)
                break
        if error is not None:
            raise error
        return cast(T, result)

    def close(self) -> None:
        self._calls.put(None)


class LocalExecutor:
    """Runs units in this process."""

    name = "local"

    def __init__(self, **_options: Any) -> None:
        self.hear: Callable[[str, float], None] = lambda key, share: None  # which share of a unit is done

    def map(self, units: Sequence[WorkUnit], shared: Mapping[str, Any], store: Store) -> Iterator[Outcome]:
        """Compute units and store their results; yields an outcome per unit as it is done."""
        state = RunState(batch_weight=1)
        state.add(units)
        with closing(_Aside()) as aside:
            while batch := state.next_batch(worker=0):
                for unit in batch:
                    outcome, arrays = aside(
                        partial(heard, partial(self.hear, unit.key), partial(compute, unit, shared))
                    )
                    if not outcome.error and unit.is_kept:
                        store.write(unit.key, arrays)
                    finished = state.finished(outcome)
                    if finished is not None:
                        yield finished if unit.is_kept else replace(finished, arrays=arrays)

    def lockstep(self, units: Sequence[WorkUnit], shared: Mapping[str, Any], store: Store) -> Iterator[Outcome]:
        """The same for units whose shards run side by side, here in threads."""
        if not units:
            return
        from manyscale.runner.run.execute.teams import in_threads  # loads Numba, which few commands need this early

        processors = len(usable_cpus())
        for line in not_sooner(units, processors):
            print(f"manyscale: {line}", file=sys.stderr, flush=True)
        for unit in units:
            count = unit.shards or processors
            members = in_threads(count, partial(_heard_member, partial(self.hear, unit.key), unit, shared))
            outcome = of_members([outcome for outcome, _ in members])
            if not outcome.error:
                store.write(unit.key, members[0][1])
            yield outcome

    def close(self) -> None:
        return


def not_sooner(units: Sequence[WorkUnit], processors: int) -> list[str]:
    """Of units whose shards run side by side on so many processors: a line for each reason why that gains nothing."""
    lines = []
    most = max((unit.shards for unit in units), default=0)
    if most > processors:
        lines.append(
            f"{most} shards of a work unit on {processors} processors wait for each other: more than {processors} make "
            f"it no sooner (gpu.groups: auto takes {processors})"
        )
    few = [unit for unit in units if 0 < unit.instructions < FEW]
    if few:
        lines.append(
            f"{len(few)} of {len(units)} work units with shards have fewer than {FEW:,} warp instructions, "
            "which strict order simulates as soon (gpu.order: strict)"
        )
    return lines


def _heard_member(
    hear: Callable[[float], None], unit: WorkUnit, shared: Mapping[str, Any], team: Team
) -> tuple[Outcome, Arrays]:
    return heard(hear, partial(compute_member, unit, shared, team))
