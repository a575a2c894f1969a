"""A process that one of its threads ends takes the run's last step, and tells in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import threading
from manyscale.runner.run.execute.ending import end_process, last_step
def fails():
    raise ValueError('the store\\nis gone')
with last_step(%s):
    threading.Thread(target=end_process, args=('the head\\nis gone',)).start()
    threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("lambda: 'manyscale run --resume -o out'", ", then: manyscale run --resume -o out"),
        ("fails", "; the store is gone"),
    ],
)
def test_the_process_ends_with_the_last_step_of_the_run_even_where_it_fails(step: str, told: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM % step], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"manyscale: the head is gone{told}\n"
