"""One process at a time writes a run: on this machine by locks, at an address by claims that all machines see."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, Lock

import pytest

from manyscale.runner.errors import UserError
from manyscale.runner.storage import lease, publishing
from manyscale.runner.storage.address import located
from manyscale.runner.storage.lease import Lease
from manyscale.runner.storage.remote import remote

RANKS = {0: ["init", "compute 1e6", "send 1 0 8 6", "finalize"], 1: ["init", "recv 0 0 8 6", "finalize"]}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.002)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The folder that is the storage."""
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


@pytest.fixture
def of(tmp_path: Path, there: Path) -> Callable[[str], Lease]:
    """The lease of a machine."""

    def make(machine: str) -> Lease:
        (tmp_path / machine).mkdir(exist_ok=True)
        return Lease(remote(f"file://{there}"), tmp_path / machine)

    return make


def claims(there: Path) -> list[str]:
    return [path.name for path in there.iterdir() if path.name.startswith(lease.CLAIM)]


def test_the_second_machine_is_refused_and_the_first_is_left_alone(
    on: Callable, refused: Callable, tmp_path: Path, write_trace: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(RANKS, "trace")
    address, there = f"file://{tmp_path}/bucket/run", tmp_path / "bucket" / "run"
    command = ["run", "--workload", "trace", "--target", "crossbar256", "-o", address, "--no-report"]
    assert on("one", *command).status == 0
    assert not claims(there)
    before = {path.name: path.stat().st_mtime_ns for path in there.iterdir()}
    with publishing.published(located(address)):
        second = on("two", *command, "--resume")
        refused(second, f"{address}: another process writes there (", f", process {os.getpid()}); wait until")
        assert {path.name: path.stat().st_mtime_ns for path in there.iterdir() if path.name in before} == before
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    assert on("two", *command, "--resume").status == 0


@pytest.mark.parametrize("old", [True, False])
def test_a_dead_holder_does_not_block(
    of: Callable, there: Path, old: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """One that was heard of an hour ago at once, another when it has kept silent for so long, here for ten looks."""
    left = there / f"{lease.CLAIM}of-another-machine"
    left.write_bytes(b"node7, process 12")
    looks = iter(range(10))

    def grow_old(_seconds: float = 0.0) -> None:
        if next(looks, None) is None:
            os.utime(left, ns=(time.time_ns() - 3600 * 10**9,) * 2)

    monkeypatch.setattr(time, "sleep", grow_old)
    if old:
        looks = iter(())
        grow_old()
    mine = of("one")
    mine.take()
    assert claims(there) == [mine._name]
    assert ("node7, process 12 may write there;" in capsys.readouterr().err) is not old
    mine.leave()
    assert not list(there.iterdir())


def test_what_was_killed_here_is_not_waited_for(of: Callable, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had the lock of this machine's copy, which now has whoever asks."""
    monkeypatch.setattr(time, "sleep", lambda _seconds: pytest.fail("it is waited"))
    killed, again = of("one"), of("one")
    (there / killed._name).touch()
    again.take()
    again.leave()


def test_of_many_that_begin_at_once_one_writes(of: Callable) -> None:
    number, most, now, writing, begin = 6, 0, 0, Lock(), Barrier(6)
    refusals: list[str] = []
    ended = Event()

    def compete(machine: str) -> None:
        nonlocal most, now
        mine = of(machine)
        begin.wait()
        try:
            mine.take()
        except UserError as error:
            refusals.append(str(error))
            if len(refusals) == number - 1:
                ended.set()
            return
        with writing:
            now += 1
            most = max(most, now)
        assert ended.wait(60), "the others are refused while it writes"
        with writing:
            now -= 1
        mine.leave()

    with ThreadPoolExecutor(number) as threads:
        for each in [threads.submit(compete, f"machine{index}") for index in range(number)]:
            each.result()
    assert (most, len(refusals)) == (1, number - 1)


def lose(there: Path) -> None:
    """Another machine takes what this process holds, as if this one had been stopped."""
    thread = next(each for each in threading.enumerate() if each.name == "lease")
    while thread.is_alive():  # it may be about to put its claim again
        for claim in claims(there):
            (there / claim).unlink(missing_ok=True)
        thread.join(0.001)
    (there / f"{lease.CLAIM}of-another-machine").touch()


def test_who_lost_it_publishes_nothing_more(tmp_path: Path, private_cache: Path) -> None:
    copy, there = located(f"file://{tmp_path}/bucket/run"), tmp_path / "bucket" / "run"
    copy.mkdir(parents=True)

    def write_while_it_is_taken() -> None:
        with publishing.published(copy):
            (copy / "manifest.json").write_text('{"status": "complete"}')
            lose(there)

    with pytest.raises(UserError, match="another may have taken over; nothing more is written there"):
        write_while_it_is_taken()
    assert not (there / "manifest.json").exists()
    assert len(claims(there)) == 1


@pytest.mark.parametrize("is_driver", [True, False], ids=["driver", "worker"])
def test_points_are_published_only_while_it_is_held(
    tmp_path: Path, private_cache: Path, is_driver: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a worker, too, which knows of its driver's claim by name alone."""
    copy, there = located(f"file://{tmp_path}/bucket/run"), tmp_path / "bucket" / "run"
    for point in ("0000", "0001"):
        (copy / "points" / point).mkdir(parents=True)
        (copy / "points" / point / "stats.json").write_text("{}")

    def write_while_it_is_taken() -> None:
        with publishing.published(copy) as claim, monkeypatch.context() as patch:
            if not is_driver:
                patch.setattr(publishing, "_leases", {})
            publishing.publish_point(copy / "points" / "0000", claim)
            lose(there)
            publishing.publish_point(copy / "points" / "0001", claim)

    who = "this process" if is_driver else "the process that writes the run"
    with pytest.raises(UserError, match=f"nothing was heard of {who} for 30 s, and another may have taken over"):
        write_while_it_is_taken()
    assert [path.name for path in (there / "points").iterdir()] == ["0000"]


def test_a_sweep_ends_with_one_line_where_it_is_lost(
    on: Callable, refused: Callable, tmp_path: Path, write_trace: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(RANKS, "trace")
    (tmp_path / "study.yaml").write_text("workload: {path: trace}\ntarget: crossbar256\nsweep: {cpu_ratio: [1, 2]}\n")
    address, there = f"file://{tmp_path}/bucket/run", tmp_path / "bucket" / "run"
    publish = publishing.publish_point

    def lost_before_the_second(folder: Path, claim: str) -> None:
        if folder.name == "0001" and claim in claims(there):
            lose(there)
        publish(folder, claim)

    monkeypatch.setattr(publishing, "publish_point", lost_before_the_second)
    refused(on("one", "run", "study.yaml", "-o", address, "--no-report"), f"{address}: nothing was heard of this")
    assert [path.name for path in (there / "points").iterdir()] == ["0000"]


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch, there: Path) -> Callable[[Lease, Lease], None]:
    """The process of the first is stopped for an hour, in which the second takes over."""
    hours = [0]
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600 * hours[0])

    def stopped(first: Lease, second: Lease) -> None:
        hours[0] += 1
        (there / first._name).unlink()
        (there / second._name).write_bytes(b"node7, process 12")

    return stopped


def test_who_was_stopped_asks_before_it_writes(of: Callable, there: Path, stop: Callable) -> None:
    mine, other = of("one"), of("two")
    (there / mine._name).touch()
    mine.check()
    stop(mine, other)
    with pytest.raises(UserError, match="another may have taken over"):
        mine.check()


def test_who_was_stopped_while_it_put_its_claim_again_has_lost_it(
    of: Callable, there: Path, stop: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = of("one"), of("two")
    (there / mine._name).touch()
    put = mine._target.put

    def put_late(name: str, content: bytes) -> None:
        stop(mine, other)
        put(name, content)

    monkeypatch.setattr(mine._target, "put", put_late)
    mine._renew_once()
    with pytest.raises(UserError, match="another may have taken over"):
        mine.check()
    assert claims(there) == [other._name]


def test_two_processes_do_not_write_one_folder(
    cli: Callable, refused: Callable, write_trace: Callable, tmp_path: Path
) -> None:
    write_trace(RANKS, "trace")
    command = ["run", "--workload", "trace", "--target", "crossbar256", "-o", "out", "--no-report"]
    assert cli(*command).status == 0
    before = (tmp_path / "out" / "manifest.json").read_bytes()
    with publishing.published(Path("out")):
        refused(cli(*command, "--resume"), "out: another process writes there; wait, or name another folder with -o")
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before
    assert cli(*command, "--resume").status == 0


def test_without_locks_one_line_says_so(
    cli: Callable, refused: Callable, write_trace: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_trace(RANKS, "trace")
    command = ["run", "--workload", "trace", "--target", "crossbar256", "--no-report"]

    def has_none(_file: object, _what: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", has_none)
    for more in ([], ["--resume"]):
        told = cli(*command, "-o", "out", *more)
        assert told.status == 0
        assert "out: its file system has no locks of folders (No locks available); see that no other" in told.err
    refused(cli(*command, "-o", f"file://{tmp_path}/bucket"), "has no locks (No locks available)", "XDG_CACHE_HOME")
