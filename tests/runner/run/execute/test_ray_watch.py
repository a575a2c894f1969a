"""A head that vanishes is told, the run's last step is taken, and the process ends."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest

from manyscale.runner.run.execute import ending
from manyscale.runner.run.execute.ray_watch import MOST_MISSED, HeadWatch

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

    watch = HeadWatch(head.address, lost, 0.1)
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
    watch = HeadWatch(head.address, told.append, 0.1)
    assert head.was_asked.wait(30)
    watch.close()
    head.close()
    assert told == []


def test_the_process_ends_with_the_last_step_of_the_run() -> None:
    program = (
        "import threading\n"
        "from manyscale.runner.run.execute.ending import end_process, last_step\n"
        "with last_step(lambda: 'manyscale run --resume -o out'):\n"
        "    threading.Thread(target=end_process, args=('the head\\nis gone',)).start()\n"
        "    threading.Event().wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "manyscale: the head is gone, then: manyscale run --resume -o out\n"
    assert ending._last_steps == []
