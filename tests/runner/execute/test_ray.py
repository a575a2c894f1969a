"""The Ray executor: same bytes as the local one, whatever is lost on the way, and nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from manyscale.runner.errors import RunError, UserError
from manyscale.runner.execute import ray as ray_module
from manyscale.runner.execute.local import LocalExecutor
from manyscale.runner.execute.ray import RayExecutor, batch_weight
from manyscale.runner.execute.state import MAX_ATTEMPTS, RunState
from manyscale.runner.execute.store import Store
from manyscale.runner.execute.units import Outcome, WorkUnit, unit_key

NUM_PHASES = 6400
SHARED = {
    "phases": {
        "duration_ps": np.random.default_rng(1).integers(1, 10**9, NUM_PHASES),
        "kind": np.zeros(NUM_PHASES, np.uint8),
        "ipc_factor": np.linspace(0.5, 2, NUM_PHASES),
    },
    "values": np.arange(100),
    "unused": object(),  # what no unit needs does not travel: this one could not
}


def odd_unit(function: str, name: str = "", weight: int = 1, **parameters: Any) -> WorkUnit:
    """A unit of odd_units.py."""
    key = unit_key(function, 1, {"name": name}, [], 0)
    return WorkUnit(key, f"odd_units:{function}", {"offset": 0} | parameters, {"values": "values"}, weight)


def good_units(count: int, **parameters: Any) -> list[WorkUnit]:
    return [odd_unit("doubled", str(index), offset=index, **parameters) for index in range(count)]


def burst_units(count: int) -> list[WorkUnit]:
    size = NUM_PHASES // count
    units = []
    for index in range(count):
        parameters = {"cpu_ratio": 1.25, "slowdown": 1.0, "first": index * size, "last": (index + 1) * size}
        key = unit_key("burst", 1, parameters, [], 0)
        units.append(WorkUnit(key, "burst", parameters, {"phases": "phases"}, weight=1 + index % 7))
    return units


def stored_bytes(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}


def run(executor: Any, units: list[WorkUnit], store: Store) -> dict[str, Outcome]:
    """Outcomes by key; each unit is told of once."""
    outcomes = list(executor.map(units, SHARED, store))
    found = {outcome.key: outcome for outcome in outcomes}
    assert len(outcomes) == len(found) == len(units)
    assert all(outcome.arrays is None for outcome in outcomes)
    return found


# Without Ray


def test_calls_share_the_work_between_all_workers() -> None:
    assert batch_weight(good_units(8), num_workers=2) == 1
    assert batch_weight(good_units(80), num_workers=2) == 10  # four calls per worker
    assert batch_weight(good_units(1), num_workers=64) == 1


def test_calls_are_short_enough_to_show_progress() -> None:
    assert batch_weight(good_units(10 * 256 * 8), num_workers=2) == 256
    heavy = [odd_unit("doubled", str(index), weight=10**8) for index in range(100)]
    assert batch_weight(heavy, num_workers=2) == ray_module.WEIGHT_PER_CALL


@pytest.mark.parametrize("address", ["head", "head:port", "ray://head:10001", "http://head:8265"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="is not an address of a Ray cluster; write HOST:PORT"):
        RayExecutor(address=address)


def test_an_address_where_nothing_answers_is_refused_at_once() -> None:
    begin = time.monotonic()
    with pytest.raises(UserError) as caught:
        RayExecutor(address="127.0.0.1:1")
    assert time.monotonic() - begin < 10
    assert str(caught.value).startswith("127.0.0.1:1: no Ray cluster answers (")
    assert "ray start --head" in str(caught.value)


@pytest.mark.parametrize(("address", "error", "message"), [
    ("auto", ConnectionError("Could not find"), "auto: no Ray cluster runs on this machine; start one with: ray start"),
    ("local", ValueError("no\nroom"), r"Ray did not start \(no\); run with --executor local"),
    ("{open}", SystemExit(15), "{open}: what answers there is no Ray cluster"),
    ("{open}", RuntimeError("\nBad version"), r"{open}: .* cannot be joined \(Bad version\); run manyscale on one"),
])  # fmt: skip
def test_what_ray_says_on_its_start_is_told_in_one_line(
    address: str, error: BaseException, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    def failing_init(*_arguments: Any, **_options: Any) -> None:
        raise error

    monkeypatch.setattr(ray, "init", failing_init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = f"127.0.0.1:{server.getsockname()[1]}"
        executor = RayExecutor(address=address.replace("{open}", name))
        with pytest.raises((UserError, RunError), match=message.replace("{open}", name)) as caught:
            executor.start()
        assert "\n" not in str(caught.value)
        executor.close()


def test_a_cluster_of_our_own_has_a_token_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_module, "_own_authentication", {})
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert ray_module._authentication() == {}
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    chosen = ray_module._authentication()
    assert chosen["RAY_AUTH_MODE"] == "token"
    assert len(chosen["RAY_AUTH_TOKEN"]) == 64
    monkeypatch.setitem(sys.modules, "ray", object())
    assert ray_module._authentication() == chosen  # Ray, once loaded, keeps its token


def test_start_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    found: list[dict[str, str]] = []

    def recording_init(*_arguments: Any, **_options: Any) -> None:
        found.append(dict(os.environ))
        raise RuntimeError("enough")

    monkeypatch.setattr(ray, "init", recording_init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    before = dict(os.environ)
    with pytest.raises(RunError, match="enough"):
        RayExecutor().start()
    assert found[0]["OMP_NUM_THREADS"] == found[0]["NUMBA_NUM_THREADS"] == "1"
    assert dict(os.environ) == before


def feed(executor: RayExecutor, state: RunState, ready: dict[int, bool], store: Store) -> dict[int, list[int]]:
    """Sizes of the calls in flight, by worker, once workers that are ready or not have been fed."""
    actor = SimpleNamespace(run=SimpleNamespace(remote=lambda *_arguments: object()))
    for worker_id, is_ready in ready.items():
        if worker_id not in executor._workers:
            executor._workers[worker_id] = ray_module._Worker(worker_id, actor)
        executor._workers[worker_id].is_ready = is_ready
    executor._feed(state, {}, store, "token")
    calls: dict[int, list[int]] = {}
    for call in executor._calls.values():
        calls.setdefault(call.worker.worker_id, []).append(len(call.units))
    return calls


def state_of(count: int) -> RunState:
    state = RunState(2)
    state.add(WorkUnit(f"{index:04d}", "burst", {}) for index in range(count))
    return state


def test_each_worker_has_a_call_before_any_has_two(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert feed(RayExecutor(), state_of(5), {1: True, 2: True}, store) == {1: [2, 1], 2: [2]}
    assert feed(RayExecutor(), state_of(50), {1: True, 2: True}, store) == {1: [2, 2], 2: [2, 2]}
    assert feed(RayExecutor(), state_of(50), {1: False, 2: True}, store) == {2: [2, 2]}


def test_the_last_units_are_left_to_workers_that_start(tmp_path: Path) -> None:
    executor, state = RayExecutor(), state_of(4)
    assert feed(executor, state, {1: True, 2: False, 3: False}, Store(tmp_path)) == {1: [2]}
    assert feed(executor, state, {2: True}, Store(tmp_path)) == {1: [2], 2: [2]}


def test_units_of_a_lost_worker_travel_alone_on_workers_without_other_calls(tmp_path: Path) -> None:
    store, executor, state = Store(tmp_path), RayExecutor(), state_of(20)
    assert [unit.key for unit in state.next_batch(9)] == ["0000", "0001"]
    state.worker_lost(9, "gone")
    assert feed(executor, state, {1: True}, store) == {1: [1]}
    assert feed(executor, state, {1: True}, store) == {1: [1]}  # nothing waits behind it
    assert feed(executor, state, {2: True}, store) == {1: [1], 2: [1]}
    assert feed(executor, state, {3: True}, store) == {1: [1], 2: [1], 3: [2, 2]}  # those that were on no lost worker
    assert state.in_flight["0000"] == 1
    assert state.in_flight["0001"] == 2


def test_without_units_ray_is_not_started(tmp_path: Path) -> None:
    executor = RayExecutor(num_workers=1)
    assert list(executor.map([], SHARED, Store(tmp_path))) == []
    executor.close()


def test_the_local_executor_lets_defects_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        list(LocalExecutor().map([odd_unit("is_defective")], SHARED, Store(tmp_path)))


# With Ray

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayExecutor]:
    """One Ray with three CPUs for this module, started as users start it; others join it in this process."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        patch.setenv("RAY_TMPDIR", folder)  # a short path: Ray's sockets stand there
        patch.delenv("RAY_ADDRESS", raising=False)
        with closing(RayExecutor(num_workers=3)) as executor:
            executor.start()
            yield executor


