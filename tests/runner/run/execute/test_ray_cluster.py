"""The Ray executor on a cluster: same bytes as the local one, whatever is lost on the way."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from processes import still_there
from ray_units import (
    SHARED,
    burst_units,
    good_units,
    lockstep,
    odd_unit,
    pooled_unit,
    run,
    stored_bytes,
)

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.predict.units import AS_MANY_AS_THERE_ARE, Outcome
from manyscale.runner.run.execute import ray_crew, ray_nodes, ray_workers
from manyscale.runner.run.execute.local import LocalExecutor
from manyscale.runner.run.execute.ray import RayExecutor
from manyscale.runner.run.execute.ray_pulse import Pulse
from manyscale.runner.run.execute.state import MAX_ATTEMPTS
from manyscale.runner.run.store import Store

pytestmark = pytest.mark.slow


@pytest.mark.contract
def test_results_equal_the_local_executor_s_byte_for_byte(executor: RayExecutor, tmp_path: Path) -> None:
    units = burst_units(64)
    local, remote = Store(tmp_path / "local"), Store(tmp_path / "remote")
    expected = run(LocalExecutor(), units, local)
    random.Random(3).shuffle(units)
    found = run(executor, units, remote)
    assert stored_bytes(remote) == stored_bytes(local)  # nothing else is left there either, such as tokens
    assert len(stored_bytes(remote)) == 64
    assert found.keys() == expected.keys()
    assert not any(outcome.error for outcome in found.values())
    assert all(outcome.attempts == 1 for outcome in found.values())


def test_several_maps_and_changed_inputs(executor: RayExecutor, tmp_path: Path) -> None:
    store = Store(tmp_path)
    for factor in (1, 3):
        unit = odd_unit("doubled", f"factor {factor}")
        shared = {"values": factor * np.arange(50_000)}
        for _ in range(2):
            assert [outcome.error for outcome in executor.map([unit], shared, store)] == [""]
        found = store.read(unit.key)
        assert found is not None
        np.testing.assert_array_equal(found["doubled"], 2 * factor * np.arange(50_000))


def test_shared_inputs_are_put_once_and_read_only(new_pair: RayExecutor, tmp_path: Path, monkeypatch: Any) -> None:
    import ray

    num_puts = 0
    put = ray.put

    def counting(value: Any) -> Any:
        nonlocal num_puts
        num_puts += 1
        return put(value)

    monkeypatch.setattr(ray, "put", counting)
    run(new_pair, good_units(50), Store(tmp_path))
    run(new_pair, good_units(50), Store(tmp_path))
    assert num_puts == 1
    (outcome,) = run(new_pair, [odd_unit("writes_to_input")], Store(tmp_path)).values()
    assert outcome.error == "assignment destination is read-only"


def test_all_workers_get_work(pair: RayExecutor, tmp_path: Path) -> None:
    trace = tmp_path / "processes"
    trace.mkdir()
    run(pair, good_units(2), Store(tmp_path / "units"))  # one has started, the other one has 5 s to
    run(pair, good_units(100, trace=str(trace), seconds=0.05), Store(tmp_path / "units"))
    assert len(list(trace.iterdir())) == 2
    assert str(os.getpid()) not in [path.name for path in trace.iterdir()]


def test_workers_compute_with_one_thread(pair: RayExecutor, tmp_path: Path) -> None:
    store = Store(tmp_path)
    unit = odd_unit("environment")
    run(pair, [unit], store)
    found = store.read(unit.key)
    assert found is not None
    assert found["threads"].tolist() == [1, 1]


def test_a_worker_that_is_killed_is_replaced_and_its_units_run_again(executor: RayExecutor, tmp_path: Path) -> None:
    units = good_units(40)
    killer = odd_unit("kills_once", marker=str(tmp_path / "killed"), offset=7)
    units.insert(11, killer)
    store = Store(tmp_path / "units")
    found = run(executor, units, store)
    assert (tmp_path / "killed").exists()
    assert not any(outcome.error for outcome in found.values())
    assert found[killer.key].attempts == 2
    expected = Store(tmp_path / "expected")
    run(LocalExecutor(), units, expected)
    assert stored_bytes(store) == stored_bytes(expected)


def test_a_worker_may_be_killed_from_outside(pair: RayExecutor, tmp_path: Path) -> None:
    trace = tmp_path / "processes"
    trace.mkdir()
    store = Store(tmp_path / "units")
    outcomes: list[Outcome] = []
    for outcome in pair.map(good_units(12, trace=str(trace), seconds=0.1), SHARED, store):
        if not outcomes:
            os.kill(int(next(trace.iterdir()).name), signal.SIGKILL)
        outcomes.append(outcome)
    assert sorted(outcome.key for outcome in outcomes) == sorted(unit.key for unit in good_units(12))
    assert not any(outcome.error for outcome in outcomes)
    assert max(outcome.attempts for outcome in outcomes) == 2


@pytest.fixture
def impatient(cluster: RayExecutor, alone: None) -> Iterator[RayExecutor]:
    """Gives a worker up that is silent for two seconds."""
    with closing(RayExecutor(num_workers=2, pulse=Pulse(seconds=0.2, most_missed=5, gives_up=10))) as executor:
        yield executor


def test_a_worker_that_stops_answering_is_replaced_and_its_units_run_again(
    impatient: RayExecutor, tmp_path: Path
) -> None:
    units = good_units(40)
    stopped = odd_unit("stops_once", marker=str(tmp_path / "stopped"), offset=7)
    units.insert(11, stopped)
    store, expected = Store(tmp_path / "units"), Store(tmp_path / "expected")
    found = run(impatient, units, store)
    assert (tmp_path / "stopped").exists()
    assert not any(outcome.error for outcome in found.values())
    assert found[stopped.key].attempts <= 2  # one that was not known to have begun was moved
    run(LocalExecutor(), units, expected)
    assert stored_bytes(store) == stored_bytes(expected)


def test_a_worker_that_is_stopped_while_it_has_nothing_to_do_takes_no_unit(
    impatient: RayExecutor, tmp_path: Path
) -> None:
    trace = tmp_path / "processes"
    trace.mkdir()
    run(impatient, good_units(12, trace=str(trace)), Store(tmp_path / "first"))
    for process in trace.iterdir():
        os.kill(int(process.name), signal.SIGSTOP)
    found = run(impatient, good_units(12), Store(tmp_path / "second"))
    assert not any(outcome.error for outcome in found.values())


def test_a_unit_that_is_merely_long_keeps_its_worker(cluster: RayExecutor, alone: None, tmp_path: Path) -> None:
    """In a kernel for several times as long as a worker may be silent."""
    with closing(RayExecutor(num_workers=1, pulse=Pulse(seconds=0.1, most_missed=5, gives_up=5))) as executor:
        found = run(executor, [odd_unit("is_long", rounds=6_000_000_000)], Store(tmp_path))
    (outcome,) = found.values()
    assert not outcome.error
    assert outcome.attempts == 1
    assert outcome.cpu_seconds > 0.5


def test_a_unit_that_always_kills_its_worker_fails_alone(pair: RayExecutor, tmp_path: Path) -> None:
    killers = [odd_unit("kills_always", str(index), marker=str(tmp_path / f"kills {index}")) for index in range(2)]
    units = good_units(20)
    units[5:5] = killers
    store = Store(tmp_path / "units")
    found = run(pair, units, store)
    for index, killer in enumerate(killers):
        outcome = found.pop(killer.key)
        assert outcome.error == f"its worker died: ActorDiedError, SYSTEM_ERROR ({MAX_ATTEMPTS} times)"
        assert outcome.attempts == MAX_ATTEMPTS
        # another worker may be given it before the first has told that it began: that beginning counts for neither
        assert 1 <= len((tmp_path / f"kills {index}").read_bytes()) <= 2 * MAX_ATTEMPTS
    assert not any(outcome.error for outcome in found.values())  # those in the same call among them
    assert len(stored_bytes(store)) == 20


def test_errors_of_units_are_their_own(executor: RayExecutor, tmp_path: Path) -> None:
    refused, defective, unknown = odd_unit("refuses"), odd_unit("is_defective"), odd_unit("is_not_there")
    found = run(executor, [*good_units(5), refused, defective, unknown], Store(tmp_path))
    assert found[refused.key].error == "these parameters make no sense"
    assert found[defective.key].error.startswith("a unit of kind odd_units:is_defective failed with ZeroDivisionError")
    assert "odd_units.py:" in found[defective.key].error
    assert "AttributeError" in found[unknown.key].error
    assert sum(not outcome.error for outcome in found.values()) == 5
    assert len(stored_bytes(Store(tmp_path))) == 5


def test_a_unit_that_cannot_be_loaded_in_the_worker_fails(pair: RayExecutor, tmp_path: Path) -> None:
    class Unloadable:
        def __reduce__(self) -> Any:
            return (os.listdir, ("/there/is/no/such/folder",))

    found = run(pair, [odd_unit("doubled", offset=Unloadable())], Store(tmp_path))
    (outcome,) = found.values()
    assert outcome.error.startswith("the Ray worker failed: ")
    assert "FileNotFoundError" in outcome.error


def test_results_travel_where_workers_do_not_see_the_store(
    pair: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write = Store.write

    def recording(self: Store, key: str, arrays: Any) -> None:
        written.append(key)
        write(self, key, arrays)

    units = [*burst_units(16), odd_unit("refuses")]
    local, remote = Store(tmp_path / "local"), Store(tmp_path / "remote")
    run(LocalExecutor(), units, local)
    monkeypatch.setattr(Store, "write", recording)
    run(pair, units, remote)
    assert written == []  # by the workers
    remote = Store(tmp_path / "remote, unseen")
    monkeypatch.setattr(Store, "leave_token", lambda _store: ".token-of-another-machine")
    run(pair, units, remote)
    assert sorted(written) == sorted(unit.key for unit in units[:-1])  # by the driver
    assert stored_bytes(remote) == stored_bytes(local)


def test_an_abandoned_map_ends_what_it_started(cluster: RayExecutor, alone: None, tmp_path: Path) -> None:
    store = Store(tmp_path / "units")
    long = odd_unit("doubled", "long", seconds=600, trace=str(tmp_path))
    with closing(RayExecutor(num_workers=1)) as executor:
        running = executor.map([odd_unit("doubled"), long], SHARED, store)
        next(running)  # the second call is in flight behind the first
        end = time.monotonic() + 20
        while not (pids := [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]):
            assert time.monotonic() < end
            time.sleep(0.05)
        process = psutil.Process(pids[0])
        running.close()  # type: ignore[attr-defined]
        assert still_there([process], seconds=20) == []
        assert not list(store.root.glob(".token-*"))
        run(executor, good_units(4), store)


def test_more_workers_than_cpus_are_refused(cluster: RayExecutor, alone: None, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="50 workers need as many CPUs; this Ray cluster has 3"):
        list(RayExecutor(num_workers=50).map(good_units(1), SHARED, Store(tmp_path)))


def test_workers_of_another_version_are_refused(
    new_pair: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ray_workers.versions() | {"numpy": "0.1"}
    monkeypatch.setattr(ray_workers, "versions", lambda: here)
    with pytest.raises(UserError, match=r"it has numpy [\d.]+, here it is 0\.1; install the same versions there"):
        list(new_pair.map(good_units(1), SHARED, Store(tmp_path)))


def test_workers_that_cannot_load_manyscale_are_refused(
    new_pair: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere:
        def __init__(self, _home: str) -> None:
            import no_such_module  # noqa: F401

        def greet(self) -> None: ...

    monkeypatch.setattr(ray_crew, "Shard", Elsewhere)
    message = r"no node can be used; .*: ModuleNotFoundError: No module named 'no_such_module'; install the same"
    with pytest.raises(UserError, match=message):
        list(new_pair.map(good_units(1), SHARED, Store(tmp_path)))


def test_workers_that_die_while_they_start_end_the_run(
    new_pair: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stillborn:
        def __init__(self, _home: str) -> None: ...

        def greet(self) -> None:
            os._exit(1)

    monkeypatch.setattr(ray_crew, "Shard", Stillborn)
    with pytest.raises(RunError, match=r"no node can be used; .*: 3 workers in a row failed \(ActorDiedError"):
        list(new_pair.map(good_units(1), SHARED, Store(tmp_path)))


def test_a_cluster_without_free_cpus_is_not_waited_for_for_ever(
    cluster: RayExecutor, alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(RayExecutor(num_workers=3)) as first, closing(RayExecutor(num_workers=1)) as second:
        while len(first._crew.workers) < 3:  # CPUs of an earlier test's workers may become free late
            run(first, good_units(9, seconds=0.2), Store(tmp_path))
        monkeypatch.setattr(ray_nodes, "FIRST_NODE_SECONDS", 2.0)
        with pytest.raises(RunError, match=r"no worker started within 2 s, waiting for a free CPU: 0 of 3 on 1 nodes"):
            list(second.map(good_units(1), SHARED, Store(tmp_path)))


@pytest.mark.contract
@pytest.mark.parametrize("shards", [2, 3, AS_MANY_AS_THERE_ARE])
def test_shards_side_by_side_equal_the_local_executor_s(
    cluster: RayExecutor, alone: None, tmp_path: Path, shards: int
) -> None:
    units = [pooled_unit(shards, str(index), offset=index) for index in range(4)]
    local, remote = Store(tmp_path / "local"), Store(tmp_path / "remote")
    expected = lockstep(LocalExecutor(), units, local)
    found = lockstep(cluster, units, remote)
    assert stored_bytes(remote) == stored_bytes(local)
    assert len(stored_bytes(remote)) == 4
    assert found.keys() == expected.keys()
    assert not any(outcome.error for outcome in found.values())


def test_each_shard_has_a_process_and_gangs_serve_several_units(
    cluster: RayExecutor, alone: None, tmp_path: Path
) -> None:
    (tmp_path / "trace").mkdir()
    units = [pooled_unit(2, str(index), trace=str(tmp_path / "trace")) for index in range(3)]
    lockstep(cluster, units, Store(tmp_path / "store"))
    assert len(list((tmp_path / "trace").iterdir())) == 2  # three CPUs: one gang of two


def test_a_lost_shard_restarts_its_unit(cluster: RayExecutor, alone: None, tmp_path: Path) -> None:
    units = [pooled_unit(2, "good"), pooled_unit(2, "killed", kills=1, marker=str(tmp_path / "marker"))]
    found = lockstep(cluster, units, Store(tmp_path / "store"))
    assert not any(outcome.error for outcome in found.values())
    assert [found[unit.key].attempts for unit in units] == [1, 2]
    assert len(stored_bytes(Store(tmp_path / "store"))) == 2


def test_a_shard_that_stops_answering_restarts_its_unit(impatient: RayExecutor, tmp_path: Path) -> None:
    stopped = [pooled_unit(2, f"stopped {k}", stops=k, marker=str(tmp_path / f"marker {k}")) for k in range(2)]
    units = [pooled_unit(2, "good"), *stopped]
    found = lockstep(impatient, units, Store(tmp_path / "store"))
    assert not any(outcome.error for outcome in found.values())
    assert [found[unit.key].attempts for unit in units] == [1, 2, 2]
    assert len(stored_bytes(Store(tmp_path / "store"))) == 3


def test_a_shard_that_fails_fails_its_unit(cluster: RayExecutor, alone: None, tmp_path: Path) -> None:
    messages = {"fails": "these parameters make no sense", "breaks": "ZeroDivisionError: a defect"}
    bad = {(how, k): pooled_unit(2, f"{how} {k}", **{how: k}) for how in messages for k in range(2)}
    good = [pooled_unit(2, f"good {index}") for index in range(len(bad))]
    units = [unit for both in zip(bad.values(), good, strict=True) for unit in both]
    found = lockstep(cluster, units, Store(tmp_path))
    for (how, _), unit in bad.items():
        assert messages[how] in found[unit.key].error
    assert not any(found[unit.key].error for unit in good)
