"""Kernels that are compiled once somebody wants them: before or after their callers, in one process and from files."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import forked
import pytest

pytestmark = pytest.mark.contract

KERNELS = """
from manyscale.models.kernels import allocation_free, by_reference, seldom

@seldom(gives="int")
def squares_below(number, offset):
    total = offset
    for each in range(number):
        total += each * each
    return total

@seldom(gives="nothing")
def put(numbers, k, value):
    numbers[k] = value

@allocation_free
def of_all(numbers, asks):
    if asks:
        for k in range(numbers.shape[0]):
            put(numbers, k, squares_below(numbers[k], 1))
    return numbers.sum()
"""
SCRIPT = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import own_kernels
from own_kernels import of_all, put, squares_below

def want_and_ask(_):
    put.want(), squares_below.want()
    return of_all(np.array([3, 4]), True)

for step in sys.argv[1:]:
    if step == "want":
        put.want(), squares_below.want()
    elif step == "threads":
        print(*ThreadPoolExecutor(4).map(want_and_ask, range(4)))
    else:
        print(of_all(np.array([3, 4]), step == "ask"), end=" ")
"""
UNASKED = 3 + 4
ASKED = (1 + 0 + 1 + 4) + (1 + 0 + 1 + 4 + 9)


def run(folder: Path, *steps: str) -> subprocess.CompletedProcess[str]:
    return forked.run(SCRIPT, *steps, folder=folder, kernels=folder / "kernels")


def files(folder: Path) -> set[str]:
    return {path.name.split("-")[0] for path in (folder / "kernels").rglob("*.nbc")}


def test_what_nobody_wants_is_not_compiled(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    assert run(tmp_path, "skip").stdout.split() == [str(UNASKED)]
    assert files(tmp_path) == {"own_kernels.of_all"}
    for steps in (("skip", "want", "ask"), ("want", "ask")):  # the caller comes from its file
        assert run(tmp_path, *steps).stdout.split()[-1] == str(ASKED)
    assert files(tmp_path) == {"own_kernels.of_all", "own_kernels.put", "own_kernels.squares_below"}


def test_wanted_before_its_caller_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    assert run(tmp_path, "want", "ask").stdout.split() == [str(ASKED)]


def test_wanted_by_several_threads_at_a_time(tmp_path: Path) -> None:
    """None goes on before what it wants is compiled, whoever compiles it."""
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    for first in ((), ("skip",)):  # the caller is compiled then, or was before
        assert run(tmp_path, *first, "threads").stdout.split()[len(first) :] == [str(ASKED)] * 4


def test_a_call_of_what_nobody_wants_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    assert run(tmp_path, "ask").returncode == -signal.SIGABRT
