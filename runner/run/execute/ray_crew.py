"""The workers of the Ray executor: hired as nodes come, left alone while they are silent, released as they idle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.run.execute.feeding import Seat
from manyscale.runner.run.execute.pace import Pace
from manyscale.runner.run.execute.ray_nodes import Nodes, tell
from manyscale.runner.run.execute.ray_pulse import THREAD, Pulse, SilentWorkerError
from manyscale.runner.run.execute.ray_workers import (
    Shard,
    is_of_node,
    lacks_memory,
    last_line,
    other_version,
    reason_of,
)
from manyscale.runner.run.execute.state import RunState

START_TIMEOUT_SECONDS: Final = 300.0  # of a worker, while others start, too
_LONG_START_SECONDS: Final = 30.0
IDLE_SECONDS: Final = 60.0  # after which a worker is released, so that a scaler can take its node away
_WORTH_ASKING_SECONDS: Final = 30.0  # of work for all workers, so that more of them repay their start


@dataclass(eq=False)
class Worker(Seat):
    """A Seat with its actor. ``since``: when it was hired, or had nothing to do any more; ``num_settled``: answers to
    calls that came in."""

    actor: Any = None
    since: float = 0.0
    is_ready: bool = False
    is_silent: bool = False
    num_settled: int = 0

    def is_stuck(self, now: float) -> bool:
        """Whether it takes so long to start that others are hired in its place, where there is room."""
        return not self.is_ready and now - self.since > _LONG_START_SECONDS


@dataclass(frozen=True, eq=False)
class Call:
    """A call in flight. Without units it is the greeting, whose answer makes its worker ready."""

    worker: Worker
    units: Sequence[WorkUnit] = ()


class Crew:
    """``most`` workers at most (None: as many as there are CPUs), made by ``hire``, and their calls in flight. ``pace``
    of all runs: units are left to workers that it knows, so it must know of no one who is gone."""

    def __init__(self, nodes: Nodes, pulse: Pulse, hire: Callable[[str], Any], can_grow: bool, pace: Pace) -> None:
        self.nodes, self._pulse, self._hire, self._can_grow, self._pace = nodes, pulse, hire, can_grow, pace
        self.most: int | None = None
        self.workers: dict[int, Worker] = {}
        self.calls: dict[Any, Call] = {}  # by the reference of the result, in order of submission
        self._num_hired = 0

    @property
    def seats(self) -> list[Worker]:
        """Workers that may be given work."""
        return [worker for worker in self.workers.values() if worker.is_ready and not worker.is_silent]

    @property
    def num_starting(self) -> int:
        """Workers that will have nothing to do."""
        now = time.monotonic()
        return sum(not worker.is_ready and not worker.is_stuck(now) for worker in self.workers.values())

    def see(self, ray: Any, state: RunState) -> None:
        """Look at the cluster, if it is time to: hire for units that wait, release who has nothing to do, ask for CPUs
        that are missing."""
        if not self.nodes.look(ray):
            return
        now = time.monotonic()
        there = [worker for worker in self.workers.values() if not worker.is_silent and not worker.is_stuck(now)]
        needed = max(0, len(state.pending) - sum(not worker.num_calls for worker in there))
        if self.most is not None:
            needed = max(0, min(needed, self.most - len(there)))
        places = self.nodes.places(needed)
        for node in places:
            self._hire_on(node.node_id)
        if self._can_grow:
            waiting, speed = state.pending_seconds, state.pace.total_speed
            is_worth = waiting is None or not speed or waiting / speed > _WORTH_ASKING_SECONDS
            self.nodes.ask_for(ray, needed - len(places) if is_worth else 0)
            if not state.pending:
                self._release(now)
        if self.workers:
            self.nodes.waited()
        elif state.pending:
            self.nodes.wait(needed)

    def _hire_on(self, node_id: str) -> None:
        self._num_hired += 1
        worker = Worker(self._num_hired, node_id, actor=self._hire(node_id), since=time.monotonic())
        self.workers[worker.worker] = worker
        node = self.nodes[node_id]
        node.workers.add(worker.worker)
        node.starting.add(worker.worker)
        self.calls[worker.actor.greet.remote()] = Call(worker)

    def _release(self, now: float) -> None:
        for worker in self.seats:
            if not worker.num_calls and now - worker.since >= IDLE_SECONDS:
                self.dismiss(worker)

    def release_all(self) -> None:
        """End those that have nothing to do."""
        for worker in list(self.workers.values()):
            if not worker.num_calls:
                self.dismiss(worker)

    def welcome(self, worker: Worker, versions: Mapping[str, str]) -> None:
        """A worker's greeting. Raises UserError if it is of another version, and no other node is left."""
        self.nodes[worker.node].starting.discard(worker.worker)
        if reason := other_version(versions):
            self._leave_out(worker.node, reason)
            return
        worker.is_ready, worker.since = True, time.monotonic()

    def cannot_load(self, worker: Worker, error: Exception) -> None:
        """A worker could not load what it needs. Raises UserError if no other node is left."""
        self._leave_out(worker.node, last_line(error))

    def _leave_out(self, node_id: str, reason: str) -> None:
        for each in [each for each in self.workers.values() if each.node == node_id and not each.is_ready]:
            self.dismiss(each)
        self.nodes.leave_out(node_id, reason, is_of_user=True)

    def lose(self, worker: Worker, error: Exception, state: RunState) -> list[Outcome]:
        """Take note of a lost worker; its units return to the queue or, once too often, fail. Raises RunError or
        UserError if no node is left where workers start."""
        self.dismiss(worker)
        reason = reason_of(error)
        with_node, is_hungry = is_of_node(error), lacks_memory(error)
        text = f"its worker died: {reason}"
        failed = state.worker_lost(worker.worker, text, worker.node, with_node or is_hungry)
        if not worker.is_ready and getattr(error, "actor_init_failed", False):  # Shard could not be loaded there
            self.cannot_load(worker, error)
        elif is_hungry or not (worker.is_ready or with_node):
            self.nodes.failed(worker.node, reason)
        return failed

    def ask(self, ray: Any, state: RunState) -> Iterator[Outcome]:
        """Who is still there; what is lost with those that are given up."""
        ready = {number: [worker.actor] for number, worker in self.workers.items() if worker.is_ready}
        heard = self._pulse.ask(ray, ready, lambda number: self.workers[number].num_settled)
        now = time.monotonic()
        for at in heard.at:
            state.heard(at.worker, at.key, at.share, at.seconds, now)
        for number in heard.silent:
            worker = self.workers[number]
            worker.is_silent = True
            state.worker_silent(number)
            tell(f"a worker on {self.nodes[worker.node].name} does not answer; its units go elsewhere")
        for number in heard.back:
            self.back(self.workers[number], state)
        for number in heard.gone:
            yield from self.lose(self.workers[number], SilentWorkerError(self._pulse.reason), state)
        for worker in list(self.workers.values()):
            if not worker.is_ready and now - worker.since >= START_TIMEOUT_SECONDS:
                yield from self.lose(worker, TimeoutError(f"not started in {START_TIMEOUT_SECONDS:.0f} s"), state)

    def back(self, worker: Worker, state: RunState) -> None:
        """A silent worker is heard of again."""
        if worker.is_silent:
            worker.is_silent = False
            state.worker_back(worker.worker, time.monotonic(), worker.node)

    def tell_to_leave(self, leaves: Mapping[int, Sequence[str]]) -> None:
        """Tell workers which units another one has got."""
        for number, keys in leaves.items():
            self.workers[number].actor.leave.options(concurrency_group=THREAD).remote(keys)

    def dismiss(self, worker: Worker) -> None:
        """End a worker and forget its calls."""
        import ray

        self.workers.pop(worker.worker, None)
        self._pace.leaves(worker.worker)
        node = self.nodes[worker.node]
        node.workers.discard(worker.worker)
        node.starting.discard(worker.worker)
        for reference in [reference for reference, call in self.calls.items() if call.worker is worker]:
            del self.calls[reference]
        if ray.is_initialized():
            ray.kill(worker.actor)

    def dismiss_all(self) -> None:
        for worker in list(self.workers.values()):
            self.dismiss(worker)


def hired(options: Mapping[str, Any], where: Any) -> Any:
    """A worker by a scheduling strategy."""
    import ray

    home = ray.get_runtime_context().get_node_id()
    return ray.remote(**options)(Shard).options(scheduling_strategy=where).remote(home)
