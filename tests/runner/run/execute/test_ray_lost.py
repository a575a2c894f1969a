"""What is told where Ray's processes have ended, or end this one, and of a head that vanishes: without Ray."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from manyscale.runner.errors import LostClusterError, UserError
from manyscale.runner.run.execute import ray_lost
from manyscale.runner.run.execute.ray_lost import MOST_MISSED, HeadWatch, told_if_lost


@pytest.mark.parametrize("words", ["Broken pipe", "Connection reset by peer"])
def test_ray_s_errors_without_a_number_say_that_the_cluster_is_lost(words: str) -> None:
    with pytest.raises(LostClusterError, match=f"here:1: .*{words}.*is kept"), told_if_lost("here:1"):
        raise OSError(words)


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), OSError("AWS Error ACCESS_DENIED")])
def test_errors_of_files_and_stores_are_left_as_they_are(error: OSError) -> None:
    with pytest.raises(OSError) as caught, told_if_lost("here:1"):
        raise error
    assert caught.value is error


SESSION = """
import os, sys
from manyscale.runner.run.execute.ray_lost import LastWords
words = LastWords("here:1")
if sys.argv[1] == "close":
    words.take_back()
os._exit(7)
"""


@pytest.mark.parametrize(("how", "said"), [("close", 0), ("die", 1)])
def test_a_process_that_ray_ends_leaves_last_words(how: str, said: int) -> None:
    done = subprocess.run([sys.executable, "-c", SESSION, how], capture_output=True, text=True, timeout=60)
    assert done.returncode == 7
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == said
    assert all(line.startswith("manyscale: here:1: ") and line.endswith("with --resume") for line in lines)


SETTINGS = bytes.fromhex("000000040000000000")  # RFC 9113, 4.1: length 0, type 4, no flags, stream 0


class Head:
    """Answers as a Ray head does until it is closed; counts how often it was asked."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.num_asked = 0
        self.was_asked = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._server.accept()
            with connection:
                if connection.recv(100) == b"":
                    return
                connection.sendall(SETTINGS)
            self.num_asked += 1
            if self.num_asked > MOST_MISSED:
                self.was_asked.set()

    def close(self) -> None:
        with socket.create_connection(("127.0.0.1", self._server.getsockname()[1])):
            pass  # it says nothing: the server ends
        self._thread.join(10)
        self._server.close()


@pytest.fixture
def head() -> Head:
    return Head()


def test_a_lost_head_is_told_once_and_a_living_one_is_not(head: Head) -> None:
    told: list[str] = []
    was_told = threading.Event()

    def lost(text: str) -> None:
        told.append(text)
        was_told.set()

    watch = HeadWatch(head.address, lost, 0.05)
    assert head.was_asked.wait(30)
    assert told == []
    head.close()
    assert was_told.wait(30)
    watch.close()
    assert [text.partition(";")[0] for text in told] == [
        f"{head.address}: the head of the Ray cluster does not answer any more"
    ]


def test_nothing_is_told_of_a_head_that_is_left(head: Head) -> None:
    told: list[str] = []
    watch = HeadWatch(head.address, told.append, 0.05)
    assert head.was_asked.wait(30)
    watch.close()
    head.close()
    assert told == []


@pytest.mark.parametrize(
    ("missed", "seconds", "is_lost"), [(15, 0.0, False), (16, 0.0, True), (7, 3.0, False), (8, 3.0, True)]
)
def test_a_head_that_is_started_again_is_waited_for(
    missed: int, seconds: float, is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 s of refusals, which come at once, or of silence for 3 s; 3 s lie between checks. Ray gives up after 60 s."""
    told: list[str] = []
    now = 0.0
    checks = iter(range(missed))

    def check(_address: str, _seconds: float) -> None:
        nonlocal now
        if next(checks, None) is None:
            watch._is_over.set()
            return
        now += seconds
        raise UserError("does not answer")

    class NoWait(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return self.is_set()

    monkeypatch.setattr(ray_lost, "check_reachable", check)
    monkeypatch.setattr(ray_lost, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(threading.Thread, "start", lambda _thread: None)
    watch = HeadWatch("here:1", told.append, 3.0)
    watch._is_over = NoWait()
    watch._watch()
    assert bool(told) is is_lost
