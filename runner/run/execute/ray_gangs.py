"""Units whose shards run side by side, on Ray: for each a gang, as many actors on one node, which share memory there.

A gang that loses a member is ended, and its unit starts again with another gang; so does the unit of a gang in which
one does not answer any more, while the gang is left alone for a minute. Gangs start and are waited for side by side; a
node on which none can start is left out. (runner/run/execute/ray.py starts Ray, and runs units that need no gang.)
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from manyscale.runner.predict.units import Outcome, WorkUnit, of_members
from manyscale.runner.run.execute.feeding import Seat, next_calls
from manyscale.runner.run.execute.ray_crew import START_TIMEOUT_SECONDS, hired
from manyscale.runner.run.execute.ray_nodes import LOOK_SECONDS, Nodes, tell
from manyscale.runner.run.execute.ray_pulse import Pulse, SilentWorkerError
from manyscale.runner.run.execute.ray_workers import (
    is_of_node,
    lacks_memory,
    last_line,
    losses,
    other_version,
    reason_of,
)
from manyscale.runner.run.execute.state import RunState

_OTHERS_SECONDS: Final = 5.0  # for the other members, once one has failed
_MOST_UNPLACED: Final = 4  # gangs that wait for a node


@dataclass(eq=False)
class _Gang(Seat):
    """``group``: Ray's placement group; ``unit`` and ``calls``, by member: what it is computing, if anything, and
    ``members``: what became of it there. ``since``: when the gang, or then its unit, began."""

    group: Any = None
    actors: list[Any] = field(default_factory=list)
    greetings: list[Any] = field(default_factory=list)
    unit: WorkUnit | None = None
    calls: list[Any] = field(default_factory=list)
    members: dict[int, Outcome] = field(default_factory=dict)
    since: float = 0.0
    failed_at: float | None = None
    is_ready: bool = False
    is_silent: bool = False

    @property
    def waits_for(self) -> list[Any]:
        return [call for me, call in enumerate(self.calls) if me not in self.members] + self.greetings


class Gangs:
    """Gangs of ``size`` workers, at most ``most`` of them at a time, made with ``options`` on ``nodes``; those without
    a ``pulse`` are given up."""

    def __init__(self, options: Mapping[str, Any], size: int, most: int, nodes: Nodes, pulse: Pulse) -> None:
        self._options, self._size, self._most, self._nodes, self._pulse = options, size, most, nodes, pulse
        self._gangs: dict[int, _Gang] = {}
        self._num_hired = 0

    def run(self, units: Sequence[WorkUnit], arguments: Callable[[WorkUnit], tuple[Any, ...]]) -> Iterator[Outcome]:
        """Outcomes as units are done, with arrays where workers do not see the store. ``arguments``: what members are
        told besides their team. Raises RunError if no gang can start, UserError if its workers are unfit."""
        import ray

        state = RunState(batch_weight=1, units_per_call=1)
        state.add(sorted(units, key=lambda unit: -unit.weight))
        while not state.is_complete:
            self._see(ray, state)
            for move in next_calls(state, self._seats, 0, time.monotonic(), calls_in_flight=1):
                self._begin(self._gangs[move.worker], state.units[move.keys[0]], arguments)
            waiting = [each for gang in self._gangs.values() for each in gang.waits_for]
            if waiting:
                ray.wait(waiting, num_returns=1, timeout=min(self._pulse.seconds, LOOK_SECONDS))
                ready = set(ray.wait(waiting, num_returns=len(waiting), timeout=0)[0])
            else:
                ready = set()
                time.sleep(LOOK_SECONDS / 4)
            for gang in list(self._gangs.values()):
                try:
                    yield from self._settle(ray, gang, ready, state)
                except losses() as error:
                    yield from self._lose(ray, gang, error, state)
            yield from self._ask(ray, state)

    @property
    def _seats(self) -> list[_Gang]:
        return [gang for gang in self._gangs.values() if gang.is_ready and not gang.is_silent]

    # Gangs come

    def _see(self, ray: Any, state: RunState) -> None:
        """Form gangs that are missing, and greet those whose node was found."""
        unplaced = [gang for gang in self._gangs.values() if not gang.actors]
        free = sum(gang.unit is None and not gang.is_silent for gang in self._gangs.values())
        there = sum(not gang.is_silent for gang in self._gangs.values())
        needed = min(len(state.pending) - free, self._most - there, _MOST_UNPLACED - len(unplaced))
        for _ in range(needed):
            self._form(state)
        if not self._nodes.look(ray):
            return
        for gang in [gang for gang in self._gangs.values() if not gang.actors]:
            self._greet(ray, gang)
        if any(gang.actors for gang in self._gangs.values()):
            self._nodes.waited()
        else:
            self._nodes.wait(self._size, f"a node with {self._size} free CPUs")

    def _form(self, state: RunState) -> None:
        from ray.util.placement_group import placement_group

        selector = self._nodes.selector(self._size)
        group = placement_group([{"CPU": 1}] * self._size, strategy="STRICT_PACK", bundle_label_selector=selector)
        self._num_hired += 1
        self._gangs[self._num_hired] = _Gang(self._num_hired, group=group, since=time.monotonic())
        self._nodes.look_again()

    def _greet(self, ray: Any, gang: _Gang) -> None:
        from ray.util import placement_group_table
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        table = placement_group_table(gang.group)
        if table.get("state") != "CREATED":
            return
        gang.node = next(iter(table["bundles_to_node_id"].values()))
        for bundle in range(self._size):
            where = PlacementGroupSchedulingStrategy(gang.group, placement_group_bundle_index=bundle)
            gang.actors.append(hired(self._options, where))
        gang.greetings = [actor.greet.remote() for actor in gang.actors]
        gang.since = time.monotonic()
        if gang.node in self._nodes:
            self._nodes[gang.node].workers.add(-gang.worker)

    # Units are computed

    def _begin(self, gang: _Gang, unit: WorkUnit, arguments: Callable[[WorkUnit], tuple[Any, ...]]) -> None:
        team = f"manyscale-{secrets.token_hex(8)}"
        gang.unit, gang.members, gang.failed_at, gang.since = unit, {}, None, time.monotonic()
        gang.calls = [
            actor.run_member.remote(unit, *arguments(unit), team, me, self._size)
            for me, actor in enumerate(gang.actors)
        ]

    def _settle(self, ray: Any, gang: _Gang, ready: set[Any], state: RunState) -> Iterator[Outcome]:
        """Take in what has arrived of a gang. Raises one of ``losses`` if a member is lost."""
        from ray.exceptions import RayTaskError

        if gang.greetings and ready.issuperset(gang.greetings):
            self._welcome(ray, gang)
        if gang.unit is None:
            return
        for me, call in enumerate(gang.calls):
            if me not in gang.members and call in ready:
                try:
                    gang.members[me] = ray.get(call)
                except RayTaskError as error:
                    gang.members[me] = Outcome(gang.unit.key, error=f"the Ray worker failed: {last_line(error)}")
        if gang.failed_at is None and any(each.error for each in gang.members.values()):
            gang.failed_at = time.monotonic()  # the others, too, as far as they say so within a short time
        overdue = gang.failed_at is not None and time.monotonic() - gang.failed_at >= _OTHERS_SECONDS
        if len(gang.members) < len(gang.calls) and not overdue:
            return
        now = time.monotonic()
        outcome = of_members([gang.members[me] for me in sorted(gang.members)])
        self._back(gang, state)
        gang.num_calls, gang.is_closed = 0, False
        state.answered(gang.worker, now)
        finished = state.finished(outcome, gang.worker, now - gang.since)
        gang.unit, gang.calls, gang.members = None, [], {}
        if outcome.error:
            self._dismiss(ray, gang)  # others may wait for the one that failed
        elif gang.node in self._nodes:
            self._nodes.worked(gang.node)
        if finished is not None:
            yield finished

    def _welcome(self, ray: Any, gang: _Gang) -> None:
        from ray.exceptions import RayTaskError

        try:
            reason = next(filter(None, map(other_version, ray.get(gang.greetings))), "")
        except RayTaskError as error:
            reason = last_line(error)
        gang.greetings, gang.is_ready = [], not reason
        if reason:
            self._dismiss(ray, gang)
            self._nodes.leave_out(gang.node, reason, is_of_user=True)

    # Gangs go

    def _ask(self, ray: Any, state: RunState) -> Iterator[Outcome]:
        ready = {number: gang.actors for number, gang in self._gangs.items() if gang.is_ready}
        heard = self._pulse.ask(ray, ready)
        now = time.monotonic()
        for at in heard.at:
            state.heard(at.worker, at.key, at.share, at.seconds, now)
        for number in heard.silent:
            gang = self._gangs[number]
            gang.is_silent = True
            state.worker_silent(number)
            if gang.unit is not None:
                tell(f"a worker of a gang on {self._name(gang)} does not answer; its unit goes elsewhere")
        for number in heard.back:
            self._back(self._gangs[number], state)
        for number in heard.gone:
            yield from self._lose(ray, self._gangs[number], SilentWorkerError(self._pulse.reason), state)
        for gang in [gang for gang in self._gangs.values() if gang.greetings]:
            if now - gang.since >= START_TIMEOUT_SECONDS:
                error = TimeoutError(f"not started in {START_TIMEOUT_SECONDS:.0f} s")
                yield from self._lose(ray, gang, error, state)

    def _back(self, gang: _Gang, state: RunState) -> None:
        if gang.is_silent:
            gang.is_silent = False
            state.worker_back(gang.worker, time.monotonic(), gang.node)

    def _name(self, gang: _Gang) -> str:
        return self._nodes[gang.node].name if gang.node in self._nodes else "a node that is gone"

    def _lose(self, ray: Any, gang: _Gang, error: Exception, state: RunState) -> Iterator[Outcome]:
        """End a gang that has lost a member; its unit returns to the queue or, once too often, fails."""
        self._dismiss(ray, gang)
        reason = reason_of(error)
        with_node, is_hungry = is_of_node(error), lacks_memory(error)
        text = f"one of its workers died: {reason}"
        yield from state.worker_lost(gang.worker, text, gang.node, with_node or is_hungry)
        if gang.node not in self._nodes or (not is_hungry and (gang.is_ready or with_node)):
            return
        if getattr(error, "actor_init_failed", False):  # Shard could not be loaded there
            self._nodes.leave_out(gang.node, last_line(error), is_of_user=True)
        else:
            self._nodes.failed(gang.node, reason)

    def _dismiss(self, ray: Any, gang: _Gang) -> None:
        from ray.util.placement_group import remove_placement_group

        self._gangs.pop(gang.worker, None)
        if gang.node in self._nodes:
            self._nodes[gang.node].workers.discard(-gang.worker)
        for actor in gang.actors:
            ray.kill(actor)
        remove_placement_group(gang.group)

    def close(self) -> None:
        """End all gangs, whatever they are doing."""
        import ray

        for gang in list(self._gangs.values()):
            self._dismiss(ray, gang)
