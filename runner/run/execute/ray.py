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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from manyscale.runner import extras
from manyscale.runner.errors import RunError, UserError
from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.run.execute.hosts import load_host
from manyscale.runner.run.execute.ray_gangs import Gangs
from manyscale.runner.run.execute.ray_pulse import THREAD, Pulse, SilentWorkerError
from manyscale.runner.run.execute.ray_start import ONE_THREAD, Connection
from manyscale.runner.run.execute.ray_workers import (
    START_TIMEOUT_SECONDS,
    Shard,
    check_versions,
    last_line,
    losses,
    reason_of,
    unfit,
)
from manyscale.runner.run.execute.state import MAX_ATTEMPTS, RunState
from manyscale.runner.run.store import Store
from manyscale.runner.system import usable_cpus

CALLS_IN_FLIGHT: Final = 2  # per worker
CALLS_PER_WORKER: Final = 4  # at least, for an even load
UNITS_PER_CALL: Final = 256  # at most on average, so that progress shows: about 0.1 s of file writing
WEIGHT_PER_CALL: Final = 50_000_000  # at most, unless one unit is heavier: some seconds of replay


@dataclass(eq=False)
class _Worker:
    worker_id: int
    actor: Any
    is_ready: bool = False
    num_calls: int = 0  # in flight, with units
    is_closed: bool = False  # takes no further call until the one in flight is done


@dataclass(frozen=True, eq=False)
class _Call:
    """A call in flight. Without units it is the greeting, whose answer makes its worker ready."""

    worker: _Worker
    units: Sequence[WorkUnit] = ()


