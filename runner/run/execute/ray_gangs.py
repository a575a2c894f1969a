"""Units whose shards run side by side, on Ray: for each a gang, as many actors on one node, which share memory there.

A gang that loses a member, or in which one does not answer any more, is ended, and its unit starts again with another
gang. (runner/run/execute/ray.py starts Ray,
and runs units that need no gang.)
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.predict.units import Outcome, WorkUnit, of_members
from manyscale.runner.run.execute.ray_pulse import Pulse, SilentWorkerError
from manyscale.runner.run.execute.ray_workers import (
    START_TIMEOUT_SECONDS,
    Shard,
    check_versions,
    last_line,
    losses,
    reason_of,
    unfit,
)
from manyscale.runner.run.execute.state import RunState

_OTHERS_SECONDS: Final = 5.0  # for the other members, once one has failed


@dataclass(eq=False)
class _Gang:
    """``group``: Ray's placement group; ``unit`` and ``calls``, by member: what it is computing, if anything."""

    gang_id: int
    group: Any
    actors: list[Any] = field(default_factory=list)
    unit: WorkUnit | None = None
    calls: list[Any] = field(default_factory=list)


class Gangs:
    """Gangs of ``size`` workers, at most ``most`` of them, made with ``options`` on the cluster at ``address``; those
    without a ``pulse`` are given up."""

    def __init__(self, options: Mapping[str, Any], size: int, most: int, address: str, pulse: Pulse) -> None:
        self._options, self._size, self._most, self._address = options, size, most, address
        self._pulse = pulse
        self._gangs: dict[int, _Gang] = {}
        self._num_hired = 0

    def run(self, units: Sequence[WorkUnit], arguments: Callable[[WorkUnit], tuple[Any, ...]]) -> Iterator[Outcome]:
        """Outcomes as units are done, with arrays where workers do not see the store. ``arguments``: what members are
        told besides their team. Raises RunError if no gang can start, UserError if its workers are unfit."""
        import ray

        state = RunState(batch_weight=1)
        state.add(sorted(units, key=lambda unit: -unit.weight))
        while not state.is_complete:
            while state.pending and (gang := self._free_gang(ray)) is not None:
                (unit,) = state.next_batch(gang.gang_id)
                gang.unit = unit
                team = f"manyscale-{secrets.token_hex(8)}"
                gang.calls = [
                    actor.run_member.remote(unit, *arguments(unit), team, me, self._size)
                    for me, actor in enumerate(gang.actors)
                ]
            calls = [call for gang in self._gangs.values() for call in gang.calls]
            ready, _ = ray.wait(calls, num_returns=1, timeout=self._pulse.seconds)
            busy = {gang.gang_id: gang.actors for gang in self._gangs.values() if gang.calls}
            for gang_id in self._pulse.silent(ray, busy):
                yield from self._lose(ray, self._gangs[gang_id], SilentWorkerError(self._pulse.reason), state)
            gang = next((gang for gang in self._gangs.values() if ready and ready[0] in gang.calls), None)
            if gang is None:
                continue
            try:
                outcome = self._outcome(ray, gang)
            except losses() as error:
                yield from self._lose(ray, gang, error, state)
                continue
            gang.calls = []
            if outcome.error:
                self._dismiss(ray, gang)  # others may wait for the one that failed
            if (finished := state.finished(outcome)) is not None:
                yield finished

    def _lose(self, ray: Any, gang: _Gang, error: Exception, state: RunState) -> Iterator[Outcome]:
        """End a gang that has lost a member; its unit returns to the queue or, once too often, fails."""
        self._dismiss(ray, gang)
        yield from state.worker_lost(gang.gang_id, f"one of its workers died: {reason_of(error)}")

    def _outcome(self, ray: Any, gang: _Gang) -> Outcome:
        """What became of a gang's unit; once a member has failed, as far as the others say so within a short time.
        Raises one of ``losses`` if a member is lost or does not answer."""
        from ray.exceptions import RayTaskError

        assert gang.unit is not None
        members: dict[int, Outcome] = {}
        waiting = list(gang.calls)
        while waiting:
            has_failed = any(each.error for each in members.values())
            seconds = _OTHERS_SECONDS if has_failed else self._pulse.seconds
            ready, waiting = ray.wait(waiting, num_returns=1, timeout=seconds)
            if not ready and has_failed:
                break
            if not ready:
                if self._pulse.silent(ray, {gang.gang_id: gang.actors}):
                    raise SilentWorkerError(self._pulse.reason)
                continue
            me = gang.calls.index(ready[0])
            try:
                members[me] = ray.get(ready[0])
            except RayTaskError as error:
                members[me] = Outcome(gang.unit.key, error=f"the Ray worker failed: {last_line(error)}")
        return of_members([members[me] for me in sorted(members)])

    def _free_gang(self, ray: Any) -> _Gang | None:
        """One that has nothing to do, if there is one or can be."""
        for gang in self._gangs.values():
            if not gang.calls:
                return gang
        return self._hire(ray) if len(self._gangs) < self._most else None

    def _hire(self, ray: Any) -> _Gang:
        from ray.exceptions import GetTimeoutError, RayTaskError
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        group = placement_group([{"CPU": 1}] * self._size, strategy="STRICT_PACK")
        self._num_hired += 1
        gang = self._gangs[self._num_hired] = _Gang(self._num_hired, group)
        if not group.wait(START_TIMEOUT_SECONDS):
            raise RunError(
                f"{self._address}: no node had {self._size} free CPUs within {START_TIMEOUT_SECONDS:.0f} s; "
                "wait until others have finished, or set gpu.groups to less"
            )
        for bundle in range(self._size):
            where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
            gang.actors.append(ray.remote(**self._options)(Shard).options(scheduling_strategy=where).remote())
        try:
            greetings = [actor.greet.remote() for actor in gang.actors]
            for versions in ray.get(greetings, timeout=START_TIMEOUT_SECONDS):
                check_versions(versions, self._address)
        except GetTimeoutError:
            raise RunError(f"{self._address}: a Ray worker did not start in {START_TIMEOUT_SECONDS:.0f} s") from None
        except RayTaskError as error:
            raise UserError(unfit(self._address, last_line(error))) from None
        except losses() as error:
            raise RunError(f"{self._address}: a Ray worker died while it started ({reason_of(error)})") from None
        return gang

    def _dismiss(self, ray: Any, gang: _Gang) -> None:
        from ray.util.placement_group import remove_placement_group

        del self._gangs[gang.gang_id]
        for actor in gang.actors:
            ray.kill(actor)
        remove_placement_group(gang.group)

    def close(self) -> None:
        """End all gangs, whatever they are doing."""
        import ray

        for gang in list(self._gangs.values()):
            self._dismiss(ray, gang)