@pytest.fixture(params=[1, 2])
def executor(request: pytest.FixtureRequest, cluster: RayExecutor) -> Iterator[RayExecutor]:
    with closing(RayExecutor(num_workers=request.param)) as executor:
        yield executor


@pytest.fixture
def pair(cluster: RayExecutor) -> Iterator[RayExecutor]:
    with closing(RayExecutor(num_workers=2)) as executor:
        yield executor


@slow
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


@slow
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


@slow
def test_shared_inputs_are_put_once_and_read_only(pair: RayExecutor, tmp_path: Path, monkeypatch: Any) -> None:
    import ray

    num_puts = 0
    put = ray.put

    def counting(value: Any) -> Any:
        nonlocal num_puts
        num_puts += 1
        return put(value)

    monkeypatch.setattr(ray, "put", counting)
    run(pair, good_units(50), Store(tmp_path))
    run(pair, good_units(50), Store(tmp_path))
    assert num_puts == 1
    (outcome,) = run(pair, [odd_unit("writes_to_input")], Store(tmp_path)).values()
    assert outcome.error == "assignment destination is read-only"


@slow
def test_all_workers_get_work(pair: RayExecutor, tmp_path: Path) -> None:
    trace = tmp_path / "processes"
    trace.mkdir()
    run(pair, good_units(2), Store(tmp_path / "units"))  # both have started
    run(pair, good_units(8, trace=str(trace), seconds=0.05), Store(tmp_path / "units"))
    assert len(list(trace.iterdir())) == 2
    assert str(os.getpid()) not in [path.name for path in trace.iterdir()]


