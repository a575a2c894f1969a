"""Processes that use Ray end with nothing left behind: no process, no file, no setting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from processes import still_there

from manyscale.runner.run.execute.ray import RayExecutor

pytestmark = pytest.mark.slow


_SESSION = """
import os, signal, sys, time
from contextlib import closing
from pathlib import Path
import numpy as np, psutil
sys.path.insert(0, sys.argv[1])
from manyscale.runner.run.execute.ray import RayExecutor
from manyscale.runner.run.store import Store
from manyscale.runner.predict.units import WorkUnit

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
before = dict(os.environ)
store = Store(Path(sys.argv[2]))
def unit(index, seconds):
    parameters = {"offset": 0, "seconds": seconds}
    return WorkUnit(f"{index:032x}", "odd_units:doubled", parameters, {"values": "values"})
def children():
    found = psutil.Process().children(recursive=True)
    return [process for process in found if not joins or process.name() != "sh"]  # which has last words
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
            assert not {"aiohttp", "opentelemetry"} & set(sys.modules), "what a dashboard needs is loaded"
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
        assert still_there(processes, seconds=0.5 if what != "SIGTERM" else 10) == []  # then nobody waits for them
        assert list(Path(folder).iterdir()) == []
        assert [path.name for path in (tmp_path / "units").iterdir()] == ["00"]  # the first result; no token


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


def test_a_running_cluster_is_joined_and_left_running(cluster: RayExecutor, tmp_path: Path) -> None:
    import ray
    from ray._private.services import find_gcs_addresses

    address = ray.get_runtime_context().gcs_address
    num_cpus = ray.cluster_resources()["CPU"]
    is_only = find_gcs_addresses() == {address}
    for number, name in enumerate((address, "auto") if is_only else (address,)):  # auto takes any of several
        environment = {key: os.environ[key] for key in ("RAY_TMPDIR", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
        with running_session(tmp_path / str(number), "interrupt", name, **environment) as session:
            printed, _ = session.communicate(timeout=60)
        # Nothing: the workers are the cluster's, not this process's.
        assert (session.returncode, printed.split()) == (130, []), printed
    assert ray.cluster_resources()["CPU"] == num_cpus
    end = time.monotonic() + 10
    while ray.available_resources().get("CPU") != num_cpus:  # its workers are gone
        assert time.monotonic() < end
        time.sleep(0.1)