class RayExecutor:
    """Runs units on a Ray cluster: the one at ``address`` (also ``auto``, and RAY_ADDRESS), one that this process has
    joined already, or one on this machine that lives as long as the executor.

    ``num_workers`` defaults to the cluster's CPUs; ``host`` is a file such as those of cluster_configs/host; ``pulse``
    says how long a worker may be silent.
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
        self._num_workers = 0  # known once started
        self._workers: dict[int, _Worker] = {}
        self._pulse = pulse or Pulse()
        self._num_hired = 0
        self._num_stillborn = 0  # workers in a row that were lost before they were ready
        self._calls: dict[Any, _Call] = {}  # by the reference of the result, in order of submission
        self._inputs: dict[str, tuple[Any, Any]] = {}  # name -> value, reference

    @property
    def hear(self) -> Callable[[str, float], None] | None:
        """What is told of units that run: which share of them is done."""
        return self._pulse.hear

    @hear.setter
    def hear(self, hear: Callable[[str, float], None]) -> None:
        self._pulse.hear = hear

    # Start and end

    def start(self) -> None:
        """Start or join Ray; ``map`` does it when there is work. Raises UserError if there is nothing to join."""
        if self._num_workers:
            return
        self._connection.open()
        import ray

        num_cpus = int(ray.cluster_resources().get("CPU", 0))
        if self._connection.is_own and self._wanted_workers is None:
            num_cpus = min(num_cpus, len(usable_cpus()))
        wanted = self._wanted_workers or num_cpus
        if wanted > num_cpus or num_cpus < 1:
            self.close()
            raise UserError(
                f"{self._address}: {wanted or 1} workers need as many CPUs; this Ray cluster has {num_cpus}"
            )
        self._num_workers = wanted

    def close(self) -> None:
        """End the workers, whatever they are doing, and Ray if it was started here."""
        for worker in list(self._workers.values()):
            self._dismiss(worker)
        self._inputs.clear()
        self._num_workers = 0
        self._connection.close()

    # Running units

    def map(self, units: Sequence[WorkUnit], shared: Mapping[str, Any], store: Store) -> Iterator[Outcome]:
        """Compute units and store their results; yields an outcome per unit as it is done."""
        if not units:
            return
        self.start()
        import ray

        for name in [name for name, (value, _) in self._inputs.items() if shared.get(name) is not value]:
            del self._inputs[name]
        state = RunState(batch_weight(units, self._num_workers))
        state.add(sorted(units, key=lambda unit: -unit.weight))  # heavy ones first: no long tail
        token = store.leave_token()
        try:
            while not state.is_complete:
                self._hire(len(state.pending) + len(state.in_flight))
                self._feed(state, shared, store, token)
                for reference in self._finished_calls(ray):
                    if reference in self._calls:  # not of a worker that was lost meanwhile
                        yield from self._settle(ray, reference, state, store)
                busy = {worker.worker_id: [worker.actor] for worker in self._workers.values() if worker.num_calls}
                for worker_id in self._pulse.silent(ray, busy):
                    yield from self._lose(self._workers[worker_id], SilentWorkerError(self._pulse.reason), state)
        finally:
            store.remove_token(token)
            for worker in {call.worker for call in self._calls.values() if call.units}:
                self._dismiss(worker)  # it computes what nobody waits for

    def lockstep(self, units: Sequence[WorkUnit], shared: Mapping[str, Any], store: Store) -> Iterator[Outcome]:
        """The same for units whose shards run side by side on one node: as many as a unit asks for and a node has
        CPUs, or this run workers."""
        if not units:
            return
        self.start()
        import ray

        for worker in list(self._workers.values()):  # their CPUs are needed
            self._dismiss(worker)
        most = min(
            self._num_workers, max(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
        )
        token = store.leave_token()

        def arguments(unit: WorkUnit) -> tuple[Any, ...]:
            references = {name: [self._reference(name, shared[name])] for name in sorted(unit.inputs.values())}
            return references, store.address, token

        try:
            for size, chosen in _by_size(units, most, self._num_workers).items():
                most_gangs = self._num_workers // size
                with closing(Gangs(self._actor_options(), size, most_gangs, self._address, self._pulse)) as gangs:
                    for outcome in gangs.run(chosen, arguments):
                        if outcome.arrays is not None:
                            store.write(outcome.key, outcome.arrays)
                        yield replace(outcome, arrays=None)
        finally:
            store.remove_token(token)

    def _actor_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        options["concurrency_groups"] = {THREAD: 1}
        if not self._connection.is_own:  # workers of our own cluster have inherited these
            options["runtime_env"] = {"env_vars": ONE_THREAD}
        return options

    def _hire(self, num_unfinished: int) -> None:
        """Workers for those that are missing, as far as there is work for them."""
        while len(self._workers) < min(self._num_workers, num_unfinished):
            import ray

            actor = ray.remote(**self._actor_options())(Shard).options(scheduling_strategy="SPREAD").remote()
            self._num_hired += 1
            worker = self._workers[self._num_hired] = _Worker(self._num_hired, actor)
            self._calls[actor.greet.remote()] = _Call(worker)

    def _feed(self, state: RunState, shared: Mapping[str, Any], store: Store, token: str) -> None:
        """Give batches to workers that are ready: a first call to each before a second to any."""
        ready = [worker for worker in self._workers.values() if worker.is_ready]
        num_starting = len(self._workers) - len(ready)
        for depth in range(CALLS_IN_FLIGHT):
            for worker in ready:
                if len(state.pending) <= (num_starting if depth else 0):
                    return  # the last units are left to workers that will have nothing else to do
                was_on_lost_worker = state.attempts[state.pending[0]] > 0
                if worker.num_calls != depth or worker.is_closed or (was_on_lost_worker and depth):
                    continue
                batch = state.next_batch(worker.worker_id)
                names = {name for unit in batch for name in unit.inputs.values()}
                references = {name: [self._reference(name, shared[name])] for name in sorted(names)}
                answer = worker.actor.run.remote(batch, references, store.address, token)
                self._calls[answer] = _Call(worker, batch)
                worker.num_calls += 1
                worker.is_closed = was_on_lost_worker

    def _reference(self, name: str, value: Any) -> Any:
        """Where a shared input stands in the object store; put there on first use."""
        import ray

        if name not in self._inputs:
            self._inputs[name] = (value, ray.put(value))
        return self._inputs[name][1]

    def _finished_calls(self, ray: Any) -> list[Any]:
        """References of finished calls in order of submission; none if it is time to ask who is there."""
        waiting = list(self._calls)
        is_any_ready = any(worker.is_ready for worker in self._workers.values())
        seconds = self._pulse.seconds if is_any_ready else START_TIMEOUT_SECONDS
        ready, _ = ray.wait(waiting, num_returns=1, timeout=seconds)
        if not ready and not is_any_ready:
            free = int(ray.available_resources().get("CPU", 0))
            raise RunError(
                f"{self._address}: no worker started within {START_TIMEOUT_SECONDS:.0f} s ({free} CPUs of the cluster "
                "are free); wait until others have finished, or use --executor local"
            )
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        finished = set(ready)
        return [reference for reference in waiting if reference in finished]

    def _settle(self, ray: Any, reference: Any, state: RunState, store: Store) -> Iterator[Outcome]:
        """Take in what became of a call: results, or the loss of its worker."""
        from ray import exceptions

        call = self._calls[reference]
        try:
            answer = ray.get(reference)
        except losses() as error:
            yield from self._lose(call.worker, error, state)
            return
        except exceptions.RayTaskError as error:  # a defect of Shard, or of what it could not load
            if not call.units:
                raise UserError(unfit(self._address, last_line(error))) from None
            answer = [Outcome(unit.key, error=f"the Ray worker failed: {last_line(error)}") for unit in call.units]
        del self._calls[reference]
        if not call.units:
            self._welcome(call.worker, answer)
            return
        call.worker.num_calls -= 1
        call.worker.is_closed = False
        for outcome in answer:
            is_kept = state.units[outcome.key].is_kept
            if outcome.arrays is not None and outcome.key not in state.done and is_kept:
                store.write(outcome.key, outcome.arrays)
            finished = state.finished(replace(outcome, arrays=None))
            if finished is not None:
                yield finished if is_kept else replace(finished, arrays=outcome.arrays)

    def _welcome(self, worker: _Worker, versions: Mapping[str, str]) -> None:
        check_versions(versions, self._address)
        worker.is_ready = True
        self._num_stillborn = 0

    def _lose(self, worker: _Worker, error: Exception, state: RunState) -> Iterator[Outcome]:
        """Take note of a lost worker; its units return to the queue or, once too often, fail."""
        from ray.exceptions import ObjectLostError

        if isinstance(error, ObjectLostError):
            self._inputs.clear()  # perhaps an input was lost: put them again
        self._dismiss(worker)
        reason = reason_of(error)
        if not worker.is_ready:
            if getattr(error, "actor_init_failed", False):  # Shard could not be loaded there
                raise UserError(unfit(self._address, last_line(error)))
            self._num_stillborn += 1
            if self._num_stillborn >= MAX_ATTEMPTS:
                raise RunError(
                    f"{self._address}: {MAX_ATTEMPTS} Ray workers in a row died while they started ({reason})"
                )
        yield from state.worker_lost(worker.worker_id, f"its worker died: {reason}")

    def _dismiss(self, worker: _Worker) -> None:
        """End a worker and forget its calls."""
        import ray

        self._workers.pop(worker.worker_id, None)
        for reference in [reference for reference, call in self._calls.items() if call.worker is worker]:
            del self._calls[reference]
        if ray.is_initialized():
            ray.kill(worker.actor)


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