@slow
def test_workers_compute_with_one_thread(pair: RayExecutor, tmp_path: Path) -> None:
    store = Store(tmp_path)
    unit = odd_unit("environment")
    run(pair, [unit], store)
    found = store.read(unit.key)
    assert found is not None
    assert found["threads"].tolist() == [1, 1]


@slow
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


@slow
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


@slow
def test_a_unit_that_always_kills_its_worker_fails_alone(executor: RayExecutor, tmp_path: Path) -> None:
    killers = [odd_unit("kills_always", str(index), marker=str(tmp_path / f"kills {index}")) for index in range(2)]
    units = good_units(20)
    units[5:5] = killers
    store = Store(tmp_path / "units")
    found = run(executor, units, store)
    for index, killer in enumerate(killers):
        outcome = found.pop(killer.key)
        assert outcome.error == f"its worker died: ActorDiedError, SYSTEM_ERROR ({MAX_ATTEMPTS} times)"
        assert outcome.attempts == MAX_ATTEMPTS
        assert 1 <= len((tmp_path / f"kills {index}").read_bytes()) <= MAX_ATTEMPTS
    assert not any(outcome.error for outcome in found.values())  # those in the same call among them
    assert len(stored_bytes(store)) == 20


@slow
def test_errors_of_units_are_their_own(executor: RayExecutor, tmp_path: Path) -> None:
    refused, defective, unknown = odd_unit("refuses"), odd_unit("is_defective"), odd_unit("is_not_there")
    found = run(executor, [*good_units(5), refused, defective, unknown], Store(tmp_path))
    assert found[refused.key].error == "these parameters make no sense"
    assert found[defective.key].error.startswith("a unit of kind odd_units:is_defective failed with ZeroDivisionError")
    assert "odd_units.py:" in found[defective.key].error
    assert "AttributeError" in found[unknown.key].error
    assert sum(not outcome.error for outcome in found.values()) == 5
    assert len(stored_bytes(Store(tmp_path))) == 5


