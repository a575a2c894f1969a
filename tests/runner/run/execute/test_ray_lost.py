"""What is told where Ray's processes have ended, or end this one: without Ray."""

from __future__ import annotations

import subprocess
import sys

import pytest

from manyscale.runner.errors import LostClusterError
from manyscale.runner.run.execute.ray_lost import told_if_lost


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
