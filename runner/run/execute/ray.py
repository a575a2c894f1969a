"""The Ray executor: a worker process (an actor) per core, each called with batches of units. Nothing else imports ray.

Workers write results themselves and return only outcomes. A call carries work of about a second, and a second call
waits behind it, so that Ray's round trip (0.6 ms) does not show. Shared inputs are put into Ray's object store once and
mapped by the workers (run/execute/ray_workers.py), without a copy. Which unit is where, and what happens to it when a
worker is lost, is decided in RunState; a unit that was on a lost worker travels alone from then on, so that one that
kills its worker does not take others with it. A worker that does not answer any more (run/execute/ray_pulse.py) is
ended, and counts as lost. Units whose shards run side by side are left to gangs
(run/execute/ray_gangs.py).
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from manyscale.runner import extras
from manyscale.runner.errors import UserError
from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.run.execute.feeding import next_calls
from manyscale.runner.run.execute.hosts import load_host
from manyscale.runner.run.execute.pace import Pace
from manyscale.runner.run.execute.ray_crew import IDLE_SECONDS, Call, Crew, Worker, hired
from manyscale.runner.run.execute.ray_gangs import Gangs
from manyscale.runner.run.execute.ray_lost import told_if_lost
from manyscale.runner.run.execute.ray_nodes import LOOK_SECONDS, Nodes
from manyscale.runner.run.execute.ray_pulse import THREAD, Pulse
from manyscale.runner.run.execute.ray_start import ONE_THREAD, Connection
from manyscale.runner.run.execute.ray_workers import Computed, last_line, losses
from manyscale.runner.run.execute.state import UNITS_PER_CALL, RunState
from manyscale.runner.run.store import Store
from manyscale.runner.system import usable_cpus

CALLS_PER_WORKER: Final = 4  # at least, for an even load
WEIGHT_PER_CALL: Final = 50_000_000  # at most, unless one unit is heavier, while nothing is measured: some seconds
_WORTH_KEEPING_SECONDS: Final = 5.0  # of a unit that nobody waits for: to start another worker takes as long


class RayExecutor:
    """Runs units on a Ray cluster: the one at ``address`` (also ``auto``, and RAY_ADDRESS), one that this process has
    joined already, or one on this machine that lives as long as the executor.

    ``num_workers``, the most there are at a time, defaults to the cluster's CPUs; ``host`` is a file such as those of
    cluster_configs/host; ``pulse`` says how long a worker may be silent.
    """

    name = "ray"

    def __init__(
        self,
        *,
        address: str | None = None,
        num_workers: int | None = None,
        host: Path | None = None,
        pulse: Pulse | None = None,
        **_options: Any,
    ) -> None:
        extras.require("ray", f"--address {address}" if address else "--executor ray")
        settings = load_host(host) if host is not None else None
        if settings is not None:
            settings.require_direct()
            address = address or settings.address
            num_workers = num_workers or settings.num_workers
        self._address = address or os.environ.get("RAY_ADDRESS") or "local"
        self._wanted_workers = num_workers
        self._connection = Connection(
            self._address,
            num_workers,
            settings.object_store_memory_bytes if settings is not None else None,
            settings.temp_dir if settings is not None else None,
        )
        self._is_open = False
        self._pulse = pulse or Pulse()
        self._pace = Pace()
        self._nodes = Nodes(self._address, self._connection.can_grow)
        self._crew = Crew(self._nodes, self._pulse, self._hire, self._connection.can_grow, self._pace)
        self._inputs: dict[str, tuple[Any, Any]] = {}  # name -> value, reference
        self._rest: threading.Timer | None = None  # between maps: releases the workers
        self._resting = threading.Lock()

    @property
    def hear(self) -> Callable[[str, float], None] | None:
        """What is told of units that run: which share of them is done."""
        return self._pulse.hear

    @hear.setter
    def hear(self, hear: Callable[[str, float], None]) -> None:
        self._pulse.hear = hear

    def standing(self) -> Mapping[str, Any]:
        """Nodes with their workers, those left out with reasons, and what is waited for."""
        return {"nodes": self._nodes.standing(), "waiting": self._nodes.waiting}

    # Start and end

    def start(self) -> None:
        """Start or join Ray; ``map`` does it when there is work. Raises UserError if there is nothing to join, or more
        workers are wanted than a cluster has CPUs that cannot grow."""
        if self._is_open:
            return
        self._connection.open()
        import ray

        self._is_open = True
        self._nodes.look(ray, at_once=True)
        self._crew.most = self._wanted_workers
        if self._connection.can_grow:
            return
        num_cpus = self._nodes.num_cpus
        if self._connection.is_own and self._wanted_workers is None:
            num_cpus = self._crew.most = min(num_cpus, len(usable_cpus()))
        if (wanted := self._wanted_workers or num_cpus or 1) > num_cpus:
            self.close()
            raise UserError(f"{self._address}: {wanted} workers need as many CPUs; this Ray cluster has {num_cpus}")

    @property
    def _num_workers(self) -> int:
        """How many there can be now."""
        num_cpus = max(1, self._nodes.num_cpus)
        return num_cpus if self._crew.most is None else min(self._crew.most, num_cpus)

    def close(self) -> None:
        """End the workers, whatever they are doing, and Ray if it was started here."""
        self._stop_resting()
        if self._is_open:
            import ray

            self._crew.dismiss_all()
            self._nodes.ask_for(ray, 0)
        self._inputs.clear()
        self._is_open = False
        self._connection.close()

    def _stop_resting(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            with self._resting:  # it may have begun
                self._rest = None

    def _begin_resting(self) -> None:
        """Release the workers, if there is no further work for a while: a scaler may take their nodes."""

        def release() -> None:
            with self._resting:
                if self._rest is not None:
                    self._crew.release_all()

        if self._connection.can_grow and self._is_open:
            self._rest = threading.Timer(IDLE_SECONDS, release)
            self._rest.daemon = True
            self._rest.start()

    # Running units

    def map(self, units: Sequence[WorkUnit], shared: Mapping[str, Any], store: Store) -> Iterator[Outcome]:
        """Compute units and store their results; yields an outcome per unit as it is done."""
        if not units:
            return
        self.start()
        self._stop_resting()
        import ray

        for name in [name for name, (value, _) in self._inputs.items() if shared.get(name) is not value]:
            del self._inputs[name]
        state = RunState(batch_weight(units, self._num_workers), pace=self._pace)
        state.add(sorted(units, key=lambda unit: -unit.weight))  # heavy ones first: no long tail
        token = store.leave_token()
        self._nodes.look_again()
        with told_if_lost(self._address):
            try:
                while not state.is_complete:
                    self._crew.see(ray, state)
                    self._feed(state, shared, store, token)
                    for reference in self._finished_calls(ray):
                        if reference in self._crew.calls:  # not of a worker that was lost meanwhile
                            yield from self._settle(ray, reference, state, store)
                    yield from self._crew.ask(ray, state)
            finally:
                store.remove_token(token)
                self._nodes.ask_for(ray, 0)
                self._dismiss_busy(state)
                self._begin_resting()

    def _dismiss_busy(self, state: RunState) -> None:
        """End workers that compute what nobody waits for, unless they are soon done with it."""
        busy: dict[Worker, list[WorkUnit]] = {}
        for call in self._crew.calls.values():
            if call.units:
                busy.setdefault(call.worker, []).extend(call.units)
        for worker, units in busy.items():
            seconds = [state.pace.seconds(worker.worker, unit) for unit in units]
            is_soon = sum(math.inf if each is None else each for each in seconds) < _WORTH_KEEPING_SECONDS
            if not state.is_complete or worker.is_silent or not is_soon:
                self._crew.dismiss(worker)
            else:
                self._crew.tell_to_leave({worker.worker: [unit.key for unit in units]})

    def lockstep(self, units: Sequence[WorkUnit], shared: Mapping[str, Any], store: Store) -> Iterator[Outcome]:
        """The same for units whose shards run side by side on one node: as many as a unit asks for and a node has
        CPUs, or this run workers."""
        if not units:
            return
        self.start()
        self._stop_resting()
        import ray

        self._crew.dismiss_all()  # their CPUs are needed
        self._await_node(ray)
        most = min(self._num_workers, max((node.num_cpus for node in self._nodes.usable), default=1))
        token = store.leave_token()

        def arguments(unit: WorkUnit) -> tuple[Any, ...]:
            references = {name: [self._reference(name, shared[name])] for name in sorted(unit.inputs.values())}
            return references, store.address, token

        with told_if_lost(self._address):
            try:
                for size, chosen in _by_size(units, most, self._num_workers).items():
                    most_gangs = len(chosen) if self._crew.most is None else self._crew.most // size
                    with closing(Gangs(self._actor_options(), size, most_gangs, self._nodes, self._pulse)) as gangs:
                        for outcome in gangs.run(chosen, arguments):
                            if outcome.arrays is not None:
                                store.write(outcome.key, outcome.arrays)
                            yield replace(outcome, arrays=None)
            finally:
                store.remove_token(token)

    def _await_node(self, ray: Any) -> None:
        """Until there is one with CPUs."""
        self._nodes.look(ray, at_once=True)
        while not self._nodes.usable:
            self._nodes.ask_for(ray, 1)
            self._nodes.wait(1)
            time.sleep(LOOK_SECONDS / 4)
            self._nodes.look(ray)
        self._nodes.ask_for(ray, 0)
        self._nodes.waited()

    def _actor_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        options["concurrency_groups"] = {THREAD: 1}
        if not self._connection.is_own:  # workers of our own cluster have inherited these
            options["runtime_env"] = {"env_vars": ONE_THREAD}
        return options

    def _hire(self, node_id: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return hired(self._actor_options(), NodeAffinitySchedulingStrategy(node_id, soft=False))

    def _feed(self, state: RunState, shared: Mapping[str, Any], store: Store, token: str) -> None:
        """Make the calls that are due."""
        crew = self._crew
        for move in next_calls(state, crew.seats, crew.num_starting, time.monotonic()):
            batch = [state.units[key] for key in move.keys]
            names = {name for unit in batch for name in unit.inputs.values()}
            references = {name: [self._reference(name, shared[name])] for name in sorted(names)}
            worker = crew.workers[move.worker]
            answer = worker.actor.run.remote(batch, references, store.address, token)
            crew.calls[answer] = Call(worker, batch)
            crew.tell_to_leave(move.leaves)

    def _reference(self, name: str, value: Any) -> Any:
        """Where a shared input stands in the object store; put there on first use."""
        import ray

        if name not in self._inputs:
            self._inputs[name] = (value, ray.put(value))
        return self._inputs[name][1]

    def _finished_calls(self, ray: Any) -> list[Any]:
        """References of finished calls in order of submission; none if it is time to look around."""
        waiting = list(self._crew.calls)
        if not waiting:
            time.sleep(LOOK_SECONDS / 4)  # no worker yet
            return []
        ray.wait(waiting, num_returns=1, timeout=min(self._pulse.seconds, LOOK_SECONDS))
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        finished = set(ready)
        return [reference for reference in waiting if reference in finished]

    def _settle(self, ray: Any, reference: Any, state: RunState, store: Store) -> Iterator[Outcome]:
        """Take in what became of a call: results, or the loss of its worker."""
        from ray import exceptions

        call = self._crew.calls[reference]
        worker = call.worker
        try:
            answer = ray.get(reference)
        except losses() as error:
            if isinstance(error, exceptions.ObjectLostError):
                self._inputs.clear()  # perhaps an input was lost: put them again
            yield from self._crew.lose(worker, error, state)
            return
        except exceptions.RayTaskError as error:  # a defect of Shard, or of what it could not load
            if not call.units:
                self._crew.cannot_load(worker, error)
                return
            text = f"the Ray worker failed: {last_line(error)}"
            answer = [Computed(Outcome(unit.key, error=text), 0.0) for unit in call.units]
        del self._crew.calls[reference]
        if not call.units:
            self._crew.welcome(worker, answer)
            return
        now = time.monotonic()
        worker.num_calls -= 1
        worker.num_settled += 1
        worker.is_closed = False
        worker.since = now
        state.answered(worker.worker, now)
        self._crew.back(worker, state)
        for computed in answer:
            yield from self._take_in(computed, worker, state, store)
        computed_keys = {computed.outcome.key for computed in answer}
        for unit in call.units:
            if unit.key not in computed_keys:
                state.left(worker.worker, unit.key)

    def _take_in(self, computed: Computed, worker: Worker, state: RunState, store: Store) -> Iterator[Outcome]:
        outcome = computed.outcome
        if computed.lacks:
            yield from state.failed_there(outcome.key, worker.worker, computed.lacks, worker.node)
            self._nodes.failed(worker.node, computed.lacks)
            return
        unit = state.units.get(outcome.key)  # None: of an earlier stage
        is_kept = unit is None or unit.is_kept
        if outcome.arrays is not None and unit is not None and outcome.key not in state.done and is_kept:
            store.write(outcome.key, outcome.arrays)
        finished = state.finished(replace(outcome, arrays=None), worker.worker, computed.seconds)
        if finished is not None:
            self._nodes.worked(worker.node)
            yield finished if is_kept else replace(finished, arrays=outcome.arrays)


def batch_weight(units: Sequence[WorkUnit], num_workers: int) -> int:
    """The most work that one call may carry, so that all workers get some and progress shows."""
    total = sum(unit.weight for unit in units)
    num_calls = max(num_workers * CALLS_PER_WORKER, len(units) // UNITS_PER_CALL, total // WEIGHT_PER_CALL)
    return math.ceil(total / num_calls)


def _by_size(units: Sequence[WorkUnit], most: int, num_workers: int) -> dict[int, list[WorkUnit]]:
    """Units by how many shards each gets."""
    found: dict[int, list[WorkUnit]] = {}
    for unit in units:
        size = min(unit.shards or max(1, num_workers // len(units)), most)
        found.setdefault(size, []).append(unit)
    return found