@slow
def test_a_unit_that_cannot_be_loaded_in_the_worker_fails(pair: RayExecutor, tmp_path: Path) -> None:
    class Unloadable:
        def __reduce__(self) -> Any:
            return (os.listdir, ("/there/is/no/such/folder",))

    found = run(pair, [odd_unit("doubled", offset=Unloadable())], Store(tmp_path))
    (outcome,) = found.values()
    assert outcome.error.startswith("the Ray worker failed: ")
    assert "FileNotFoundError" in outcome.error


@slow
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
    monkeypatch.setattr(ray_module, "_leave_token", lambda _store: ".token-of-another-machine")
    run(pair, units, remote)
    assert sorted(written) == sorted(unit.key for unit in units[:-1])  # by the driver
    assert stored_bytes(remote) == stored_bytes(local)


@slow
def test_an_abandoned_map_ends_what_it_started(cluster: RayExecutor, tmp_path: Path) -> None:
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


@slow
def test_more_workers_than_cpus_are_refused(cluster: RayExecutor, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="50 workers need as many CPUs; this Ray cluster has 3"):
        list(RayExecutor(num_workers=50).map(good_units(1), SHARED, Store(tmp_path)))


@slow
def test_workers_of_another_version_are_refused(
    pair: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ray_module._versions() | {"numpy": "0.1"}
    monkeypatch.setattr(ray_module, "_versions", lambda: here)
    with pytest.raises(UserError, match=r"they have numpy [\d.]+, here it is 0\.1\); install the same versions"):
        list(pair.map(good_units(1), SHARED, Store(tmp_path)))


@slow
def test_workers_that_cannot_load_manyscale_are_refused(
    pair: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere:
        def __init__(self) -> None:
            import no_such_module  # noqa: F401

        def greet(self) -> None: ...

    monkeypatch.setattr(ray_module, "Shard", Elsewhere)
    message = r"cannot be used \(ModuleNotFoundError: No module named 'no_such_module'\); install the same versions"
    with pytest.raises(UserError, match=message):
        list(pair.map(good_units(1), SHARED, Store(tmp_path)))


@slow
def test_workers_that_die_while_they_start_end_the_run(
    pair: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stillborn:
        def greet(self) -> None:
            os._exit(1)

    monkeypatch.setattr(ray_module, "Shard", Stillborn)
    with pytest.raises(RunError, match="3 Ray workers in a row died while they started"):
        list(pair.map(good_units(1), SHARED, Store(tmp_path)))


@slow
def test_a_cluster_without_free_cpus_is_not_waited_for_for_ever(
    cluster: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(RayExecutor(num_workers=3)) as first, closing(RayExecutor(num_workers=1)) as second:
        run(first, good_units(9), Store(tmp_path))
        monkeypatch.setattr(ray_module, "START_TIMEOUT_SECONDS", 2.0)
        with pytest.raises(RunError, match=r"no worker started within 2 s \(0 CPUs of the cluster are free\)"):
            list(second.map(good_units(1), SHARED, Store(tmp_path)))


_SESSION = """
import os, signal, sys, time
from contextlib import closing
from pathlib import Path
import numpy as np, psutil
sys.path.insert(0, sys.argv[1])
from manyscale.runner.execute.ray import RayExecutor
from manyscale.runner.execute.store import Store
from manyscale.runner.execute.units import WorkUnit

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
before = dict(os.environ)
store = Store(Path(sys.argv[2]))
def unit(index, seconds):
    parameters = {"offset": 0, "seconds": seconds}
    return WorkUnit(f"{index:032x}", "odd_units:doubled", parameters, {"values": "values"})
def children():
    return psutil.Process().children(recursive=True)
def is_worker(process):
    try:
        return process.name().startswith("ray::Shard")
    except psutil.NoSuchProcess:
        return False
joins = len(sys.argv) > 4
executor = RayExecutor(num_workers=2, address=sys.argv[4] if joins else None)
end = time.monotonic() + 60
try:
    with closing(executor):
        for outcome in executor.map([unit(1, 0), unit(2, 600)], {"values": np.arange(3)}, store):
            assert not outcome.error, outcome
            while not joins and sum(map(is_worker, children())) < 2:
                assert time.monotonic() < end  # the second worker may start later than the first ends
                time.sleep(0.05)
            print(*[process.pid for process in children()], flush=True)
            if sys.argv[3] == "interrupt":
                raise KeyboardInterrupt
except KeyboardInterrupt:
    assert psutil.Process().children() == [], psutil.Process().children()
    for name in ("RAY_CLIENT_MODE", "PYTHONBREAKPOINT"):  # Ray's own doing
        os.environ.pop(name, None)
        before.pop(name, None)
    assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
    sys.exit(130)
"""


@contextmanager
def running_session(tmp_path: Path, what: str, *more: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has a Ray of its own, or joins one, with a unit that takes ten minutes; killed in the end."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-c", _SESSION, str(Path(__file__).parent), str(tmp_path / "units"), what, *more]
    session = subprocess.Popen(
        command, env=inherited | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield session
    finally:
        session.kill()
        session.wait()
        assert session.stdout is not None
        session.stdout.close()


def processes_of(session: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that a session has started: Ray's own and two workers. Its output stays open: it may print more."""
    assert session.stdout is not None
    processes = [psutil.Process(int(word)) for word in session.stdout.readline().split()]
    assert len(processes) > 4
    return processes


def still_there(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return list(alive)


@slow
@pytest.mark.parametrize("what", ["interrupt", "SIGINT", "SIGTERM"])
def test_no_process_and_no_file_stays_behind(tmp_path: Path, what: str) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder,
        running_session(tmp_path, what, TMPDIR=folder) as session,
    ):
        processes = processes_of(session)
        if what != "interrupt":
            session.send_signal(getattr(signal, what))
        status = session.wait(60)
        assert status == 130 if what != "SIGTERM" else status != 0  # Ray's own handler ends it, not always alike
        assert still_there(processes, seconds=0.5) == []
        assert list(Path(folder).iterdir()) == []
        assert [path.name for path in (tmp_path / "units").iterdir()] == ["00"]  # the first result; no token


@slow
def test_workers_end_if_their_driver_is_killed(tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="t-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        running_session(tmp_path, "SIGKILL", TMPDIR=folder) as session,
    ):
        processes = processes_of(session)
        # Ray's agents of a node end too, but wait a minute and more for its head first.
        quick = [process for process in processes if not process.name().endswith("Agent")]
        assert len([process for process in quick if process.name().startswith("ray::Shard")]) == 2
        session.kill()
        session.wait(10)
        assert still_there(quick, seconds=30) == []


@slow
def test_a_running_cluster_is_joined_and_left_running(cluster: RayExecutor, tmp_path: Path) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    num_cpus = ray.cluster_resources()["CPU"]
    for number, name in enumerate((address, "auto")):
        environment = {key: os.environ[key] for key in ("RAY_TMPDIR", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
        with running_session(tmp_path / str(number), "interrupt", name, **environment) as session:
            printed, _ = session.communicate(timeout=60)
        # Nothing: the workers are the cluster's, not this process's.
        assert (session.returncode, printed.split()) == (130, [])
    assert ray.cluster_resources()["CPU"] == num_cpus
    end = time.monotonic() + 10
    while ray.available_resources().get("CPU") != num_cpus:  # its workers are gone
        assert time.monotonic() < end
        time.sleep(0.1)
